"""Idempotency keys: the same key with the same content gives the first answer again, for a day."""
