# ruff: noqa: S608 - SQL made of constants, slot columns and one parameter's name
"""A pattern as SQL over slots: a condition on the columns s1 to s16 of the alias `r` of `records`.

The text is made of constants, column names and one named parameter; every operand travels inside that parameter, a JSON
array, whatever the pattern holds (clause records.pattern-safe). No condition is ever NULL, so NOT is the exact
complement. Junctions are balanced trees, so that 64 terms nest six deep, inside the database's expression depth.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moorage.catalog.paths import Encoded, PathType, encode_element, encode_value, to_json
from moorage.records.patterns.model import RANGES, Every, Not, Operator, Pattern, Some, Test

_COMPARISON = {Operator.GT: ">", Operator.GTE: ">=", Operator.LT: "<", Operator.LTE: "<="}


@dataclass(frozen=True)
class Conjunct:
    """A test that every match passes, on one slot: `$eq`, a bound of a range, or `$in`.

    `value` is the SQL of its operand (for `$in` of a table with so many `values`); `floor` and `ceiling` are the SQL of
    where values of the operand's type begin and end; `telling` is whether the value is likely to be rare.
    """

    slot: int
    operator: Operator
    value: str
    floor: str
    ceiling: str
    telling: bool
    values: int = 1


@dataclass(frozen=True)
class Compiled:
    """`where` is 1 exactly for the rows of `records AS r` whose body matches, and 0 for all others.

    `parameters` binds its one name, if it has it. `conjuncts` are what `claim_candidates` can ask an index for.
    """

    where: str
    parameters: dict[str, str]
    conjuncts: tuple[Conjunct, ...]


def compile(pattern: Pattern, prefix: str = "m") -> Compiled:  # noqa: A001 - what it is called everywhere
    """Compile to SQL with the one parameter `:<prefix>`. Patterns of one statement need different prefixes."""
    operands = _Operands(prefix)
    where = _condition(pattern, operands)
    conjuncts = tuple(_conjunct(test, operands) for test in _required(pattern) if _is_usable(test))
    return Compiled(where, operands.parameters(), conjuncts)


class _Operands:
    """The operands of one pattern, each once, and the SQL that reads each out of the parameter."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._texts: dict[str, int] = {}
        self._named = False

    def scalar(self, value: Encoded) -> str:
        return f"json_extract(:{self._name}, '$[{self._index(to_json([value])[1:-1])}]')"

    def rows(self, values: Sequence[Encoded]) -> str:
        """The list as a table with the column `value`, each value once."""
        return f"json_each(:{self._name}, '$[{self._index(to_json(dict.fromkeys(values)))}]')"

    def always(self) -> str:
        """True, but no constant: SQLite folds `x AND 0` before it looks for the index that `x` would have allowed."""
        self._named = True
        return f"(:{self._name} IS NOT NULL)"

    def never(self) -> str:
        self._named = True
        return f"(:{self._name} IS NULL)"

    def parameters(self) -> dict[str, str]:
        """What to bind: nothing when no part of the condition names the parameter."""
        return {self._name: "[" + ",".join(self._texts) + "]"} if self._named else {}

    def _index(self, text: str) -> int:
        self._named = True
        return self._texts.setdefault(text, len(self._texts))


def _condition(pattern: Pattern, operands: _Operands) -> str:
    match pattern:
        case Every(terms):
            return _balanced([_condition(term, operands) for term in terms], "AND") or operands.always()
        case Some(terms):
            return _balanced([_condition(term, operands) for term in terms], "OR") or operands.never()
        case Not(term):
            return f"NOT ({_condition(term, operands)})"
        case Test():
            return f"({_CONDITIONS[pattern.operator](pattern, operands)})"


def _balanced(terms: Sequence[str], joint: str) -> str:
    if len(terms) < 2:
        return "".join(terms)
    half = len(terms) // 2
    return f"({_balanced(terms[:half], joint)} {joint} {_balanced(terms[half:], joint)})"


# --- One test -------------------------------------------------------------------------------------------------------


def _column(test: Test) -> str:
    return f"r.s{test.path.slot}"


def _equal(test: Test, operands: _Operands) -> str:
    return f"{_column(test)} IS {operands.scalar(encode_value(test.operand, test.path.type))}"


def _different(test: Test, operands: _Operands) -> str:
    return f"{_column(test)} IS NOT {operands.scalar(encode_value(test.operand, test.path.type))}"


def _exists(test: Test, operands: _Operands) -> str:
    return f"{_column(test)} {'IS NOT' if test.operand else 'IS'} NULL"


def _encoded_list(test: Test, operands: _Operands) -> str:
    return operands.rows([encode_value(value, test.path.type) for value in test.operand])


def _among(test: Test, operands: _Operands) -> str:
    return f"coalesce({_column(test)} IN (SELECT value FROM {_encoded_list(test, operands)}), 0)"


