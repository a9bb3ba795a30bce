"""What the history and the lineage say about all of this."""

from collections import Counter, defaultdict
from datetime import datetime
from itertools import pairwise
from typing import Any

from ops.demo.stage import Act, Stage

WORDS = {
    "record.published": "published",
    "record.claimed": "claimed",
    "record.lease_expired": "lease expired",
    "record.settled": "settled",
}


def play(stage: Stage) -> None:
    """The timeline of one record, the lineage of another, and the whole history in numbers."""
    _timeline(stage)
    _lineage(stage)
    _whole(stage)


def _timeline(stage: Stage) -> None:
    entries = stage.as_("operator").get(f"/records/{stage.recovered}/history")["items"]
    first = datetime.fromisoformat(entries[0]["at"])
    stage.say("The release event whose worker was killed, as history tells it:")
    moments = []
    for entry in entries:
        seconds = (datetime.fromisoformat(entry["at"]) - first).total_seconds()
        words = WORDS.get(entry["type"], entry["type"])
        moments.append((f"+{seconds:.3f} s", words, entry["actor"], _more(entry)))
    stage.narrator.timeline(moments)
    stage.note(timeline=entries)
    expected = ["published", "claimed", "lease expired", "claimed", "settled"]
    stage.check("nothing is missing and nothing is out of order", expected, [moment[1] for moment in moments])


def _more(entry: Any) -> str:
    data = entry["data"]
    said = []
    if "owner" in data:
        said.append(f"worker {data['owner']}")
    if "attempt" in data:
        said.append(f"attempt {data['attempt']}")
    if "epoch" in data:
        said.append(f"epoch {data['epoch']}")
    return ", ".join(said)


def _lineage(stage: Stage) -> None:
    operator = stage.as_("operator")
    shipped = operator.get(f"/records/{stage.shipped}")
    ancestors = operator.get(f"/records/{stage.shipped}/lineage", direction="ancestors")["items"]
    chain = [shipped, *(one["record"] for one in sorted(ancestors, key=lambda one: one["depth"]))]
    stage.say("Where the shipped release came from, back to the webhook:")
    stage.narrator.lineage([(one["kind"], _gist(one)) for one in chain])
    kinds = ["release.shipped", "release", "github.summary", "github.event"]
    stage.check("four generations, in this order", kinds, [one["kind"] for one in chain])
    stage.check("which end with the record that was recovered", stage.recovered, chain[-1]["id"])
    descendants = operator.get(f"/records/{stage.recovered}/lineage", direction="descendants")["items"]
    down = [one["record"]["id"] for one in sorted(descendants, key=lambda one: one["depth"])]
    stage.check("seen from the event the same three descend from it", [one["id"] for one in chain[-2::-1]], down)


def _gist(record: Any) -> str:
    body = record["body"]
    match record["kind"]:
        case "github.event":
            return f"{body['event']} {body.get('action', '')}, {record['created_by']}, digest {record['body_sha256'][:12]}…"
        case "github.summary":
            return str(body["sentence"])
        case "release":
            return f"{body['repository']} {body['tag']}"
        case _:
            return f"{body['tag']}, build {body['build']} is green, told by {body['told_by']}"


def _whole(stage: Stage) -> None:
    with stage.narrator.working("reading the whole history"):
        entries = list(stage.as_("operator").history())
    counts = Counter(entry["type"] for entry in entries)
    stage.say(f"And the whole history, `{len(entries)}` entries:")
    stage.narrator.table(("what happened", "times"), counts.most_common(), numbers=("times",))
    stage.note(history=dict(counts))
    positions = [entry["position"] for entry in entries]
    falling = [after for before, after in pairwise(positions) if after <= before]
    stage.check("positions rise strictly", [], falling)
    revisions: dict[str, list[int]] = defaultdict(list)
    for entry in entries:
        revisions[entry["subject"]].append(entry["revision"])
    gaps = [subject for subject, seen in revisions.items() if seen != list(range(1, len(seen) + 1))]
    stage.check(f"each of {len(revisions)} subjects counts its own from 1, without gaps", [], gaps)


ACT = Act(
    "looking-back", "Looking back", "Nothing above was lost: every change wrote its line in the same transaction.", play
)
