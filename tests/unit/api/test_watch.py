"""Watches: entries in the order of their commit, as events and as a long poll."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.api.routes import watch as watching
from moorage.kernel import limits
from moorage.kernel.errors import StorageBindingUnavailable
from moorage.records import watch as reading
from moorage.timers.bell import RESCAN_SECONDS
from tests.unit.api.conftest import House, client_of

JSON = {"accept": "application/json"}
SOON = RESCAN_SECONDS / 2
"""Seconds that nothing here takes, on a busy machine, and less than until somebody looks again by himself."""


@pytest.fixture
async def api(house: House) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(house.ports())) as client:
        for kind in ("job", "other"):
            (await client.put(f"/kinds/{kind}", json={"paths": {"n": "number"}})).raise_for_status()
        yield client


async def publish(api: httpx.AsyncClient, *numbers: int, kind: str = "job") -> list[str]:
    batch = [{"kind": kind, "body": {"n": n}} for n in numbers]
    answer = (await api.post("/records/batch", json={"records": batch})).raise_for_status()
    return [one["id"] for one in answer.json()["records"]]


async def poll(api: httpx.AsyncClient, after: Any = 0, **query: Any) -> tuple[list[dict[str, Any]], int]:
    answer = await api.get("/watch", params={"kind": "job", "after": after, **query}, headers=JSON)
    body = answer.raise_for_status().json()
    return body["items"], body["next"]


async def stream(api: httpx.AsyncClient, last: int | None = None, **query: Any) -> list[tuple[int, str, dict[str, Any]]]:
    """The events of a stream that ends soon, as (id, event, data)."""
    headers = {} if last is None else {"last-event-id": str(last)}
    answer = await api.get("/watch", params={"kind": "job", "max_seconds": 0.05, **query}, headers=headers)
    assert answer.raise_for_status().headers["content-type"].startswith("text/event-stream")
    return events(answer.text)


def events(text: str) -> list[tuple[int, str, dict[str, Any]]]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            found.append((int(fields.get("id", -1)), fields["event"], json.loads(fields["data"])))
    return found


async def parked(house: House, task: "asyncio.Task[Any]") -> None:
    while house.bells.bell("job").heard.watches == 0:
        assert not task.done()
        await asyncio.sleep(0)


async def life(api: httpx.AsyncClient) -> str:
    """A record that is published, claimed and settled."""
    (record,) = await publish(api, 1)
    (claim,) = (await api.post("/claims", json={"kind": "job", "worker": "w"})).json()["claims"]
    (await api.post(f"/claims/{record}/settle", json={"epoch": claim["lease"]["epoch"]})).raise_for_status()
    return record


@pytest.mark.clause("history.watch")
async def test_an_event_is_an_entry_with_its_record(api: httpx.AsyncClient) -> None:
    record = await life(api)
    found = await stream(api)
    assert [event for _, event, _ in found] == ["record.published", "record.claimed", "record.settled"]
    for position, event, data in found:
        assert (data["position"], data["type"], data["subject"], data["kind"]) == (position, event, record, "job")
        assert (data["record"]["id"], data["record"]["body"], data["record"]["state"]) == (record, {"n": 1}, "consumed")
    history = (await api.get(f"/records/{record}/history")).json()["items"]
    assert [{**data, "record": None} for _, _, data in found] == [{**entry, "record": None} for entry in history]
    assert (await poll(api))[0] == [data for _, _, data in found]


@pytest.mark.clause("history.watch")
async def test_a_watch_resumes_after_any_of_its_events(api: httpx.AsyncClient) -> None:
    await life(api)
    await publish(api, 5, kind="other")
    await publish(api, 2, 3)
    every = await stream(api)
    assert len(every) == 5
    for number, (position, _, _) in enumerate(every):
        assert await stream(api, last=position, after=0) == every[number + 1 :]
        assert [item["position"] for item in (await poll(api, position))[0]] == [one[0] for one in every[number + 1 :]]


@pytest.mark.clause("history.watch")
async def test_a_long_poll_ends_with_the_first_entry_and_tells_where_to_go_on(house: House, api: httpx.AsyncClient) -> None:
    _, position = await poll(api)
    task = asyncio.create_task(poll(api, position, wait_seconds=25))
    await parked(house, task)
    await publish(api, 7, kind="other")
    await asyncio.sleep(0)
    (record,) = await publish(api, 7)
    (item,), following = await asyncio.wait_for(task, SOON)
    assert (item["subject"], item["position"]) == (record, following)
    assert await poll(api, following, wait_seconds=0.01) == ([], following)


@pytest.mark.clause("history.watch")
async def test_a_watch_may_begin_now(house: House, api: httpx.AsyncClient) -> None:
    await publish(api, 1)
    task = asyncio.create_task(poll(api, "now", wait_seconds=25))
    await parked(house, task)
    records = await publish(api, 2)
    assert [item["subject"] for item in (await asyncio.wait_for(task, SOON))[0]] == records
    answer = await api.get("/watch", params={"kind": "job", "max_seconds": 0.01, "after": "now"})
    newest = (await api.get("/history", params={"limit": 500})).json()["items"][-1]["position"]
    assert answer.text == f"retry: 1000\nid: {newest}\n\n"


@pytest.mark.clause("history.watch", "records.pattern-one-meaning")
async def test_a_pattern_and_a_narrowed_grant_both_narrow(house: House, api: httpx.AsyncClient) -> None:
    await publish(api, 1, 2, 3, 4)
    grant = {"actions": ["watch"], "kinds": ["job"], "match": {"n": {"$gte": 3}}}
    made = (await api.post("/credentials", json={"subject": "s", "grants": [grant]})).json()
    async with client_of(build_app(house.ports()), made["token"]) as narrow:
        assert [item["record"]["body"]["n"] for item in (await poll(narrow))[0]] == [3, 4]
        assert [data["record"]["body"]["n"] for _, _, data in await stream(narrow, match='{"n":{"$lte":3}}')] == [3]
        assert (await narrow.get("/watch", params={"kind": "other"}, headers=JSON)).status_code == 404
    assert [item["record"]["body"]["n"] for item in (await poll(api, match='{"n":{"$in":[1,4]}}'))[0]] == [1, 4]
    assert (await poll(api, match='{"n":{"$exists":false}}'))[0] == []


@pytest.mark.clause("history.watch")
async def test_a_credential_that_is_revoked_sees_no_more(house: House, api: httpx.AsyncClient) -> None:
    grants = [{"actions": ["watch"], "kinds": ["job"]}]
    made = (await api.post("/credentials", json={"subject": "s", "grants": grants})).json()
    async with client_of(build_app(house.ports()), made["token"]) as watcher:
        task = asyncio.create_task(watcher.get("/watch", params={"kind": "job", "max_seconds": 30}))
        await parked(house, task)
        (await api.delete(f"/credentials/{made['id']}")).raise_for_status()
        await house.advance(limits.CREDENTIAL_CACHE_SECONDS + 1)
        await publish(api, 1)
        ((_, event, data),) = events((await asyncio.wait_for(task, SOON)).text)
        assert (event, data["code"]) == ("problem", "Unauthenticated")


@pytest.mark.clause("history.watch")
async def test_what_is_read_at_a_time_is_bounded_and_nothing_is_lost_between(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WATCH_ENTRIES", 3), ("WATCH_SCAN", 7), ("WATCH_BYTES", 40)):
        monkeypatch.setattr(reading, name, value)
    expected: list[str] = []
    for round_ in range(1, 7):
        await publish(api, *range(round_ + 4), kind="other")
        expected += await publish(api, *range(round_))
    streamed: list[tuple[int, str, dict[str, Any]]] = []
    while len(streamed) < len(expected):
        more = await stream(api, max_seconds=0.3, last=streamed[-1][0] if streamed else 0)
        assert more
        streamed += more
    assert [data["subject"] for _, _, data in streamed] == expected
    found: list[str] = []
    position, sizes, quiet = 0, set(), 0
    while quiet < 10:
        items, position = await poll(api, position)
        found += [item["subject"] for item in items]
        sizes.add(len(items))
        quiet = 0 if items else quiet + 1
    assert found == expected
    assert max(sizes) <= 3


@pytest.mark.clause("history.watch")
async def test_entries_that_do_not_matter_move_the_client_on(
    house: House, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "WATCH_SCAN", 10)
    monkeypatch.setattr(watching, "HEARTBEAT_SECONDS", 0.02)
    await publish(api, *range(20), kind="other")
    newest = (await api.get("/history", params={"limit": 500})).json()["items"][-1]["position"]
    first, silences = "", [""]
    for seconds in (0.1, 1, 10):
        answer = await api.get("/watch", params={"kind": "job", "max_seconds": seconds, "after": 0})
        first, *silences = answer.text.removesuffix("\n\n").split("\n\n")
        if len(silences) > 1:  # what is due while the machine is elsewhere is told of once
            break
    assert (first, silences[0]) == ("retry: 1000", f": nothing new\nid: {newest}")
    assert set(silences[1:]) == {": nothing new"}


@pytest.mark.clause("history.watch")
async def test_a_stream_is_not_silent_while_what_does_not_match_keeps_it_busy(
    house: House, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "HEARTBEAT_SECONDS", 0.03)
    for seconds in (0.3, 3, 30):
        query = {"kind": "job", "max_seconds": seconds, "match": '{"n":7}'}
        task = asyncio.create_task(api.get("/watch", params=query))
        while not task.done():
            await publish(api, 1)
            await asyncio.sleep(0.005)
        if task.result().text.count(": nothing new") >= 4:
            return
    raise AssertionError("it was silent")


@pytest.mark.clause("history.watch")
async def test_a_quiet_stream_says_so_and_reads_nothing(
    house: House, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "HEARTBEAT_SECONDS", 0.02)
    reads = 0
    read_on = reading.read_on

    async def counted(*arguments: Any) -> reading.Watched:
        nonlocal reads
        reads += 1
        return await read_on(*arguments)

    monkeypatch.setattr(watching, "read_on", counted)
    for seconds in (0.2, 2):
        reads = 0
        answer = await api.get("/watch", params={"kind": "job", "max_seconds": seconds})
        # Once to begin, and once more because the bell was new.
        assert reads <= 2
        if answer.text.count(": nothing new\n\n") >= 5:
            return
    raise AssertionError("it was silent")


@pytest.mark.clause("history.watch")
async def test_a_stream_ends_when_the_storage_fails_and_the_next_goes_on(
    house: House, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = asyncio.create_task(api.get("/watch", params={"kind": "job", "max_seconds": 30}))
    await parked(house, task)

    async def fails(*arguments: Any) -> reading.Watched:
        raise StorageBindingUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(watching, "read_on", fails)
        records = await publish(api, 1)
        assert events((await asyncio.wait_for(task, SOON)).text) == []
    assert [data["subject"] for _, _, data in await stream(api)] == records


@pytest.mark.clause("history.watch")
@pytest.mark.parametrize(
    ("query", "headers", "status", "code"),
    [
        ({"kind": "nothing"}, {}, 404, "KindUnknown"),
        ({}, {}, 422, "RequestInvalid"),
        ({"kind": "job", "match": '{"x":1}'}, {}, 400, "PatternInvalid"),
        ({"kind": "job", "match": "[" * 5000}, {}, 400, "JsonInvalid"),
        ({"kind": "job", "match": "7"}, {}, 422, "RequestInvalid"),
        ({"kind": "job", "after": "-1"}, {}, 422, "RequestInvalid"),
        ({"kind": "job", "after": "١"}, {}, 422, "RequestInvalid"),
        ({"kind": "job"}, {"last-event-id": "x"}, 422, "RequestInvalid"),
        ({"kind": "job", "wait_seconds": "26"}, {}, 422, "RequestInvalid"),
        ({"kind": "job", "max_seconds": "0"}, {}, 422, "RequestInvalid"),
        ({"kind": "job", "max_seconds": "nan"}, {}, 422, "RequestInvalid"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_a_stream_begins(
    api: httpx.AsyncClient, query: dict[str, str], headers: dict[str, str], status: int, code: str
) -> None:
    answer = await api.get("/watch", params=query, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.clause("history.watch", "edge.cors-head")
async def test_head_tells_of_a_stream_and_ends(api: httpx.AsyncClient) -> None:
    answer = await asyncio.wait_for(api.head("/watch", params={"kind": "job"}), SOON)
    assert (answer.status_code, answer.text) == (200, "")
    assert answer.headers["content-type"].startswith("text/event-stream")


@pytest.mark.clause("history.watch")
async def test_an_event_is_one_line_for_every_client(api: httpx.AsyncClient) -> None:
    body = {"text": "a\u2028b\u0085c\nd\r\u001ce"}
    (await api.post("/records", json={"kind": "job", "body": body})).raise_for_status()
    ((_, _, data),) = await stream(api)
    assert data["record"]["body"] == body


@pytest.mark.clause("history.query", "history.watch")
@pytest.mark.parametrize(
    "data",
    ["{", "", "[1]", "7", '{"n":NaN}', '{"n":1e400}', '{"s":"\\ud800"}', "[" * 100_000, '{"a":' * 500 + "1" + "}" * 500],
)
@pytest.mark.parametrize("at", [-1, -(2**62), 2**62])
async def test_an_entry_that_was_damaged_in_the_database_is_shown(
    house: House, api: httpx.AsyncClient, data: str, at: int
) -> None:
    record, other = await publish(api, 1, 2)
    house.connection.execute("UPDATE history SET data = ?, at = ? WHERE subject = ?", (data, at, record))
    by_record = await api.get(f"/records/{record}/history")
    whole = (await api.get("/history")).raise_for_status().json()["items"]
    (shown,) = by_record.raise_for_status().json()["items"]
    assert shown["data"] == {"damaged": data[:200]}
    assert shown["at"] == ("1970-01-01T00:00:00.000Z" if at < 0 else "9999-12-31T23:59:59.999Z")
    assert [entry for entry in whole if entry["subject"] == record] == [shown]
    watched, _ = await poll(api)
    assert [entry["subject"] for entry in watched] == [record, other]
    assert watched[0]["data"] == shown["data"]
    assert [data["data"] for _, _, data in await stream(api)] == [entry["data"] for entry in watched]


@pytest.mark.clause("history.query")
async def test_a_damaged_removal_leaves_the_rest_of_the_records_history(house: House, api: httpx.AsyncClient) -> None:
    (record,) = await publish(api, 1)
    house.connection.execute("DELETE FROM records")
    house.connection.execute(
        "INSERT INTO history (position, subject, revision, type, kind, actor, at, data)"
        " VALUES (99, ?, 2, 'record.removed', 'job', 'clock', 0, '{')",
        (record,),
    )
    told = (await api.get("/history", params={"subject": record})).raise_for_status().json()["items"]
    assert [(entry["position"], entry["data"]) for entry in told] == [(99, {"damaged": "{"})]
