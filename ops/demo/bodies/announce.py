"""An announcement that waits for a build, which is told by a webhook."""

from moorage.bodies import Run, body


@body("announce", effects=["built"])
async def announce(run: Run, commit: str) -> dict[str, object]:
    """Wait until a workflow of this commit has ended, and say how."""
    types, ended = ["github.workflow_run"], {"action": "completed"}
    built = await run.wait_event("built", keys=[commit], types=types, match=ended, timeout=86400)
    workflow = built.data["workflow_run"]
    return {"build": workflow["run_number"], "ended": workflow["conclusion"], "event": built.event_id}
