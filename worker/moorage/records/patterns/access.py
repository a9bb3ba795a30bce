# ruff: noqa: S608 - SQL made of constants and of `compile`'s text, which holds no operand
"""How a claim finds the next records that match, without reading the backlog.

The claimable records of a kind are in seventeen indexes: `records_ready` in claim order, and `records_by_sN` for each
slot, by value and then in claim order. No single one is right for every pattern, and statistics are not to be had. So a
claim first *looks*: it reads a few rows of each index that the pattern offers, then some more, then many.

    an equality       the slot's index, already in claim order
    a short list      the slot's index, its values merged into claim order
    a range           the slot's index, in the order of its values; a list of many values likewise
    none of these     records_ready

A look chooses its index when that has no more rows than the look may read, or, in claim order, when enough of them
match; the next look is then not taken. Whatever is chosen, the answer is the same: only its cost differs. When no look
chooses, the claim reads on through the first index in claim order. One index alone needs no look.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from moorage.kernel.limits import RECORD_PRIORITY
from moorage.records.patterns.compile import Compiled, Conjunct
from moorage.records.patterns.model import Operator

LOOKS: Final = (3, 50, 1000)
"""Rows that each look reads of an index beyond the number of records that are claimed. The first keeps the claim of
one record by a selective pattern within 20 rows in all. In a million records, a range with fewer rows than the last
is sooner read whole than met by chance."""

MERGED: Final = 16
"""Values of a list that a claim merges: each is sought in the index before the first record is known."""

LONGEST_CONDITION: Final = 6_000
"""Characters of a condition that looks repeat; a longer one is written once, on the first index in claim order."""

_CLAIM_ORDER: Final = "ORDER BY r.priority DESC, r.seq"
_LIMIT: Final = "CAST(:limit AS INTEGER)"
_UPPER: Final = {Operator.LT: "<", Operator.LTE: "<="}
_LOWER: Final = {Operator.GT: ">", Operator.GTE: ">="}


@dataclass(frozen=True)
class _Path:
    """An index, the condition that narrows it, and whether its rows come in claim order.

    A list stands outside as a table of its own: each of its values is then sought in the index.
    """

    index: str
    condition: str
    in_order: bool
    outside: str = ""
    merged: str = ""

    @property
    def order(self) -> str:
        """What puts the rows in claim order; merged ones come so."""
        return "" if self.merged else _CLAIM_ORDER

    def select(self, columns: str) -> str:
        if self.merged:
            return (
                f"SELECT {columns} FROM ({self.merged}) AS merged CROSS JOIN records AS r ON r.id = {_MERGED_ID} WHERE true"
            )
        return (
            f"SELECT {columns} FROM {self.outside}records AS r INDEXED BY {self.index} "
            f"WHERE r.kind = :kind AND r.available = 1{self.condition}"
        )


_READY: Final = _Path("records_ready", "", in_order=True)


def claim_candidates(compiled: Compiled, longest: int = LONGEST_CONDITION) -> str:
    """A SELECT of `id` of the first `:limit` claimable records of `:kind` that match, in claim order.

    Claim order is priority, highest first, then seq. Needs `:kind`, `:limit` and the pattern's own parameter. A condition of
    more than `longest` characters is written once, without looks.
    """
    paths = _paths(compiled.conjuncts)
    if len(paths) == 1 or len(compiled.where) > longest:
        return _answer(_first_in_order(paths), compiled.where, _LIMIT)
    return _by_looks(paths, compiled.where)


def _answer(path: _Path, where: str, limit: str) -> str:
    return f"{path.select('r.id AS id')} AND {where} {path.order} LIMIT {limit}"


# --- Looks ----------------------------------------------------------------------------------------------------------


def _by_looks(paths: Sequence[_Path], where: str) -> str:
    """One row that says which path answers, then every path with a limit: zero, but for the one that answers.

    A limit of zero keeps SQLite from opening the index. At most three paths stand in the compound.
    """
    looks = [
        f"WHEN ({_look(path, where, more)}) THEN {number}" for more in LOOKS for number, path in enumerate(paths, start=1)
    ]
    otherwise = paths.index(_first_in_order(paths)) + 1
    choice = f"WITH choice AS MATERIALIZED (SELECT CASE {' '.join(looks)} ELSE {otherwise} END AS path)"
    answers = [f"SELECT id FROM ({_answer(path, where, _only_if(number))})" for number, path in enumerate(paths, start=1)]
    return f"{choice} {' UNION ALL '.join(answers)}"


def _only_if(number: int) -> str:
    return f"CASE (SELECT path FROM choice) WHEN {number} THEN {_LIMIT} ELSE 0 END"


def _look(path: _Path, where: str, more: int) -> str:
    """Whether reading so many rows shows that the path answers cheaply."""
    rows = f"{_LIMIT} + {more}"
    if not path.in_order:
        return f"SELECT count(*) < {rows} FROM ({path.select('1')} LIMIT {rows})"
    seen = f"{path.select(f'{where} AS hit')} {path.order} LIMIT {rows}"
    return f"SELECT count(*) < {rows} OR total(hit) >= :limit FROM ({seen})"


# --- Paths ----------------------------------------------------------------------------------------------------------


def _paths(conjuncts: Sequence[Conjunct]) -> list[_Path]:
    """The indexes worth a look, in the order of the looks, at least one of them in claim order.

    At most two equalities or short lists, the likely rare ones first, and one range or long list. Without the former the
    latter comes first, because finding it empty is the cheapest look of all, and then records_ready.
    """
    equal = [each for each in conjuncts if each.operator is Operator.EQ]
    equal.sort(key=lambda each: not each.telling)
    by_slot = {each.slot: each for each in reversed(equal)}
    paths = [_equality(each) for each in equal if by_slot[each.slot] is each][:2]
    for each in conjuncts:
        if len(paths) < 2 and each.operator is Operator.IN and each.values <= MERGED and each.slot not in by_slot:
            by_slot[each.slot] = each
            paths.append(_short_list(each))
    spread = _spread([each for each in conjuncts if each.slot not in by_slot])
    if spread is None:
        return paths or [_READY]
    return [*paths, spread] if paths else [spread, _READY]


def _first_in_order(paths: Sequence[_Path]) -> _Path:
    return next(path for path in paths if path.in_order)


def _equality(conjunct: Conjunct) -> _Path:
    column = f"r.s{conjunct.slot}"
    narrowed = f" AND {column} IS NOT NULL AND {column} = {conjunct.value}"
    return _Path(f"records_by_s{conjunct.slot}", narrowed, in_order=True)


# A record's place in claim order and its id as one text: text orders as claims do.
_KEY: Final = f"printf('%08d%016d', {RECORD_PRIORITY:d} - priority, seq) || id"
_PRIORITY: Final = f"({RECORD_PRIORITY:d} - CAST(substr(walk.key, 1, 8) AS INTEGER))"
_SEQ: Final = "CAST(substr(walk.key, 9, 16) AS INTEGER)"
_MERGED_ID: Final = "substr(merged.key, 25)"


def _short_list(conjunct: Conjunct) -> _Path:
    """The index's rows of each value of the list, merged through a queue while they are read.

    The first row of each value enters the queue, and the row that leaves it sends in the next one of its value.
    """
    index, column = f"records_by_s{conjunct.slot}", f"s{conjunct.slot}"

    def first(value: str, narrowed: str = "") -> str:
        return (
            f"(SELECT {_KEY} FROM records INDEXED BY {index} WHERE kind = :kind AND available = 1 AND {column} IS NOT NULL"
            f" AND {column} = {value}{narrowed} ORDER BY priority DESC, seq LIMIT 1)"
        )

    same = first("walk.value", f" AND priority = {_PRIORITY} AND seq > {_SEQ}")
    lower = first("walk.value", f" AND priority < {_PRIORITY}")
    merged = (
        f"WITH RECURSIVE walk (key, value) AS (SELECT {first('v.value')}, v.value FROM {conjunct.value} AS v"
        f" UNION ALL SELECT coalesce({same}, {lower}), walk.value FROM walk WHERE walk.key IS NOT NULL ORDER BY 1 LIMIT -1)"
        " SELECT key FROM walk WHERE key IS NOT NULL"
    )
    return _Path(index, "", in_order=True, merged=merged)


def _spread(conjuncts: Sequence[Conjunct]) -> _Path | None:
    """The first list, or else the slot with most bounds."""
    for each in conjuncts:
        if each.operator is Operator.IN:
            return _narrowed(each.slot, ["= v.value"], f"{each.value} AS v CROSS JOIN ")
    if not conjuncts:
        return None
    slots = [each.slot for each in conjuncts]
    slot = max(slots, key=slots.count)
    return _narrowed(slot, _interval([each for each in conjuncts if each.slot == slot]))


def _interval(bounds: Sequence[Conjunct]) -> list[str]:
    """One lower and one upper bound, since an index uses no more; an open end is where the value's type ends."""
    first = bounds[0]
    lower = [f"{_LOWER[each.operator]} {each.value}" for each in bounds if each.operator in _LOWER]
    upper = [f"{_UPPER[each.operator]} {each.value}" for each in bounds if each.operator in _UPPER]
    if not lower and first.floor:
        lower = [f">= {first.floor}"]
    return lower[:1] + (upper[:1] or [f"< {first.ceiling}"])


def _narrowed(slot: int, terms: Sequence[str], outside: str = "") -> _Path:
    tests = "".join(f" AND r.s{slot} {term}" for term in terms)
    return _Path(f"records_by_s{slot}", f" AND r.s{slot} IS NOT NULL{tests}", in_order=False, outside=outside)
