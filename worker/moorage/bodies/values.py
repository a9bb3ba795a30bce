"""Values between Python and the journal: what a body sees is always what was recorded, on the first run and on replay."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any, Final

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from moorage.journal.model import NO_INPUT, Value
from moorage.kernel import canonical
from moorage.kernel.errors import InputInvalid, JsonInvalid, MoorageError, PayloadTooLarge
from moorage.kernel.limits import JOURNAL_VALUE_BYTES

_KEPT_TEXT = 256
_EXACT = 2**53 - 1


class _Nothing:
    """The one value that stands for an argument that was not given."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = _Nothing()


class Unrecordable(Exception):
    """The value cannot be recorded: it is no JSON, or it passes JOURNAL_VALUE_BYTES."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


@dataclass(frozen=True, slots=True)
class Shape:
    """A type, as pydantic reads and writes it; `plain` is JSON of any shape."""

    adapter: TypeAdapter[Any] | None

    @classmethod
    def of(cls, annotation: Any) -> "Shape":
        """The shape of an annotation. No annotation, Any and `object` are JSON of any shape."""
        if annotation in (inspect.Parameter.empty, NOTHING, Any, object):
            return cls(None)
        if annotation is None:
            annotation = type(None)
        return cls(_adapter(annotation))

    def dump(self, value: Any) -> str:
        """Canonical JSON text. Raises Unrecordable."""
        try:
            return dump(value if self.adapter is None else self.adapter.dump_python(value, mode="json", warnings="error"))
        except (pydantic_core.PydanticSerializationError, ValueError) as error:
            raise Unrecordable(f"not what its type declares: {str(error)[:_KEPT_TEXT]}") from None

    def load(self, text: str) -> Any:
        """The Python value of a recorded text. Raises pydantic.ValidationError when it does not fit."""
        return canonical.stored(text) if self.adapter is None else self.adapter.validate_json(text)

    def schema(self, *, result: bool = False) -> dict[str, Any] | None:
        """The JSON Schema, or None where there is none to tell."""
        if self.adapter is None:
            return None
        try:
            return self.adapter.json_schema(mode="serialization" if result else "validation")
        except pydantic_core.PydanticOmit:  # pragma: no cover - raised inside pydantic only
            return None
        except Exception:
            # A type without a JSON Schema (a custom validator, a callable) still reads and writes values.
            return None


def dump(value: Any) -> str:
    """Canonical JSON text of plain values, pydantic models, dataclasses, datetimes. Raises Unrecordable."""
    try:
        text = canonical.dumps(value)
    except JsonInvalid as plain:
        try:
            text = canonical.dumps(_doubles(pydantic_core.to_jsonable_python(value)))
        except (JsonInvalid, pydantic_core.PydanticSerializationError, ValueError, RecursionError):
            raise Unrecordable(str(plain)[:_KEPT_TEXT]) from None
    except RecursionError:
        raise Unrecordable("nested too deep") from None
    if len(text) > JOURNAL_VALUE_BYTES // 4 and canonical.size(text) > JOURNAL_VALUE_BYTES:
        raise Unrecordable(f"larger than {JOURNAL_VALUE_BYTES} bytes", too_large=True)
    try:
        canonical.check_bounds(text)
    except MoorageError as error:
        raise Unrecordable(error.detail, too_large=isinstance(error, PayloadTooLarge)) from None
    return text


def _doubles(value: Any) -> Any:
    """Integers too wide for JSON as the double that stands for them, where one does: what was read from JSON as 1e20 is
    an integer where a type says so, and must be written as it was read. Raises JsonInvalid where it would be rounded."""
    if isinstance(value, dict):
        return {key: _doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_doubles(item) for item in value]
    if type(value) is int and abs(value) > _EXACT:
        return canonical.loads(str(value).encode())
    return value


def hash_of(given: Any) -> str:
    """The hash of a step's input; NO_INPUT when none was given. Raises Unrecordable."""
    return NO_INPUT if given is NOTHING else canonical.digest(dump(given))


def value_of(text: str) -> Value:
    """A value to record."""
    return Value.of(text)


def input_refused(error: ValidationError) -> InputInvalid:
    """What `InputInvalid` tells of a validation: where and why, and nothing of the value."""
    told = error.errors(include_url=False, include_context=False, include_input=False)
    errors = [{"pointer": _pointer(item["loc"]), "message": item["msg"]} for item in told[:20]]
    first = errors[0]
    return InputInvalid(f"the input does not fit at {first['pointer'] or 'its root'}: {first['message']}", errors=errors)


def _pointer(location: tuple[int | str, ...]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in location)


@cache
def _adapter_of_hashable(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return _adapter_of_hashable(annotation)
    except TypeError:
        return TypeAdapter(annotation)


# --- Effects: how many arguments a callable takes, and what it says it returns ---------------------------------------

_RETURNS: dict[CodeType, Shape] = {}
"""By code object, of which a program has as many as its source has functions."""


def returned_shape(effect: Callable[..., Any]) -> Shape:
    """The shape of what an effect says it returns; JSON of any shape where it says nothing that can be resolved."""
    code = getattr(effect, "__code__", None)
    if code is None or not getattr(effect, "__annotations__", None):
        return Shape(None)
    shape = _RETURNS.get(code)
    if shape is None:
        try:
            annotation = typing.get_type_hints(effect, include_extras=True).get("return", NOTHING)
            shape = Shape.of(annotation)
        except Exception:
            # A name that exists only inside another function, or a type pydantic knows nothing of.
            shape = Shape(None)
        _RETURNS[code] = shape
    return shape


def wanted_arguments(effect: Callable[..., Any]) -> int:
    """How many positional arguments an effect takes without a default: 0, 1 or 2 are of use."""
    code = getattr(effect, "__code__", None)
    if code is not None:
        bound = 1 if getattr(effect, "__self__", None) is not None else 0
        count: int = code.co_argcount - bound - len(getattr(effect, "__defaults__", None) or ())
        return count
    try:
        parameters = inspect.signature(effect).parameters.values()
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(1 for one in parameters if one.kind in positional and one.default is inspect.Parameter.empty)
