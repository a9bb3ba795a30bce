"""Runs over HTTP: started, shown, listed, exported, stopped, restarted, rewound."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from moorage.api.app import build_app
from moorage.bodies import Failed, Run, body, each
from moorage.kernel.limits import JOURNAL_INLINE_BYTES, JSON_DEPTH, METADATA_BYTES, RUNS_ITEMS
from moorage.store.directory import DirectoryBlobs
from moorage.store.sqlite import connect
from tests.unit.api.conftest import House, client_of
from tests.unit.api.executing import Executing


class Order(BaseModel):
    item: str
    count: int = 1


@body("order", effects=["reserve", each("charge")])
async def order(run: Run, order: Order) -> dict[str, Any]:
    reserved = await run.step("reserve", lambda: {"item": order.item, "secret": "kept-in-the-journal"})
    charged = [await run.step("charge", lambda n=n: n * 2, input=n) for n in range(order.count)]
    return {"reserved": reserved["item"], "charged": charged}


@body("waits", effects=["before", "approval"])
async def waits(run: Run) -> Any:
    await run.step("before", lambda: 1)
    approval = await run.awakeable("approval", ttl=3600)
    return await approval


@body("fails", effects=["once", "never"])
async def fails(run: Run, told: str) -> None:
    await run.step("once", lambda: 1)
    raise ValueError(told)


@body("echo")
async def echo(run: Run, value: Any) -> Any:
    return value


@pytest.fixture
async def house(schema: str, tmp_path: Path) -> House:
    connection = connect(":memory:")
    connection.executescript(schema)
    return House(connection, blobs=DirectoryBlobs(tmp_path)).initialized()


@pytest.fixture
def executing(house: House) -> Executing:
    return Executing(house, [order, waits, fails, echo, flaky, configured])


@pytest.fixture
async def api(executing: Executing) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(executing.ports())) as client:
        yield client
    await executing.host.close()


async def rest(house: House) -> None:
    """Until no body is at work."""
    for _ in range(50):
        await house.runners.settle()
        await asyncio.sleep(0)


async def start(api: httpx.AsyncClient, name: str, given: Any = None, **more: Any) -> dict[str, Any]:
    answer = await api.post("/runs", json={"body": name, "input": given, **more})
    assert answer.status_code == 202, answer.text
    told: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/runs/{told['run_id']}"
    return told


async def ended(house: House, api: httpx.AsyncClient, name: str, given: Any = None, **more: Any) -> dict[str, Any]:
    told = await start(api, name, given, **more)
    await rest(house)
    return await shown(api, told["run_id"])


async def shown(api: httpx.AsyncClient, run: str) -> dict[str, Any]:
    answer = await api.get(f"/runs/{run}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    told: dict[str, Any] = answer.json()
    return told


async def member(api: httpx.AsyncClient, *grants: dict[str, Any], subject: str = "ann") -> str:
    made = await api.post("/credentials", json={"subject": subject, "grants": list(grants)})
    token: str = made.json()["token"]
    return token


# --- starting --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("runs.bodies")
async def test_a_run_is_accepted_and_ends_with_its_result(house: House, api: httpx.AsyncClient) -> None:
    told = await start(api, "order", {"item": "book", "count": 2})
    assert told["status"] == "running"
    await rest(house)
    found = await shown(api, told["run_id"])
    assert (found["status"], found["result"]) == ("success", {"reserved": "book", "charged": [0, 2]})
    assert found["scope"] == found["run_id"]
    assert found["execution_id"] == told["execution_id"]
    job = (await api.get(f"/jobs/{told['run_id']}")).json()
    assert job == {"job_id": told["run_id"], "state": "completed", "result_ref": f"/runs/{told['run_id']}"}


@pytest.mark.clause("runs.bodies")
async def test_the_input_is_checked_before_anything_is_stored(house: House, api: httpx.AsyncClient) -> None:
    told = problem(await api.post("/runs", json={"body": "order", "input": {"count": "many"}}), 422, "InputInvalid")
    assert {one["pointer"] for one in told["errors"]} == {"/item", "/count"}
    problem(await api.post("/runs", json={"body": "nobody", "input": 1}), 404, "BodyUnknown")
    problem(await api.post("/runs", json={"body": "echo", "more": 1}), 422, "RequestInvalid")
    problem(await api.post("/runs", json={"body": "order", "input": {"item": "x"}, "scope": "../a"}), 400, "IdInvalid")
    assert (await api.get("/runs")).json()["items"] == []


@pytest.mark.clause("records.idempotent")
async def test_the_same_key_is_the_same_run(house: House, api: httpx.AsyncClient) -> None:
    sent = {"body": "order", "input": {"item": "book"}}
    answers = [await api.post("/runs", json=sent, headers={"idempotency-key": "k"}) for _ in range(3)]
    assert [one.status_code for one in answers] == [202, 200, 200]
    assert len({one.json()["run_id"] for one in answers}) == 1
    await rest(house)
    again = await api.post("/runs", json=sent, headers={"idempotency-key": "k"})
    assert (again.status_code, again.json()["status"]) == (200, "success")
    other = await api.post("/runs", json={**sent, "input": {"item": "pen"}}, headers={"idempotency-key": "k"})
    problem(other, 409, "IdempotencyConflict")
    assert len((await api.get("/runs")).json()["items"]) == 1


async def test_the_callers_trace_is_taken(house: House, api: httpx.AsyncClient) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    made = await api.post("/runs", json={"body": "echo", "input": 1}, headers={"traceparent": parent})
    found = await shown(api, made.json()["run_id"])
    version, trace, span, _ = found["traceparent"].split("-")
    assert (version, trace) == ("00", "0af7651916cd43dd8448eb211c80319c")
    assert span != "b7ad6b7169203331"
    broken = await api.post("/runs", json={"body": "echo", "input": 1}, headers={"traceparent": "nonsense"})
    assert (await shown(api, broken.json()["run_id"]))["traceparent"].split("-")[1] != trace


async def test_the_scopes_configuration_is_taken_at_the_opening(house: House, api: httpx.AsyncClient) -> None:
    await api.put("/scopes/acme", json={"config": {"region": "eu", "limit": 1}})
    await api.put("/scopes/shop", json={"parent": "acme", "config": {"limit": 2}})
    told = await start(api, "waits", scope="shop/orders/1")
    row = house.connection.execute("SELECT config FROM executions").fetchone()
    assert json.loads(row["config"]) == {"region": "eu", "limit": 2}
    assert len((await shown(api, told["run_id"]))["config_revision"]) == 16
    other = await start(api, "waits", scope="nowhere")
    assert "config_revision" not in await shown(api, other["run_id"])


@pytest.mark.clause("kernel.canonical-json")
@pytest.mark.parametrize("given", [None, 0, -0.5, 1e21, "", "a\0b", "é", [], {}, {"a": [1, {"b": None}]}, 9007199254740991])
async def test_any_json_goes_in_and_comes_out(house: House, api: httpx.AsyncClient, given: Any) -> None:
    found = await ended(house, api, "echo", given)
    assert (found["status"], found["result"]) == ("success", given)


@pytest.mark.clause("kernel.canonical-json")
@pytest.mark.parametrize(
    "raw",
    [
        b'{"body":"echo","input":{"a":1,"a":2}}',
        b'{"body":"echo","body":"order","input":1}',
        b'{"body":"echo","input":NaN}',
        b'{"body":"echo","input":9007199254740993}',
        b'{"body":"echo","input":"\\ud800"}',
        b'{"body":"echo","input":' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"body":"echo","input":' + b'{"a":' * 20000 + b"1" + b"}" * 20000 + b"}",
    ],
)
async def test_json_that_cannot_be_kept_is_refused(api: httpx.AsyncClient, raw: bytes) -> None:
    answer = await api.post("/runs", content=raw, headers={"content-type": "application/json"})
    problem(answer, 400, "JsonInvalid")


async def test_a_deep_input_and_a_deep_result_are_kept(house: House, api: httpx.AsyncClient) -> None:
    deep: Any = 1
    for _ in range(int(JSON_DEPTH) - 1):
        deep = [deep]
    found = await ended(house, api, "echo", deep)
    assert found["result"] == deep


@pytest.mark.clause("blobs.inline-cutoff")
@pytest.mark.parametrize("size", [int(JOURNAL_INLINE_BYTES) - 2, int(JOURNAL_INLINE_BYTES) + 1])
async def test_a_large_input_and_result_come_back(house: House, api: httpx.AsyncClient, size: int) -> None:
    found = await ended(house, api, "echo", "x" * size)
    assert found["result"] == "x" * size
    assert found["result_bytes"] == size + 2


async def test_bounds_hold_before_anything_is_stored(api: httpx.AsyncClient) -> None:
    fits = {"a": "x" * (int(METADATA_BYTES) - 8)}
    assert (await api.post("/runs", json={"body": "echo", "metadata": fits})).status_code == 202
    more = {"a": "x" * (int(METADATA_BYTES) - 7)}
    problem(await api.post("/runs", json={"body": "echo", "metadata": more}), 413, "RunMetadataTooLarge")
    problem(await api.post("/runs", json={"body": "echo", "input": "x" * 8_400_000}), 413, "PayloadTooLarge")
    assert len((await api.get("/runs")).json()["items"]) == 1


@pytest.mark.parametrize("scope", ["a", "a/b/c", "~", "a:b@c", "x" * 200, "A.b_c-d"])
async def test_a_scope_that_may_be_named_is_kept(house: House, api: httpx.AsyncClient, scope: str) -> None:
    found = await ended(house, api, "echo", 1, scope=scope)
    assert found["scope"] == scope
    listed = (await api.get("/runs", params={"scope": scope})).json()["items"]
    assert [one["run_id"] for one in listed] == [found["run_id"]]


@pytest.mark.parametrize(
    "scope", ["a b", "a//b", "/a", "a/", ".", "..", "a/../b", "é", "a+b", "a\0", "x" * 201, "'--", "%2F"]
)
async def test_a_scope_that_may_not_be_named_is_refused(api: httpx.AsyncClient, scope: str) -> None:
    problem(await api.post("/runs", json={"body": "echo", "scope": scope}), 400, "IdInvalid")


async def test_a_held_scope_is_busy_and_another_input_is_a_mismatch(house: House, api: httpx.AsyncClient) -> None:
    first = await start(api, "waits", scope="s")
    busy = problem(await api.post("/runs", json={"body": "waits", "scope": "s"}), 409, "ExecutionBusy")
    assert (busy["attempt"], busy["retryable"]) == (first["run_id"], True)
    assert (await shown(api, busy["run_id"]))["error"]["code"] == "ExecutionBusy"
    await rest(house)
    other = problem(await api.post("/runs", json={"body": "echo", "input": 1, "scope": "s"}), 409, "ExecutionPinMismatch")
    assert other["pending"]["body"] == "waits"
    assert any(first["execution_id"] in one for one in other["recoveries"])
    rewound = await api.post(f"/executions/{first['execution_id']}/rewind", json={"reason": "r"})
    problem(rewound, 409, "ExecutionRewindUnsafe")


@body("flaky", effects=["shake"])
async def flaky(run: Run) -> None:
    def shake() -> None:
        raise Failed("Transient", "not yet")

    await run.step("shake", shake)


@body("configured")
async def configured(run: Run) -> dict[str, Any]:
    return dict(run.config)


@pytest.mark.clause("runs.schedule", "runs.single-attempt")
@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_run_may_bring_its_schedule(house: House, api: httpx.AsyncClient, attempts: int) -> None:
    retry = {"attempts": attempts, "base_ms": 0, "jitter_ms": 0}
    found = await ended(house, api, "flaky", retry=retry)
    assert found["status"] == "failed"
    (step,) = (await api.get(f"/runs/{found['run_id']}/steps")).json()["items"]
    assert step["attempt"] == attempts


@pytest.mark.clause("runs.unretryable-tag", "runs.schedule")
@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"attempts": 0}, "/retry/attempts"),
        ({"attempts": 101}, "/retry/attempts"),
        ({"attempts": "2"}, "/retry/attempts"),
        ({"backoff": "none"}, "/retry/backoff"),
        ({"clamp_ms": 7 * 86_400_000 + 1}, "/retry/clamp_ms"),
        ({"factor": 101}, "/retry/factor"),
        ({"retry_on": ["Transient", "Invalid"]}, "/retry/retry_on/1"),
        ({"tries": 3}, "/retry/tries"),
    ],
)
async def test_a_schedule_that_is_none_is_refused(api: httpx.AsyncClient, wrong: dict[str, Any], pointer: str) -> None:
    for path, more in (("/runs", {}), ("/executions", {"holder": "h"})):
        answer = await api.post(path, json={"body": "flaky", "retry": wrong, **more})
        problem(answer, 422, "RequestInvalid")
        assert [one["pointer"] for one in answer.json()["errors"]] == [pointer]
    assert (await api.get("/runs")).json()["items"] == []


@pytest.mark.clause("runs.schedule", "catalog.scopes")
async def test_a_schedule_is_no_configuration_and_a_scope_s_configuration_is_none(
    house: House, api: httpx.AsyncClient
) -> None:
    await api.put("/scopes/acme", json={"config": {"retry": {"attempts": 1}}})
    plain = await ended(house, api, "flaky", scope="acme", retry={"attempts": 2, "base_ms": 0, "jitter_ms": 0})
    (step,) = (await api.get(f"/runs/{plain['run_id']}/steps")).json()["items"]
    assert (plain["status"], step["attempt"]) == ("failed", 2)
    told = await ended(house, api, "configured", scope="acme", retry={"attempts": 2})
    assert told["result"] == {"retry": {"attempts": 1}}


# --- looking ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("runs.outputs-by-reference")
async def test_steps_tell_outputs_by_reference(house: House, api: httpx.AsyncClient) -> None:
    told = await ended(house, api, "fails", "why")
    answer = await api.get(f"/runs/{told['run_id']}/steps")
    (step,) = answer.json()["items"]
    assert (step["label"], step["status"], step["output"]["bytes"]) == ("once", "success", 1)
    output = await api.get(f"/runs/{told['run_id']}/steps/output", params={"ref": step["output"]["ref"]})
    assert (output.status_code, output.json()) == (200, 1)
    for ref in ("once", "never@" + "0" * 64, "@", "once@xyz"):
        problem(await api.get(f"/runs/{told['run_id']}/steps/output", params={"ref": ref}), 404, "EntryUnknown")
    done = await ended(house, api, "order", {"item": "book"})
    steps = (await api.get(f"/runs/{done['run_id']}/steps")).json()
    assert [one["label"] for one in steps["items"]] == ["reserve", "charge"]
    assert "kept-in-the-journal" not in json.dumps(steps)
    retired = await api.get(f"/runs/{done['run_id']}/steps/output", params={"ref": steps["items"][0]["output"]["ref"]})
    problem(retired, 409, "RunJournalRetired")


@pytest.mark.clause("runs.describe-window", "runs.truncation-flag", "runs.history-window", "runs.bound-spelling")
async def test_a_listing_tells_its_window(house: House, api: httpx.AsyncClient) -> None:
    runs = []
    for number in range(7):
        runs.append((await ended(house, api, "echo", number))["run_id"])
        await house.advance(1)
    page = (await api.get("/runs")).json()
    assert [one["run_id"] for one in page["items"]] == runs[:1:-1]
    assert (page["truncated"], page["window"]) == (True, {"since": None, "limit": 5})
    rest_ = (await api.get("/runs", params={"cursor": page["next_cursor"]})).json()
    assert ([one["run_id"] for one in rest_["items"]], rest_["truncated"]) == (runs[1::-1], False)
    whole = (await api.get("/runs", params={"limit": 100000})).json()
    assert (len(whole["items"]), whole["window"]["limit"]) == (7, int(RUNS_ITEMS))
    since = (await shown(api, runs[5]))["started_at"]
    late = (await api.get("/runs", params={"since": since})).json()
    assert [one["run_id"] for one in late["items"]] == runs[:4:-1]
    empty = (await api.get("/runs", params={"since": "2999-01-01"})).json()
    assert (empty["items"], empty["truncated"]) == ([], False)
    for spelled in ("yesterday", "2026-1-1", "2026-11-29T16:35:00+01:00", "2026-11-29T16:35:00", "1e9", ""):
        problem(await api.get("/runs", params={"since": spelled}), 400, "HistoryBoundSpelling")
        problem(await api.get("/runs/export", params={"since": spelled}), 400, "HistoryBoundSpelling")
    problem(await api.get("/runs", params={"limit": 0}), 422, "RequestInvalid")
    problem(await api.get("/runs", params={"body": "echo", "cursor": page["next_cursor"]}), 400, "CursorMismatch")


@pytest.mark.clause("runs.export")
async def test_an_export_is_lines_with_a_header(house: House, api: httpx.AsyncClient) -> None:
    runs = [(await ended(house, api, "echo", number))["run_id"] for number in range(3)]
    answer = await api.get("/runs/export", params={"limit": 2})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    header, *lines = [json.loads(line) for line in answer.text.splitlines()]
    assert (header["count"], header["truncated"], header["window"]) == (2, True, {"since": None, "limit": 2})
    assert {line["run_id"] for line in lines} < set(runs)
    assert len((await api.get("/runs/export")).text.splitlines()) == 4


# --- stopping and running again --------------------------------------------------------------------------------------


@pytest.mark.clause("runs.stop-route", "runs.not-in-flight")
async def test_a_stop_ends_a_waiting_run_as_canceled(house: House, api: httpx.AsyncClient) -> None:
    told = await start(api, "waits")
    await rest(house)
    run = told["run_id"]
    assert (await shown(api, run))["status"] == "suspended"
    stopped = await api.post(f"/runs/{run}/stop", json={"reason": "not wanted"})
    assert (stopped.status_code, stopped.json()) == (200, {"run_ids": [run]})
    await rest(house)
    found = await shown(api, run)
    assert (found["status"], found["stop"]["reason"]) == ("canceled", "not wanted")
    problem(await api.post(f"/runs/{run}/stop", json={}), 409, "CancelTargetNotInFlight")
    problem(await api.post(f"/runs/{run}/stop", json={"scope": "everything"}), 422, "RequestInvalid")
    assert (await api.get(f"/jobs/{run}")).json()["state"] == "cancelled"


@pytest.mark.clause("runs.stop-route", "runs.two-grains")
async def test_a_pipeline_is_what_is_in_flight_below_its_scope(house: House, api: httpx.AsyncClient) -> None:
    runs = {scope: (await start(api, "waits", scope=scope))["run_id"] for scope in ("p", "p/a", "p/a/b", "pq", "q")}
    await rest(house)
    stopped = (await api.post(f"/runs/{runs['p']}/stop", json={"scope": "pipeline"})).json()["run_ids"]
    assert set(stopped) == {runs["p"], runs["p/a"], runs["p/a/b"]}


@pytest.mark.clause("runs.stop-route", "runs.stop-authority")
async def test_a_stop_without_a_grant_names_nothing(house: House, api: httpx.AsyncClient) -> None:
    run = (await start(api, "waits"))["run_id"]
    other = await member(api, {"actions": ["execute"], "kinds": ["echo"]}, {"actions": ["read", "operate"]})
    async with client_of(build_app(house.ports()), other) as client:
        refused = await client.post(f"/runs/{run}/stop", json={})
        unknown = await client.post("/runs/run_never/stop", json={})
    problem(refused, 403, "CancelUnauthorized")
    assert run not in refused.text
    assert refused.text == unknown.text


async def test_a_failed_run_is_restarted_from_what_it_recorded(house: House, api: httpx.AsyncClient) -> None:
    failed = await ended(house, api, "fails", "why")
    assert failed["error"]["tag"] == "Permanent"
    problem(await api.post(f"/runs/{failed['run_id']}/restart", json={"reason": ""}), 422, "RequestInvalid")
    nowhere = await api.post(f"/runs/{failed['run_id']}/restart", json={"reason": "r", "from_step": "nowhere"})
    problem(nowhere, 404, "EntryUnknown")
    answer = await api.post(
        f"/runs/{failed['run_id']}/restart", json={"reason": "again"}, headers={"idempotency-key": "again"}
    )
    assert answer.status_code == 202, answer.text
    await rest(house)
    again = await shown(api, answer.json()["run_id"])
    assert again["restarted_from"] == failed["run_id"]
    assert again["execution_id"] != failed["execution_id"]
    replayed = await api.post(
        f"/runs/{failed['run_id']}/restart", json={"reason": "again"}, headers={"idempotency-key": "again"}
    )
    assert replayed.json()["run_id"] == again["run_id"]


@body("fails", effects=["once", "never"], config={"version": 2})
async def mended(run: Run, told: Order) -> str:
    return told.item


@pytest.mark.clause("runs.rewind", "runs.body-pins")
async def test_a_restart_whose_input_the_new_build_does_not_take_is_refused_and_changes_nothing(
    house: House, api: httpx.AsyncClient
) -> None:
    failed = await ended(house, api, "fails", "why")
    path = f"/runs/{failed['run_id']}/restart"
    deployed = Executing(house, [mended])
    async with client_of(build_app(deployed.ports())) as client:
        before = list(house.connection.iterdump())
        refused = await client.post(path, json={"reason": "mended"})
        problem(refused, 422, "InputInvalid")
        assert [one["pointer"] for one in refused.json()["errors"]] == [""]
        assert list(house.connection.iterdump()) == before
    assert (await api.post(path, json={"reason": "as it was"})).status_code == 202


@pytest.mark.clause("runs.rewind", "runs.substrate")
async def test_a_restart_asks_the_schema_of_a_host_s_new_build(api: httpx.AsyncClient) -> None:
    offer = {"build": {"implementation": "a" * 64}, "effects": ["one"], "input_schema": {"type": "string"}}
    assert (await api.put("/bodies/far", json=offer)).status_code == 200
    held = (await api.post("/executions", json={"body": "far", "input": "text", "holder": "h"})).json()
    key = {"label": "one", "input_sha256": "0" * 64}
    kept = {"op": "put", **key, "kind": "step", "position": "0", "value": 1}
    close = {"op": "close", "status": "failed", "error": {"tag": "Permanent", "message": "m"}}
    sent = {"epoch": 1, "operations": [kept, close]}
    assert (await api.post(f"/executions/{held['execution_id']}/journal", json=sent)).status_code == 200
    again = {**offer, "build": {"implementation": "b" * 64}, "input_schema": {"type": "integer"}}
    assert (await api.put("/bodies/far", json=again)).status_code == 200
    path = f"/runs/{held['run_id']}/restart"
    problem(await api.post(path, json={"reason": "r"}), 422, "InputInvalid")
    assert (await api.put("/bodies/far", json={**again, "input_schema": {"maxLength": 4}})).status_code == 200
    assert (await api.post(path, json={"reason": "r"})).status_code == 202


@pytest.mark.clause("runs.rewind", "runs.rewind-plan-current", "runs.rewind-not-pending")
async def test_a_rewind_releases_the_scope(house: House, api: httpx.AsyncClient) -> None:
    failed = await ended(house, api, "fails", "why", scope="s")
    execution = failed["execution_id"]
    problem(await api.post(f"/executions/{execution}/rewind", json={"reason": "r"}), 409, "ExecutionRewindPlanCurrent")
    problem(await api.post(f"/executions/{execution}/rewind", json={}), 422, "RequestInvalid")
    rewound = await api.post(f"/executions/{execution}/rewind", json={"reason": "r", "force": True})
    assert (rewound.status_code, rewound.json()["scope"]) == (200, "s")
    problem(await api.post(f"/executions/{execution}/rewind", json={"reason": "r"}), 409, "ExecutionRewindNotPending")
    assert (await ended(house, api, "echo", 1, scope="s"))["status"] == "success"


# --- who sees what ---------------------------------------------------------------------------------------------------


@pytest.mark.clause("catalog.grants")
async def test_a_run_is_seen_by_who_started_it_and_by_who_may(house: House, api: httpx.AsyncClient) -> None:
    told = await ended(house, api, "fails", "why")
    run, execution = told["run_id"], told["execution_id"]
    stranger = await member(api, {"actions": ["execute", "read", "operate"], "kinds": ["echo"]})
    narrowed = await member(api, {"actions": ["execute", "read"], "kinds": ["fails"], "match": {"a": 1}}, subject="bob")
    for token in (stranger, narrowed):
        async with client_of(build_app(house.ports()), token) as client:
            for path in (f"/runs/{run}", f"/runs/{run}/steps", f"/runs/{run}/steps/output?ref=a", f"/jobs/{run}"):
                problem(await client.get(path), 404, "RunUnknown")
            problem(await client.get(f"/executions/{execution}"), 404, "ExecutionUnknown")
            problem(await client.post(f"/runs/{run}/restart", json={"reason": "r"}), 404, "RunUnknown")
            rewound = await client.post(f"/executions/{execution}/rewind", json={"reason": "r"})
            problem(rewound, 409, "ExecutionRewindNotPending")
            problem(await client.post("/runs", json={"body": "fails", "input": "x"}), 403, "Forbidden")
            problem(await client.post("/runs", json={"body": "nobody"}), 403, "Forbidden")
            assert (await client.get("/runs")).json()["items"] == []
            assert json.loads((await client.get("/runs/export")).text)["count"] == 0
            assert all(one["name"] == "echo" for one in (await client.get("/bodies")).json()["items"])
            problem(await client.get("/bodies/fails"), 404, "BodyUnknown")
    reader = await member(api, {"actions": ["read"], "kinds": ["fa*"]}, subject="cyd")
    async with client_of(build_app(house.ports()), reader) as client:
        assert (await client.get(f"/runs/{run}")).status_code == 200
        assert [one["run_id"] for one in (await client.get("/runs")).json()["items"]] == [run]


async def test_an_own_run_is_seen_without_any_other_grant(executing: Executing, api: httpx.AsyncClient) -> None:
    app, house = build_app(executing.ports()), executing.house
    token = await member(api, {"actions": ["execute"], "kinds": ["echo"]})
    async with client_of(app, token) as client:
        found = await ended(house, client, "echo", 5)
        assert (found["result"], found["created_by"]) == (5, "ann")


@pytest.mark.parametrize("run", ["run_x", "a%2Fb", "..%2Fx", "%C3%A9", "a%20b", "%00", "x" * 200, "'--", "run_0%25"])
@pytest.mark.parametrize("path", ["/runs/{}", "/runs/{}/steps", "/runs/{}/steps/output?ref=a", "/jobs/{}"])
async def test_an_odd_run_id_is_unknown(api: httpx.AsyncClient, path: str, run: str) -> None:
    request = api.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=path.format(run).encode())
    problem(await api.send(request), 404, "RunUnknown")


# --- bodies ----------------------------------------------------------------------------------------------------------

SHA = "a" * 64


@pytest.mark.clause("runs.body-pins", "runs.bodies")
async def test_bodies_are_listed_with_their_builds(api: httpx.AsyncClient) -> None:
    offered = await api.put(
        "/bodies/far", json={"build": {"implementation": SHA, "dependencies": {"prompt": SHA}}, "effects": ["x"]}
    )
    assert offered.status_code == 200, offered.text
    listed = {one["name"]: one for one in (await api.get("/bodies")).json()["items"]}
    assert listed.keys() == {"order", "waits", "fails", "echo", "flaky", "configured", "far"}
    assert (listed["order"]["host"], listed["far"]["host"]) == ("worker", "remote")
    assert listed["order"]["effects"] == ["reserve", "charge"]
    assert listed["order"]["input_schema"]["required"] == ["item"]
    assert (await api.get("/bodies/order")).json() == listed["order"]
    assert (await api.get("/bodies/far")).json() == offered.json()
    assert offered.json()["build"]["dependencies"] == {"prompt": SHA}
    problem(await api.put("/bodies/order", json={"build": {"implementation": SHA}}), 409, "BodyConflict")
    wrong: list[dict[str, Any]] = [{}, {"build": {}}, {"build": {"implementation": "A" * 64}}]
    for sent in [*wrong, {"build": {"implementation": SHA}, "effects": [""]}]:
        problem(await api.put("/bodies/far", json=sent), 422, "RequestInvalid")
    assert (await api.delete("/bodies/far")).status_code == 204
    problem(await api.get("/bodies/far"), 404, "BodyUnknown")
    problem(await api.delete("/bodies/far"), 404, "BodyUnknown")
    problem(await api.post("/runs", json={"body": "far"}), 404, "BodyUnknown")


@pytest.mark.clause("awake.authenticates")
async def test_no_token_is_told_but_to_whom_it_belongs(
    house: House, api: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """C20: neither the credential nor what it sends comes back in errors, logs, history or steps."""
    secret = "moor_" + "s" * 43
    with caplog.at_level(logging.DEBUG):
        problem(await api.post("/runs", json={"body": "echo", secret: 1}), 422, "RequestInvalid")
        failed = await ended(house, api, "fails", f"Authorization: Bearer {secret}")
        told = await start(api, "waits")
        await rest(house)
    texts = [
        json.dumps((await shown(api, failed["run_id"]))["error"]),
        (await api.get(f"/runs/{told['run_id']}")).text,
        (await api.get(f"/runs/{told['run_id']}/steps")).text,
        (await api.get("/history")).text,
        (await api.get("/runs/export")).text,
        caplog.text,
    ]
    assert not any(secret in text for text in texts)
    dump = "\n".join(house.connection.iterdump())
    assert "awk_" in dump
    assert not any("awk_tok" in text for text in texts)
