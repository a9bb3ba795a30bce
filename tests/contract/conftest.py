"""`store`: a fresh, migrated store on each adapter. A test that takes it is part of the contract suite."""

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from ops.bundle import build_bundle
from ops.local.edge import EdgeConfig, LocalEdge
from tests.contract.adapters import ROOT, Store, sqlite_store
from tests.contract.remote import D1Store

ADAPTERS = [pytest.param("sqlite", id="sqlite"), pytest.param("d1", id="d1", marks=pytest.mark.edge)]
HARNESS = ROOT / "tests" / "edge" / "harness" / "wrangler.toml"


@pytest.fixture(scope="session")
def harness_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the harness Worker; one workerd serves every test of the session."""
    bundle = build_bundle(ROOT, ROOT / "build" / "harness", HARNESS)
    config = EdgeConfig(tmp_path_factory.mktemp("harness"), bundle.path, HARNESS)
    with LocalEdge(config) as edge:
        yield edge.url


@asynccontextmanager
async def d1_store_at(url: str) -> AsyncIterator[D1Store]:
    """A fresh store on D1 and R2. The harness speaks plain HTTP, so no certificates are loaded for it."""
    no_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with httpx.AsyncClient(base_url=url, timeout=120, verify=no_tls) as client:
        fresh = D1Store(client)
        await fresh.reset()
        yield fresh


@pytest.fixture
async def d1_store(harness_url: str) -> AsyncIterator[D1Store]:
    """The edge's adapters alone, for what only they do."""
    async with d1_store_at(harness_url) as fresh:
        yield fresh


@pytest.fixture(params=ADAPTERS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A fresh store on each adapter in turn."""
    if request.param == "sqlite":
        async with sqlite_store(tmp_path) as host:
            yield host
    else:
        async with d1_store_at(request.getfixturevalue("harness_url")) as edge:
            yield edge
