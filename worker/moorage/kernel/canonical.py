"""One strict way into JSON and one canonical way out of it (clause kernel.canonical-json).

`loads` is the only JSON parser that client bytes meet; `dumps` is the only text that is stored, hashed and compared
(RFC 8785). What `loads` accepts, `dumps` writes with the same value.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from typing import Any

import pydantic_core
import rfc8785

from moorage.kernel.errors import JsonInvalid, PayloadTooLarge
from moorage.kernel.limits import JSON_DEPTH, JSON_VALUES

type_names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}

_EXACT = 2**53 - 1
_DOUBLE_DIGITS = 17
_LONG_NUMBER_CHARACTERS = 400
_GLANCE_BYTES = 65_536
# A string, or what is left of one that never ends; possessive, so that no text takes more than one pass.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_PLAIN_DEPTH = 32
_WIDE = re.compile(r"[0-9]{16}")
_CANONICAL = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def loads(raw: bytes) -> Any:
    """Parse one JSON text in UTF-8.

    Integers up to 2^53 - 1 are `int`, every other number is `float`. Raises JsonInvalid when the bytes are not UTF-8 or
    not JSON, when an object has a key twice, a string holds a lone surrogate, a number cannot be kept (a decimal that a
    double would round: 9007199254740993, 1e400, 1e-400), or the nesting passes JSON_DEPTH. -0 is 0. Raises PayloadTooLarge
    past JSON_VALUES.
    """
    _check_count(raw)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonInvalid(f"not UTF-8 at byte {error.start}") from None
    _check_depth_safely(raw)
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise JsonInvalid(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    if _SURROGATE_ESCAPE.search(text):
        _refuse_lone_surrogates(value)
    if depth(value) > JSON_DEPTH:
        raise JsonInvalid(f"nested deeper than {JSON_DEPTH} levels")
    return value


def dumps(value: Any) -> str:
    """The RFC 8785 text of a value that `loads` could have given.

    Raises JsonInvalid for what has no canonical form (NaN, an integer past 2^53 - 1, a lone surrogate, a non-text key).
    """
    if _is_plain(value):
        return _CANONICAL.encode(value)
    try:
        return rfc8785.dumps(value).decode("utf-8")
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise JsonInvalid(f"has no canonical JSON: {error}") from None


def stored(text: str) -> Any:
    """The value of a text that `dumps` wrote, as `loads` gave it: integers past 2^53 - 1 are `float`.

    Not for client bytes: it looks for nothing that `dumps` cannot have written, and what was put together of several such
    texts may be nested a little deeper than what is taken in.
    """
    return json.loads(text, parse_int=_whole) if _WIDE.search(text) else json.loads(text)


def check_bounds(text: str) -> None:
    """Refuse to store what could not be taken in: raises JsonInvalid past JSON_DEPTH, PayloadTooLarge past JSON_VALUES."""
    if text.count("[") + text.count("{") > JSON_DEPTH or text.count(",") > JSON_VALUES:
        raw = text.encode("utf-8")
        _check_count(raw)
        _check_depth_safely(raw)
        if depth(json.loads(text)) > JSON_DEPTH:
            raise JsonInvalid(f"nested deeper than {JSON_DEPTH} levels")


def compact(value: Any) -> str:
    """Compact JSON text that is not canonical, but quick: for parameters and answers, never for what is hashed or kept."""
    return _COMPACT.encode(value)


def digest(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes, in lower-case hex."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def depth(value: Any) -> int:
    """How many arrays and objects are inside one another: 0 for a scalar, 1 for `{}`."""
    level, layer = 0, [value]
    while layer := [item for item in layer if isinstance(item, (dict, list))]:
        level += 1
        layer = [child for item in layer for child in _children(item)]
    return level


def size(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text.encode("utf-8"))


def type_name(value: Any) -> str:
    """The JSON name of a value's type: null, boolean, number, string, array or object."""
    return type_names.get(type(value), "null")


def _children(item: Mapping[str, Any] | list[Any]) -> Iterable[Any]:
    return item.values() if isinstance(item, dict) else item


def _is_plain(value: Any, level: int = 0) -> bool:
    """Whether the quick encoder writes the same as RFC 8785: without fractions there is no form of numbers to choose, and
    in ASCII the order of keys is the same by whatever unit."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii())
    if kind is int:
        return bool(-_EXACT <= value <= _EXACT)
    if kind is dict:
        return level < _PLAIN_DEPTH and all(
            type(key) is str and key.isascii() and _is_plain(item, level + 1) for key, item in value.items()
        )
    if kind is list:
        return level < _PLAIN_DEPTH and all(_is_plain(item, level + 1) for item in value)
    return value is None or kind is bool


def _check_count(raw: bytes) -> None:
    """Each value costs far more than its bytes, in memory and in time that every other request of the isolate waits.

    A value follows a comma or opens an array or object, the first of each aside.
    """
    if _openings(raw) > JSON_VALUES and _openings(_STRING.sub(b"", raw)) > JSON_VALUES:
        _check_depth_safely(raw[:_GLANCE_BYTES], partial=True)
        raise PayloadTooLarge(f"more than {JSON_VALUES} commas and brackets in one JSON text", limit=int(JSON_VALUES))


def _openings(raw: bytes) -> int:
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _check_depth_safely(raw: bytes, *, partial: bool = False) -> None:
    """The platform's own parser dies of deep nesting, and takes the isolate with it; this one refuses safely."""
    try:
        pydantic_core.from_json(raw, allow_partial=partial)
    except ValueError as error:
        message = str(error)
        if "recursion limit" in message:
            raise JsonInvalid(f"nested deeper than {JSON_DEPTH} levels") from None
        if not partial:
            raise JsonInvalid(f"not JSON: {message}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise JsonInvalid(f"the key {twice[:100]!r} stands twice in one object")
    return found


def _number(literal: str) -> int | float:
    if len(literal) < 16 and literal.lstrip("-").isdigit():
        return int(literal)
    if len(literal) > _LONG_NUMBER_CHARACTERS:
        raise JsonInvalid("a number has too many digits to be kept exactly")
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise JsonInvalid(f"the number {literal[:40]} is out of range")
    if value == 0 and not Decimal(literal):
        return 0
    if repr(value) != literal and not _is_kept(Decimal(literal), value):
        raise JsonInvalid(f"the number {literal[:40]} cannot be kept exactly; send it as a string")
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


def _is_kept(written: Decimal, value: float) -> bool:
    """Whether a double stands for the decimal that was written.

    It does when the decimal is its shortest form, the one that `dumps` writes. A fraction may also be written with more
    digits than that, as printers of 16 or 17 digits do, if those are the double's own digits: 0.10000000000000001.
    """
    if written == Decimal(repr(value)):
        return True
    digits = len(written.as_tuple().digits)
    if value.is_integer() or digits > _DOUBLE_DIGITS:
        return False
    return Context(prec=digits).create_decimal_from_float(value) == written


def _whole(literal: str) -> int | float:
    value = int(literal)
    return value if -_EXACT <= value <= _EXACT else float(literal)


def _constant(literal: str) -> Any:
    raise JsonInvalid(f"{literal} is not JSON")


def _refuse_lone_surrogates(value: Any) -> None:
    layer = [value]
    while layer:
        item = layer.pop()
        if isinstance(item, str):
            try:
                item.encode("utf-8")
            except UnicodeEncodeError:
                raise JsonInvalid("a string holds a lone surrogate") from None
        elif isinstance(item, dict):
            layer.extend(item.keys())
            layer.extend(item.values())
        elif isinstance(item, list):
            layer.extend(item)
