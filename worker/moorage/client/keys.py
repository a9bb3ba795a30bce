"""Idempotency keys."""

import uuid


def fresh_key() -> str:
    """A key that nothing else uses."""
    return f"auto-{uuid.uuid4().hex}"


def key_or_fresh(key: str | None) -> str:
    """The key that was given, whatever it is, or a fresh one where none was."""
    return fresh_key() if key is None else key
