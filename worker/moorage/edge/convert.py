"""Between Python and JavaScript, for bindings that are called without the SDK's wrapper.

The wrapper converts each value and each row by itself; for a batch of a hundred statements that is ten times the cost
of the batch. Here a whole answer crosses as one JSON text.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import js
import pydantic_core
from pyodide.ffi import JsException, jsnull, to_js

from moorage.kernel.errors import StorageCapabilityMissing
from moorage.store.transaction import Scalar

EXACT = 2**53
"""Past this a JavaScript number is not an exact integer, so it is given back as a float."""


_LONG_NUMBER = re.compile(r"[0-9]{16}")


def raw(binding: Any, name: str) -> Any:
    """The platform's own object behind the SDK's wrapper, if there is one.

    Raises StorageCapabilityMissing when the deployment has no such binding.
    """
    if absent(binding):
        raise StorageCapabilityMissing(f"the deployment has no binding {name}")
    return getattr(binding, "_binding", binding)


def absent(value: Any) -> bool:
    """Whether JavaScript answered null or undefined. Truth would not do: an object of size 0 is false."""
    return value is None or value is jsnull


def header_bytes(value: str) -> bytes:
    """A header's value: the platform gives bytes as code points, as latin-1 does; anything else goes as UTF-8."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace")


def bound(values: Iterable[Scalar]) -> list[Any]:
    """Parameters as the database's `bind` takes them: doubles, since a large int would cross as a BigInt."""
    return [jsnull if value is None else float(value) if isinstance(value, int) else value for value in values]


def array(items: Iterable[Any]) -> Any:
    """A JavaScript array of JavaScript objects."""
    return to_js(list(items))


def options(values: Mapping[str, Any]) -> Any:
    """A plain JavaScript object."""
    return to_js(dict(values), dict_converter=js.Object.fromEntries)


def plain(value: Any) -> Any:
    """A JavaScript value that is data, as Python data; null is None."""
    text = js.JSON.stringify(value)
    if _LONG_NUMBER.search(text) is None:
        try:
            return pydantic_core.from_json(text)
        except ValueError:
            pass  # half a surrogate pair, which this quicker parser refuses
    return json.loads(text, parse_int=_number)


def message_of(error: JsException) -> str:
    """What the platform says of its error."""
    return str(getattr(error, "message", None) or error)


def _number(text: str) -> int | float:
    value = int(text)
    return value if abs(value) <= EXACT else float(text)
