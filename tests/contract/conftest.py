"""`store`: a fresh, migrated store on each adapter. A test that takes it is part of the contract suite."""

from collections.abc import AsyncIterator, Iterator
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


@pytest.fixture
async def d1_store(harness_url: str) -> AsyncIterator[D1Store]:
    """A fresh store on D1 and R2, for what only the edge's adapters do."""
    async with httpx.AsyncClient(base_url=harness_url, timeout=120) as client:
        remote = D1Store(client)
        await remote.reset()
        yield remote


@pytest.fixture(params=ADAPTERS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A fresh store on each adapter in turn."""
    if request.param == "sqlite":
        async with sqlite_store(tmp_path) as fresh:
            yield fresh
        return
    url: str = request.getfixturevalue("harness_url")
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        remote = D1Store(client)
        await remote.reset()
        yield remote
