"""Names the place where importing the Worker left a JavaScript object, which no memory snapshot could hold."""

import sys
from collections.abc import Iterator
from types import CellType, FunctionType, ModuleType
from typing import Any

from pyodide.ffi import JsProxy

_DEPTH = 5
_PLATFORM = {
    "_cloudflare", "_cloudflare_compat_flags", "_edge", "_edge_host", "_pyodide", "_pyodide_entrypoint_helper", "js",
    "pyodide",
}  # fmt: skip


def where(is_leftover: Any) -> str:
    """The module and attribute that keep an object of which `is_leftover` is true, as `module.attribute`."""
    seen: set[int] = set()
    for name, module in sorted(sys.modules.items(), key=_own_modules_first):
        if name.split(".")[0] in _PLATFORM:
            continue
        for attribute, value in _attributes(module).items():
            found = _search(value, is_leftover, seen, _DEPTH)
            if found is not None:
                kind = getattr(getattr(found, "constructor", None), "name", None) or "object"
                return f"{name}.{attribute} keeps a JavaScript {kind}"
    return "something in the Worker keeps a JavaScript object"


def _own_modules_first(item: tuple[str, Any]) -> tuple[bool, str]:
    file = getattr(item[1], "__file__", None) or ""
    return (not file.startswith("/session/metadata/") or "/python_modules/" in file, item[0])


def _search(value: Any, is_leftover: Any, seen: set[int], depth: int) -> JsProxy | None:
    if isinstance(value, JsProxy):
        return value if is_leftover(value) else None
    if depth == 0 or id(value) in seen or isinstance(value, (str, bytes, int, float, ModuleType)):
        return None
    seen.add(id(value))
    for held in _held_by(value):
        found = _search(held, is_leftover, seen, depth - 1)
        if found is not None:
            return found
    return None


def _held_by(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from list(value.values())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from list(value)
    yield from list(_attributes(value).values())
    if isinstance(value, FunctionType):
        yield from (value.__defaults__ or (), value.__kwdefaults__ or {})
        yield from [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]


def _attributes(value: Any) -> dict[str, Any]:
    try:
        return dict(vars(value))
    except Exception:  # objects may answer any attribute, `__dict__` too, with an error of their own
        return {}
