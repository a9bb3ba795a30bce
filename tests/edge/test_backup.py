"""A busy edge is backed up while it writes, and restored elsewhere."""

import asyncio
import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from ops.cli import assemble
from ops.local.edge import LocalEdge
from tests.crash.burst import Acknowledged, Burst
from tests.crash.ledger import faults
from tests.edge.client import client, crowd, declare, fresh, good
from tests.edge.edges import EdgeFactory

pytestmark = [pytest.mark.edge, pytest.mark.clause("store.backup")]

BODIES = Path(__file__).parent / "bodies"
LARGE = b"bytes of an artifact " * 10_000


def run(*arguments: str) -> Result:
    return CliRunner().invoke(assemble(list(arguments)), list(arguments))


@pytest.fixture
def own(edge_factory: EdgeFactory, tmp_path: Path) -> Iterator[LocalEdge]:
    edge = edge_factory(bodies=BODIES, state=tmp_path / "live")
    yield edge
    edge.stop()


class Held:
    """What was acknowledged before the backup began, and what somebody holds while it is taken."""

    def __init__(self, api: httpx.Client) -> None:
        self.kind = declare(api, fresh("held"), lease_seconds=3600, max_attempts=5)
        self.record = good(api.post("/records", json={"kind": self.kind, "body": {}}))["id"]
        claims = good(api.post("/claims", json={"kind": self.kind, "worker": "w"}))["claims"]
        self.epoch = claims[0]["lease"]["epoch"]
        headers = {"content-type": "text/plain"}
        self.artifact = good(api.post("/artifacts", content=LARGE, headers=headers))["id"]
        given = {"body": "stream.talk", "input": {"steps": 60, "pause": 0.1, "secret": "said"}}
        self.run = good(api.post("/runs", json=given))["run_id"]
        self.done = good(api.post("/runs", json={"body": "stream.talk", "input": {"steps": 1, "secret": "x"}}))["run_id"]
        ended(api, self.done)


def ended(api: httpx.Client, run_id: str) -> dict[str, Any]:
    """The run, once it has ended; runs take real time here."""
    deadline = time.monotonic() + 90
    while True:
        shown: dict[str, Any] = good(api.get(f"/runs/{run_id}"))
        if shown["status"] in ("success", "failed", "partial_failure", "canceled"):
            return shown
        assert time.monotonic() < deadline, shown
        time.sleep(0.1)


async def backed_up(own: LocalEdge, held: Held, folder: Path) -> tuple[Acknowledged, int]:
    """Back up in the middle of a burst; what was acknowledged before, and how many writes were during it."""
    before = Acknowledged()
    during = 0
    async with crowd(own) as api:
        burst = Burst(api, held.kind + "-burst")

        async def take() -> None:
            nonlocal before, during
            await burst.reach(60)
            before = copy.deepcopy(burst.acknowledged)
            state = str(own.config.state)
            done = await asyncio.to_thread(run, "backup", "create", "--state", state, "--to", str(folder))
            assert done.exit_code == 0, done.output
            during = burst.acknowledged.writes() - before.writes()
            await burst.reach(20)

        await burst.run(take)
    return before, during


def check_acknowledged(api: httpx.Client, before: Acknowledged) -> None:
    for operation, records in before.records.items():
        for one in records:
            shown = good(api.get(f"/records/{one['id']}"))
            assert (shown["body"]["operation"], shown["seq"]) == (operation, one["seq"])
    for record, told in before.settled.items():
        assert good(api.get(f"/records/{record}"))["state"] == "consumed"
        for result in told["receipt"]["results"]:
            assert good(api.get(f"/records/{result}"))["parents"] == [record]
    for record, attempts in before.failed.items():
        assert good(api.get(f"/records/{record}"))["attempts"] >= attempts
    for token, payload in before.resolved.items():
        assert good(api.get(f"/awake/{token}"))["payload"] == payload


