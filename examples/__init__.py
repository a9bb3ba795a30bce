"""Three worked bodies. `moorage up --bodies examples` registers them; docs/bodies.md explains what they do and why."""
