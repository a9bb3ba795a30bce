"""Steps through the substrate: claimed, recorded once, and replayed (clauses runs.step-output, runs.entry-key)."""

import pytest

from moorage.journal.model import Entry
from moorage.runs.protocol import Claimed, Close, Outcome, Recorded
from tests.contract.adapters import Store
from tests.contract.harbor import Harbor, claim, key, put, record, value


@pytest.fixture
def harbor(store: Store) -> Harbor:
    return Harbor(store)


def entry(outcome: Outcome) -> Entry:
    """The entry of a `Recorded`."""
    assert isinstance(outcome, Recorded)
    return outcome.entry


def text(outcome: Outcome) -> str | None:
    """The recorded text."""
    told = entry(outcome).value
    return None if told is None else told.text


async def test_smoke(harbor: Harbor) -> None:
    execution = await harbor.opened(given={"x": 1})
    assert execution.input.text == '{"x":1}'
    assert execution.lease.epoch == 1
    [first] = await harbor.apply(execution.fence, claim("a"))
    assert first == Claimed(1)
    told = await harbor.apply(execution.fence, record("a", "A"), claim("b"))
    assert harbor.cost.trips == 1
    assert text(told[0]) == '"A"'
    assert told[1] == Claimed(1)
    told = await harbor.apply(execution.fence, record("b", "B"), put("now", 5), Close("success", value("done")))
    assert (await harbor.run(execution.run_id))["status"] == "success"
    assert await harbor.rows("journal") == []
    assert await harbor.row(execution.execution_id) is None
    assert key("a")
