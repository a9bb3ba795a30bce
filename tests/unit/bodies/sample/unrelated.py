"""What nobody imports."""
