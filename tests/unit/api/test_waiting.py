"""Claims that wait: they end when something matches, and cost nothing meanwhile."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.timers.bell import RESCAN_SECONDS, Ring
from tests.unit.api.conftest import House, client_of

CLAIM = {"kind": "job", "worker": "w", "wait_seconds": 25}


@pytest.fixture
async def api(house: House) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(house.ports())) as client:
        (await client.put("/kinds/job", json={"paths": {"n": "number"}, "claim": {"max_attempts": 9}})).raise_for_status()
        yield client


async def publish(api: httpx.AsyncClient, n: int = 1, **changes: Any) -> str:
    answer = await api.post("/records", json={"kind": "job", "body": {"n": n}, **changes})
    record: str = answer.raise_for_status().json()["id"]
    return record


async def waiting(house: House, api: httpx.AsyncClient, **changes: Any) -> "asyncio.Task[httpx.Response]":
    """A claim that is parked."""
    headers = changes.pop("headers", {})
    before = house.bells.bell("job").heard.claims
    task = asyncio.create_task(api.post("/claims", json={**CLAIM, **changes}, headers=headers))
    while house.bells.bell("job").heard.claims == before:
        assert not task.done(), task.result().text
        await asyncio.sleep(0)
    return task


async def claimed(task: "asyncio.Task[httpx.Response]") -> list[tuple[str, int]]:
    """(record, epoch) of what a claim took; it must have been rung for, and found by no look."""
    answer = await asyncio.wait_for(task, RESCAN_SECONDS / 2)
    return [(one["record"]["id"], one["lease"]["epoch"]) for one in answer.raise_for_status().json()["claims"]]


def trips(answer: httpx.Response) -> int:
    found = re.search(r"trips=(\d+)", answer.headers["server-timing"])
    assert found is not None
    return int(found[1])


@pytest.mark.clause("records.claim-wait")
async def test_it_ends_when_a_record_is_published(house: House, api: httpx.AsyncClient) -> None:
    task = await waiting(house, api)
    record = await publish(api)
    assert await claimed(task) == [(record, 1)]


@pytest.mark.clause("records.claim-wait")
async def test_it_does_not_wait_where_something_matches(house: House, api: httpx.AsyncClient) -> None:
    record = await publish(api)
    answer = await api.post("/claims", json=CLAIM)
    assert [one["record"]["id"] for one in answer.json()["claims"]] == [record]
    assert trips(answer) == 1


@pytest.mark.clause("records.claim-wait")
async def test_it_ends_when_a_record_is_released_failed_recovered_due_or_requeued(
    house: House, api: httpx.AsyncClient
) -> None:
    record = await publish(api)
    (first,) = await claimed(asyncio.create_task(api.post("/claims", json=CLAIM)))
    epoch = first[1]

    async def again(method: str, **sent: Any) -> int:
        task = await waiting(house, api)
        (await api.post(f"/claims/{record}/{method}", json={"epoch": epoch, **sent})).raise_for_status()
        ((found, now),) = await claimed(task)
        assert found == record
        return now

    error = {"tag": "Transient", "message": "no"}
    epoch = await again("release")
    epoch = await again("fail", error=error, retry_after_seconds=0)
    task = await waiting(house, api)
    await house.advance(30)
    ((_, epoch),) = await claimed(task)
    (
        await api.post(f"/claims/{record}/fail", json={"epoch": epoch, "error": error, "retry_after_seconds": 60})
    ).raise_for_status()
    task = await waiting(house, api)
    await house.advance(60)
    ((_, epoch),) = await claimed(task)
    (await api.post(f"/claims/{record}/fail", json={"epoch": epoch, "error": error, "dead_letter": True})).raise_for_status()
    task = await waiting(house, api)
    (await api.post(f"/dead-letters/{record}/requeue", json={"reason": "again"})).raise_for_status()
    assert await claimed(task) == [(record, epoch + 1)]


@pytest.mark.clause("records.claim-wait")
async def test_it_ends_with_nothing_when_its_time_is_over(house: House, api: httpx.AsyncClient) -> None:
    answer = await api.post("/claims", json={**CLAIM, "wait_seconds": 0.05})
    assert answer.json() == {"claims": []}
    assert house.bells.bell("job").heard.claims == 0


@pytest.mark.clause("records.claim-wait")
async def test_each_of_many_gets_its_own_record_and_wakes_for_few_others(house: House, api: httpx.AsyncClient) -> None:
    tasks = [await waiting(house, api, worker=f"w{number}") for number in range(50)]
    records = [await publish(api, number) for number in range(50)]
    taken = [one for task in tasks for one in await claimed(task)]
    assert sorted(record for record, _ in taken) == sorted(records)
    spent = [trips(task.result()) for task in tasks]
    # One to find nothing, perhaps one more because the bell was new, one to find the record; few were woken in vain.
    assert sum(spent) <= 50 * 3 + 10


@pytest.mark.clause("records.claim-wait")
async def test_patterns_are_not_kept_waiting_by_one_another(house: House, api: httpx.AsyncClient) -> None:
    one = await waiting(house, api, match={"n": 1})
    two = await waiting(house, api, match={"n": 2})
    record = await publish(api, 2)
    assert await claimed(two) == [(record, 1)]
    assert not one.done()
    assert await claimed(one if await publish(api, 1) else two)


@pytest.mark.clause("records.claim-wait", "records.idempotent")
async def test_under_a_key_the_answer_that_is_remembered_is_the_one_that_was_given(
    house: House, api: httpx.AsyncClient
) -> None:
    headers = {"idempotency-key": "k"}
    task = await waiting(house, api, headers=headers)
    record = await publish(api)
    assert await claimed(task) == [(record, 1)]
    again = await api.post("/claims", json=CLAIM, headers=headers)
    assert again.json() == task.result().json()
    headers, empty = {"idempotency-key": "other"}, {**CLAIM, "wait_seconds": 0.01}
    assert (await api.post("/claims", json=empty, headers=headers)).json() == {"claims": []}
    await publish(api)
    assert (await api.post("/claims", json=empty, headers=headers)).json() == {"claims": []}


@pytest.mark.clause("records.claim-wait")
async def test_a_record_whose_ring_was_lost_is_found_by_looking_and_rung_for_again(
    house: House, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [await waiting(house, api) for _ in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(house.bells, "ring", lambda rings: None)
        silent = client_of(build_app(house.ports()))
        records = [await publish(silent, number) for number in range(3)]
    bell = house.bells.bell("job")
    monkeypatch.setattr(bell, "_next_look", 0.0)
    parked = [waiter for group in bell._claims.values() for waiter in group]
    assert len(parked) == 3
    await bell._scan([0, 0])
    taken = [one for task in tasks for one in await claimed(task)]
    assert sorted(record for record, _ in taken) == sorted(records)


@pytest.mark.clause("records.claim-wait")
@pytest.mark.parametrize("seconds", [-1, 25.1, "5", True])
async def test_waiting_is_bounded(api: httpx.AsyncClient, seconds: Any) -> None:
    answer = await api.post("/claims", json={**CLAIM, "wait_seconds": seconds})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/wait_seconds")


@pytest.mark.clause("records.claim-wait")
async def test_a_commit_rings_once_for_each_kind_and_tells_how_much_is_ready(house: House, api: httpx.AsyncClient) -> None:
    (await api.put("/kinds/other", json={})).raise_for_status()
    house.bells.rung.clear()
    batch: list[dict[str, Any]] = [{"kind": kind, "body": {}} for kind in ("job", "other", "job")]
    (await api.post("/records/batch", json={"records": batch})).raise_for_status()
    assert house.bells.rung == [("job", Ring(ready=2)), ("other", Ring(ready=1))]
    house.bells.rung.clear()
    claims = (await api.post("/claims", json={"kind": "job", "worker": "w", "limit": 2})).json()["claims"]
    assert house.bells.rung == [("job", Ring())]
    house.bells.rung.clear()
    sent = {"epoch": 1, "results": [{"kind": "other", "body": {}}]}
    (await api.post(f"/claims/{claims[0]['record']['id']}/settle", json=sent)).raise_for_status()
    assert dict(house.bells.rung) == {"job": Ring(freed=1), "other": Ring(ready=1)}
