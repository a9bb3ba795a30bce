"""Refuses randomness while the Worker's modules are imported.

The platform keeps one memory snapshot of the imported Worker, so anything random made then would be the same in every
isolate. It raises there; so does this, in plain words that name the call. Guards give way by themselves once requests
have begun, because `from random import choice` may have kept one.
"""

import functools
import os
import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

from _edge_host import entropyAllowed

_FROM_RANDOM = [name for name in random.__all__ if name[0].islower()]
_importing = False
_guarded: list[tuple[Any, str, Any]] = []


class EntropyAtImport(RuntimeError):
    """Something asked for randomness while a module was being imported."""

    def __init__(self, call: str) -> None:
        super().__init__(
            f"{call} was called while the Worker's modules were being imported; "
            "the platform refuses randomness there, so call it within a request"
        )


def _admit(call: str) -> None:
    # Only looked at here: it is the interpreter's own request for random bytes that uses the allowance up.
    if _importing and entropyAllowed() == 0:
        raise EntropyAtImport(call)


def guard(owner: Any, name: str) -> None:
    """Replace `owner.name` with a function that refuses until requests begin and then hands through."""
    original: Callable[..., Any] = getattr(owner, name)
    prefix = owner.__name__ if isinstance(owner, ModuleType) else f"random.{owner.__name__}"

    @functools.wraps(original)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        _admit(f"{prefix}.{name}()")
        return original(*args, **kwargs)

    _guarded.append((owner, name, original))
    setattr(owner, name, guarded)


def _guard_seed() -> None:
    original = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        # A given seed is no entropy; only the operating system's is.
        if a is None:
            _admit("random.Random()")
        original(self, a, version)

    _guarded.append((random.Random, "seed", original))
    random.Random.seed = seed  # type: ignore[method-assign]


def begin_import() -> None:
    """From here on every source of randomness raises EntropyAtImport."""
    global _importing
    _importing = True
    for name in _FROM_RANDOM:
        if name not in {"seed", "getstate", "setstate"}:
            guard(random, name)
    _guard_seed()
    # uuid and secrets draw from these two.
    guard(os, "urandom")
    guard(random, "_urandom")


def end_import() -> None:
    """Give everything back and seed `random` anew, whose state came out of the snapshot."""
    global _importing
    _importing = False
    while _guarded:
        owner, name, original = _guarded.pop()
        setattr(owner, name, original)
    random.seed()
