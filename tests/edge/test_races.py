"""Races on the real edge, fired from many connections at once: each has exactly one outcome, and nobody gets a 5xx."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import client, crowd, declare, fresh, good, problem

pytestmark = pytest.mark.edge

CONNECTIONS = 25


async def together(requests: Iterable[Awaitable[httpx.Response]]) -> list[httpx.Response]:
    """All answers; none of them a 5xx."""
    answers = list(await asyncio.gather(*requests))
    for answer in answers:
        assert answer.status_code < 500, answer.text
    return answers


def count(answers: Iterable[httpx.Response]) -> Counter[int]:
    return Counter(answer.status_code for answer in answers)


def entries(edge: LocalEdge, record: str) -> list[str]:
    """The types of a record's history, oldest first."""
    with client(edge) as api:
        return [item["type"] for item in good(api.get(f"/records/{record}/history", params={"limit": 500}))["items"]]


def records_of(edge: LocalEdge, kind: str) -> list[dict[str, Any]]:
    with client(edge) as api:
        items: list[dict[str, Any]] = good(api.post("/records/query", json={"kind": kind, "limit": 500}))["items"]
        return items


def published(edge: LocalEdge, records: int, **policy: Any) -> tuple[str, list[str]]:
    """A kind of its own with that many records."""
    with client(edge) as api:
        kind = declare(api, fresh("race"), {"n": "number"}, **policy)
        batch = [{"kind": kind, "body": {"n": number}} for number in range(records)]
        return kind, [one["id"] for one in good(api.post("/records/batch", json={"records": batch}))["records"]]


def claimed(edge: LocalEdge) -> tuple[str, str, int]:
    """(kind, record, epoch) of a record that was just claimed."""
    kind, (record,) = published(edge, 1)
    with client(edge) as api:
        (claim,) = good(api.post("/claims", json={"kind": kind, "worker": "holder"}))["claims"]
    return kind, record, claim["lease"]["epoch"]


@pytest.mark.clause("records.claim", "leases.claim")
@pytest.mark.parametrize("limit", [1, 7])
async def test_a_hundred_claimers_get_each_of_a_hundred_records_exactly_once(edge: LocalEdge, limit: int) -> None:
    kind, ids = published(edge, 100)
    async with crowd(edge, CONNECTIONS) as api:
        wish = {"kind": kind, "limit": limit, "match": {"n": {"$gte": 0}}}
        answers = await together(api.post("/claims", json={**wish, "worker": f"w{number}"}) for number in range(100))
    claims = [(claim, number) for number, answer in enumerate(answers) for claim in good(answer)["claims"]]
    assert Counter(claim["record"]["id"] for claim, _ in claims) == Counter(ids)
    assert all(claim["lease"]["owner"] == f"w{number}" for claim, number in claims)
    for record in ids[::20]:
        assert entries(edge, record) == ["record.published", "record.claimed"]


@pytest.mark.clause("records.publish", "records.claim")
async def test_publishers_and_claimers_at_once_lose_and_double_nothing(edge: LocalEdge) -> None:
    kind, ids = published(edge, 1)

    async def publish(api: httpx.AsyncClient, number: int) -> httpx.Response:
        return await api.post("/records", json={"kind": kind, "body": {"n": number}})

    async def claim_until_dry(api: httpx.AsyncClient, worker: str) -> list[str]:
        taken: list[str] = []
        dry = 0
        while dry < 3 and len(taken) < 61:
            found = good(await api.post("/claims", json={"kind": kind, "worker": worker, "limit": 3}))["claims"]
            taken += [claim["record"]["id"] for claim in found]
            dry = 0 if found else dry + 1
        return taken

    async with crowd(edge, CONNECTIONS) as api:
        made, takings = await asyncio.gather(
            together(publish(api, number) for number in range(60)),
            asyncio.gather(*(claim_until_dry(api, f"w{number}") for number in range(5))),
        )
        rest = await claim_until_dry(api, "last")
    ids += [good(answer)["id"] for answer in made]
    assert Counter(record for taken in [*takings, rest] for record in taken) == Counter(ids)


@pytest.mark.clause("awake.route", "awake.idempotent")
async def test_of_twenty_different_posts_to_one_token_one_wins(edge: LocalEdge) -> None:
    async with crowd(edge, CONNECTIONS) as api:
        for _ in range(3):
            token = good(await api.post("/awakeables", json={"ttl_seconds": 600}))["token"]
            answers = await together(api.post(f"/awake/{token}", json={"n": number}) for number in range(20))
            assert count(answers) == {200: 1, 409: 19}
            (won,) = [answer.json() for answer in answers if answer.status_code == 200]
            for answer in answers:
                if answer.status_code == 409:
                    assert problem(answer)["code"] == "AwakeableAlreadyResolved"
            shown = good(await api.get(f"/awake/{token}"))
            assert (shown["state"], shown["payload"]) == ("resolved", won)
            history = good(await api.get("/history", params={"subject": shown["id"]}))["items"]
            assert [item["type"] for item in history].count("awakeable.resolved") == 1


