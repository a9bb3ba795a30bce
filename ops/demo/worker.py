"""A worker as a process of its own: it claims by pattern, summarizes, settles, and knows nothing but HTTP.

It reads one JSON line of instructions from its standard input and stops when that input ends. What it has done goes to
its standard output, one JSON object a line.
"""

import json
import select
import sys
from typing import Any

from ops.demo.wire import Client, Refused

IDLE_SECONDS = 0.2, 1.0
"""How long to wait before asking again when nothing matched: at first, and at most."""


def main() -> None:
    """Work until standard input ends."""
    told = json.loads(sys.stdin.readline())
    client = Client(told["url"], told["token"])
    asked = {key: told[key] for key in ("kind", "match", "worker", "limit", "lease_seconds")}
    first, longest = IDLE_SECONDS
    idle = first
    while not _stopped(0):
        claims = client.post("/claims", asked)["claims"]
        for one in claims:
            report("claimed", one)
        if told["hangs"] and claims:
            _stopped(None)
            return
        for one in claims:
            settle(client, one)
        if claims:
            idle = first
        elif _stopped(idle):
            return
        else:
            idle = min(2 * idle, longest)


def settle(client: Client, claim: dict[str, Any]) -> None:
    """Settle a claim with a summary of its record. A claim that was lost meanwhile is somebody else's by now."""
    record, epoch = claim["record"], claim["lease"]["epoch"]
    answer = client.call(
        "POST",
        f"/claims/{record['id']}/settle",
        {"epoch": epoch, "results": [{"kind": "github.summary", "body": summary(record["body"])}]},
    )
    if answer.status == 409:
        report("lost", claim)
    elif answer.status != 200:
        raise Refused(f"settling was answered {answer.outcome}")
    else:
        report("settled", claim, summary=answer.value["results"][0]["id"])


def summary(event: dict[str, Any]) -> dict[str, str]:
    """One sentence about a GitHub event, and what to find it by."""
    where = event.get("repository", {}).get("full_name") or event.get("organization", {}).get("login") or "GitHub"
    who = event.get("sender", {}).get("login", "somebody")
    subjects = (event[key] for key in ("issue", "pull_request", "release") if key in event)
    subject: dict[str, Any] = next(subjects, {})
    title = subject.get("title") or subject.get("name") or subject.get("tag_name")
    about = f" “{title}”" if title else ""
    sentence = f"{who}: {event['event'].replace('_', ' ')} {event.get('action') or ''}".rstrip() + about
    return {"event": event["event"], "where": where, "sentence": f"{sentence} in {where}"}


def report(did: str, claim: dict[str, Any], **more: Any) -> None:
    """Write down what was done with a claim."""
    lease = claim["lease"]
    facts = {"record": claim["record"]["id"], "epoch": lease["epoch"], "attempt": lease["attempt"]}
    print(json.dumps({"did": did, **facts, "expires_at": lease["expires_at"], **more}), flush=True)


def _stopped(seconds: float | None) -> bool:
    """Whether standard input has ended, or does within `seconds`; None waits until it does."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


if __name__ == "__main__":
    main()
