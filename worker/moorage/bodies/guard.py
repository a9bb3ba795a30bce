"""Catching what a replay could not repeat in body code outside a step: clocks, chance, the network, branches of its own.

A few functions of the standard library are wrapped once, by `install`. A wrapper refuses only while body code of a run is
executing, outside every effect, and only when the caller is code of the body's own top-level package: a library that
stamps a log line is nobody's business. It cannot see everything. `datetime.now` cannot be wrapped and is looked for in the
body's source at registration instead; a name imported before `install` ran, a C extension, threads, a TaskGroup, the order
of a set, and helpers in other packages of yours go unseen (clause runs.effect-boundary).
"""

import ast
import asyncio
import inspect
import os
import random
import secrets
import sys
import textwrap
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

import httpx

from moorage.bodies.errors import EffectOutsideStep

WATCHED: Final[ContextVar["str | None"]] = ContextVar("moorage_watched", default=None)
"""The top-level package of the body whose code is executing now, outside every effect."""

_INSTEAD: Final = {
    "time": "run.now()",
    "random": "run.random()",
    "uuid": "run.uuid()",
    "secrets": "run.random() or run.uuid(), or draw it in a step",
    "os": "run.random(), or draw it in a step",
    "asyncio": "await run.sleep(seconds)",
    "urllib.request": "await run.fetch(...), or make the request in a step",
    "httpx": "await run.fetch(...), or make the request in a step",
}

_BRANCHES: Final = ("gather", "wait", "as_completed", "create_task", "ensure_future", "wait_for")
"""What makes branches that no join of a run knows of, and a deadline that nothing records."""

_JOINS: Final = "run.gather(...) for branches, or run.first(..., run.sleep(seconds)) for a time limit"

_WRAPPED: Final = (
    (time, ("time", "time_ns")),
    (random, ("random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform", "getrandbits")),
    (uuid, ("uuid1", "uuid4")),
    (secrets, ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "choice")),
    (os, ("urandom",)),
    (asyncio, ("sleep", *_BRANCHES)),
    (urllib.request, ("urlopen",)),
)

_CLOCKS: Final = {"now", "utcnow", "today"}


def install() -> None:
    """Wrap the functions, once in a process. Importing bodies goes through here (`Registry.of`)."""
    for module, names in _WRAPPED:
        for name in names:
            if not getattr(getattr(module, name), "__moorage__", False):
                setattr(module, name, _wrap(getattr(module, name), module.__name__, name))
    for client in (httpx.AsyncClient, httpx.Client):
        if not getattr(client.send, "__moorage__", False):
            client.send = _wrap(client.send, "httpx", client.__name__, anywhere=True)  # type: ignore[method-assign]


def _wrap(real: Callable[..., Any], module: str, name: str, *, anywhere: bool = False) -> Callable[..., Any]:
    def guarded(*arguments: Any, **named: Any) -> Any:
        package = WATCHED.get()
        if package is not None and (anywhere or _called_from(package)):
            for argument in arguments:
                _drop(argument)
            raise outside(f"{module}.{name}", _JOINS if name in _BRANCHES else _INSTEAD[module])
        return real(*arguments, **named)

    guarded.__name__ = guarded.__qualname__ = name
    guarded.__doc__ = real.__doc__
    guarded.__wrapped__ = real  # type: ignore[attr-defined]
    guarded.__moorage__ = True  # type: ignore[attr-defined]
    return guarded


def _drop(argument: Any) -> None:
    """Coroutines that will not run: without this Python warns that they were never awaited."""
    for one in argument if isinstance(argument, (list, tuple, set, frozenset)) else (argument,):
        if inspect.iscoroutine(one):
            one.close()


def _called_from(package: str) -> bool:
    caller: str = sys._getframe(2).f_globals.get("__name__", "")
    return caller == package or caller.startswith(f"{package}.")


def outside(what: str, instead: str) -> EffectOutsideStep:
    """The error for an effect in body code."""
    return EffectOutsideStep(f"{what} outside a step: a replay would get another answer. Use {instead}.")


def clock_reads(function: Callable[..., Any]) -> Iterator[tuple[int, str]]:
    """`datetime.now()` and its like in the function's own code, functions inside it aside: (line, call)."""
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return
    for node in ast.walk(_Own().visit(tree)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CLOCKS:
            owner = ast.unparse(node.func.value)
            if owner.rsplit(".", 1)[-1] in ("datetime", "date"):
                yield first + node.lineno - 1, f"{owner}.{node.func.attr}()"


class _Own(ast.NodeTransformer):
    """Leaves out functions inside the function: they may be the effects of steps."""

    def __init__(self) -> None:
        self._inside = False

    def _function(self, node: ast.AST) -> ast.AST | None:
        if self._inside:
            return None
        self._inside = True
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST | None:
        return self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST | None:
        return ast.copy_location(ast.Constant(None), node) if self._inside else node
