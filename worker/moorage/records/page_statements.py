# ruff: noqa: S608 - SQL made of constants and of `compile`'s text, which holds no operand
"""The SQL with which a query reads one page of a kind's records in order of publication, with bounded work.

No index holds a kind's records by seq, because a publication would have to write its row. Three indexes hold them as
*streams*, each by seq: what is available, a stream for each priority; what waits for its not_before; and the rest. A page
merges the streams through a queue: the first record of each stream enters it, and each record that leaves it sends in the
next one of its stream. The streams of an equality on a slot come from that slot's index instead.

A page ends when it is full, at the end of the streams, after QUERY_EXAMINED records, or before the record with which the
bodies pass PAGE_BYTES. Whatever ended it, its cursor is the last record that it examined, so that following cursors meets
every record once. A kind with more than QUERY_STREAMS priorities has too many streams; its page walks history instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from moorage.records.model import State
from moorage.records.patterns import Compiled, Conjunct, Operator
from moorage.records.statements import RECORD_COLUMNS

Order = Literal["asc", "desc"]

# The priorities of what is available and narrowed by {narrowed}, highest first, at most one more than there may be streams.
_PRIORITIES = """
priorities (priority) AS (
    SELECT max(priority) FROM records INDEXED BY {index} WHERE kind = :kind AND available = 1{narrowed}
    UNION ALL
    SELECT (SELECT max(priority) FROM records INDEXED BY {index}
        WHERE kind = :kind AND available = 1{narrowed} AND priority < priorities.priority)
    FROM priorities WHERE priorities.priority IS NOT NULL LIMIT CAST(:streams AS INTEGER) + 1
)
"""

_COUNT_PRIORITIES = f"WITH RECURSIVE {_PRIORITIES} SELECT count(priority) AS streams FROM priorities"

# The next record of a stream after {after}: its seq and id as one text, which orders as the seq does.
_NEXT = """
(SELECT printf('%016d', seq) || id FROM records INDEXED BY {index}
    WHERE kind = :kind AND {stream} AND seq {past} {after} ORDER BY seq{direction} LIMIT 1)
"""
_HERE = "CAST(substr(walk.key, 1, 16) AS INTEGER)"

# The streams by their names, with the condition of each and its index; that of what is available is the pattern's choice.
_WAITING: Final = ("records_waiting_by_kind", "available = 0 AND not_before IS NOT NULL")
_RESTING: Final = ("records_resting", "available = 0 AND not_before IS NULL")
_DEAD: Final = ("records_dead_by_kind", "state = 'dead'")

# The merged streams, each record with whether it matches and with how many were examined. The numbers are counted while
# the rows pass, so that what is not asked for is not examined.
_MERGED = """
WITH RECURSIVE {priorities}, walk (key, stream, priority) AS (
    {heads}
    UNION ALL
    SELECT CASE stream {steps} END, stream, priority FROM walk WHERE key IS NOT NULL
    ORDER BY 1{direction} LIMIT CAST(:examined + :streams AS INTEGER) + 4
), seen AS (
    SELECT substr(walk.key, 17) AS id, {here} AS seq, ({where}) AS hit, row_number() OVER () AS examined
    FROM walk CROSS JOIN records AS r ON r.id = substr(walk.key, 17) WHERE walk.key IS NOT NULL
)
"""

# The same by the history of all kinds: slow where others publish much, but the same records in the same order.
_BY_HISTORY = """
WITH seen AS (
    SELECT walked.subject AS id, walked.position AS seq, (r.id IS NOT NULL AND ({where})) AS hit,
        row_number() OVER () AS examined
    FROM (
        SELECT position, subject, type, kind FROM history WHERE position {past} :after
        ORDER BY position{direction} LIMIT CAST(:examined AS INTEGER)
    ) AS walked LEFT JOIN records AS r
        ON walked.type = 'record.published' AND walked.kind = :kind AND r.id = walked.subject AND ({state})
)
"""

# What a page needs of what was seen: the hits, and the last record that may be examined. `bytes` grows from hit to hit; a
# hit past the bound comes without its texts.
_SHOWN = """
, sized AS (
    SELECT seen.id, seen.seq, seen.hit, seen.examined,
        sum(CASE WHEN seen.hit THEN size ELSE 0 END) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
    FROM seen LEFT JOIN records ON records.id = seen.id
    WHERE seen.examined <= :examined AND (seen.hit OR seen.examined = :examined)
)
SELECT sized.seq AS at, sized.hit, sized.examined, sized.bytes <= :bytes AS fits, {columns}
FROM sized LEFT JOIN records AS r ON r.id = sized.id AND sized.hit AND sized.bytes <= :bytes
LIMIT CAST(:limit AS INTEGER)
"""


@dataclass(frozen=True)
class _Available:
    """The index that the streams of what is available come from, and what narrows it."""

    index: str = "records_ready"
    narrowed: str = ""


def _available(conjuncts: Sequence[Conjunct]) -> _Available:
    """The slot's index of an equality that every match passes, a telling one first; else the index of all."""
    equal = sorted((one for one in conjuncts if one.operator is Operator.EQ), key=lambda one: not one.telling)
    if not equal:
        return _Available()
    column = f"s{equal[0].slot}"
    return _Available(f"records_by_{column}", f" AND {column} IS NOT NULL AND {column} = {equal[0].value}")


