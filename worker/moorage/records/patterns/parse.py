"""Reading a pattern: the client's JSON becomes a `Pattern`, or PatternInvalid says which path or operator is wrong."""

from collections.abc import Mapping
from typing import Any

from moorage.catalog.paths import DeclaredPath, fits, shown
from moorage.kernel import canonical
from moorage.kernel.errors import JsonInvalid, PatternInvalid
from moorage.kernel.limits import PATTERN_BYTES, PATTERN_DEPTH, PATTERN_OPERATORS, PATTERN_VALUES
from moorage.records.patterns.model import ARRAYS, LISTS, RANGES, Every, Not, Operator, Pattern, Some, Test

_JUNCTIONS = ("$and", "$or", "$nor", "$not")
_OPERATORS = {operator.value: operator for operator in Operator}


def parse(match: Any, paths: Mapping[str, DeclaredPath]) -> Pattern:
    """Read `match` against the declared paths of a kind; `{}` matches every record.

    Every operator counts: a comparison, a bare value (an `$eq`), and each `$and`, `$or`, `$nor` and `$not`. Depth
    counts these four inside one another. Raises PatternInvalid naming the path or the operator for an undeclared
    path, an unknown operator, an operand of another type than declared (null aside), and for a pattern past
    PATTERN_OPERATORS, PATTERN_DEPTH, PATTERN_VALUES or PATTERN_BYTES. Clauses records.pattern, records.pattern-safe.
    """
    return _Reader(paths).pattern(match, 0)


class _Reader:
    """Reads one pattern and counts what it holds; every limit is checked before the excess is looked at."""

    def __init__(self, paths: Mapping[str, DeclaredPath]) -> None:
        self._paths = paths
        self._operators = 0
        self._values = 0
        self._bytes = 0

    def pattern(self, match: Any, depth: int) -> Pattern:
        if not isinstance(match, dict):
            raise PatternInvalid(f"a pattern is an object, not {canonical.type_name(match)}")
        terms: list[Pattern] = []
        for key, value in match.items():
            if key in _JUNCTIONS:
                terms.append(self._junction(key, value, depth + 1))
            else:
                terms.extend(self._path(key, value, depth))
        return terms[0] if len(terms) == 1 else Every(tuple(terms))

    def _junction(self, operator: str, value: Any, depth: int) -> Pattern:
        self._count(operator, depth)
        if operator == "$not":
            return Not(self.pattern(value, depth))
        if not isinstance(value, list):
            raise PatternInvalid(f"{operator} takes a list of patterns, not {canonical.type_name(value)}")
        terms = []
        for item in value:
            # A term that holds no operator still costs work, so it counts as one.
            if item == {}:
                self._count(operator, depth)
            terms.append(self.pattern(item, depth))
        if operator == "$and":
            return Every(tuple(terms))
        return Some(tuple(terms)) if operator == "$or" else Not(Some(tuple(terms)))

    def _path(self, key: str, value: Any, depth: int) -> list[Pattern]:
        path = self._paths.get(key)
        if path is None:
            if key.startswith("$"):
                raise PatternInvalid(f"{shown(key)} is neither an operator that joins patterns nor a declared path")
            raise PatternInvalid(f"the path {shown(key)} is not declared")
        if _is_operators(value, path):
            return self._operations(path, value, depth)
        return [self._test(path, Operator.EQ, value, depth)]

    def _operations(self, path: DeclaredPath, operations: dict[str, Any], depth: int) -> list[Pattern]:
        terms: list[Pattern] = []
        for name, operand in operations.items():
            if name == "$not":
                terms.append(self._negation(path, operand, depth + 1))
            elif name in _OPERATORS:
                terms.append(self._test(path, _OPERATORS[name], operand, depth))
            else:
                raise PatternInvalid(f"unknown operator {shown(name)} at the path {shown(path.text)}")
        return terms

    def _negation(self, path: DeclaredPath, operand: Any, depth: int) -> Pattern:
        self._count("$not", depth)
        if not operand or not _is_operators(operand, path):
            raise PatternInvalid(f"$not at the path {shown(path.text)} takes operators; for a value there is $ne")
        return Not(Every(tuple(self._operations(path, operand, depth))))

    def _test(self, path: DeclaredPath, operator: Operator, operand: Any, depth: int) -> Test:
        self._count(operator, depth)
        if operator in LISTS and not isinstance(operand, list):
            raise _wrong(path, operator, "takes a list")
        self._weigh(path, operator, operand)
        if operator in ARRAYS and path.element is None:
            raise _wrong(path, operator, f"needs an array, and the path is declared {path.type}")
        _check_operand(path, operator, operand)
        return Test(path, operator, operand)

    def _count(self, operator: str, depth: int) -> None:
        self._operators += 1
        if self._operators > PATTERN_OPERATORS:
            raise PatternInvalid(f"more than {PATTERN_OPERATORS} operators in one pattern, at {operator}")
        if depth > PATTERN_DEPTH:
            raise PatternInvalid(f"{operator} is nested deeper than {PATTERN_DEPTH} levels")

    def _weigh(self, path: DeclaredPath, operator: Operator, operand: Any) -> None:
        self._values += len(operand) if operator in LISTS else 1
        if self._values > PATTERN_VALUES:
            raise _wrong(path, operator, f"takes the pattern past {PATTERN_VALUES} values in all")
        try:
            self._bytes += canonical.size(canonical.dumps(operand))
        except JsonInvalid as error:
            raise _wrong(path, operator, f"has an operand that {error.detail}") from None
        if self._bytes > PATTERN_BYTES:
            raise _wrong(path, operator, f"takes the pattern's operands past {PATTERN_BYTES} bytes in all")


def _is_operators(value: Any, path: DeclaredPath) -> bool:
    """Whether an object holds operators. `{}` and an object without dollars are values; a mixture is neither."""
    if not isinstance(value, dict):
        return False
    dollars = len([key for key in value if str(key).startswith("$")])
    if 0 < dollars < len(value):
        raise PatternInvalid(f"the path {shown(path.text)} has operators and plain keys in one object; see $eq")
    return dollars > 0


def _check_operand(path: DeclaredPath, operator: Operator, operand: Any) -> None:
    expected = path.element if operator in ARRAYS and path.element else path.type
    if operator is Operator.EXISTS:
        if not isinstance(operand, bool):
            raise _wrong(path, operator, "takes true or false")
    elif operator is Operator.SIZE:
        if isinstance(operand, bool) or not isinstance(operand, (int, float)) or operand < 0 or operand % 1:
            raise _wrong(path, operator, "takes a whole number from zero")
    elif operator in RANGES:
        _check_range(path, operator, operand)
    else:
        for value in operand if operator in LISTS else [operand]:
            if not fits(value, expected):
                raise _wrong(path, operator, f"takes {expected}, not {canonical.type_name(value)}")


def _check_range(path: DeclaredPath, operator: Operator, operand: Any) -> None:
    if path.type not in ("number", "string", "instant", "any"):
        raise _wrong(path, operator, f"cannot order values declared {path.type}")
    if path.type == "any" and operand is not None and not (fits(operand, "number") or fits(operand, "string")):
        raise _wrong(path, operator, f"orders numbers and strings, not {canonical.type_name(operand)}")
    if not fits(operand, path.type):
        raise _wrong(path, operator, f"takes {path.type}, not {canonical.type_name(operand)}")


def _wrong(path: DeclaredPath, operator: Operator, what: str) -> PatternInvalid:
    return PatternInvalid(f"{operator.value} at the path {shown(path.text)} {what}")
