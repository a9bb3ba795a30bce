"""The bodies that the demo's edge executes."""
