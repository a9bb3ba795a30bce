"""Query plans: every statement on records goes by an index, whatever the pattern."""

import re
from itertools import product
from typing import Any

import pytest

from moorage.records import statements
from moorage.records.model import State
from moorage.records.page_statements import Order, by_history, counting, merged
from moorage.records.patterns import claim_candidates, compile, parse
from moorage.store.transaction import positional
from tests.contract.adapters import Store
from tests.contract.desk import KIND, Desk
from tests.contract.test_statements import statements as every_statement


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
}
"""What reads an index of the leased alone: its first entry."""

_OWN = "CONSTANT ROW|reached|nearest|choice|sized|met|chosen|walk|priorities|p|m|seen|walked"
_SCAN = re.compile(rf"\bSCAN (?!(?:{_OWN})\b|\w+ (?:EXISTS )?VIRTUAL TABLE|\(subquery)")


def standing_alone() -> list[tuple[str, str]]:
    """Every statement of the room's main module, with the parts filled that a pattern or another statement fills."""
    room = "records.statements."
    return [(name.removeprefix(room), sql) for name, sql in every_statement().items() if name.startswith(room)]


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
async def test_every_claim_and_requeue_goes_by_an_index(desk: Desk, match: dict[str, Any]) -> None:
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


ORDERS: list[Order] = ["asc", "desc"]
STATES: list[State | None] = [None, "ready", "claimed", "consumed", "dead"]


@pytest.mark.clause("records.pattern-safe")
@pytest.mark.parametrize("match", PATTERNS, ids=str)
async def test_every_page_goes_by_the_indexes_of_its_streams_and_sorts_nothing(desk: Desk, match: dict[str, Any]) -> None:
    kind = await desk.kinds.get(desk.db(), desk.now, KIND)
    compiled = compile(parse(match, kind.paths))
    for state, order in product(STATES, ORDERS):
        for sql in (merged(compiled, state, order), by_history(compiled, state, order), counting(compiled)):
            steps = await plan(desk.store, sql)
            assert not [step for step in steps if _SCAN.search(step)], (state, order, steps)
            assert not [step for step in steps if "TEMP B-TREE" in step], (state, order, steps)


@pytest.mark.clause("records.pattern-safe")
async def test_a_page_of_an_equality_takes_what_is_available_from_the_slots_index(desk: Desk) -> None:
    kind = await desk.kinds.get(desk.db(), desk.now, KIND)
    slot = kind.paths["to"].slot
    steps = await plan(desk.store, merged(compile(parse({"to": "a", "size": {"$gt": 1}}, kind.paths)), "ready", "asc"))
    assert not [step for step in steps if "records_ready" in step]
    assert [step for step in steps if f"records_by_s{slot} (kind=? AND s{slot}=? AND priority=? AND seq>?)" in step]
