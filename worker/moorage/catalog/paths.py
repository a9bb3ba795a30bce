"""Declared paths: the only places inside a body that a pattern may look at, and how their values are kept for it.

A kind gives each declared path one of sixteen *slots*, columns s1 to s16 of `records`. A path is walked here, in
Python, at publish; SQL sees slot numbers and encoded values, never a path (clause records.pattern-safe).

A slot's value, in the column's own order:

    NULL            the path is missing
    a number        a JSON number
    a<elements>     an array: the canonical JSON of its encoded elements, each a text (a number is d<canonical number>)
    b0, b1          false, true
    i<instant>      an instant in UTC with nine digits of fraction, so that text order is time order
    n               an explicit null
    o<canonical>    an object
    s<text>         a string, so that text order is code point order

No encoded text holds a NUL, at which SQLite's JSON functions may stop reading; `_without_nul` says how.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, get_args

from moorage.kernel import canonical, instants
from moorage.kernel.errors import BodyInvalid, JsonInvalid, MoorageError, RequestInvalid
from moorage.kernel.limits import KIND_PATHS, PATH_BYTES, PATH_SEGMENTS, PATH_VALUE_BYTES

PathType = Literal["string", "number", "boolean", "instant", "string[]", "number[]", "boolean[]", "instant[]", "any"]
PATH_TYPES: Final[tuple[PathType, ...]] = get_args(PathType)
Encoded = str | int | float

_RESERVED = re.compile(r"\$[A-Za-z]")
_EXACT = 2**53 - 1


class Missing(Enum):
    """The type of MISSING, which no JSON value equals."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


@dataclass(frozen=True)
class DeclaredPath:
    """A path of a kind: its text, the keys it is made of, the type of its values and its slot, 1 to 16."""

    text: str
    segments: tuple[str, ...]
    type: PathType
    slot: int

    @property
    def element(self) -> PathType | None:
        """What an array at this path holds; None where an array cannot stand."""
        if self.type == "any":
            return "any"
        return _ELEMENTS.get(self.type)


_ELEMENTS: Final[Mapping[PathType, PathType]] = {
    "string[]": "string",
    "number[]": "number",
    "boolean[]": "boolean",
    "instant[]": "instant",
}


def parse_path(text: str) -> tuple[str, ...]:
    r"""The keys of a dotted path: `repository.private` is ("repository", "private").

    `\.` is a dot inside a key and `\\` a backslash; a path that begins with a dollar and a letter would look like an
    operator and is written `\$ref`. Everything else stands for itself, and the empty path is the key "". So a sequence
    of keys has exactly one text. Raises RequestInvalid naming the path when a backslash stands before anything else, or
    when the path passes PATH_BYTES or PATH_SEGMENTS.
    """
    try:
        length = canonical.size(text)
    except UnicodeEncodeError:
        raise RequestInvalid(f"path {shown(text)} holds a lone surrogate") from None
    if length > PATH_BYTES:
        raise RequestInvalid(f"path {shown(text)} is longer than {PATH_BYTES} bytes")
    if _RESERVED.match(text):
        raise RequestInvalid(f"path {shown(text)} begins like an operator; write \\$ for a leading dollar")
    segments = tuple(_segments(text))
    if len(segments) > PATH_SEGMENTS:
        raise RequestInvalid(f"path {shown(text)} has more than {PATH_SEGMENTS} segments")
    return segments


def _segments(text: str) -> Iterable[str]:
    key: list[str] = []
    characters = iter(range(len(text)))
    for at in characters:
        char = text[at]
        if char == ".":
            yield "".join(key)
            key = []
            continue
        if char == "\\":
            follower = text[at + 1 : at + 2]
            if follower not in (".", "\\") and not (at == 0 and _RESERVED.match(text, 1)):
                raise RequestInvalid(f"path {shown(text)} has a backslash that escapes neither a dot nor a backslash")
            char = follower
            next(characters)
        key.append(char)
    yield "".join(key)


def declare(types: Mapping[str, PathType], before: Mapping[str, DeclaredPath] | None = None) -> dict[str, DeclaredPath]:
    """Give every path a slot; those in `before` keep theirs.

    Raises RequestInvalid past KIND_PATHS, or naming a path that is not one.
    """
    kept = dict(before or {})
    if len(kept.keys() | types.keys()) > KIND_PATHS:
        raise RequestInvalid(f"a kind declares at most {KIND_PATHS} paths")
    free = iter(sorted(set(range(1, KIND_PATHS + 1)) - {path.slot for path in kept.values()}))
    for text, path_type in types.items():
        if text not in kept:
            kept[text] = DeclaredPath(text, parse_path(text), path_type, next(free))
    return kept


