"""The acts of the story, one module each."""
