"""What failed and was set aside, and becomes due anew for another reason: it comes at its own instant, not at that of its
old failure. Timers and schedules are in `test_set_aside`."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from moorage.api.app import build_app
from moorage.kernel.instants import after, render
from moorage.store.directory import DirectoryBlobs
from tests.unit.api.conftest import House, client_of
from tests.unit.api.test_set_aside import fail, fired, left

pytestmark = pytest.mark.clause("timers.alarm")


async def good(answer: Awaitable[httpx.Response]) -> dict[str, object]:
    told = await answer
    assert told.is_success, told.text
    shown: dict[str, object] = told.json() if told.content else {}
    return shown


async def published(root: httpx.AsyncClient, ttl: int | None = None, **more: object) -> None:
    await good(root.put("/kinds/doc", json={"claim": {"ttl_seconds": ttl}}))
    await good(root.post("/records", json={"kind": "doc", "body": {}, "id": "r", **more}))


async def claim(root: httpx.AsyncClient) -> int:
    sent = {"kind": "doc", "worker": "w", "lease_seconds": 30}
    [held] = (await root.post("/claims", json=sent)).json()["claims"]
    epoch: int = held["lease"]["epoch"]
    return epoch


async def given_another_chance(root: httpx.AsyncClient) -> None:
    for act in ("/records/r/cancel", "/dead-letters/r/requeue"):
        await good(root.post(act, json={"reason": "mended"}))


async def comes(house: House, work: str, seconds: float) -> None:
    """It is due in so many seconds, and not before; nothing is left behind."""
    assert work not in await fired(house, seconds - 0.001)
    assert (await fired(house, 0.001))[work] == 1
    await fired(house, 3600)
    assert left(house.connection) == 0


@pytest.mark.clause("records.recover")
async def test_the_next_lease_of_a_record(root: httpx.AsyncClient, house: House) -> None:
    await published(root)
    await claim(root)
    await fail(house, "UPDATE ON records")
    await given_another_chance(root)
    assert await claim(root) == 2
    await comes(house, "lease_expired", 30)


@pytest.mark.clause("records.recover")
async def test_the_next_delay_of_a_record(root: httpx.AsyncClient, house: House) -> None:
    await published(root, not_before=render(after(house.now, 10)))
    await fail(house, "UPDATE ON records")
    await given_another_chance(root)
    error = {"tag": "Transient", "message": "busy"}
    sent = {"epoch": await claim(root), "error": error, "retry_after_seconds": 20}
    await good(root.post("/claims/r/fail", json=sent))
    await comes(house, "record_due", 20)


@pytest.mark.clause("records.recover")
async def test_the_next_time_to_live_of_a_record(root: httpx.AsyncClient, house: House) -> None:
    await published(root, 60)
    await fail(house, "UPDATE ON records")
    await given_another_chance(root)
    await comes(house, "record_stale", 60)


async def declared_anew(root: httpx.AsyncClient) -> None:
    await good(root.put("/subscriptions/s", json={"types": ["record.*"], "destination": "d"}))


async def paused_and_resumed(root: httpx.AsyncClient) -> None:
    for act in ("pause", "resume"):
        await good(root.post(f"/subscriptions/s/{act}", json={}))


@pytest.mark.parametrize("mend", [declared_anew, paused_and_resumed])
@pytest.mark.clause("outbox.atomic")
async def test_a_subscription_that_is_mended(
    root: httpx.AsyncClient, house: House, mend: Callable[[httpx.AsyncClient], Awaitable[None]]
) -> None:
    await good(root.put("/destinations/d", json={"url": "https://d.example.com/"}))
    await good(root.put("/subscriptions/s", json={"types": ["record.*"], "destination": "d"}))
    await published(root, not_before=render(after(house.now, 400 * 86_400)))
    await fail(house, "INSERT ON deliveries")
    await mend(root)
    assert (await fired(house))["outbox_fan_out"] > 0
    await fired(house, 3600)
    assert left(house.connection) == 0


async def enabled(root: httpx.AsyncClient) -> None:
    await good(root.post("/destinations/d/enable"))


async def redeclared(root: httpx.AsyncClient) -> None:
    await good(root.put("/destinations/d", json={"url": "https://d.example.com/elsewhere"}))


async def more_to_send(root: httpx.AsyncClient) -> None:
    [one] = (await root.get("/deliveries")).json()["items"]
    await good(root.post(f"/deliveries/{one['delivery_id']}/cancel", json={}))
    await good(root.post(f"/deliveries/{one['delivery_id']}/redeliver", json={}))


@pytest.mark.parametrize("mend", [enabled, redeclared, more_to_send])
@pytest.mark.clause("outbox.deliver")
async def test_a_destination_that_is_mended(
    root: httpx.AsyncClient, house: House, mend: Callable[[httpx.AsyncClient], Awaitable[None]]
) -> None:
    await redeclared(root)
    await good(root.put("/subscriptions/s", json={"types": ["record.published"], "destination": "d"}))
    await published(root, not_before=render(after(house.now, 400 * 86_400)))
    await fail(house, "INSERT ON couriers")
    await mend(root)
    assert (await fired(house))["delivery_due"] == 1
    await fired(house, 3600)
    assert left(house.connection) == 0


@pytest.mark.clause("blobs.order")
async def test_an_object_that_was_stored_again(house: House, tmp_path: Path) -> None:
    house.blobs = DirectoryBlobs(tmp_path / "bucket")
    async with client_of(build_app(house.ports())) as root:
        first = await good(root.post("/artifacts", content=b"bytes"))
        house.connection.execute(
            "CREATE TRIGGER kept BEFORE UPDATE ON blob_deletions BEGIN SELECT raise(ABORT, 'kept'); END"
        )
        await good(root.post(f"/artifacts/{first['id']}/shred", json={"reason": "asked"}))
        await fail(house, "UPDATE ON blob_deletions")
        house.connection.execute("DROP TRIGGER kept")
        await good(root.post("/artifacts", params={"attach_within_seconds": 60}, content=b"bytes"))
        await comes(house, "blob_deleted", 60)


@pytest.mark.clause("records.retention")
async def test_a_kind_whose_retention_is_mended(root: httpx.AsyncClient, house: House) -> None:
    await good(root.put("/kinds/doc", json={"retention_seconds": 3600}))
    await good(root.post("/records", json={"kind": "doc", "body": {}, "id": "r"}))
    await good(root.post("/records/r/cancel", json={"reason": "over"}))
    await fired(house, 3600)
    await fail(house, "DELETE ON records")
    await good(root.put("/kinds/doc", json={"retention_seconds": 1800}))
    assert (await fired(house))["retention_swept"] == 1
    await fired(house, 3600)
    assert left(house.connection) == 0


@pytest.mark.clause("history.seal")
async def test_the_chain_once_somebody_has_sealed_by_hand(root: httpx.AsyncClient, house: House) -> None:
    await published(root)
    await fail(house, "INSERT ON seals")
    await good(root.post("/seals"))
    await good(root.post("/records", json={"kind": "doc", "body": {}}))
    assert (await fired(house, 10))["history_sealed"] == 1
    await fired(house, 3600)
    assert left(house.connection) == 0


async def test_what_an_earlier_version_set_aside_by_its_plain_name_goes(house: House, tmp_path: Path) -> None:
    house.blobs = DirectoryBlobs(tmp_path / "bucket")
    records = ["lease_expired", "record_due", "record_stale", "retention_swept"]
    runs = ["run_due", "event_wait_timed_out", "outbox_fan_out", "delivery_due"]
    works = [*records, *runs, "history_sealed", "blob_deleted", "timer_fired", "schedule_fired", "schedule_resumed"]
    for work in works:
        house.connection.execute("INSERT INTO due_failures VALUES (?, 'plain', 3, ?, 'KeyError')", [work, house.now])
    assert left(house.connection) == len(works)
    await fired(house)
    assert left(house.connection) == 0
