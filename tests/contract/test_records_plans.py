"""Query plans: every statement on records goes by an index, whatever the pattern."""

import re
from typing import Any

import pytest

from moorage.kernel.pages import PageRequest
from moorage.records import query, statements
from moorage.records.patterns import claim_candidates, compile, parse
from moorage.store.transaction import positional
from tests.contract.adapters import Store
from tests.contract.desk import KIND, Desk


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    return made


PATTERNS: list[dict[str, Any]] = [
    {},
    {"to": "a"},
    {"to": "a", "size": 1},
    {"to": "a", "size": {"$gt": 1}},
    {"size": {"$gt": 1, "$lte": 5}},
    {"size": {"$in": [1, 2, 3]}},
    {"tags": {"$any": ["x"]}},
    {"$or": [{"to": "a"}, {"size": 1}]},
    {"$not": {"to": "a"}},
    {"any": None},
]

INDEX_ORDER = {
    "EARLIEST_EXPIRY": "records_leased",
    "EARLIEST_DELAY": "records_waiting",
    "OF_CLAIM": "records_leased",
}
"""What reads an index of the leased or the waiting alone: its first entry, or all of it to replay a claim."""

_SCAN = re.compile(r"\bSCAN (?!CONSTANT ROW|reached|nearest|choice|\w+ (?:EXISTS )?VIRTUAL TABLE|\(subquery)")


def standing_alone() -> list[tuple[str, str]]:
    """Every statement of the room, with the holes that a pattern fills filled."""
    found = []
    for name, sql in vars(statements).items():
        if not name.isupper() or name.startswith("_") or name.endswith("COLUMNS") or not isinstance(sql, str):
            continue
        chosen = statements.CHOSEN_ONE if name in ("REQUEUE", "REQUEUED") else ""
        whole = sql.replace("{chosen}", chosen).replace("{where}", "r.s1 = 's'").replace("{narrowed}", "")
        found.append((name, whole.replace("{candidates}", "SELECT 1")))
    return found


async def plan(store: Store, sql: str) -> list[str]:
    """The steps of a statement's plan."""
    text, names = positional(sql)
    rows = await store.sql(f"EXPLAIN QUERY PLAN {text}", *(["[]"] * len(names)))
    return [row["detail"] for row in rows]


@pytest.mark.clause("records.claim", "records.pattern-safe")
async def test_no_statement_walks_a_whole_table(desk: Desk) -> None:
    found = standing_alone()
    assert len(found) > 35
    for name, sql in found:
        steps = await plan(desk.store, sql)
        walked = [step for step in steps if _SCAN.search(step)]
        if name in INDEX_ORDER:
            assert len(walked) == 1, (name, steps)
            assert f"INDEX {INDEX_ORDER[name]}" in walked[0]
        else:
            assert walked == [], (name, steps)


@pytest.mark.clause("records.claim", "records.pattern-safe")
@pytest.mark.parametrize("match", PATTERNS, ids=str)
async def test_every_claim_query_and_requeue_goes_by_an_index(desk: Desk, match: dict[str, Any]) -> None:
    kind = await desk.kinds.get(desk.db(), desk.now, KIND)
    compiled = compile(parse(match, kind.paths))
    asked = {
        "claim": statements.CLAIM.replace("{candidates}", claim_candidates(compiled)),
        "dead letters": statements.DEAD_OF_KIND.replace("{narrowed}", f"AND ({compiled.where})"),
        "requeue": statements.REQUEUE.replace("{chosen}", statements.CHOSEN_DEAD.replace("{where}", compiled.where)),
    }
    for name, sql in asked.items():
        steps = await plan(desk.store, sql)
        assert not [step for step in steps if _SCAN.search(step)], (name, steps)
    recorder = Recorder()
    with pytest.raises(Recorded):
        await desk_query(desk, recorder, match)
    steps = await plan(desk.store, recorder.sql)
    assert not [step for step in steps if _SCAN.search(step)], steps
    assert not [step for step in steps if "TEMP B-TREE" in step], steps


class Recorded(Exception):
    """The statement was seen; nothing was sent."""


class Recorder:
    """A Database that keeps what it is asked and answers nothing."""

    def __init__(self) -> None:
        self.sql = ""

    async def read(self, reading: Any) -> None:
        [statement] = list(reading)
        self.sql = re.sub(r"\?(\d+)", r":p\1", statement.sql)
        raise Recorded

    async def commit(self, tx: Any) -> None:
        raise AssertionError("a query commits nothing")


async def desk_query(desk: Desk, db: Any, match: dict[str, Any]) -> None:
    await query.query(db, desk.kinds, desk.caller, desk.now, KIND, match, PageRequest())