def merged(compiled: Compiled, state: State | None, order: Order) -> str:
    """The statement of a page; it needs `:kind`, `:after`, `:limit`, the bounds, and the pattern's own parameter."""
    source = _available(compiled.conjuncts)
    past, direction = _directed(order)

    def following(index: str, stream: str, after: str) -> str:
        sql = _NEXT.replace("{index}", index).replace("{stream}", stream).replace("{after}", after)
        return sql.replace("{past}", past).replace("{direction}", direction)

    heads, steps = [], []
    if state in (None, "ready"):
        stream = f"available = 1{source.narrowed} AND priority = {{priority}}"
        head = following(source.index, stream.replace("{priority}", "p.priority"), ":after")
        step = following(source.index, stream.replace("{priority}", "walk.priority"), _HERE)
        heads.append(f"SELECT {head}, 'available', p.priority FROM priorities AS p WHERE p.priority IS NOT NULL")
        steps.append(f"WHEN 'available' THEN {step}")
    for name, (index, stream) in _others(state).items():
        heads.append(f"SELECT {following(index, stream, ':after')}, '{name}', NULL")
        steps.append(f"WHEN '{name}' THEN {following(index, stream, _HERE)}")
    narrowed = f" AND r.state = '{state}'" if state in ("claimed", "consumed") else ""
    sql = _MERGED.replace("{heads}", " UNION ALL ".join(heads)).replace("{steps}", " ".join(steps))
    sql = sql.replace("{direction}", direction).replace("{here}", _HERE).replace("{where}", f"({compiled.where}){narrowed}")
    return sql.replace("{priorities}", _priorities(source)) + _shown()


def by_history(compiled: Compiled, state: State | None, order: Order) -> str:
    """The statement of the same page for a kind with too many streams."""
    past, direction = _directed(order)
    sql = _BY_HISTORY.replace("{state}", ":state IS NULL OR r.state = :state").replace("{where}", compiled.where)
    return sql.replace("{past}", past).replace("{direction}", direction) + _shown()


def _others(state: State | None) -> dict[str, tuple[str, str]]:
    """The streams of what is not available."""
    match state:
        case None:
            return {"waiting": _WAITING, "resting": _RESTING}
        case "ready":
            return {"waiting": _WAITING}
        case "dead":
            return {"dead": _DEAD}
        case _:
            return {"resting": _RESTING}


def _directed(order: Order) -> tuple[str, str]:
    return (">", "") if order == "asc" else ("<", " DESC")


def _priorities(source: _Available) -> str:
    return _PRIORITIES.replace("{index}", source.index).replace("{narrowed}", source.narrowed)


def counting(compiled: Compiled) -> str:
    """The statement that counts, up to one more than there may be, the streams of what is available."""
    source = _available(compiled.conjuncts)
    return _COUNT_PRIORITIES.replace("{index}", source.index).replace("{narrowed}", source.narrowed)


def _shown() -> str:
    return _SHOWN.replace("{columns}", RECORD_COLUMNS)