@pytest.mark.clause("awake.idempotent")
async def test_twenty_equal_posts_to_one_token_all_get_the_recorded_payload(edge: LocalEdge) -> None:
    async with crowd(edge, CONNECTIONS) as api:
        token = good(await api.post("/awakeables", json={"ttl_seconds": 600}))["token"]
        spelled = [b'{"ok":true,"n":1}', b'{ "n": 1.0, "ok": true }']
        headers = {"content-type": "application/json"}
        answers = await together(api.post(f"/awake/{token}", content=spelled[n % 2], headers=headers) for n in range(20))
        assert count(answers) == {200: 20}
        assert {answer.text for answer in answers} == {'{"n":1,"ok":true}'}


@pytest.mark.clause("awake.route", "awake.reject")
async def test_resolving_and_rejecting_at_once_has_one_outcome(edge: LocalEdge) -> None:
    async with crowd(edge, CONNECTIONS) as api:
        token = good(await api.post("/awakeables", json={"ttl_seconds": 600}))["token"]
        reject = {"tag": "Permanent", "message": "no"}
        answers = await together(
            api.post(f"/awake/{token}/reject", json=reject) if number % 2 else api.post(f"/awake/{token}", json="yes")
            for number in range(20)
        )
        state = good(await api.get(f"/awake/{token}"))["state"]
        won = [number for number, answer in enumerate(answers) if answer.status_code == 200]
        assert {number % 2 for number in won} == ({1} if state == "rejected" else {0}), (state, count(answers))
        assert count(answers).keys() <= {200, 409, 410}


@pytest.mark.clause("records.idempotent")
async def test_fifty_equal_publishes_under_one_key_make_one_record(edge: LocalEdge) -> None:
    kind, _ = published(edge, 1)
    wish = {"kind": kind, "body": {"n": 7, "m": [1, 2]}, "metadata": {"by": "all"}}
    async with crowd(edge, CONNECTIONS) as api:
        headers = {"idempotency-key": fresh("key")}
        answers = await together(api.post("/records", json=wish, headers=headers) for _ in range(50))
        assert count(answers) == {201: 50}
        assert len({answer.text for answer in answers}) == 1
        other = await api.post("/records", json={**wish, "priority": 1}, headers=headers)
        assert problem(other, 409)["code"] == "IdempotencyConflict"
    assert len(records_of(edge, kind)) == 2


@pytest.mark.clause("records.idempotent")
async def test_of_different_publishes_under_one_key_one_wins(edge: LocalEdge) -> None:
    kind, _ = published(edge, 1)
    async with crowd(edge, CONNECTIONS) as api:
        headers = {"idempotency-key": fresh("key")}
        answers = await together(
            api.post("/records/batch", json={"records": [{"kind": kind, "body": {"n": number}}] * 3}, headers=headers)
            for number in range(10)
        )
        assert count(answers) == {201: 1, 409: 9}
    assert len(records_of(edge, kind)) == 1 + 3


@pytest.mark.clause("records.publish")
async def test_of_equal_ids_published_at_once_one_is_stored(edge: LocalEdge) -> None:
    kind, _ = published(edge, 1)
    wish = {"kind": kind, "body": {"n": 1}, "id": fresh("mine")}
    async with crowd(edge, CONNECTIONS) as api:
        answers = await together(api.post("/records", json=wish) for _ in range(20))
    assert count(answers) == {201: 1, 409: 19}
    assert len(records_of(edge, kind)) == 2


@pytest.mark.clause("records.idempotent", "records.claim")
async def test_equal_claims_under_one_key_are_one_claim(edge: LocalEdge) -> None:
    kind, ids = published(edge, 10)
    async with crowd(edge, CONNECTIONS) as api:
        headers = {"idempotency-key": fresh("key")}
        wish = {"kind": kind, "worker": "w", "limit": 4}
        answers = await together(api.post("/claims", json=wish, headers=headers) for _ in range(20))
    assert len({answer.text for answer in answers}) == 1
    assert [claim["record"]["id"] for claim in good(answers[0])["claims"]] == ids[:4]
    assert Counter(one["state"] for one in records_of(edge, kind)) == {"ready": 6, "claimed": 4}


@pytest.mark.clause("records.settle-replay", "records.settle")
async def test_equal_settlements_at_once_have_one_receipt_and_one_set_of_results(edge: LocalEdge) -> None:
    kind, record, epoch = claimed(edge)
    wish = {"epoch": epoch, "results": [{"kind": kind, "body": {"n": number}} for number in range(3)]}
    async with crowd(edge, CONNECTIONS) as api:
        answers = await together(api.post(f"/claims/{record}/settle", json=wish) for _ in range(20))
        assert count(answers) == {200: 20}
        assert len({answer.text for answer in answers}) == 1
        other = await api.post(f"/claims/{record}/settle", json={"epoch": epoch})
        assert problem(other, 409)["code"] == "SettlementConflict"
    assert len(records_of(edge, kind)) == 1 + 3
    assert entries(edge, record) == ["record.published", "record.claimed", "record.settled"]


