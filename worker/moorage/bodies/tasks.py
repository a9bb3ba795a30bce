"""Tasks and futures at no turn of the loop beyond their own.

Pyodide's loop counts what its own `create_task` and `create_future` have made, and each end of one costs it another turn,
which is a timer of the platform. A run has some fifty turns; these make a dozen fewer. Elsewhere they are the same.
"""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def begin(
    work: Coroutine[Any, Any, T], name: str | None = None, context: contextvars.Context | None = None
) -> "asyncio.Task[T]":
    """A task of the running loop."""
    return asyncio.Task(work, loop=asyncio.get_running_loop(), name=name, context=context)


def future() -> "asyncio.Future[None]":
    """A future of the running loop."""
    return asyncio.Future(loop=asyncio.get_running_loop())
