"""Idempotency keys."""

import uuid


def fresh_key() -> str:
    """A key that nothing else uses."""
    return f"auto-{uuid.uuid4().hex}"
