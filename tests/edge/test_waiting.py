"""Claims that wait on the real edge: many of them, woken at once, each with a record of its own."""

import asyncio
import re
import time
from collections import Counter
from datetime import datetime
from statistics import median, quantiles
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import client, crowd, declare, fresh, good

pytestmark = pytest.mark.edge

CLAIMERS = 200
PUBLISHES = 1000
LAST = -1


def trips(answer: httpx.Response) -> int:
    """D1 round trips that a request made, those included that the Bell made for all while it waited there."""
    found = re.search(r"trips=(\d+)", answer.headers["server-timing"])
    assert found is not None
    return int(found[1])


def kind_of(edge: LocalEdge, **policy: Any) -> str:
    with client(edge) as api:
        return declare(api, fresh("waiting"), {"n": "number"}, lease_seconds=3600, **policy)


def milliseconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000


class Claimers:
    """Workers that claim and wait again and again, until each has got a record that says that it is the last."""

    def __init__(self, api: httpx.AsyncClient, kind: str) -> None:
        self.api = api
        self.kind = kind
        self.taken: list[tuple[str, float]] = []
        self.epochs: dict[str, int] = {}
        self.trips = 0
        self.ended = 0

    async def settle(self) -> None:
        """End all claims, so that no later test that moves the clock has to wait until they have run out."""
        items = [{"record": record, "epoch": epoch} for record, epoch in self.epochs.items()]
        for start in range(0, len(items), 100):
            good(await self.api.post("/claims/settle", json={"items": items[start : start + 100]}))

    async def work(self, number: int) -> None:
        sent = {"kind": self.kind, "worker": f"w{number}", "wait_seconds": 25}
        while True:
            answer = await self.api.post("/claims", json=sent)
            self.trips += trips(answer)
            for claim in good(answer)["claims"]:
                self.epochs[claim["record"]["id"]] = claim["lease"]["epoch"]
                if claim["record"]["body"]["n"] == LAST:
                    self.ended += 1
                    return
                self.taken.append((claim["record"]["id"], time.monotonic()))


@pytest.mark.clause("records.claim-wait", "records.claim")
async def test_two_hundred_claimers_get_a_thousand_records_once_each_and_soon(edge: LocalEdge) -> None:
    kind = kind_of(edge)
    async with crowd(edge, CLAIMERS + 5) as api:
        claimers = Claimers(api, kind)
        workers = [asyncio.create_task(claimers.work(number)) for number in range(CLAIMERS)]
        await asyncio.sleep(2)
        sent: dict[str, float] = {}
        for number in range(PUBLISHES):
            begun = time.monotonic()
            record = good(await api.post("/records", json={"kind": kind, "body": {"n": number}}))["id"]
            sent[record] = begun
        ends = [{"kind": kind, "body": {"n": LAST}, "priority": -1}] * CLAIMERS
        good(await api.post("/records/batch", json={"records": ends}))
        await asyncio.gather(*workers)
        await claimers.settle()
        assert claimers.ended == CLAIMERS
        assert Counter(record for record, _ in claimers.taken) == Counter(list(sent))
        history: list[dict[str, Any]] = []
        after, reached = -1, 0
        while reached != after:  # entries of other kinds are looked through too, so an empty page need not be the last
            after = reached
            params = {"kind": kind, "after": str(after)}
            found = good(await api.get("/watch", params=params, headers={"accept": "application/json"}))
            history += found["items"]
            reached = found["next"]
    at = {kept: {one["subject"]: milliseconds(one["at"]) for one in history if one["type"] == kept} for kept in TYPES}
    woken = [at["record.claimed"][record] - at["record.published"][record] for record in sent]
    seen = [(end - sent[record]) * 1000 for record, end in claimers.taken]
    # From the publish that was taken in to the claim that was tried; and from one client's request to the other's answer.
    print(f"\nwoken after {median(woken):.0f} ms (p95 {quantiles(woken, n=20)[-1]:.0f}), ", end="")
    print(f"client to client {median(seen):.0f} ms (p95 {quantiles(seen, n=20)[-1]:.0f}), {claimers.trips} claims tried")
    assert median(woken) < 50
    # Each record costs a claim that takes it and one that finds nothing; few are woken in vain.
    assert claimers.trips < 2.5 * PUBLISHES + 5 * CLAIMERS


TYPES = ("record.published", "record.claimed")


@pytest.mark.clause("records.claim-wait")
async def test_two_hundred_idle_claimers_ask_the_database_once_for_all(edge: LocalEdge) -> None:
    kind = kind_of(edge)
    async with crowd(edge, CLAIMERS) as api:
        sent = {"kind": kind, "worker": "w", "wait_seconds": 12}
        begun = time.monotonic()
        answers = await asyncio.gather(*(api.post("/claims", json=sent) for _ in range(CLAIMERS)))
        assert time.monotonic() - begun < 25
    assert {answer.text for answer in answers} == {'{"claims":[]}'}
    total = sum(trips(answer) for answer in answers)
    print(f"\n{total} D1 round trips of {CLAIMERS} claims that waited 12 s")
    # One each to find nothing, one more each where the Bell was younger than the claim, and two looks for all.
    assert total <= 2 * CLAIMERS + 4


@pytest.mark.clause("records.claim-wait")
async def test_a_waiting_claim_wakes_for_whatever_makes_a_record_claimable(edge: LocalEdge) -> None:
    kind = kind_of(edge, max_attempts=50)
    error = {"tag": "Transient", "message": "no"}
    async with crowd(edge, 5) as api:
        record = good(await api.post("/records", json={"kind": kind, "body": {"n": 1}}))["id"]

        async def claim(**sent: Any) -> tuple[str, int]:
            wish = {"kind": kind, "worker": "w", "wait_seconds": 20, **sent}
            (found,) = good(await api.post("/claims", json=wish))["claims"]
            return found["record"]["id"], found["lease"]["epoch"]

        async def woken(path: str, sent: dict[str, Any]) -> int:
            waiting = asyncio.create_task(claim())
            await asyncio.sleep(0.2)
            begun = time.monotonic()
            good(await api.post(path, json=sent))
            found, epoch = await waiting
            assert found == record
            assert time.monotonic() - begun < 5, path
            return epoch

        _, epoch = await claim()
        epoch = await woken(f"/claims/{record}/release", {"epoch": epoch})
        epoch = await woken(f"/claims/{record}/fail", {"epoch": epoch, "error": error, "retry_after_seconds": 0})
        epoch = await woken("/testing/clock", {"advance_seconds": 3601})
        delayed = {"epoch": epoch, "error": error, "retry_after_seconds": 1000}
        good(await api.post(f"/claims/{record}/fail", json=delayed))
        epoch = await woken("/testing/clock", {"advance_seconds": 1001})
        dead = {"epoch": epoch, "error": error, "dead_letter": True}
        good(await api.post(f"/claims/{record}/fail", json=dead))
        epoch = await woken(f"/dead-letters/{record}/requeue", {"reason": "again"})
        # A real alarm, in real time.
        assert good(await api.post(f"/claims/{record}/release", json={"epoch": epoch})) is None
        begun = time.monotonic()
        await claim(lease_seconds=1)
        assert (await claim())[0] == record
        assert 0.99 < time.monotonic() - begun < 6
