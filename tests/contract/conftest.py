"""`store`: a fresh, migrated store on each adapter. A test that takes it is part of the contract suite."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.adapters import Store, sqlite_store

ADAPTERS = [pytest.param("sqlite", id="sqlite")]


@pytest.fixture(params=ADAPTERS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with sqlite_store(tmp_path) as fresh:
        yield fresh
