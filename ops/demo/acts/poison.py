"""A record that cannot be worked becomes a dead letter, and an operator gives it another chance."""

from datetime import datetime
from typing import Any

from ops.demo.acts.catalog import KINDS
from ops.demo.stage import Act, Stage

ATTEMPTS = KINDS["repository.import"]["claim"]["max_attempts"]
DELAY = KINDS["repository.import"]["claim"]["retry"]["delay_seconds"]
REASON = "the archive was uploaded again"


def play(stage: Stage) -> None:
    """Fail it until it is dead, requeue it, settle it."""
    body = next(one.body for one in stage.deliveries if one.event == "repository_import")
    record = stage.as_("edge-client").post("/records", {"kind": "repository.import", "body": body})["id"]
    failed = [_fail(stage, record, number) for number in range(1, ATTEMPTS + 1)]
    states = [one["state"] for one in failed]
    stage.check(f"it is ready again after each failure, and dead after {ATTEMPTS}", ["ready", "ready", "dead"], states)
    _delays(stage, record)
    letters = stage.as_("operator").get("/dead-letters", kind="repository.import")["items"]
    stage.check("it is the only dead letter", [record], [letter["record"]["id"] for letter in letters])
    stage.check("which keeps its attempts", [1, 2, 3], [one["attempt"] for one in letters[0]["attempts"]])
    stage.check("and the last failure", "the archive is truncated (attempt 3)", letters[0]["record"]["failure"]["message"])
    _requeue(stage, record)


def _claim(stage: Stage) -> Any:
    answer = stage.as_("importer").post("/claims", {"kind": "repository.import", "worker": "importer-1"})
    return answer["claims"][0] if answer["claims"] else None


def _fail(stage: Stage, record: str, number: int) -> Any:
    claim = stage.until(f"attempt {number} may begin", lambda: _claim(stage), pause=0.05)
    error = {"tag": "Transient", "message": f"the archive is truncated (attempt {number})"}
    body = {"epoch": claim["lease"]["epoch"], "error": error}
    failed = stage.as_("importer").post(f"/claims/{record}/fail", body)["record"]
    if number == 1:
        stage.check("right after a failure nobody gets it", None, _claim(stage))
    return failed


def _delays(stage: Stage, record: str) -> None:
    entries = list(stage.as_("operator").history(subject=record))
    failures = [_instant(entry) for entry in entries if entry["type"] == "record.failed"]
    claims = [_instant(entry) for entry in entries if entry["type"] == "record.claimed"]
    waits = [(after - before).total_seconds() for before, after in zip(failures, claims[1:], strict=False)]
    least = [DELAY * 2**number for number in range(ATTEMPTS - 1)]
    shown = " and ".join(f"{wait:.2f} s" for wait in waits)
    stage.say(f"The retries waited {shown}, at least {' and '.join(f'{one:.1f} s' for one in least)} as declared.")
    stage.note(waits=waits)
    early = [wait for wait, delay in zip(waits, least, strict=True) if wait < delay]
    stage.check("no retry began before its delay was over", [], early)


def _instant(entry: Any) -> datetime:
    return datetime.fromisoformat(entry["at"])


def _requeue(stage: Stage, record: str) -> None:
    requeue = f"/dead-letters/{record}/requeue"
    found = stage.as_("importer").call("POST", requeue, {"reason": REASON}).outcome
    stage.check("a worker may not requeue it", True, found in {"403 Forbidden", "404 RecordUnknown"})
    state = stage.as_("operator").post(requeue, {"reason": REASON})["state"]
    stage.check("an operator may, with a reason", "ready", state)
    claim = stage.until("the requeued record is claimed", lambda: _claim(stage))
    settled = stage.as_("importer").post(f"/claims/{record}/settle", {"epoch": claim["lease"]["epoch"]})
    stage.check("this time it is worked off", "consumed", settled["record"]["state"])
    entries = list(stage.as_("operator").history(subject=record))
    requeued = [(entry["actor"], entry["data"].get("reason")) for entry in entries if entry["type"] == "record.requeued"]
    stage.check("history keeps who requeued it and why", [["operator", REASON]], [list(one) for one in requeued])


ACT = Act(
    "poison",
    "A poison record",
    "An import fails at every attempt. It is tried again after a growing delay, then set aside for a person to look at.",
    play,
)
