"""Workers compete, one of them dies, and every record is done exactly once."""

import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any

from ops.demo.processes import Process
from ops.demo.stage import CLOCK, Act, Stage
from ops.demo.wire import Refused

DOOMED_LEASE_SECONDS = 2
LEASE_SECONDS = 60
AT_ONCE = 4
"""Records that a worker claims in one request."""

CREW: Sequence[tuple[str, str, dict[str, Any], str]] = (
    ("issues-1", "triage", {"event": {"$in": ["issues", "issue_comment"]}}, "issues and their comments"),
    ("issues-2", "triage", {"event": {"$in": ["issues", "issue_comment"]}}, "the same"),
    ("pulls-1", "triage", {"event": "pull_request"}, "pull requests"),
    ("vault-1", "vault", {}, "everything; its credential: private only"),
    ("sweep-1", "triage", {}, "everything"),
    ("sweep-2", "triage", {}, "everything"),
)
"""Each worker's name, whose credential it has, its pattern, and that pattern in words."""

DOOMED = ("doomed", "triage", {"event": "release", "action": "published"}, "published releases")


def play(stage: Stage) -> None:
    """Start the doomed worker, let it claim, start the others, kill it, and wait until all is done."""
    with ExitStack() as processes:
        doomed = processes.enter_context(_start(stage, *DOOMED[:3], lease=DOOMED_LEASE_SECONDS, hangs=True))
        held = stage.until("the doomed worker has a claim", lambda: _first(doomed), pause=0.02)
        crew = [processes.enter_context(_start(stage, *one[:3], lease=LEASE_SECONDS)) for one in CREW]
        status = doomed.kill()
        stage.say(
            f"Six workers compete. A seventh, `doomed`, claimed a published release for {DOOMED_LEASE_SECONDS} s "
            f"and got SIGKILL while it held it (process {doomed.pid})."
        )
        stage.check("the doomed worker died of SIGKILL, holding a claim", -signal.SIGKILL, status)
        _await_all(stage, crew)
        statuses = [worker.stop() for worker in crew]
    stage.check("the others stopped when told to, none of them in error", [0] * len(crew), statuses)
    done = {worker.name: [one for one in worker.said() if one["did"] == "settled"] for worker in crew}
    _show(stage, done)
    _count(stage, done)
    _recovered(stage, held, done)


def _start(stage: Stage, name: str, who: str, match: dict[str, Any], *, lease: int, hangs: bool = False) -> Process:
    told = {
        "url": stage.edge.url,
        "token": stage.tokens[who],
        "kind": "github.event",
        "match": match,
        "worker": name,
        "limit": 1 if hangs else AT_ONCE,
        "lease_seconds": lease,
        "hangs": hangs,
    }
    return Process("worker", name, told, stage.folder)


def _first(worker: Process) -> Any:
    if not worker.running():
        raise Refused(f"the worker {worker.name} ended: {worker.complaint()}")
    return next(worker.said(), None)


def _await_all(stage: Stage, crew: list[Process]) -> None:
    total = len(stage.events)

    def finished() -> bool:
        for worker in crew:
            if not worker.running():
                raise Refused(f"the worker {worker.name} ended: {worker.complaint()}")
        return settled() >= total

    def settled() -> int:
        return len([one for worker in crew for one in worker.said() if one["did"] == "settled"])

    stage.until(f"{total} records are settled", finished, progress=lambda: f"{settled()} of {total} records are settled")


def _show(stage: Stage, done: dict[str, list[Any]]) -> None:
    rows = [
        (name, who, words, len(done[name]), sum(one["attempt"] > 1 for one in done[name]) or "")
        for name, who, _, words in CREW
    ]
    rows.append((DOOMED[0], DOOMED[1], DOOMED[3], 0, ""))
    columns = ("worker", "credential", "asks for", "settled", "recovered")
    stage.narrator.table(columns, rows, numbers=("settled", "recovered"))
    stage.note(settled={name: len(one) for name, one in done.items()})


def _count(stage: Stage, done: dict[str, list[Any]]) -> None:
    operator = stage.as_("operator")
    once = {"once": len(stage.events), "more often": 0, "never": 0, "others": 0}
    told = _tally(stage, (one["record"] for settled in done.values() for one in settled))
    stage.check(f"by the workers' own account each of {len(stage.events)} records was settled once", once, told)
    history = (entry["subject"] for entry in operator.history() if entry["type"] == "record.settled")
    stage.check("by the history too", once, _tally(stage, history))
    summaries = operator.query("github.summary", page=500)
    parents = (parent for one in summaries for parent in one["parents"])
    stage.check("each record is the parent of one summary", once, _tally(stage, parents))
    stage.check("and each summary has one parent", [], [one["id"] for one in summaries if len(one["parents"]) != 1])
    left = [len(operator.query("github.event", state=state)) for state in ("ready", "claimed", "dead")]
    stage.check("none is left ready, claimed or dead", [0, 0, 0], left)
    private = {one["id"] for one in operator.query("github.event", {"repository.private": True})}
    vault = {one["record"] for one in done["vault-1"]}
    stage.check(
        "the narrowed credential's worker asked for everything and got private ones only", [], sorted(vault - private)
    )


def _tally(stage: Stage, records: Iterable[str]) -> dict[str, int]:
    """How often each published event is among `records`, in four numbers."""
    times = Counter(records)
    events = set(stage.events.values())
    return {
        "once": sum(times[one] == 1 for one in events),
        "more often": sum(times[one] > 1 for one in events),
        "never": len(events - set(times)),
        "others": len(set(times) - events),
    }


def _recovered(stage: Stage, held: Any, done: dict[str, list[Any]]) -> None:
    record = stage.recovered = held["record"]
    savior, settled = next((name, one) for name, all_ in done.items() for one in all_ if one["record"] == record)
    entries = list(stage.as_("operator").history(subject=record))
    expiry = next((entry for entry in entries if entry["type"] == "record.lease_expired"), None)
    if expiry is None:
        raise Refused("the history of the doomed worker's record holds no record.lease_expired")
    late = (datetime.fromisoformat(expiry["at"]) - datetime.fromisoformat(held["expires_at"])).total_seconds()
    stage.say(f"The Clock's alarm ended the dead worker's lease {late * 1000:.0f} ms after its time; `{savior}` took over.")
    stage.note(recovered_by=savior, alarm_late_seconds=late)
    stage.check("time alone ended that lease, and not before it ran out", [CLOCK, True], [expiry["actor"], late >= 0])
    stage.check("the record was settled at its second attempt, by another worker", 2, settled["attempt"])
    stage.check("under a larger epoch", True, settled["epoch"] > held["epoch"])
    body = {"epoch": held["epoch"], "results": []}
    late_write = stage.as_("triage").call("POST", f"/claims/{record}/settle", body).outcome
    stage.check("the dead worker's epoch is fenced: it can write nothing any more", "409 LeaseFenced", late_write)
    after = list(stage.as_("operator").history(subject=record))
    stage.check("and that refusal changed nothing", len(entries), len(after))


ACT = Act(
    "working",
    "Workers compete, and one of them dies",
    "Workers are processes of their own that speak only HTTP. They claim by pattern, summarize, and settle with a result.",
    play,
)
