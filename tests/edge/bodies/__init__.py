"""Bodies for tests of runs on the real edge."""