def check_fenced(api: httpx.Client, held: Held) -> None:
    refused = api.post(f"/claims/{held.record}/settle", json={"epoch": held.epoch})
    assert (refused.status_code, refused.json()["code"]) == (409, "LeaseFenced")
    types = [one["type"] for one in good(api.get("/history", params={"subject": held.record}))["items"]]
    assert types[-1] == "record.fenced"
    [again] = good(api.post("/claims", json={"kind": held.kind, "worker": "w"}))["claims"]
    assert (again["record"]["id"], again["lease"]["epoch"], again["lease"]["attempt"]) == (held.record, held.epoch + 2, 2)
    assert api.post(f"/claims/{held.record}/settle", json={"epoch": held.epoch}).status_code == 409
    good(api.post(f"/claims/{held.record}/settle", json={"epoch": again["lease"]["epoch"]}))


def subscribe(api: httpx.Client, kind: str) -> None:
    """Tell of everything that happens to records of a kind, to somebody who is never there."""
    good(api.put("/destinations/there", json={"url": "https://there.invalid/hook"}))
    good(api.put("/subscriptions/all", json={"types": ["record.*"], "kinds": [kind], "destination": "there"}))


def told(api: httpx.Client) -> dict[str, str]:
    """What each event that was told is about, by its id, once everything was."""
    deadline = time.monotonic() + 30
    while good(api.get("/subscriptions/all"))["behind"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    found: dict[str, str] = {}
    cursor: dict[str, str] = {}
    while True:
        page = good(api.get("/deliveries", params={"subscription": "all", "limit": 200, **cursor}))
        found |= {one["event_id"]: f"{one['type']} {one['aggregate_id']} {one['occurred_at']}" for one in page["items"]}
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


def check_events(lived: dict[str, str], api: httpx.Client, kind: str) -> None:
    """The restored edge gives out positions of history again, and no id of an event."""
    for number in range(20):
        good(api.post("/records", json={"kind": kind, "body": {"n": number}}))
    after = told(api)
    same = lived.keys() & after.keys()
    assert same
    assert {id_: lived[id_] for id_ in same} == {id_: after[id_] for id_ in same}
    again = {id_.rpartition("_")[0] for id_ in after.keys() - same} & {id_.rpartition("_")[0] for id_ in lived}
    assert again, "no position was given out again"


@pytest.mark.clause("leases.fence", "store.recovery-identity", "outbox.deliver")
def test_a_busy_edge_is_backed_up_and_opens_elsewhere_with_every_old_lease_fenced(
    own: LocalEdge, edge_factory: EdgeFactory, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    with client(own) as api:
        held = Held(api)
        declare(api, held.kind + "-burst", {"n": "number"}, max_attempts=5)
        subscribe(api, held.kind + "-burst")
    before, during = asyncio.run(backed_up(own, held, folder))
    assert during > 0, "nobody wrote while the backup was taken"
    with client(own) as api:
        lived = told(api)
    own.kill()
    assert faults(folder / "database.sqlite") == {}
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert len([one for one in listed if one["path"].startswith("objects/")]) == 1

    assert run("backup", "verify", str(folder)).exit_code == 0
    used = run("backup", "restore", str(folder), "--state", str(own.config.state))
    assert used.exit_code == 1
    assert "has storage already" in str(used.exception)
    restored = run("backup", "restore", str(folder), "--state", str(tmp_path / "restored"), "--json")
    assert restored.exit_code == 0, restored.output
    printed = json.loads(restored.stdout)
    assert printed["generation"] == 2
    assert printed["fenced"]["executions"] == 1
    assert printed["fenced"]["records"] >= 1

    edge = edge_factory(bodies=BODIES, state=tmp_path / "restored", root_token=own.root_token)
    with client(edge) as api:
        check_acknowledged(api, before)
        check_fenced(api, held)
        check_events(lived, api, held.kind + "-burst")
        assert good(api.get(f"/runs/{held.done}"))["status"] == "success"
        shown = ended(api, held.run)
        assert (shown["status"], shown["result"], shown["attempt"]) == ("success", "said", 2)
        assert api.get(f"/artifacts/{held.artifact}/content").content == LARGE
        assert good(api.get("/storage"))["ok"] is True
        good(api.post("/seals"))
    token = ("--url", edge.url, "--token", edge.root_token)
    assert run("history", "verify", "--head", printed["head"], *token).exit_code == 0
    assert run("storage", "check", *token).exit_code == 0
    edge.stop()
