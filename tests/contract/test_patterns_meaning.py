"""Patterns on every adapter: for generated bodies, types and patterns the database finds what the reference evaluates."""

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.kernel.limits import PAGE_ITEMS
from moorage.kernel.pages import PageRequest
from moorage.records.model import Draft
from moorage.records.patterns import evaluate, parse
from tests.contract.adapters import Store
from tests.contract.desk import Desk
from tests.unit.patterns.test_one_meaning import TYPES, cases

_numbers = count()


async def query(desk: Desk, kind: str, match: dict[str, Any], state: str | None = None) -> set[int]:
    """The places of the bodies that a query finds."""
    page = await desk.query(match, PageRequest(int(PAGE_ITEMS)), state, kind=kind)
    assert page.next_cursor is None
    return {record.metadata["place"] for record in page.items}


@pytest.mark.clause("records.pattern-one-meaning", "records.pattern")
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(case=cases(), priorities=st.lists(st.integers(-1, 1), min_size=8, max_size=8))
async def test_a_query_and_a_claim_find_what_the_reference_does(
    store: Store, case: tuple[list[Any], dict[str, Any]], priorities: list[int]
) -> None:
    bodies, match = case
    desk, kind = Desk(store), f"generated-{next(_numbers)}"
    paths = (await desk.declare(kind, TYPES)).paths
    await desk.publish_all(
        [Draft(kind, body, metadata={"place": n}, priority=priorities[n]) for n, body in enumerate(bodies)]
    )
    pattern, everything = parse(match, paths), set(range(len(bodies)))
    expected = {place for place, body in enumerate(bodies) if evaluate(pattern, body)}
    assert await query(desk, kind, match) == expected
    assert await query(desk, kind, {"$not": match}) == everything - expected
    assert await query(desk, kind, match, "ready") == expected
    taken = await desk.claim(match, limit=100, kind=kind)
    assert [held.record.metadata["place"] for held in taken] == sorted(expected, key=lambda n: (-priorities[n], n))
    assert await query(desk, kind, match, "claimed") == expected
    assert await query(desk, kind, {}, "ready") == everything - expected
