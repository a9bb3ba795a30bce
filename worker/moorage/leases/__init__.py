"""Leases: who may write under a key, and the fencing epoch that proves it."""
