"""Lets listed packages have the few random bytes they need while they are imported."""

from collections.abc import Iterator
from contextlib import contextmanager

from _edge_host import allowEntropy, entropyAllowed


@contextmanager
def allow_bad_entropy_calls(calls: int) -> Iterator[None]:
    """Let the next `calls` requests for random bytes succeed within the block."""
    before = entropyAllowed()
    allowEntropy(calls)
    try:
        yield
    finally:
        allowEntropy(before)
