"""The operations that are measured, each through HTTP as a client would do it."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from ops.bench.budget import Budget, Cost, Measured, Operation
from ops.failure import CommandFailed

KIND = "bench.document"
COMMON = "bulk"
"""The value of `type` that the bulk records have; the selective claims look for others."""

_COST = re.compile(r'd1;dur=[\d.]+;desc="trips=(\d+) read=(\d+) written=(\d+)"')
_ABSENT = "no-such-type"


@dataclass(frozen=True)
class Step(Operation):
    """An operation and how it is run: `run` gets the bench and a number, and answers the response to be measured."""

    run: Callable[["Bench", int], httpx.Response]


class Bench:
    """A client of the edge under measurement, with root's rights, so that every answer tells its cost."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def prepare(self) -> None:
        """Declare the kind and warm the isolate's caches."""
        paths = {"type": "string", "size": "number", "live": "boolean"}
        self.send("PUT", f"/kinds/{KIND}", {"paths": paths, "claim": {"lease_seconds": 600}})
        self.publish("warm", 0)

    def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """One request. Raises CommandFailed for any answer that is not a success: a bench measures what works."""
        response = self._client.request(method, path, json=body)
        if response.is_error:
            raise CommandFailed(f"{method} {path} answered {response.status_code}: {response.text[:200]}")
        return response

    def publish(self, type_: str, size: int) -> httpx.Response:
        """Publish one record with two declared paths present."""
        return self.send("POST", "/records", {"kind": KIND, "body": {"type": type_, "size": size}})

    def claim(self, match: dict[str, Any]) -> httpx.Response:
        """Claim one record that matches."""
        return self.send("POST", "/claims", {"kind": KIND, "match": match, "worker": "bench"})

    def hold(self, type_: str) -> tuple[str, int]:
        """Publish and claim a record of its own type: its id and epoch."""
        self.publish(type_, 1)
        found = self.claim({"type": type_}).json()["claims"]
        return found[0]["record"]["id"], found[0]["lease"]["epoch"]

    def awake_token(self) -> str:
        """A fresh awakeable's token."""
        token: str = self.send("POST", "/awakeables", {"ttl_seconds": 3600}).json()["token"]
        return token

    def measure(self, step: Step, repeat: int) -> Measured:
        """Run the step `repeat` times, after two that warm it."""
        costs = []
        for number in range(-2, repeat):
            cost = self._cost(step, number)
            if number >= 0:
                costs.append(cost)
        return Measured.of(step, costs)

    def _cost(self, step: Step, number: int) -> Cost:
        response = step.run(self, number)
        found = _COST.search(response.headers.get("server-timing", ""))
        if found is None:
            raise CommandFailed(f"{step.name}: the answer does not tell its cost")
        trips, read, written = (int(part) for part in found.groups())
        return Cost(trips, read, written, response.elapsed.total_seconds() * 1000)


def unique(prefix: str, number: int) -> str:
    """A name that no other measurement uses."""
    return f"{prefix}-{number}-{time.monotonic_ns()}"


def _publish(bench: Bench, number: int) -> httpx.Response:
    return bench.publish(unique("publish", number), number)


def _publish_batch(bench: Bench, number: int) -> httpx.Response:
    body = {"type": unique("batch", number), "size": 1}
    return bench.send("POST", "/records/batch", {"records": [{"kind": KIND, "body": body}] * 100})


def _claim_hit(bench: Bench, number: int) -> httpx.Response:
    wanted = unique("hit", number)
    bench.publish(wanted, 1)
    return bench.claim({"type": wanted})


def _claim_hit_and(bench: Bench, number: int) -> httpx.Response:
    wanted = unique("hit", number)
    bench.publish(wanted, 5)
    return bench.claim({"type": wanted, "size": {"$gte": 5, "$lt": 6}})


def _claim_miss(bench: Bench, number: int) -> httpx.Response:
    return bench.claim({"type": _ABSENT})


def _claim_miss_and(bench: Bench, number: int) -> httpx.Response:
    return bench.claim({"type": COMMON, "size": -1})


def _claim_miss_range(bench: Bench, number: int) -> httpx.Response:
    return bench.claim({"size": {"$lt": -1}})


