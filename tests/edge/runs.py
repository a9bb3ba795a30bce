"""Starting and watching runs on a local edge, for tests."""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from ops.local.edge import LocalEdge
from tests.edge.client import SECONDS, bearer, good

BODIES = Path(__file__).parent / "bodies"
VARS = {"MOORAGE_TEST_CLOCK": "1", "MOORAGE_ALLOW_LOCAL_DESTINATIONS": "1"}
ENDED = frozenset({"success", "failed", "partial_failure", "canceled"})
LET_GO = ENDED | {"waiting", "suspended"}


class Desk:
    """Runs of one edge, as root."""

    def __init__(self, api: httpx.Client) -> None:
        self.api = api

    def start(self, body: str, given: Any, scope: str | None = None) -> str:
        """Start a run; answers its id."""
        sent = {"body": body, "input": given} | ({} if scope is None else {"scope": scope})
        run: str = good(self.api.post("/runs", json=sent))["run_id"]
        return run

    def show(self, run: str) -> dict[str, Any]:
        """A run as it stands."""
        shown: dict[str, Any] = good(self.api.get(f"/runs/{run}"))
        return shown

    def until(self, run: str, statuses: Collection[str] = ENDED, seconds: float = 30) -> dict[str, Any]:
        """The run once it has one of these statuses. It is looked at often: how long that took is told by the clock."""
        end = time.monotonic() + seconds
        while True:
            shown = self.show(run)
            if shown["status"] in statuses:
                return shown
            assert shown["status"] not in ENDED, shown
            assert time.monotonic() < end, shown
            time.sleep(0.01)

    def done(self, body: str, given: Any, seconds: float = 30) -> dict[str, Any]:
        """Start a run, and the run once it has ended."""
        return self.until(self.start(body, given), seconds=seconds)

    def steps(self, run: str) -> dict[str, dict[str, Any]]:
        """The run's steps by label; of those with one label the last."""
        return {step["label"]: step for step in good(self.api.get(f"/runs/{run}/steps"))["items"]}

    def stop(self, run: str) -> None:
        """Ask a run to stop."""
        good(self.api.post(f"/runs/{run}/stop", json={}))

    def advance(self, seconds: float) -> dict[str, int]:
        """Move the product's clock; answers what fired."""
        fired: dict[str, int] = good(self.api.post("/testing/clock", json={"advance_seconds": seconds}))["fired"]
        return fired


@contextmanager
def desk(edge: LocalEdge) -> Iterator[Desk]:
    """A Desk with a client of its own."""
    with httpx.Client(base_url=edge.url, headers=bearer(edge.root_token), timeout=SECONDS) as api:
        yield Desk(api)
