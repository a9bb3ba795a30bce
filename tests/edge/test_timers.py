"""Timers, values and outcomes on the real edge: fired by real alarms, across a kill, and raced for on D1."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from datetime import datetime
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import client, crowd, fresh, good, problem
from tests.edge.edges import EdgeFactory
from tests.edge.test_clock import eventually

pytestmark = pytest.mark.edge

FAR = {"a": 2_147_483.647, "b": 2_147_483.648, "c": 25 * 86400, "d": 50 * 86400, "e": 400 * 86400}
LAST = "9999-12-31T23:59:59.999Z"
EVENT = {"type": "ping", "data": {"n": 1}}


@pytest.fixture(scope="module")
def own(edge_factory: EdgeFactory) -> Iterator[LocalEdge]:
    """An edge that is killed. Its time is real."""
    edge = edge_factory()
    yield edge
    edge.stop()


def told(api: httpx.Client, timer: str, happened: str = "timer.fired") -> list[Any]:
    found = good(api.get("/history", params={"subject": f"timer:{timer}", "limit": 500}))["items"]
    return [one for one in found if one["type"] == happened]


def instant(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


@pytest.mark.clause("timers.fire", "timers.late", "timers.alarm")
def test_timers_fire_by_themselves_once_and_never_early(own: LocalEdge) -> None:
    """Case C08 too: what is far away stays as it was asked for, and the Clock does nothing about it."""
    with client(own) as api:
        sent: dict[str, Any] = {}
        for name, seconds in FAR.items():
            sent[name] = good(api.put(f"/timers/{name}", json={"delay_seconds": seconds, "event": EVENT}))
            assert abs(instant(sent[name]["fire_at"]) - instant(sent[name]["created_at"]) - seconds) < 0.0005
        sent["far"] = good(api.put("/timers/far", json={"fire_at": LAST, "event": EVENT}))
        for bad in ("-1", "1e21", '"soon"', "NaN", "null", "true"):
            raw = f'{{"event":{{"type":"ping"}},"delay_seconds":{bad}}}'
            problem(api.put("/timers/bad", content=raw, headers={"content-type": "application/json"}), 400, 422)
        soon = good(api.put("/timers/soon", json={"delay_seconds": 1, "event": EVENT}))
        each = good(api.put("/timers/each", json={"delay_seconds": 0, "every_seconds": 1, "event": EVENT}))
        good(api.put("/timers/gone", json={"delay_seconds": 1, "event": EVENT}))
        problem(api.delete("/timers/gone?revision=2"), 409)
        good(api.delete("/timers/gone?revision=1"))
        [fired] = eventually(lambda: told(api, "soon"))
        assert 0 <= instant(fired["at"]) - instant(soon["fire_at"]) < 15
        assert fired["data"] == {"added": True, "due": soon["fire_at"], "event": fired["data"]["event"]}
        occurrences = eventually(lambda: len(found := told(api, "each")) >= 3 and found)
        due = [instant(one["data"]["due"]) - instant(each["fire_at"]) for one in occurrences]
        assert due == list(range(len(due)))
        # What is due while nothing runs fires once that it does.
        good(api.put("/timers/late", json={"delay_seconds": 1.2, "event": EVENT}))
        own.kill()
    own.start()
    with client(own) as api:
        [late] = eventually(lambda: told(api, "late"), 30)
        assert late["data"]["added"] is True
        again = eventually(lambda: len(found := told(api, "each")) >= len(due) + 2 and found)
        assert [instant(one["data"]["due"]) - instant(each["fire_at"]) for one in again] == list(range(len(again)))
        assert (len(told(api, "soon")), len(told(api, "gone"))) == (1, 0)
        left = {one["id"]: one["fire_at"] for one in good(api.get("/timers"))["items"] if one["id"] != "each"}
        assert left == {name: one["fire_at"] for name, one in sent.items()}
        # It may fire between the two.
        eventually(lambda: api.delete(f"/timers/each?revision={good(api.get('/timers/each'))['revision']}").is_success)


async def together(requests: Sequence[Awaitable[httpx.Response]]) -> list[httpx.Response]:
    return list(await asyncio.gather(*requests))


@pytest.mark.clause("kv.ops", "inbox.consumer", "timers.fire")
async def test_of_those_who_write_at_once_one_wins(own: LocalEdge) -> None:
    space, consumer, timer = fresh("space"), fresh("consumer"), fresh("timer")
    async with crowd(own) as many:
        puts = await together([many.put(f"/kv/{space}/k", json={"value": n, "revision": 0}) for n in range(12)])
        [won] = [answer.json() for answer in puts if answer.status_code == 200]
        assert [answer.status_code for answer in puts].count(409) == 11
        assert (await many.get(f"/kv/{space}/k")).json() == won
        made = await together(
            [many.post(f"/inbox/{consumer}/e", json={"outcome": n, "kv": {space: {f"o{n}": n}}}) for n in range(12)]
        )
        assert sorted(answer.status_code for answer in made) == [200] * 11 + [201]
        [outcome] = {answer.json()["outcome"] for answer in made}
        listed = (await many.get(f"/kv/{space}", params={"prefix": "o"})).json()["items"]
        assert [(one["key"], one["value"]) for one in listed] == [(f"o{outcome}", outcome)]
        sent = [{"delay_seconds": 3600 + n, "event": EVENT, "revision": 0} for n in range(12)]
        timers = await together([many.put(f"/timers/{timer}", json=one) for one in sent])
        assert sorted(answer.status_code for answer in timers) == [200] + [409] * 11
