"""The JSON Schema of a kind: Draft 2020-12, for data that strangers send (clauses catalog.kind, records.publish).

The keywords are the `jsonschema` package's. What could make a schema reach outside, or make one body cost more than a
request may, is refused when it is declared:

    pattern, patternProperties               a regular expression may take exponential time
    unevaluatedItems, unevaluatedProperties  they look at every subschema again, beside the count of steps
    $id, $anchor, $dynamicRef and their kin  a $ref is `#` or `#/...`, a place in the same schema
    a $ref that comes back to itself         unless it has gone into an element or a member meanwhile

`format` is an annotation and checks nothing, as the draft has it. What the remaining keywords may still multiply to is
bounded twice: by SCHEMA_EXPANSION when the schema is declared, and when bodies are checked by SCHEMA_DEPTH and by the
`Budget` of SCHEMA_STEPS that all bodies of a transaction share.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

from moorage.kernel import canonical
from moorage.kernel.limits import CONFIG_BYTES, SCHEMA_DEPTH, SCHEMA_EXPANSION, SCHEMA_STEPS
from moorage.kernel.refusals import refused

Problems = list[dict[str, str]]
Keyword = Callable[[Any, Any, Any, Any], Iterator[Any] | None]

_DIALECTS: Final = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#")
_REFUSED: Final = frozenset(
    """
    pattern patternProperties unevaluatedItems unevaluatedProperties $id $anchor $dynamicRef $dynamicAnchor $recursiveRef
    $recursiveAnchor $vocabulary
    """.split()
)
_NESTING: Final = 16
"""Subschemas inside one another that a declared schema may have."""

_SHOWN: Final = 20
_TEXT_SHOWN: Final = 120
_IN_PLACE_ONE: Final = ("not", "if", "then", "else")
_IN_PLACE_LIST: Final = ("allOf", "anyOf", "oneOf")
_BELOW_ONE: Final = ("items", "contains", "additionalProperties", "propertyNames")
_NAMED_BY_SCHEMA: Final = ("required", "dependentRequired")


class TooCostly(Exception):
    """A body makes the schema do more than it may. It never leaves the room."""


def check(schema: Mapping[str, Any]) -> None:
    """Raise RequestInvalid at /schema, with the place, unless a kind may have this schema. Nothing outside is read."""
    if canonical.size(canonical.dumps(dict(schema))) > CONFIG_BYTES:
        raise refused("/schema", f"is longer than {CONFIG_BYTES} bytes")
    if schema.get("$schema", _DIALECTS[0]) not in _DIALECTS:
        raise refused("/schema/$schema", f"must be {_DIALECTS[0]}")
    try:
        _Survey(schema).check()
    except RecursionError:
        raise refused("/schema", "chains too many references") from None
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        where = "/schema" + _pointer(error.absolute_path)
        raise refused(where, f"is not what {_keyword(error)} of the draft allows") from None


@dataclass(slots=True)
class Budget:
    """The steps that are left for the bodies of one transaction, whatever their kinds."""

    left: int = int(SCHEMA_STEPS)

    def spend(self, steps: int) -> None:
        """Raises TooCostly when that is more than what is left; then nothing is left."""
        self.left = max(-1, self.left - steps)
        if self.left < 0:
            raise TooCostly(f"makes the schemas take more than {SCHEMA_STEPS} steps for the bodies of this request")


class Validator:
    """A schema that `check` let through, ready to be asked. It holds no state between bodies."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator, validators

        self._root = dict(schema)
        self._budget = Budget()
        self._depth = 0
        own: dict[str, Keyword] = {"$ref": self._ref, "uniqueItems": _unique_items, "enum": _enum, "const": _const}
        keywords = {**Draft202012Validator.VALIDATORS, **own}
        counted = {name: self._counted(keyword) for name, keyword in keywords.items() if name not in _REFUSED}
        self._validator = validators.extend(Draft202012Validator, counted)(self._root)

    def problems(self, body: Any, budget: Budget | None = None) -> Problems:
        """What is wrong with a body: at most 20 places, each a pointer into the body and a sentence; none when it fits.

        A message quotes the schema, never the body. The steps come out of `budget`, or one of the body's own.
        """
        self._budget, self._depth = budget or Budget(), 0
        try:
            found = list(islice(self._validator.iter_errors(body), _SHOWN))
        except TooCostly as error:
            return [{"pointer": "", "message": str(error)}]
        return [{"pointer": _pointer(error.absolute_path), "message": _message(error)} for error in found]

    def _counted(self, keyword: Keyword) -> Keyword:
        def step(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            self._budget.spend(1 + (_length(value) + _length(instance)) // 16)
            if self._depth >= SCHEMA_DEPTH:
                raise TooCostly(f"nests deeper than {SCHEMA_DEPTH} levels of the kind's schema")
            self._depth += 1
            try:
                yield from keyword(validator, value, instance, schema) or ()
            finally:
                self._depth -= 1

        return step

    def _ref(self, validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        del schema
        yield from validator.descend(instance, _resolve(self._root, value))


# --- The survey of a declared schema --------------------------------------------------------------------------------


class _Survey:
    """Every subschema that can be reached, each once, with where it stands."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._in_place: dict[int, list[Any]] = {}
        self._applied: dict[int, list[Any]] = {}

    def check(self) -> None:
        """Raises RequestInvalid for the first thing that is refused."""
        self._visit(self._root, "/schema", 0)
        self._refuse_circles()
        self._refuse_expansion()

    def _visit(self, schema: Any, where: str, nested: int) -> None:
        if not isinstance(schema, dict) or id(schema) in self._in_place:
            return
        if nested > _NESTING:
            raise refused(where[:300], f"nests deeper than {_NESTING} subschemas")
        for name in schema:
            if name in _REFUSED:
                raise refused(f"{where}/{name}", "is not supported")
            if name == "$schema" and schema is not self._root:
                raise refused(f"{where}/$schema", "may stand at the top only")
        here, below = self._subschemas(schema, where)
        self._in_place[id(schema)] = [one for _, one in here]
        self._applied[id(schema)] = [one for _, one in [*here, *below]]
        for place, one in [*here, *below, *_of_map(schema.get("$defs"), f"{where}/$defs")]:
            self._visit(one, place, 0 if place.endswith("/$ref") else nested + 1)

    def _subschemas(self, schema: dict[str, Any], where: str) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
        """Those that look at the same value, and those that look at a part of it."""
        here = [(f"{where}/{name}", schema[name]) for name in _IN_PLACE_ONE if name in schema]
        below = [(f"{where}/{name}", schema[name]) for name in _BELOW_ONE if name in schema]
        for name in _IN_PLACE_LIST:
            here += _of_list(schema.get(name), f"{where}/{name}")
        here += _of_map(schema.get("dependentSchemas"), f"{where}/dependentSchemas")
        below += _of_list(schema.get("prefixItems"), f"{where}/prefixItems")
        below += _of_map(schema.get("properties"), f"{where}/properties")
        if "$ref" in schema:
            here.append((f"{where}/$ref", self._target(schema["$ref"], f"{where}/$ref")))
        return here, below

    def _target(self, reference: Any, where: str) -> Any:
        try:
            return _resolve(self._root, reference)
        except (LookupError, ValueError, TypeError):
            raise refused(where, "must be # or #/..., a place in this schema that exists") from None

    def _refuse_circles(self) -> None:
        done: set[int] = set()

        def walk(key: int, above: frozenset[int]) -> None:
            if key in above:
                raise refused("/schema", "has a $ref that comes back to itself without going into a part of the value")
            if key in done:
                return
            for one in self._in_place.get(key, ()):
                walk(id(one), above | {key})
            done.add(key)

        for key in list(self._in_place):
            walk(key, frozenset())

    def _refuse_expansion(self) -> None:
        """Counts what is applied, as often as it is; a $ref back to what it stands in counts once, a definition not."""
        counts: dict[int, int] = {}

        def count(schema: Any) -> int:
            key = id(schema)
            if key not in self._applied:
                return 1
            if key not in counts:
                counts[key] = 1
                counts[key] = min(1 + sum(count(one) for one in self._applied[key]), SCHEMA_EXPANSION + 1)
            return counts[key]

        if count(self._root) > SCHEMA_EXPANSION:
            raise refused("/schema", f"comes to more than {SCHEMA_EXPANSION} subschemas when its references are written out")


def _of_list(value: Any, where: str) -> list[tuple[str, Any]]:
    return [(f"{where}/{place}", one) for place, one in enumerate(value)] if isinstance(value, list) else []


def _of_map(value: Any, where: str) -> list[tuple[str, Any]]:
    return [(f"{where}/{_escaped(name)}", one) for name, one in value.items()] if isinstance(value, dict) else []


def _resolve(root: Any, reference: Any) -> Any:
    """The subschema that a local reference names. Raises LookupError, ValueError or TypeError when there is none."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise ValueError
    found = root
    for part in unquote(reference).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found[int(name)] if isinstance(found, list) else found[name]
    if not isinstance(found, dict | bool):
        raise TypeError
    return found


# --- Keywords of our own --------------------------------------------------------------------------------------------


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """By canonical text: the package compares each with each where they cannot be sorted."""
    if value and isinstance(instance, list):
        texts = {canonical.dumps(one) for one in instance}
        if len(texts) < len(instance):
            yield _error("must hold each element once")


def _enum(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not any(_equal(one, instance) for one in value):
        yield _error("is none of the values that the schema lists")


def _const(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not _equal(value, instance):
        yield _error("is not the one value that the schema allows")


def _equal(one: Any, other: Any) -> bool:
    """JSON's equality: 1 is 1.0 and is not true."""
    if isinstance(one, dict | list) or isinstance(other, dict | list):
        return type(one) is type(other) and canonical.dumps(one) == canonical.dumps(other)
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


# --- What is told ---------------------------------------------------------------------------------------------------


def _message(error: Any) -> str:
    keyword = _keyword(error)
    if keyword in _NAMED_BY_SCHEMA:
        return str(error.message)[:_TEXT_SHOWN]
    if keyword in ("enum", "const", "uniqueItems"):
        return str(error.message)
    wanted = json.dumps(error.validator_value, ensure_ascii=False)
    return f"does not fit the schema's {keyword}: {wanted[:_TEXT_SHOWN]}"


def _keyword(error: Any) -> str:
    """The keyword that refuses; a schema that is `false` has none."""
    return str(error.validator or "false")


def _pointer(path: Any) -> str:
    return "".join(f"/{_escaped(str(part)[:_TEXT_SHOWN])}" for part in islice(path, 64))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0
