"""Sessions, batches, bounds and debounce as clients meet them over HTTP."""

from typing import Any

import httpx
import pytest

from moorage.kernel.instants import after, render
from tests.unit.api.conftest import House


@pytest.fixture
async def jobs(root: httpx.AsyncClient) -> httpx.AsyncClient:
    await root.put("/kinds/job", json={"paths": {"n": "number"}, "claim": {"lease_seconds": 30}})
    for number in range(6):
        await root.post("/records", json={"kind": "job", "body": {"n": number}})
    return root


async def claim(client: httpx.AsyncClient, **more: Any) -> httpx.Response:
    return await client.post("/claims", json={"kind": "job", "worker": "w", **more})


@pytest.mark.clause("records.claim-replay")
async def test_a_numbered_claim_is_answered_again(jobs: httpx.AsyncClient, house: House) -> None:
    opened = await jobs.post("/sessions", json={"ttl_seconds": 60})
    assert opened.status_code == 201
    session = opened.json()["session"]
    assert opened.json()["expires_at"] == render(after(house.now, 60))
    turn = {"session": session, "consumer": "c", "sequence": 1}
    first = await claim(jobs, **turn, limit=2)
    assert (await claim(jobs, **turn, limit=2)).json() == first.json()
    assert len(first.json()["claims"]) == 2
    other = await claim(jobs, **turn, limit=3)
    assert (other.status_code, other.json()["code"]) == (409, "SequenceConflict")
    await claim(jobs, **{**turn, "sequence": 2})
    stale = await claim(jobs, **turn, limit=2)
    assert (stale.status_code, stale.json()["code"], stale.json()["latest"]) == (409, "SequenceStale", 2)
    shown = (await jobs.get(f"/sessions/{session}")).json()
    assert [(one["consumer"], one["sequence"]) for one in shown["consumers"]] == [("c", 2)]
    renewed = await jobs.post(f"/sessions/{session}/renew", json={"ttl_seconds": 600})
    assert renewed.json()["expires_at"] == render(after(house.now, 600))
    assert (await jobs.delete(f"/sessions/{session}")).status_code == 204
    gone = await claim(jobs, **{**turn, "sequence": 3})
    assert (gone.status_code, gone.json()["code"]) == (410, "SessionExpired")
    unknown = await claim(jobs, **{**turn, "session": "ses_none"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "SessionUnknown")


@pytest.mark.clause("records.claim-replay")
@pytest.mark.parametrize("missing", ["session", "consumer", "sequence"])
async def test_the_three_go_together(jobs: httpx.AsyncClient, missing: str) -> None:
    turn = {"session": "s", "consumer": "c", "sequence": 1}
    del turn[missing]
    answer = await claim(jobs, **turn)
    assert (answer.status_code, [one["pointer"] for one in answer.json()["errors"]]) == (422, [f"/{missing}"])


@pytest.mark.clause("records.settle", "leases.renew")
async def test_a_batch_answers_each_item_by_itself(jobs: httpx.AsyncClient) -> None:
    held = [(one["record"]["id"], one["lease"]["epoch"]) for one in (await claim(jobs, limit=3)).json()["claims"]]
    items: list[dict[str, Any]] = [{"record": record, "epoch": epoch} for record, epoch in held]
    renewed = await jobs.post("/claims/renew", json={"items": [*items, {"record": "none", "epoch": 1}], "lease_seconds": 90})
    assert renewed.status_code == 200
    *leases, refused = renewed.json()["items"]
    assert [one["record"] for one in leases] == [record for record, _ in held]
    single = await jobs.post(f"/claims/{held[0][0]}/renew", json={"epoch": held[0][1]})
    assert leases[0]["lease"] == single.json()["lease"]
    assert (refused["record"], refused["error"]["code"], refused["error"]["status"]) == ("none", "RecordUnknown", 404)
    items[0]["results"] = [{"kind": "job", "body": {"n": 7}}]
    items[1]["epoch"] = 99
    settled = (await jobs.post("/claims/settle", json={"items": items})).json()["items"]
    assert [sorted(one) for one in settled] == [
        ["receipt", "record", "results", "settled"],
        ["error", "record"],
        ["receipt", "record", "results", "settled"],
    ]
    assert settled[0]["settled"]["state"] == "consumed"
    again = await jobs.post(f"/claims/{held[0][0]}/settle", json={"epoch": held[0][1], "results": items[0]["results"]})
    assert again.json()["receipt"] == settled[0]["receipt"]
    assert (await jobs.post("/claims/settle", json={"items": items})).json()["items"] == settled


async def test_an_epoch_in_a_batch_is_written_as_an_integer(jobs: httpx.AsyncClient) -> None:
    for path in ("/claims/renew", "/claims/settle"):
        answer = await jobs.post(
            path, content='{"items":[{"record":"r","epoch":1.0}]}', headers={"content-type": "application/json"}
        )
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/items/0/epoch")


@pytest.mark.clause("records.claim")
async def test_a_limited_claim_says_when_to_come_back(jobs: httpx.AsyncClient) -> None:
    await jobs.put("/kinds/job", json={"paths": {"n": "number"}, "claim": {"rate": {"per_second": 0.1}}})
    assert len((await claim(jobs, limit=5)).json()["claims"]) == 1
    empty = await claim(jobs)
    assert (empty.status_code, empty.json(), empty.headers["retry-after"]) == (200, {"claims": [], "retry_after": 10}, "10")


@pytest.mark.clause("records.publish")
async def test_a_full_kind_is_told_as_retryable(jobs: httpx.AsyncClient) -> None:
    await jobs.put("/kinds/job", json={"paths": {"n": "number"}, "claim": {"depth_limit": 6}})
    full = await jobs.post("/records", json={"kind": "job", "body": {}})
    assert (full.status_code, full.json()["code"], full.json()["retryable"], full.headers["retry-after"]) == (
        429, "KindFull", True, "1",
    )  # fmt: skip


@pytest.mark.clause("records.publish")
async def test_a_debounced_record_and_a_mortal_one_wake_the_clock(jobs: httpx.AsyncClient, house: House) -> None:
    wish = {"kind": "job", "body": {"n": 1}, "debounce": {"key": "k", "seconds": 5, "max_seconds": 9}}
    first = (await jobs.post("/records", json=wish)).json()
    assert first["not_before"] == render(after(house.now, 5))
    assert after(house.now, 5) in house.woken
    second = (await jobs.post("/records", json={**wish, "body": {"n": 2}})).json()
    assert (second["id"], second["body"]) == (first["id"], {"n": 2})
    assert (await jobs.post("/records/batch", json={"records": [wish]})).status_code == 422
    await jobs.put("/kinds/job", json={"paths": {"n": "number"}, "claim": {"ttl_seconds": 77}})
    mortal = (await jobs.post("/records", json={"kind": "job", "body": {}})).json()
    assert mortal["ready_until"] == render(after(house.now, 77))
    assert after(house.now, 77) in house.woken


@pytest.mark.clause("records.publish")
async def test_a_body_outside_the_schema_is_refused_with_pointers(jobs: httpx.AsyncClient) -> None:
    schema = {"properties": {"n": {"maximum": 5}}}
    shown = await jobs.put("/kinds/job", json={"paths": {"n": "number"}, "schema": schema})
    assert shown.json()["schema"] == schema
    answer = await jobs.post("/records", json={"kind": "job", "body": {"n": 6}})
    assert (answer.status_code, answer.json()["code"]) == (422, "BodyInvalid")
    assert [one["pointer"] for one in answer.json()["errors"]] == ["/body/n"]
