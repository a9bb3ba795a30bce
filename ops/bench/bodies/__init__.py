"""The bodies that `moorage bench --workflows` measures."""
