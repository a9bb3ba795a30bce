"""The live view of a run: what its host tells, folded and passed on to whoever watches. It holds no truth."""
