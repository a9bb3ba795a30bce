"""workerd is killed in the middle of a burst of writes."""

import time
from typing import Any

from ops.demo.processes import Process
from ops.demo.stage import CLOCK, Act, Stage
from ops.demo.wire import Refused, Unanswered

RECORDS = 100
BEFORE_KILL = 25
LONG_LEASE_SECONDS = 300
SHORT_LEASE_SECONDS = 0.5


def play(stage: Stage) -> None:
    """Kill it, and look at what is there afterwards."""
    kept = stage.as_("edge-client").post("/records", _push(stage, -1))["id"]
    short = stage.as_("edge-client").post("/records", _push(stage, -2))["id"]
    token = stage.as_("release-manager").post("/awakeables", {"ttl_seconds": 300, "label": "across a crash"})["token"]
    held = _claim(stage, LONG_LEASE_SECONDS)
    with Process("publisher", "publisher", _told(stage), stage.folder) as publisher:
        stage.until(f"{BEFORE_KILL} records are acknowledged", lambda: _acknowledged(publisher) >= BEFORE_KILL, 0.01)
        _claim(stage, SHORT_LEASE_SECONDS)
        before, acknowledged = stage.edge.workerd_pid(), list(publisher.said())
        stage.edge.kill_workerd()
        began = time.monotonic()
        stage.until("requests are answered again", lambda: healthy(stage))
        seconds = time.monotonic() - began
        stage.until("the publisher is done", lambda: not publisher.running())
        said = list(publisher.said())
        status = publisher.stop()
    after = stage.edge.workerd_pid()
    repeated = sum(one["tries"] > 1 for one in said)
    stage.say(
        f"workerd (process {before}) got SIGKILL after {len(acknowledged)} acknowledged writes. {seconds:.1f} s later "
        f"process {after} answered. The publisher sent what had no answer again, under the same key."
    )
    stage.note(back_after_seconds=round(seconds, 3), acknowledged_before=len(acknowledged), sent_again=repeated)
    stage.check("it is another process now", True, before != after)
    stage.check("the burst was cut short: something had to be sent again", True, repeated > 0)
    stage.check(f"the publisher got all {RECORDS} acknowledged in the end", [0, RECORDS], [status, len(said)])
    _records(stage, acknowledged, said, {kept, short})
    _survivors(stage, held, short, token)


def _push(stage: Stage, number: int) -> dict[str, Any]:
    pushes = [one.body for one in stage.deliveries if one.event == "push"]
    return {"kind": "github.push", "body": pushes[number % len(pushes)], "metadata": {"number": number}}


def _told(stage: Stage) -> dict[str, Any]:
    records = [_push(stage, number) for number in range(RECORDS)]
    return {"url": stage.edge.url, "token": stage.tokens["edge-client"], "key": "push", "records": records}


def _claim(stage: Stage, lease_seconds: float) -> Any:
    asked = {"kind": "github.push", "worker": "importer-1", "lease_seconds": lease_seconds}
    return stage.as_("importer").post("/claims", asked)["claims"][0]


def _acknowledged(publisher: Process) -> int:
    if not publisher.running():
        raise Refused(f"the publisher ended: {publisher.complaint()}")
    return sum(1 for _ in publisher.said())


def healthy(stage: Stage) -> bool:
    """Whether requests are answered."""
    try:
        return stage.as_("nobody").call("GET", "/health").status == 200
    except Unanswered:
        return False


def _records(stage: Stage, acknowledged: list[Any], said: list[Any], others: set[str]) -> None:
    found = {one["id"]: one for one in stage.as_("operator").query("github.push") if one["id"] not in others}
    lost = [one["id"] for one in acknowledged if one["id"] not in found]
    stage.check("everything acknowledged before the kill is there", [], lost)
    numbers = {one["metadata"]["number"] for one in found.values()}
    once = [RECORDS, RECORDS]
    stage.check("each record is there once, those sent twice too", once, [len(found), len(numbers & set(range(RECORDS)))])
    others_told = sorted(set(found).symmetric_difference(one["id"] for one in said))
    stage.check("under the ids that the publisher was told", [], others_told)
    whole = sum(one["body"] == _push(stage, one["metadata"]["number"])["body"] for one in found.values())
    stage.check("and none is half written", RECORDS, whole)


def _survivors(stage: Stage, held: Any, short: str, token: str) -> None:
    expiry = stage.until("the overdue lease ends", lambda: _expiry(stage, short))
    stage.check("a lease that ran out meanwhile was ended by the Clock", CLOCK, expiry["actor"])
    record, epoch = held["record"]["id"], held["lease"]["epoch"]
    settled = stage.as_("importer").call("POST", f"/claims/{record}/settle", {"epoch": epoch}).outcome
    stage.check("a claim held across the crash can be settled", "200", settled)
    resolved = stage.as_("importer").call("POST", f"/awake/{token}", {"still": "here"}).outcome
    stage.check("a pending awakeable can be resolved", "200", resolved)


def _expiry(stage: Stage, record: str) -> Any:
    entries = stage.as_("operator").history(subject=record)
    return next((entry for entry in entries if entry["type"] == "record.lease_expired"), None)


ACT = Act(
    "crash",
    "The house falls down and stands up",
    "An edge client publishes pushes one by one while workerd is killed. There is no time to say goodbye.",
    play,
)
