"""The comparison with Cloudflare Workflows: both sides do what is timed, and the figures are told as they are."""

import json
from pathlib import Path

import httpx
import pytest

from ops.bench import workflows
from ops.bench.workflows import Figures, Side
from ops.failure import CommandFailed


def test_the_figures_are_told_beside_each_other_with_their_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = Figures("Cloudflare Workflows", 10.0, 2.0, {1: 100.0, 10: 200.0}, 8.0)
    ours = Figures("Moorage", 30.0, 3.0, {1: 40.0, 10: 50.0}, 20.0, (3, 1.02))
    told = workflows.as_json([theirs, ours])
    assert [one["ratio"] for one in told["figures"]] == [3.0, 1.5, 0.4, 0.25, 2.5]
    assert told["d1_trips"] == {"one_step_run": 3, "further_step": 1.02}
    json.dumps(told)
    workflows.show([theirs, ours])
    shown = " ".join(capsys.readouterr().out.split())
    assert "3 for a run of one step" in shown
    assert "1.02 for each further step" in shown


def does_what_is_timed(side: Side) -> None:
    with side.client() as client:
        run = side.start(client, 5)
        workflows._until_ended(side, client, run)
        waiting, where = side.await_signal(client)
        assert not side.ended(client, waiting)
        side.signal(client, where)
        workflows._until_ended(side, client, waiting)
    assert workflows._rate(side, 2, 4) > 0


@pytest.mark.edge
def test_workflows_run_here(tmp_path: Path) -> None:
    with workflows.workflows(tmp_path) as side:
        does_what_is_timed(side)
        with side.client() as client:
            found = client.get(f"/steps/{side.start(client, 5)}").json()
        assert found["output"] == {"sum": 10}


@pytest.mark.edge
def test_runs_take_a_round_trip_a_step(tmp_path: Path) -> None:
    with workflows.moorage(tmp_path, counting=True) as side:
        does_what_is_timed(side)
        first, further = workflows.trips(side)
        assert first <= 4
        assert further < 1.2
        with side.client() as client:
            failed = client.post("/runs", json={"body": "steps", "input": "no number"})
            assert failed.status_code == 422
            with pytest.raises(CommandFailed, match="404"):
                side.ended(client, "run_nothing")
        assert isinstance(failed, httpx.Response)
