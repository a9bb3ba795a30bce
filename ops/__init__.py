"""The `moorage` command: set-up, the local edge, the demo, the checks, the bench and deployment."""
