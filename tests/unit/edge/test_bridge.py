"""An answer that is abandoned awaits nothing; one that ends, well or not, ends its stream."""

import asyncio
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

pytestmark = pytest.mark.clause("history.watch")


@pytest.fixture
def bridge(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module with the platform's own ones stood in for, forgotten afterwards."""
    before = set(sys.modules)
    for name in ("js", "pyodide", "pyodide.ffi", "workers"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    yield import_module("moorage.edge.bridge")
    for name in set(sys.modules) - before:
        if name.startswith("moorage.edge"):
            del sys.modules[name]


def answer(bridge: ModuleType) -> tuple[Any, AsyncMock]:
    """An answer that streams, and the closing of its stream."""
    made = bridge._Answer()
    made._writer = MagicMock(close=AsyncMock())
    return made, made._writer.close


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_an_answer_that_is_thrown_away_closes_nothing(bridge: ModuleType) -> None:
    made, closing = answer(bridge)
    running = made.run(forever())
    running.send(None)
    running.close()  # RuntimeError, if it awaited
    assert made.ready.done()
    closing.assert_not_called()


async def test_an_answer_that_is_cancelled_closes_nothing(bridge: ModuleType) -> None:
    made, closing = answer(bridge)
    running = asyncio.ensure_future(made.run(forever()))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    closing.assert_not_called()


@pytest.mark.parametrize("fault", [None, ValueError("x")])
async def test_an_answer_that_ends_closes_its_stream(bridge: ModuleType, fault: Exception | None) -> None:
    made, closing = answer(bridge)
    application = AsyncMock(side_effect=fault)
    running = asyncio.ensure_future(made.run(application()))
    await asyncio.wait([running])
    assert running.exception() is fault
    closing.assert_awaited_once()
