"""The edge starts."""

import time
from pathlib import Path

from ops.bodies_folder import bundle_with
from ops.demo.stage import Act, Stage
from ops.local.edge import ALLOW_LOCAL, EdgeConfig, LocalEdge
from ops.setup import paths
from ops.up import TEST_CLOCK

BODIES = Path(__file__).parents[1] / "bodies"
TOLD_SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVhbSBjaGF0"  # noqa: S105 - of a deployment that lives for seconds
VARS = {TEST_CLOCK: "1", ALLOW_LOCAL: "1", "TEAM_SECRET": TOLD_SECRET}
"""The story moves the clock once, and its payment service and its team's chat are on this machine."""


def play(stage: Stage) -> None:
    """Make the bundle, start the edge on a fresh folder, and knock."""
    with stage.narrator.working("making the bundle that wrangler would upload"):
        bundle = bundle_with(BODIES)
    config = EdgeConfig(stage.folder / "state", bundle.path, paths.ROOT / "wrangler.toml", vars=VARS)
    edge = LocalEdge(config)
    stage.exits.callback(edge.stop)
    began = time.monotonic()
    with stage.narrator.working("starting workerd, and Python in it"):
        edge.start()
    stage.running = edge
    seconds = time.monotonic() - began
    python = edge.boot_ms["total"] / 1000
    stage.say(
        f"Cold start: `{seconds:.1f} s` from nothing to an answer, `{python:.1f} s` of it Python's. "
        f"It listens on {edge.url}."
    )
    stage.note(url=edge.url, cold_start_seconds=round(seconds, 3), boot_ms=edge.boot_ms, bundle_bytes=bundle.raw_bytes)
    health = stage.as_("nobody").get("/health")
    stage.check("/health says that requests are served", True, health["ok"])
    stage.check("without a credential nothing else is told", "401 Unauthenticated", _knock(stage))


def _knock(stage: Stage) -> str:
    return stage.as_("nobody").call("GET", "/kinds").outcome


ACT = Act(
    "arrival",
    "The house opens",
    "One process runs the very bundle that is deployed: a Python Worker on workerd. D1, R2 and the Durable Objects are on "
    "disk.",
    play,
)
