"""The storage over HTTP: what an operator sees of it, and that only bound storage admits what has effects."""

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.api.ports import Settings
from moorage.bodies import Run, body
from moorage.client import Moorage, Problem
from moorage.store.directory import DirectoryBlobs
from moorage.store.sqlite import connect
from tests.contract.adapters import HeldFrontiers, at_once
from tests.unit.api.conftest import ROOT, House, client_of
from tests.unit.api.executing import Executing

pytestmark = pytest.mark.clause("store.recovery-identity")

EFFECTFUL = [
    ("POST", "/runs", {"body": "echo", "input": 1}),
    ("POST", "/runs/run_x/restart", {"reason": "again"}),
    ("POST", "/executions", {"body": "other", "input": 1, "holder": "h"}),
    ("POST", "/executions/claim", {"bodies": [{"body": "b", "implementation": "0" * 64}], "holder": "h"}),
]


@body("echo")
async def echo(run: Run, value: Any) -> Any:
    return value


@pytest.fixture
def unbound(schema: str, tmp_path: Path) -> House:
    connection = connect(":memory:")
    connection.executescript(schema)
    return House(connection, blobs=DirectoryBlobs(tmp_path))


@pytest.fixture
def executing(unbound: House) -> Executing:
    return Executing(unbound, [echo])


@pytest.fixture
async def api(executing: Executing) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(executing.ports())) as client:
        yield client
    await executing.host.close()


def lines(connection: sqlite3.Connection) -> list[str]:
    return list(connection.iterdump())


@pytest.mark.parametrize(("method", "path", "sent"), EFFECTFUL)
async def test_unbound_storage_admits_nothing_with_an_effect(
    unbound: House, api: httpx.AsyncClient, method: str, path: str, sent: dict[str, Any]
) -> None:
    before = lines(unbound.connection)
    for _ in range(2):
        answer = await api.request(method, path, json=sent)
        assert (answer.status_code, answer.json()["code"]) == (503, "ExecutionRecoveryMismatch"), answer.text
        assert "moorage storage initialize" in answer.json()["detail"]
    assert lines(unbound.connection) == before


async def test_everything_else_goes_on_unbound(api: httpx.AsyncClient) -> None:
    assert (await api.put("/kinds/doc", json={})).status_code in (200, 201)
    assert (await api.post("/records", json={"kind": "doc", "body": {}})).status_code == 201
    claimed = await api.post("/claims", json={"kind": "doc", "worker": "w"})
    assert claimed.status_code == 200
    assert (await api.get("/runs")).json()["items"] == []
    assert (await api.get("/health")).json()["ok"] is True


async def test_initialize_opens_it_and_may_be_asked_again(api: httpx.AsyncClient) -> None:
    seen = (await api.get("/storage")).json()
    assert (seen["ok"], seen["state"], seen["identity"]) == (False, "unbound", None)
    first = await api.post("/storage/initialize", json={})
    assert (first.status_code, first.json()["initialized"]) == (200, True)
    again = (await api.post("/storage/initialize", json={})).json()
    assert again == {"initialized": False, "identity": first.json()["identity"]}
    seen = (await api.get("/storage")).json()
    assert (seen["ok"], seen["state"], seen["identity"]) == (True, "bound", first.json()["identity"])
    assert (await api.post("/runs", json={"body": "echo", "input": 1})).status_code == 202


async def test_the_storage_is_asked_once_in_the_life_of_an_isolate(unbound: House, executing: Executing) -> None:
    asked: list[str] = []
    unbound.initialized()

    class Counting(HeldFrontiers):
        async def read(self, identity: str) -> bytes | None:
            asked.append(identity)
            return await super().read(identity)

    counting = Counting()
    assert isinstance(unbound.frontiers, HeldFrontiers)
    counting.objects = unbound.frontiers.objects
    async with client_of(build_app(replace(executing.ports(), frontiers=counting))) as client:
        for value in range(3):
            assert (await client.post("/runs", json={"body": "echo", "input": value})).status_code == 202
    assert len(asked) == 1
    await executing.host.close()


async def test_half_a_restore_is_refused_until_the_identity_is_given_up(unbound: House, api: httpx.AsyncClient) -> None:
    identity = (await api.post("/storage/initialize", json={})).json()["identity"]["identity"]
    unbound.connection.execute("DELETE FROM recovery")
    refused = await api.post("/storage/initialize", json={})
    assert (refused.status_code, refused.json()["code"]) == (503, "ExecutionRecoveryMismatch")
    assert f"--give-up {identity}" in refused.json()["detail"]
    anew = await api.post("/storage/initialize", json={"give_up": identity})
    assert anew.status_code == 200
    assert anew.json()["identity"]["identity"] != identity


@pytest.mark.clause("store.incomplete")
@pytest.mark.parametrize(
    ("settings", "code", "name"),
    [
        (Settings(missing=("RUNNER", "BELL")), "StorageCapabilityMissing", "bindings"),
        (Settings(profile="postgres"), "StorageProfileUnsupported", "profile"),
        (Settings(project="elsewhere"), "ExecutionRecoveryMismatch", "recovery identity"),
    ],
)
async def test_what_the_deployment_lacks_is_told_and_refused(
    unbound: House, executing: Executing, settings: Settings, code: str, name: str
) -> None:
    unbound.initialized()
    async with client_of(build_app(replace(executing.ports(), settings=settings))) as client:
        refused = await client.post("/runs", json={"body": "echo", "input": 1})
        assert (refused.status_code, refused.json()["code"]) == (503, code)
        seen = (await client.get("/storage")).json()
    assert [one["name"] for one in seen["findings"] if not one["ok"]] == [name]
    assert seen["ok"] is False
    await executing.host.close()


async def test_only_who_operates_on_everything_sees_or_binds_the_storage(api: httpx.AsyncClient, unbound: House) -> None:
    narrow = {"subject": "ann", "grants": [{"actions": ["operate"], "kinds": ["doc"]}, {"actions": ["execute", "read"]}]}
    token = (await api.post("/credentials", json=narrow)).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    assert (await api.get("/storage", headers=headers)).status_code == 403
    assert (await api.post("/storage/initialize", json={}, headers=headers)).status_code == 403
    assert unbound.connection.execute("SELECT count(*) FROM recovery").fetchone()[0] == 0


async def test_the_client_checks_and_initializes(unbound: House, executing: Executing) -> None:
    transport = httpx.ASGITransport(app=build_app(executing.ports()))
    async with Moorage("http://moorage.test", ROOT, transport=transport) as moorage:
        assert not (await moorage.storage.check()).ok
        made = await moorage.storage.initialize()
        assert (made.initialized, made.identity.schema_number, made.identity.generation) == (True, 4, 1)
        checked = await moorage.storage.check()
        assert checked.ok
        assert checked.identity == made.identity
        unbound.connection.execute("UPDATE recovery SET project = 'else'")
        with pytest.raises(Problem) as refused:
            await moorage.storage.initialize()
        assert refused.value.code == "ExecutionRecoveryMismatch"
    await executing.host.close()


def test_set_up_outside_a_loop_waits_for_nothing(unbound: House) -> None:
    async def waits() -> None:
        import asyncio

        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="waits"):
        at_once(waits())
