"""Failures that are ours: what a client is told, what the log is told, and what still answers."""

import dataclasses
import sqlite3
from typing import Any

import pytest

from moorage.api import problems
from moorage.api.app import build_app
from moorage.kernel import errors
from moorage.store.schema import SCHEMA
from moorage.store.sqlite import SqliteDatabase, connect
from tests.unit.api.conftest import ROOT, House, client_of
from tests.unit.api.test_requests import OPEN, OPERATIONS, filled, problem


@pytest.mark.clause("kernel.problem", "catalog.credentials")
async def test_an_unforeseen_failure_is_logged_without_secrets(house: House, caplog: pytest.LogCaptureFixture) -> None:
    token = "awk_tok_0123456789012345678901234567890123456789abc"

    class Broken(SqliteDatabase):
        async def commit(self, transaction: Any) -> None:
            raise ZeroDivisionError(f"with {ROOT} and {token} and Bearer abc and short-secret")

    ports = house.ports(database=lambda: Broken(house.connection))
    settings = dataclasses.replace(ports.settings, secrets=(ROOT, "short-secret"))
    async with client_of(build_app(dataclasses.replace(ports, settings=settings))) as client:
        answer = await client.post(f"/awake/{token}", content=b"1", headers={"content-type": "application/json"})
    body = problem(answer, 500, "InternalError")
    assert body["request_id"] == answer.headers["x-request-id"]
    assert body["request_id"] in caplog.text
    assert "POST /awake/{token}" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    for secret in (ROOT, token, "short-secret", "Bearer abc"):
        assert secret not in caplog.text
        assert secret not in answer.text


@pytest.mark.clause("store.transport", "kernel.problem")
async def test_a_database_that_fails_is_told_without_its_own_words(house: House, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(SqliteDatabase):
        async def commit(self, transaction: Any) -> None:
            raise errors.StorageBindingUnavailable("the database failed: near INSERT INTO secret_table")

    async with client_of(build_app(house.ports(database=lambda: Broken(house.connection)))) as client:
        answer = await client.put("/kinds/doc", json={})
    assert problem(answer, 503, "StorageBindingUnavailable")["retryable"] is True
    assert "secret_table" not in answer.text
    assert "secret_table" in caplog.text


@pytest.mark.clause("kernel.problem")
@pytest.mark.parametrize(
    ("wait", "told"),
    [(0.0, "1"), (-1.0, "1"), (1.5, "2"), (1e300, "31536000"), (float("inf"), "31536000"), (float("nan"), "31536000")],
)
def test_any_wait_is_told_in_whole_seconds(wait: float, told: str) -> None:
    answer = problems.answer(errors.RateLimited(retry_after=wait), "req_1")
    assert answer.headers["retry-after"] == told


@pytest.mark.clause("store.schema")
async def test_another_schema_refuses_everything_but_health(schema: str) -> None:
    connection = connect(":memory:")
    connection.executescript(schema)
    connection.execute("UPDATE moorage SET value = '999' WHERE key = 'schema'")
    house = House(connection)
    async with client_of(build_app(house.ports())) as client:
        for method, path in OPERATIONS:
            if (method, path) not in OPEN:
                problem(await client.request(method, filled(path)), 503, "ExecutionSchemaIncompatible")
        health = (await client.get("/health")).json()
        assert health["ok"] is False
        assert health["problem"]["code"] == "ExecutionSchemaIncompatible"
        connection.execute("UPDATE moorage SET value = ? WHERE key = 'schema'", [str(SCHEMA)])
        assert (await client.get("/health")).json()["ok"] is True
        assert (await client.get("/kinds")).status_code == 200


@pytest.mark.clause("store.schema")
async def test_an_empty_database_is_refused_and_not_made(house: House) -> None:
    empty = sqlite3.connect(":memory:")
    async with client_of(build_app(House(empty).ports())) as client:
        problem(await client.get("/kinds"), 503, "ExecutionSchemaIncompatible")
    assert empty.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)


@pytest.mark.clause("store.incomplete")
async def test_without_a_database_everything_but_health_is_refused(house: House) -> None:
    class Missing(SqliteDatabase):
        async def read(self, reading: Any) -> None:
            raise errors.StorageCapabilityMissing("the deployment has no binding DB")

    async with client_of(build_app(house.ports(database=lambda: Missing(house.connection)))) as client:
        health = await client.get("/health")
        assert (health.status_code, health.json()["ok"]) == (200, False)
        assert health.json()["problem"]["code"] == "StorageCapabilityMissing"
        problem(await client.get("/limits"), 503, "StorageCapabilityMissing")
        assert (await client.get("/docs")).status_code == 200


async def test_without_a_root_token_root_access_is_off(house: House) -> None:
    ports = house.ports(root_token=None)
    ports = dataclasses.replace(ports, settings=dataclasses.replace(ports.settings, root_access=False))
    async with client_of(build_app(ports), "") as client:
        assert (await client.get("/health")).json()["root_access"] is False
        for token in ("", "None", "null"):
            problem(await client.get("/kinds", headers={"authorization": f"Bearer {token}"}), 401, "Unauthenticated")