def extract(body: Any, segments: Sequence[str]) -> Any:
    """The value at a path, or MISSING. Only objects are walked: no path looks into an array."""
    value = body
    for key in segments:
        if not isinstance(value, dict) or key not in value:
            return MISSING
        value = value[key]
    return value


def fits(value: Any, path_type: PathType) -> bool:
    """Whether a value is of a declared type. null is of every type; an array's elements may be null too."""
    if value is None or path_type == "any":
        return True
    if path_type in _ELEMENTS:
        element = _ELEMENTS[path_type]
        return isinstance(value, list) and all(fits(item, element) for item in value)
    if path_type == "boolean":
        return isinstance(value, bool)
    if path_type == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, str) and (path_type == "string" or _is_instant(value))


def _is_instant(text: str) -> bool:
    try:
        instants.normalize(text)
    except RequestInvalid:
        return False
    return True


def encode_value(value: Any, path_type: PathType) -> Encoded:
    """A value as its slot keeps it; equal values of one type, and only those, have equal encodings.

    The value must fit the type. Raises JsonInvalid for a number that JSON cannot hold.
    """
    if isinstance(value, list):
        element = _ELEMENTS.get(path_type, "any")
        return "a" + canonical.dumps([encode_element(item, element) for item in value])
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _number(value)
    return _text(value, path_type)


def encode_element(value: Any, path_type: PathType) -> str:
    """An array's element. A number is text here too: SQL never has to read one out of JSON."""
    encoded = encode_value(value, path_type)
    return encoded if isinstance(encoded, str) else "d" + canonical.dumps(encoded)


def _text(value: Any, path_type: PathType) -> str:
    match value:
        case None:
            return "n"
        case bool():
            return "b1" if value else "b0"
        case str() if path_type in ("instant", "instant[]"):
            return "i" + instants.normalize(value)
        case str():
            return "s" + _without_nul(value)
        case _:
            return "o" + canonical.dumps(value)


def _number(value: float) -> int | float:
    if not math.isfinite(value) or (isinstance(value, int) and abs(value) > _EXACT):
        raise JsonInvalid("a number cannot be kept exactly")
    return int(value) if abs(value) <= _EXACT and value == int(value) else value


def _without_nul(text: str) -> str:
    """U+0000 as U+0001 U+0001 and U+0001 as U+0001 U+0002: still one text for each string, and in the same order."""
    if "\x00" not in text and "\x01" not in text:
        return text
    return text.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01")


def to_json(encoded: Iterable[Encoded | None]) -> str:
    """Encoded values as the text of one JSON parameter, from which SQLite reads exactly these values.

    Not canonical JSON: that writes the double 1e18 with the digits of an integer, and SQLite would read another number.
    """
    return json.dumps(list(encoded), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def slots(body: Mapping[str, Any], paths: Mapping[str, DeclaredPath]) -> list[Encoded | None]:
    """What the sixteen slots hold for a body; None where its path is missing or the slot is free.

    Undeclared fields are not looked at (clause records.undeclared). Raises BodyInvalid with one error for each path
    whose value is of another type than declared, is not an instant, or passes PATH_VALUE_BYTES.
    """
    found: list[Encoded | None] = [None] * KIND_PATHS
    errors: list[dict[str, str]] = []
    for path in paths.values():
        value = extract(body, path.segments)
        if value is MISSING:
            continue
        problem = _problem(value, path)
        if problem is None:
            found[path.slot - 1] = encode_value(value, path.type)
        else:
            errors.append({"pointer": pointer(path.segments), "message": problem})
    if errors:
        first = errors[0]
        raise BodyInvalid(f"the body at {shown(first['pointer'])} {first['message']}", errors=errors)
    return found


def _problem(value: Any, path: DeclaredPath) -> str | None:
    if not fits(value, path.type):
        return f"is declared {path.type} and holds {_holding(value, path)}"
    try:
        length = canonical.size(canonical.dumps(value))
    except MoorageError as error:
        return error.detail
    if length > PATH_VALUE_BYTES:
        return f"has {length} bytes; a value at a declared path has at most {PATH_VALUE_BYTES}"
    return None


def _holding(value: Any, path: DeclaredPath) -> str:
    if isinstance(value, str) and path.type == "instant":
        return "a string that is no RFC 3339 instant"
    if isinstance(value, list) and path.element is not None:
        return "an array with other elements"
    return canonical.type_name(value)


def pointer(segments: Iterable[str]) -> str:
    """The JSON pointer (RFC 6901) of a sequence of keys."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in segments)


def shown(text: str) -> str:
    """A client's text inside a message: quoted, escaped, and cut at 100 characters."""
    return repr(text if len(text) <= 100 else text[:100] + "…")
