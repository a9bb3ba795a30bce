"""Imports the Worker's entry module and calls its classes. JavaScript holds this module and nothing else of Python."""

import gc
import importlib
import inspect
from types import ModuleType
from typing import Any

from _edge import entropy, leftovers, report

_entry: ModuleType


class StoppedByWorker(RuntimeError):
    """The Worker's code tried to end the process it shares with every other request."""


def import_entry(name: str) -> str | None:
    """Import the entry module under the rules of start-up. Returns what is wrong with it on one line, or None."""
    from _cloudflare import import_patch_manager

    global _entry
    entropy.begin_import()
    import_patch_manager.install()
    try:
        importlib.import_module("_workers_sdk_patch_loader")
        _entry = importlib.import_module(name)
    except BaseException as error:  # SystemExit at import must not take the isolate either
        report.to_stderr(error)
        return report.one_line(error)
    return None


def forget_garbage() -> None:
    """Drop what only cycles keep alive, for instance the frames of an error that was caught."""
    gc.collect()


def describe_leftover(is_leftover: Any) -> str:
    """Say which attribute keeps a JavaScript object for which `is_leftover` is true, and why that is refused."""
    where = leftovers.where(is_leftover)
    return f"{where}; the platform deploys a memory snapshot of the imported Worker, which cannot hold it"


def begin_requests() -> None:
    """End start-up: randomness works again from here on."""
    from _cloudflare import import_patch_manager

    entropy.end_import()
    import_patch_manager.uninstall()


def public_methods(class_name: str) -> list[str]:
    """What can be called on the class over RPC."""
    cls = getattr(_entry, class_name)
    return [
        name
        for name, _ in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and name not in {"ctx", "env"}
    ]


def construct(class_name: str, ctx: Any, env: Any) -> Any:
    """Make an instance of one of the entry module's classes."""
    try:
        return getattr(_entry, class_name)(ctx, env)
    except Exception as error:
        report.log(error)
        raise


async def fetch(instance: Any, request: Any) -> Any:
    """Hand a request to a class; the answer is a JavaScript Response."""
    from workers import Request

    answer = await _run(instance.fetch, [Request(request)])
    return getattr(answer, "js_object", answer)


async def call(instance: Any, method: str, *args: Any) -> Any:
    """Call any other method. Arguments arrive as Python values and the result leaves as JavaScript, as over RPC."""
    from workers import python_from_rpc, python_to_rpc

    answer = await _run(getattr(instance, method), [python_from_rpc(arg) for arg in args])
    return python_to_rpc(answer)


async def _run(method: Any, args: list[Any]) -> Any:
    try:
        answer = method(*_fitting(method, args))
        return await answer if inspect.isawaitable(answer) else answer
    except (SystemExit, KeyboardInterrupt) as error:
        stopped = StoppedByWorker(f"{type(error).__name__} in a request")
        report.log(error)
        raise stopped from None
    except Exception as error:
        report.log(error)
        raise


def _fitting(method: Any, args: list[Any]) -> list[Any]:
    """As many arguments as the method takes: JavaScript callers may pass more, and the platform drops them."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS:
        return args
    bound = 1 if hasattr(method, "__self__") else 0
    return args[: code.co_argcount - bound]
