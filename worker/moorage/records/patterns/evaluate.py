"""The reference meaning of a pattern: plain Python over a body, with nothing of slots, encodings or SQL in it."""

from typing import Any

from moorage.catalog.paths import MISSING, PathType, extract
from moorage.kernel import instants
from moorage.records.patterns.model import RANGES, Every, Not, Operator, Pattern, Some, Test


def evaluate(pattern: Pattern, body: Any) -> bool:
    """Whether a body matches. The body must fit the declared types of the pattern's paths."""
    match pattern:
        case Every(terms):
            return all(evaluate(term, body) for term in terms)
        case Some(terms):
            return any(evaluate(term, body) for term in terms)
        case Not(term):
            return not evaluate(term, body)
        case Test():
            return _holds(pattern, extract(body, pattern.path.segments))


def _holds(test: Test, value: Any) -> bool:
    kind, operand = test.path.type, test.operand
    if test.operator is Operator.EXISTS:
        return (value is not MISSING) is operand
    if test.operator is Operator.NE:
        return value is MISSING or not _same(value, operand, kind)
    if test.operator is Operator.NIN:
        return value is MISSING or not _among(value, operand, kind)
    if value is MISSING:
        return False
    if test.operator is Operator.EQ:
        return _same(value, operand, kind)
    if test.operator is Operator.IN:
        return _among(value, operand, kind)
    if test.operator in RANGES:
        return _ordered(test.operator, value, operand, kind)
    return isinstance(value, list) and _array_holds(test, value)


def _array_holds(test: Test, value: list[Any]) -> bool:
    element: PathType = test.path.element or "any"
    if test.operator is Operator.SIZE:
        return len(value) == int(test.operand)
    if test.operator is Operator.ANY:
        return any(_among(item, test.operand, element) for item in value)
    return all(_among(wanted, value, element) for wanted in test.operand)


def _ordered(operator: Operator, value: Any, operand: Any, kind: PathType) -> bool:
    """Numbers order with numbers and strings with strings; nothing else has an order."""
    if not (_is_number(value) and _is_number(operand)) and not (isinstance(value, str) and isinstance(operand, str)):
        return False
    if kind == "instant":
        value, operand = instants.normalize(value), instants.normalize(operand)
    match operator:
        case Operator.GT:
            return bool(value > operand)
        case Operator.GTE:
            return bool(value >= operand)
        case Operator.LT:
            return bool(value < operand)
        case _:
            return bool(value <= operand)


def _among(value: Any, candidates: list[Any], kind: PathType) -> bool:
    return any(_same(value, candidate, kind) for candidate in candidates)


def _same(left: Any, right: Any, kind: PathType) -> bool:
    """Equality of JSON values: 1 is 1.0, and neither is true nor "1"; instants are equal when they mean one moment."""
    if _is_number(left) and _is_number(right):
        return bool(left == right)
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(_same(a, b, kind) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key], kind) for key in left)
    if isinstance(left, str) and kind in ("instant", "instant[]"):
        return instants.normalize(left) == instants.normalize(right)
    return bool(left == right)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
