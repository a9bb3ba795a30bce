"""Routing beside requests: one pass at a time, whatever comes, and what a lost one leaves is made good."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import httpx
import pytest

from moorage.api.routing_events import ACCEPTED, Routing
from moorage.messages.inbox.wait_statements import UNROUTED_MS
from tests.unit.api.conftest import House


class Passes:
    """What was left to be done beside requests, and a clock."""

    def __init__(self) -> None:
        self.left: list[Coroutine[Any, Any, None]] = []
        self.seconds = 1.0


@pytest.mark.clause("inbox.two-checkpoints")
async def test_one_pass_routes_what_came_while_it_was_to_begin(house: House) -> None:
    passes = Passes()
    routing = Routing(lambda: passes.seconds)

    def entered(*types: str) -> None:
        routing.entered(types, house.database, lambda: house.now, passes.left.append)

    entered("record.published")
    assert passes.left == []
    for _ in range(3):
        entered(ACCEPTED)
    assert len(passes.left) == 1
    passes.seconds += 2.1
    entered(ACCEPTED)  # the first pass was lost with its request
    assert len(passes.left) == 2
    await passes.left.pop()
    entered(ACCEPTED)
    assert len(passes.left) == 2
    for one in passes.left:
        one.close()


@pytest.mark.clause("inbox.two-checkpoints", "inbox.accept")
async def test_an_accepted_event_is_routed_beside_its_request_and_the_clock_is_told(
    house: House, root: httpx.AsyncClient
) -> None:
    sent = {"specversion": "1.0", "id": "e1", "source": "/shop", "type": "paid", "subject": "order-7"}
    told = (await root.post("/events", json=sent)).json()
    assert (house.now + UNROUTED_MS, "messages") in house.dues
    for _ in range(10):
        await asyncio.sleep(0)
    shown = (await root.get(f"/events/{told['event_id']}")).json()
    assert shown["disposition"] == "unmatched"
