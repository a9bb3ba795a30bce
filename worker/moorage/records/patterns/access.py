"""How a claim finds the next records that match, without reading the backlog.

The claimable records of a kind are in seventeen indexes: `records_ready` in claim order, and `records_by_sN` for each slot
by value and then in claim order. No single one is right for every pattern, and statistics are not to be had, so a claim
tries *looks*: bounded glances through each index that the pattern offers, shortest first.

    an equality       the slot's index, already in claim order
    a range, a list   the slot's index, in the order of its values
    neither           records_ready

A look settles the answer when its index has no more rows than it may read, or, in claim order, when it has met enough
matches. What it read then holds the first matches in claim order, exactly. Only when no look settles it does the claim
read on to the end, through the index in claim order whose look met most matches. One equality alone needs no look at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from moorage.records.patterns.compile import Compiled, Conjunct
from moorage.records.patterns.model import Operator

FIRST_LOOK: Final = 7
"""Rows of a first look beyond the number of records that are claimed."""

SECOND_LOOK: Final = 1000
"""Rows of a second look. In a million records, a range with fewer rows than this is sooner read whole than met by chance."""

_LONGEST_CONDITION: Final = 8_000
"""Characters of a condition that is repeated in every look; a longer one is used once, on the best single path."""

_CLAIM_ORDER: Final = "ORDER BY r.priority DESC, r.seq"
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

    def select(self, columns: str) -> str:
        return (
            f"SELECT {columns} FROM {self.outside}records AS r INDEXED BY {self.index} "
            f"WHERE r.kind = :kind AND r.available = 1{self.condition}"
        )


_READY: Final = _Path("records_ready", "", in_order=True)


def claim_candidates(compiled: Compiled) -> str:
    """A SELECT of `seq` of the first `:limit` claimable records of `:kind` that match, in claim order.

    Claim order is priority, highest first, then seq. Needs `:kind`, `:limit` and the pattern's own parameter.
    """
    paths = _paths(compiled.conjuncts)
    if len(paths) == 1 or len(compiled.where) > _LONGEST_CONDITION:
        ordered = next((path for path in paths if path.in_order), _READY)
        return f"{ordered.select('r.seq')} AND {compiled.where} {_CLAIM_ORDER} LIMIT CAST(:limit AS INTEGER)"
    return _with_looks(paths, compiled.where)


def _paths(conjuncts: Sequence[Conjunct]) -> list[_Path]:
    """At most two equalities, the likely rare ones first, and one range or list; records_ready where no equality is."""
    equal = [each for each in conjuncts if each.operator is Operator.EQ]
    equal.sort(key=lambda each: not each.telling)
    paths = [_equality(each) for each in equal[:2]]
    if not paths:
        paths.append(_READY)
    spread = _spread(conjuncts, {each.slot for each in equal})
    return paths if spread is None else [*paths, spread]


def _equality(conjunct: Conjunct) -> _Path:
    column = f"r.s{conjunct.slot}"
    return _Path(f"records_by_s{conjunct.slot}", f" AND {column} IS NOT NULL AND {column} = {conjunct.value}", True)


def _spread(conjuncts: Sequence[Conjunct], taken: set[int]) -> _Path | None:
    """The first list, or else the slot with most bounds, on a slot that no equality narrows already."""
    free = [each for each in conjuncts if each.slot not in taken]
    for each in free:
        if each.operator is Operator.IN:
            return _narrowed(each.slot, ["= v.value"], f"{each.value} AS v CROSS JOIN ")
    bounds = [each for each in free if each.operator in _LOWER or each.operator in _UPPER]
    if not bounds:
        return None
    slots = [each.slot for each in bounds]
    slot = max(slots, key=slots.count)
    return _narrowed(slot, _interval([each for each in bounds if each.slot == slot]))


def _interval(bounds: Sequence[Conjunct]) -> list[str]:
    """One lower and one upper bound, since an index uses no more; the other ends where the value's type does."""
    lower = next((f"{_LOWER[each.operator]} {each.value}" for each in bounds if each.operator in _LOWER), None)
    upper = next((f"{_UPPER[each.operator]} {each.value}" for each in bounds if each.operator in _UPPER), None)
    first = bounds[0]
    if lower is None and first.floor:
        lower = f">= {first.floor}"
    return [bound for bound in (lower, upper or f"< {first.ceiling}") if bound]


def _narrowed(slot: int, terms: Sequence[str], outside: str = "") -> _Path:
    tests = "".join(f" AND r.s{slot} {term}" for term in terms)
    return _Path(f"records_by_s{slot}", f" AND r.s{slot} IS NOT NULL{tests}", in_order=False, outside=outside)


# --- Looks ----------------------------------------------------------------------------------------------------------


def _with_looks(paths: Sequence[_Path], where: str) -> str:
    """The looks one after another, each read only while none before it has settled the answer, then the reading on."""
    tables: list[str] = []
    settled: list[str] = []
    looks: dict[_Path, str] = {}
    for more in (FIRST_LOOK, SECOND_LOOK):
        for path in paths:
            looks[path] = name = f"look{len(tables) + 1}"
            rows = f"CAST(:limit AS INTEGER) + {more}"
            order = f" {_CLAIM_ORDER}" if path.in_order else ""
            source = path.select(f"r.seq, r.priority, ({where}) AS hit")
            tables.append(f"{name} AS MATERIALIZED ({source}{order} LIMIT {_unless(settled, rows)})")
            settled.append(_settles(name, rows, path.in_order))
    names = [f"look{number + 1}" for number in range(len(tables))]
    ordered = [path for path in paths if path.in_order]
    for path in ordered:
        name = f"rest{len(tables) + 1}"
        limit = _unless([*settled, *_better(path, ordered, looks)], "CAST(:limit AS INTEGER)")
        tables.append(
            f"{name} AS MATERIALIZED ({path.select('r.seq, r.priority, 1 AS hit')} AND {where} {_CLAIM_ORDER} LIMIT {limit})"
        )
        names.append(name)
    return f"WITH {', '.join(tables)} {_first(names)}"


def _unless(conditions: Sequence[str], otherwise: str) -> str:
    """A LIMIT: a limit of zero is the one way to keep SQLite from opening an index at all."""
    if not conditions:
        return otherwise
    cases = " ".join(f"WHEN {condition} THEN 0" for condition in conditions)
    return f"CASE {cases} ELSE {otherwise} END"


def _settles(name: str, rows: str, in_order: bool) -> str:
    enough = " OR sum(hit) >= :limit" if in_order else ""
    return f"(SELECT count(*) < {rows}{enough} FROM {name})"


def _better(path: _Path, ordered: Sequence[_Path], looks: dict[_Path, str]) -> list[str]:
    """Conditions under which another path in claim order met more matches (or as many, and comes first)."""
    place = ordered.index(path)
    hits = "(SELECT total(hit) FROM {})"
    return [
        f"{hits.format(looks[other])} {'>=' if number < place else '>'} {hits.format(looks[path])}"
        for number, other in enumerate(ordered)
        if number != place
    ]


def _first(names: Sequence[str]) -> str:
    """The first matches of all that was read. Matches of an earlier look are matches too; UNION drops the second copy."""
    source = f"SELECT seq, priority FROM {names[0]} WHERE hit"
    for name in names[1:]:
        source = f"SELECT seq, priority FROM ({source}) UNION SELECT seq, priority FROM {name} WHERE hit"
    return f"SELECT seq FROM ({source}) ORDER BY priority DESC, seq LIMIT CAST(:limit AS INTEGER)"