def _not_among(test: Test, operands: _Operands) -> str:
    return f"NOT {_among(test, operands)}"


def _range(test: Test, operands: _Operands) -> str:
    """Numbers stand before every text, and texts of one type between two letters: a range ends where its type does."""
    if test.operand is None:
        return operands.never()
    column, sign = _column(test), _COMPARISON[test.operator]
    encoded = encode_value(test.operand, test.path.type)
    floor, ceiling = _span(encoded)
    bounds = [f"{column} {sign} {operands.scalar(encoded)}"]
    if sign.startswith(">"):
        bounds.append(f"{column} < {ceiling}")
    elif floor:
        bounds.append(f"{column} >= {floor}")
    return f"coalesce({' AND '.join(bounds)}, 0)"


def _span(encoded: Encoded) -> tuple[str, str]:
    """The SQL of where the type of an encoded value begins (empty: at the very first) and ends in a slot's order."""
    if isinstance(encoded, str):
        return f"'{encoded[0]}'", f"'{chr(ord(encoded[0]) + 1)}'"
    return "", "''"


def _elements(test: Test) -> str:
    """The array's elements as a table, none for a value that is no array."""
    column = _column(test)
    return f"json_each(CASE WHEN {column} >= 'a' AND {column} < 'b' THEN substr({column}, 2) ELSE '[]' END)"


def _wanted(test: Test, operands: _Operands) -> str:
    element: PathType = test.path.element or "any"
    return operands.rows([encode_element(value, element) for value in test.operand])


def _any(test: Test, operands: _Operands) -> str:
    wanted = _wanted(test, operands)
    return f"EXISTS (SELECT 1 FROM {_elements(test)} AS e WHERE e.value IN (SELECT value FROM {wanted}))"


def _all(test: Test, operands: _Operands) -> str:
    """As many different elements are wanted ones as there are wanted ones."""
    column, wanted = _column(test), _wanted(test, operands)
    found = f"SELECT count(DISTINCT e.value) FROM {_elements(test)} AS e WHERE e.value IN (SELECT value FROM {wanted})"
    return f"coalesce({column} >= 'a' AND {column} < 'b', 0) AND ({found}) = (SELECT count(*) FROM {wanted})"


def _size(test: Test, operands: _Operands) -> str:
    column = _column(test)
    length = f"CASE WHEN {column} >= 'a' AND {column} < 'b' THEN json_array_length(substr({column}, 2)) END"
    return f"{length} IS {operands.scalar(int(test.operand))}"


_CONDITIONS: dict[Operator, Callable[[Test, _Operands], str]] = {
    Operator.EQ: _equal,
    Operator.NE: _different,
    Operator.GT: _range,
    Operator.GTE: _range,
    Operator.LT: _range,
    Operator.LTE: _range,
    Operator.IN: _among,
    Operator.NIN: _not_among,
    Operator.EXISTS: _exists,
    Operator.ANY: _any,
    Operator.ALL: _all,
    Operator.SIZE: _size,
}


# --- What an index can be asked for ---------------------------------------------------------------------------------


def _required(pattern: Pattern) -> list[Test]:
    """The tests that every matching body passes."""
    match pattern:
        case Test():
            return [pattern]
        case Every(terms):
            return [test for term in terms for test in _required(term)]
        case Some((term,)):
            return _required(term)
        case Some(terms):
            return _one_of(terms)
        case _:
            return []


def _one_of(terms: Sequence[Pattern]) -> list[Test]:
    """Alternatives that are equalities or lists of one path are one list."""
    tests = [term for term in terms if isinstance(term, Test) and term.operator in (Operator.EQ, Operator.IN)]
    if not tests or len(tests) < len(terms) or any(test.path != tests[0].path for test in tests):
        return []
    values = [value for test in tests for value in (test.operand if test.operator is Operator.IN else [test.operand])]
    return [Test(tests[0].path, Operator.IN, values)]


def _is_usable(test: Test) -> bool:
    if test.operator in RANGES:
        return test.operand is not None
    return test.operator in (Operator.EQ, Operator.IN)


def _conjunct(test: Test, operands: _Operands) -> Conjunct:
    """True, false and null are not telling, whatever the path."""
    slot, operator, kind = test.path.slot, test.operator, test.path.type
    if operator is Operator.IN:
        if len(test.operand) != 1:
            return Conjunct(slot, operator, _encoded_list(test, operands), "", "", telling=True, values=len(test.operand))
        operator = Operator.EQ
    operand = test.operand[0] if test.operator is Operator.IN else test.operand
    encoded = encode_value(operand, kind)
    floor, ceiling = _span(encoded)
    return Conjunct(slot, operator, operands.scalar(encoded), floor, ceiling, not isinstance(operand, bool | None))
