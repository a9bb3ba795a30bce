"""Real webhooks become records, and are found again."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from ops.demo.payloads import Delivery, at, digest
from ops.demo.stage import Act, Stage

BATCH_BYTES = 600_000

Expected = Callable[[dict[str, Any]], bool]


def _some_issues(body: dict[str, Any]) -> bool:
    count = at(body, "repository.open_issues_count")
    return count is not None and 2 < count < 1000


SEARCHES: list[tuple[str, dict[str, Any], Expected]] = [
    ("equality", {"event": "issues", "action": "opened"}, lambda b: b["event"] == "issues" and b["action"] == "opened"),
    (
        "membership",
        {"sender.login": {"$in": ["octocat", "monalisa"]}},
        lambda b: at(b, "sender.login") in {"octocat", "monalisa"},
    ),
    ("boolean", {"repository.private": True}, lambda b: at(b, "repository.private") is True),
    ("range", {"repository.open_issues_count": {"$gt": 2, "$lt": 1000}}, _some_issues),
    ("missing", {"repository.full_name": {"$exists": False}}, lambda b: "full_name" not in b.get("repository", {})),
    (
        "either, and not",
        {"$or": [{"event": "push"}, {"event": "release"}], "action": {"$ne": "edited"}},
        lambda b: b["event"] in {"push", "release"} and b.get("action") != "edited",
    ),
]
"""What to search for, as the pattern and as Python over the payloads themselves."""


def play(stage: Stage) -> None:
    """Publish, repeat, read back, search."""
    batches = list(_batches(stage.deliveries))
    client = stage.as_("edge-client")
    with stage.narrator.working("publishing") as working:
        for number, places in enumerate(batches):
            made = client.post("/records/batch", _content(stage, places), key=f"deliveries-{number}")["records"]
            stage.events.update(zip(places, (record["id"] for record in made), strict=True))
            working.say(f"published {len(stage.events)} of {len(stage.deliveries)}")
    kinds = len({delivery.event for delivery in stage.deliveries})
    size = sum(len(json.dumps(delivery.body)) for delivery in stage.deliveries)
    stage.say(f"{len(stage.events)} deliveries of {kinds} kinds of event, {size / 1e6:.1f} MB, in {len(batches)} batches.")
    stage.note(deliveries=len(stage.events), events=kinds, batches=len(batches), bytes=size)
    _repeat(stage, batches)
    _read_back(stage)
    _search(stage)


def _batches(deliveries: Any) -> Iterator[list[int]]:
    places: list[int] = []
    size = 0
    for place, delivery in enumerate(deliveries):
        more = len(json.dumps(delivery.body))
        if places and size + more > BATCH_BYTES:
            yield places
            places, size = [], 0
        places.append(place)
        size += more
    yield places


def _content(stage: Stage, places: list[int]) -> dict[str, Any]:
    def draft(place: int, delivery: Delivery) -> dict[str, Any]:
        return {"kind": "github.event", "body": delivery.body, "metadata": {"delivery": place}}

    return {"records": [draft(place, stage.deliveries[place]) for place in places]}


def _repeat(stage: Stage, batches: list[list[int]]) -> None:
    client = stage.as_("edge-client")
    again = client.post("/records/batch", _content(stage, batches[0]), key="deliveries-0")["records"]
    first = [stage.events[place] for place in batches[0]]
    stage.check(
        "a batch sent again under its Idempotency-Key is answered with the same records",
        [],
        sorted({record["id"] for record in again}.symmetric_difference(first)),
    )
    other = client.call("POST", "/records/batch", _content(stage, batches[0][:1]), key="deliveries-0").outcome
    stage.check("other content under a used key is refused", "409 IdempotencyConflict", other)


def _read_back(stage: Stage) -> None:
    with stage.narrator.working("reading everything back"):
        found = stage.as_("operator").query("github.event")
    count = len(stage.deliveries)
    stage.check("every delivery is there once; the repeated batch doubled nothing", count, len(found))
    by_place = {record["metadata"]["delivery"]: record for record in found}
    same = sum(
        by_place[place]["body"] == delivery.body and by_place[place]["id"] == stage.events[place]
        for place, delivery in enumerate(stage.deliveries)
        if place in by_place
    )
    stage.check(f"all {count} bodies read back are equal to what GitHub sent", count, same)
    sealed = sum(
        by_place[place]["body_sha256"] == digest(delivery.body)
        for place, delivery in enumerate(stage.deliveries)
        if place in by_place
    )
    stage.check("so are their digests, computed here over RFC 8785 JSON", count, sealed)


def _search(stage: Stage) -> None:
    operator = stage.as_("operator")
    rows: list[tuple[Any, ...]] = []
    differences = []
    for name, match, holds in SEARCHES:
        records = operator.query("github.event", match)
        rows.append((name, json.dumps(match), len(records)))
        found = sorted(record["metadata"]["delivery"] for record in records)
        if found != [place for place, one in enumerate(stage.deliveries) if holds(one.body)]:
            differences.append(name)
    stage.narrator.table(("search", "pattern", "found"), rows, numbers=("found",))
    stage.note(found={name: count for name, _, count in rows})
    stage.check("each pattern finds exactly what Python finds in the payloads; it differs for none", [], differences)


ACT = Act(
    "publishing",
    "Webhooks become records",
    "An edge client publishes what GitHub really sends, batch by batch, each batch all or none.",
    play,
)
