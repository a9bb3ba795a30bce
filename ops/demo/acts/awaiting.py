"""A release waits until GitHub says, with a signature, that the build is green."""

import json
from dataclasses import dataclass
from typing import Any

from ops.demo.acts.catalog import SECRET, SENDER
from ops.demo.checks import Check
from ops.demo.payloads import Delivery, at, digest, signed
from ops.demo.stage import CLOCK, Act, Stage
from ops.demo.wire import Answer

SHORT_SECONDS = 1.5
LEASE_SECONDS = 120


@dataclass(frozen=True)
class Promise:
    """A minted awakeable."""

    id: str
    token: str


def play(stage: Stage) -> None:
    """Open the release, mint, deliver in every way, settle."""
    manager = stage.as_("release-manager")
    expired = _mint(stage, SHORT_SECONDS, "nobody answers in time")
    release = _open_release(stage)
    asked = {"kind": "release", "worker": "release-manager-1", "lease_seconds": LEASE_SECONDS}
    claim = manager.post("/claims", asked)["claims"][0]
    promise = _mint(stage, 300, f"a green build for {release['body']['tag']}")
    stage.say(
        f"Release `{release['body']['tag']}` of {release['body']['repository']} is claimed and waits on an awakeable: "
        "a URL that somebody outside posts to, once."
    )
    stage.check("it is pending", "pending", manager.get(f"/awake/{promise.token}")["state"])
    green = build(stage, "completed", "success")
    _deliver(stage, promise, expired, green)
    renewal = {"epoch": claim["lease"]["epoch"], "lease_seconds": 2 * LEASE_SECONDS}
    lease = manager.post(f"/claims/{release['id']}/renew", renewal)["lease"]
    stage.check("the release's lease is renewed meanwhile, under the same epoch", claim["lease"]["epoch"], lease["epoch"])
    _ship(stage, release, claim, promise)


def _open_release(stage: Stage) -> Any:
    """A release record, made from the summary of the event whose worker was killed."""
    event = stage.as_("operator").get(f"/records/{stage.recovered}")
    summary = next(
        one for one in stage.as_("operator").query("github.summary", page=500) if stage.recovered in one["parents"]
    )
    body = {"tag": event["body"]["release"]["tag_name"], "repository": event["body"]["repository"]["full_name"]}
    return stage.as_("release-manager").post("/records", {"kind": "release", "body": body, "parents": [summary["id"]]})


def _mint(stage: Stage, ttl_seconds: float, label: str) -> Promise:
    minted = stage.as_("release-manager").post("/awakeables", {"ttl_seconds": ttl_seconds, "label": label})
    return Promise(minted["id"], minted["token"])


def build(stage: Stage, action: str, conclusion: str) -> bytes:
    """The bytes of the first workflow_run payload like that."""

    def fits(one: Delivery) -> bool:
        return one.event == "workflow_run" and [one.payload["action"], at(one.payload, "workflow_run.conclusion")] == [
            action,
            conclusion,
        ]

    return json.dumps(next(one.payload for one in stage.deliveries if fits(one))).encode()


def _post(stage: Stage, token: str, raw: bytes, headers: dict[str, str]) -> Answer:
    return stage.as_("nobody").send("POST", f"/awake/{token}?sender={SENDER}", raw, headers)


def _deliver(stage: Stage, promise: Promise, expired: Promise, green: bytes) -> None:
    manager = stage.as_("release-manager")
    forged = _post(stage, promise.token, green, signed(green, "a guess"))
    altered = _post(stage, promise.token, green.replace(b"success", b"failure"), signed(green, SECRET))
    untouched = manager.get(f"/awake/{promise.token}")["state"]
    genuine = _post(stage, promise.token, green, signed(green, SECRET))
    duplicate = _post(stage, promise.token, green, signed(green, SECRET))
    red = build(stage, "requested", "action_required")
    different = _post(stage, promise.token, red, signed(red, SECRET))
    entry = stage.until("the Clock times the other awakeable out", lambda: _timed_out(stage, expired))
    late = _post(stage, expired.token, green, signed(green, SECRET))
    unknown = _post(stage, "awk_tok_of_nobody", green, signed(green, SECRET))
    rows = (
        ("forged", "signed with another secret", forged, "401 Unauthenticated"),
        ("altered", "one word changed after signing", altered, "401 Unauthenticated"),
        ("genuine", "the build is green, signed by GitHub", genuine, "200"),
        ("duplicate", "the same once more", duplicate, "200"),
        ("different", "another payload, well signed", different, "409 AwakeableAlreadyResolved"),
        ("late", f"to an awakeable that lived {SHORT_SECONDS} s", late, "410 AwakeableTimedOut"),
        ("unknown", "to a token that was never minted", unknown, "404 AwakeableUnknown"),
    )
    checks = [Check(f"{name}: {words}", expected, answer.outcome) for name, words, answer, expected in rows]
    stage.narrator.table(
        ("", "delivery", "", "answer"),
        [
            (stage.narrator.mark(stage.keep(check)), name, words, answer.outcome)
            for check, (name, words, answer, _) in zip(checks, rows, strict=True)
        ],
    )
    for check in checks:
        if not check.ok:
            stage.narrator.check(check)
    stage.check("after the forged ones it was pending still", "pending", untouched)
    sent = digest(json.loads(green))
    stage.check("the genuine one is answered with its payload, whole", sent, digest(genuine.value))
    stage.check("the duplicate with the same bytes", True, genuine.raw == duplicate.raw)
    recorded = manager.get(f"/awake/{promise.token}")["payload"]
    stage.check("and what is recorded is still the first one's payload", sent, digest(recorded))
    stage.check("the late one met what the Clock had done in time", CLOCK, entry["actor"])


def _timed_out(stage: Stage, promise: Promise) -> Any:
    entries = stage.as_("operator").history(subject=promise.id)
    return next((entry for entry in entries if entry["type"] == "awakeable.timed_out"), None)


def _ship(stage: Stage, release: Any, claim: Any, promise: Promise) -> None:
    manager = stage.as_("release-manager")
    shown = manager.get(f"/awake/{promise.token}")
    run = shown["payload"]["workflow_run"]
    build = f"#{run['run_number']} of {shown['payload']['repository']['full_name']}"
    body = {"tag": release["body"]["tag"], "build": build, "told_by": shown["ended_by"]}
    result = {"kind": "release.shipped", "body": body}
    done = {"epoch": claim["lease"]["epoch"], "results": [result]}
    settled = manager.post(f"/claims/{release['id']}/settle", done)
    stage.shipped = settled["results"][0]["id"]
    stage.say(f"Build `{build}` is green, says `{shown['ended_by']}`. The release ships.")
    stage.check(
        "the release is consumed, with one result", ["consumed", 1], [settled["record"]["state"], len(settled["results"])]
    )
    stage.check("it was the webhook sender's signature that resolved it", "github.com", shown["ended_by"])
    again = manager.post(f"/claims/{release['id']}/settle", done)
    stage.check("the settlement sent again is answered with the same receipt", settled["receipt"], again["receipt"])


ACT = Act(
    "awaiting",
    "A release waits for a webhook",
    "The release goes out when GitHub says that the build is green, and on nobody else's word.",
    play,
)
