"""Small values by namespace and key."""