def _claim_miss_in(bench: Bench, number: int) -> httpx.Response:
    return bench.claim({"type": {"$in": [_ABSENT, "neither-this"]}})


def _renew(bench: Bench, number: int) -> httpx.Response:
    record, epoch = bench.hold(unique("renew", number))
    return bench.send("POST", f"/claims/{record}/renew", {"epoch": epoch, "lease_seconds": 900})


def _settle(bench: Bench, number: int) -> httpx.Response:
    record, epoch = bench.hold(unique("settle", number))
    return bench.send("POST", f"/claims/{record}/settle", {"epoch": epoch})


def _settle_result(bench: Bench, number: int) -> httpx.Response:
    record, epoch = bench.hold(unique("settle", number))
    result = {"kind": KIND, "body": {"type": unique("result", number), "size": 2}}
    return bench.send("POST", f"/claims/{record}/settle", {"epoch": epoch, "results": [result]})


def _fail(bench: Bench, number: int) -> httpx.Response:
    record, epoch = bench.hold(unique("fail", number))
    error = {"tag": "Transient", "message": "measured"}
    return bench.send("POST", f"/claims/{record}/fail", {"epoch": epoch, "error": error, "retry_after_seconds": 3600})


def _release(bench: Bench, number: int) -> httpx.Response:
    record, epoch = bench.hold(unique("release", number))
    return bench.send("POST", f"/claims/{record}/release", {"epoch": epoch})


def _mint(bench: Bench, number: int) -> httpx.Response:
    return bench.send("POST", "/awakeables", {"ttl_seconds": 3600})


def _resolve(bench: Bench, number: int) -> httpx.Response:
    return bench.send("POST", f"/awake/{bench.awake_token()}", {"number": number})


def _get(bench: Bench, number: int) -> httpx.Response:
    record = bench.publish(unique("get", number), 1).json()["id"]
    return bench.send("GET", f"/records/{record}")


def _query(bench: Bench, number: int) -> httpx.Response:
    return bench.send("POST", "/records/query", {"kind": KIND, "order": "desc"})


def _query_selective(bench: Bench, number: int) -> httpx.Response:
    wanted = unique("query", number)
    bench.publish(wanted, 1)
    return bench.send("POST", "/records/query", {"kind": KIND, "match": {"type": wanted}, "state": "ready"})


PUBLISH = Step("publish", Budget(1, 12, 5), _publish)
CLAIM_HIT = Step("claim, selective, hit", Budget(1, 20, 5), _claim_hit)
CLAIM_HIT_AND = Step("claim, equality and range, hit", Budget(1, 20, 5), _claim_hit_and)
QUERY = Step("query, a page of 50", Budget(1, 520, 0), _query)
CLAIM_MISS = Step("claim, selective, miss", Budget(1, 20, 0), _claim_miss)

OPERATIONS = [
    PUBLISH,
    Step("publish, batch of 100", Budget(1, 850, 500), _publish_batch),
    CLAIM_HIT,
    CLAIM_HIT_AND,
    CLAIM_MISS,
    Step("renew", Budget(1, 20, 4), _renew),
    Step("settle", Budget(1, 20, 4), _settle),
    Step("settle with one result", Budget(1, 30, 11), _settle_result),
    Step("fail", Budget(1, 30, 5), _fail),
    Step("release", Budget(1, 20, 6), _release),
    Step("read a record", Budget(1, 5, 0), _get),
    QUERY,
    Step("mint an awakeable", Budget(1, 8, 5), _mint),
    Step("resolve an awakeable", Budget(1, 15, 4), _resolve),
]

SCALED = [
    PUBLISH,
    CLAIM_HIT,
    CLAIM_HIT_AND,
    CLAIM_MISS,
    Step("claim, two equalities, miss", Budget(1, 20, 0), _claim_miss_and),
    Step("claim, range, miss", Budget(1, 20, 0), _claim_miss_range),
    Step("claim, list, miss", Budget(1, 20, 0), _claim_miss_in),
    QUERY,
    Step("query, selective", Budget(1, 90, 0), _query_selective),
]
"""What is measured again with a large backlog: the same operation must cost the same."""
