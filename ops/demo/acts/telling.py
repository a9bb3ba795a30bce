"""A signed webhook wakes a run that waits for it, and the run's end is delivered, signed, to who asked."""

import json
from typing import Any

from ops.demo.acts.arrival import TOLD_SECRET
from ops.demo.acts.awaiting import build
from ops.demo.acts.catalog import SECRET
from ops.demo.payloads import signed
from ops.demo.processes import Process
from ops.demo.stage import Act, Stage
from ops.demo.wire import Answer, Refused

SENDER = "github-builds"
DELIVERY, EARLIER = "0b989ba4-242f-11e5-81e1-c7b6966d2516", "cc1b3a80-2430-11e5-8d44-b6dd11b1a2c7"
_ENDED = frozenset({"success", "failed", "partial_failure", "canceled"})


def play(stage: Stage) -> None:
    """Start the run, let GitHub speak, and look at what reached the team's chat."""
    green, asked = build(stage, "completed", "success"), build(stage, "requested", "action_required")
    workflow = json.loads(green)["workflow_run"]
    keys = {"scheme": "github", "secrets": [SECRET], "subject": "github.com", "event": {"keys": ["/workflow_run/head_sha"]}}
    stage.as_("root").put(f"/senders/{SENDER}", keys)
    with Process("receiver", "receiver", {"secret": TOLD_SECRET}, stage.folder) as chat:
        url = stage.until("the team's chat listens", lambda: _url(chat), 0.02)
        stage.as_("root").put("/destinations/team", {"url": url, "secret": "env:TEAM_SECRET"})
        start = {"body": "announce", "input": workflow["head_sha"], "notify": ["team"]}
        run = stage.as_("release-manager").post("/runs", start)["run_id"]
        waiting = stage.until("the run waits", lambda: _shown(stage, run, {"suspended"}))
        stage.say(
            f"A run waits for the build of commit `{workflow['head_sha'][:7]}`. It holds no thread and no connection: it is "
            "rows, and its end is wanted by the team's chat."
        )
        stage.check("it waits for that commit's events", [workflow["head_sha"]], waiting["awaiting"][0]["keys"])
        event = _speak(stage, green, asked)
        ended = stage.until("the run has ended", lambda: _shown(stage, run, _ENDED))
        result = {"build": workflow["run_number"], "ended": "success", "event": event}
        found = [ended["status"], ended.get("result")]
        stage.check("the genuine one woke the run, and it has what GitHub sent", ["success", result], found)
        _told(stage, chat, run)


def _speak(stage: Stage, green: bytes, asked: bytes) -> str:
    """Webhooks of all sorts; the id of the event that the genuine one became."""
    forged = _webhook(stage, green, signed(green, "a guess", DELIVERY))
    early = _webhook(stage, asked, signed(asked, SECRET, EARLIER))
    genuine = _webhook(stage, green, signed(green, SECRET, DELIVERY))
    again = _webhook(stage, green, signed(green, SECRET, DELIVERY))
    stage.check("a forged webhook is refused", "401 Unauthenticated", forged.outcome)
    stage.check("one of another build and the genuine one become events", ["202", "202"], [early.outcome, genuine.outcome])
    same = [genuine.value["event_id"], False]
    stage.check("sent again by GitHub it is the same event", same, [again.value["event_id"], again.value["added"]])
    return str(genuine.value["event_id"])


def _webhook(stage: Stage, raw: bytes, headers: dict[str, str]) -> Answer:
    return stage.as_("nobody").send("POST", f"/webhooks/{SENDER}", raw, headers)


def _told(stage: Stage, chat: Process, run: str) -> None:
    got = stage.until("the team's chat is told", lambda: next(iter(_deliveries(chat)), None))
    event = got["event"]
    stage.check("the chat was told of the run's end", ["run.closed", run], [event["type"], event["subject"]])
    stage.check("by a delivery whose signature the library of Standard Webhooks verifies", "verified", got["signature"])
    stage.check("under the event's own id, by which it would know a second one", event["id"], got["delivery"])
    stage.check(
        "which says how it ended, where to read more, and no result", ["success", f"/runs/{run}", False], _says(event)
    )
    stage.until("the delivery is recorded", lambda: _states(stage) == ["delivered"])
    stage.check("once: it is recorded as delivered, and nothing else came", 1, len(_deliveries(chat)))


def _says(event: Any) -> list[Any]:
    data = event["data"]
    return [data["status"], data["data_ref"], "result" in data]


def _states(stage: Stage) -> list[str]:
    return [one["state"] for one in stage.as_("operator").get("/deliveries?destination=team")["items"]]


def _shown(stage: Stage, run: str, statuses: "frozenset[str] | set[str]") -> Any:
    shown = stage.as_("release-manager").get(f"/runs/{run}")
    return shown if shown["status"] in statuses else None


def _url(chat: Process) -> str | None:
    return next((one["url"] for one in chat.said() if "url" in one), None)


def _deliveries(chat: Process) -> list[Any]:
    if not chat.running():
        raise Refused(f"the team's chat ended: {chat.complaint()}")
    return [one for one in chat.said() if "delivery" in one]


ACT = Act(
    "telling",
    "A build ends, and whoever asked is told",
    "A run waits for a webhook by what it has: a commit. When the run ends, its end goes out, signed.",
    play,
)
