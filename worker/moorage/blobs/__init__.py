"""Which objects of the bucket are needed, by whom, and how the others go away."""