@pytest.mark.clause("records.settle", "leases.fence")
async def test_settle_fail_renew_and_release_at_once_end_a_claim_once(edge: LocalEdge) -> None:
    for _ in range(3):
        kind, record, epoch = claimed(edge)
        error = {"tag": "Transient", "message": "boom"}
        calls: list[tuple[str, dict[str, Any]]] = [
            ("settle", {"epoch": epoch, "results": [{"kind": kind, "body": {}}]}),
            ("fail", {"epoch": epoch, "error": error}),
            ("release", {"epoch": epoch}),
            ("fail", {"epoch": epoch, "error": error, "dead_letter": True}),
        ]
        async with crowd(edge, CONNECTIONS) as api:
            answers = await together(api.post(f"/claims/{record}/{end}", json=body) for end, body in calls * 3)
            shown = good(await api.get(f"/records/{record}"))
        ended = {end for (end, _), answer in zip(calls * 3, answers, strict=True) if answer.is_success}
        history = entries(edge, record)
        assert len(ended) == 1
        assert len([one for one in history if one not in ("record.published", "record.claimed")]) == 1, history
        assert len(records_of(edge, kind)) == 1 + ("settle" in ended)
        assert shown["state"] == {"settle": "consumed", "release": "ready"}.get(ended.pop(), shown["state"])


@pytest.mark.clause("leases.claim")
async def test_holders_that_settle_as_their_leases_run_out_are_settled_or_refused_never_both(edge: LocalEdge) -> None:
    kind, ids = published(edge, 40, lease_seconds=1, retry={"delay_seconds": 0})
    async with crowd(edge, CONNECTIONS) as api:
        first = good(await api.post("/claims", json={"kind": kind, "worker": "first", "limit": 100}))["claims"]
        assert len(first) == 40

        async def settle(number: int, claim: dict[str, Any]) -> httpx.Response:
            await asyncio.sleep(0.7 + number * 0.015)  # the race is against the real clock: around the leases' end
            return await api.post(f"/claims/{claim['record']['id']}/settle", json={"epoch": claim["lease"]["epoch"]})

        answers = await together(settle(number, claim) for number, claim in enumerate(first))
        good(await api.post("/testing/clock", json={"advance_seconds": 2}))
        again = good(await api.post("/claims", json={"kind": kind, "worker": "second", "limit": 100}))["claims"]
    settled = {claim["record"]["id"] for claim, answer in zip(first, answers, strict=True) if answer.is_success}
    taken = {claim["record"]["id"]: claim for claim in again}
    assert settled | taken.keys() == set(ids)
    assert not settled & taken.keys()
    assert all(claim["lease"]["epoch"] > 1 and claim["lease"]["attempt"] == 2 for claim in again)
    assert {one["id"] for one in records_of(edge, kind) if one["state"] == "consumed"} == settled
    for record in list(settled)[:5]:
        assert entries(edge, record) == ["record.published", "record.claimed", "record.settled"]


@pytest.mark.clause("records.dead-letter")
async def test_requeuing_a_dead_letter_many_times_at_once_revives_it_once(edge: LocalEdge) -> None:
    _, record, epoch = claimed(edge)
    async with crowd(edge, CONNECTIONS) as api:
        ending = {"epoch": epoch, "error": {"tag": "Permanent", "message": "no"}, "dead_letter": True}
        assert good(await api.post(f"/claims/{record}/fail", json=ending))["record"]["state"] == "dead"
        answers = await together(api.post(f"/dead-letters/{record}/requeue", json={"reason": "again"}) for _ in range(10))
    assert count(answers) == {200: 1, 409: 9}
    assert entries(edge, record).count("record.requeued") == 1


@pytest.mark.clause("catalog.kind")
async def test_redeclaring_a_kind_under_a_stream_of_publishes_indexes_every_record(edge: LocalEdge) -> None:
    kind, _ = published(edge, 1)
    async with crowd(edge, CONNECTIONS) as api:

        async def redeclare(number: int) -> httpx.Response:
            paths = {"n": "number", **{f"p{one}": "number" for one in range(number)}}
            return await api.put(f"/kinds/{kind}", json={"paths": paths})

        answers = await together(
            redeclare(1 + number // 10)
            if number % 10 == 0
            else api.post("/records", json={"kind": kind, "body": {"n": number, "p0": number}})
            for number in range(60)
        )
        stored = sum(answer.status_code == 201 for answer in answers)
        assert stored >= 45
        good(await redeclare(8))
        found = good(await api.post("/records/query", json={"kind": kind, "match": {"p0": {"$gt": 0}}, "limit": 500}))[
            "items"
        ]
    assert len(found) == stored
