"""A package of bodies, as a project would have one."""
