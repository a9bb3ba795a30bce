"""What events, timers, small values and deliveries cost: the requests one by one, and what the Clock does by the item.

What the Clock fires nobody asked for, so no answer tells its cost. It is measured with the test clock, whose move answers
what firing and routing cost: BATCH items are let come due at one instant, and what a move costs in which nothing does is
taken off.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

import httpx

from ops.bench import executions
from ops.bench.budget import Budget, Cost, Measured, Operation
from ops.bench.operations import Bench, Step, unique

BATCH = 20
"""Items that come due together."""

_AHEAD = 3600
_IDLE = 300
_PAST = 0.2
"""So little that what is routed by itself is counted as routing, and not as something that fell due."""

_NOWHERE = "bench-nowhere"


def _event(name: str, **more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": name, "source": "/bench", "type": "bench.happened", "data": {"n": 1}, **more}


def _accept(bench: Bench, number: int) -> httpx.Response:
    return bench.send("POST", "/events", _event(unique("event", number), subject=unique("key", number)))


def _accept_again(bench: Bench, number: int) -> httpx.Response:
    sent = _event(unique("event", number))
    bench.send("POST", "/events", sent)
    return bench.send("POST", "/events", sent)


def _set(bench: Bench, number: int) -> httpx.Response:
    sent = {"delay_seconds": _AHEAD * 24, "event": {"type": "bench.rang", "keys": [unique("key", number)], "data": {"n": 1}}}
    return bench.send("PUT", f"/timers/{unique('timer', number)}", sent)


def _put(bench: Bench, number: int) -> httpx.Response:
    return bench.send("PUT", f"/kv/bench/{unique('key', number)}", {"value": {"n": number}})


def _get(bench: Bench, number: int) -> httpx.Response:
    name = unique("key", number)
    bench.send("PUT", f"/kv/bench/{name}", {"value": {"n": number}})
    return bench.send("GET", f"/kv/bench/{name}")


def _outcome(bench: Bench, number: int) -> httpx.Response:
    return bench.send("POST", f"/inbox/bench/{unique('event', number)}", {"outcome": {"n": number}})


def _outcome_with_value(bench: Bench, number: int) -> httpx.Response:
    sent = {"outcome": {"n": number}, "kv": {"bench": {"last": number}}}
    return bench.send("POST", f"/inbox/bench/{unique('event', number)}", sent)


OPERATIONS = [
    Step("accept an event", Budget(1, 35, 10), _accept),
    Step("accept an event that is known", Budget(1, 25, 0), _accept_again),
    Step("set a timer", Budget(1, 15, 4), _set),
    Step("put a small value", Budget(1, 15, 3), _put),
    Step("get a small value", Budget(1, 5, 0), _get),
    Step("record a consumer's outcome", Budget(1, 10, 5), _outcome),
    Step("record an outcome with a value", Budget(1, 20, 7), _outcome_with_value),
]


@dataclass(frozen=True)
class Firing(Operation):
    """What the Clock does with an item: `part` of a move is counted, after `prepare` with the instant at which BATCH items
    are to come due."""

    part: Literal["firing", "routing"]
    prepare: Callable[[Bench, int, str], None]


def _timers(bench: Bench, number: int, fire_at: str) -> None:
    for one in range(BATCH):
        name = f"{unique('due', number)}-{one}"
        event = {"type": "bench.rang", "keys": [f"bench-{one}"], "data": {"n": 1}}
        bench.send("PUT", f"/timers/{name}", {"fire_at": fire_at, "event": event})


def _awaited(bench: Bench, number: int, fire_at: str) -> None:
    """The same, and for each an execution that waits for it."""
    for one in range(BATCH):
        executions.wait_for(bench, f"bench-{one}")
    _timers(bench, number, fire_at)


FIRED = [
    Firing("fire a timer", Budget(2, 70, 13), "firing", _timers),
    Firing(f"route an event that nobody awaits, {BATCH} at once", Budget(0, 35, 4), "routing", _timers),
    Firing(f"route an event to an execution, {BATCH} at once", Budget(0, 60, 11), "routing", _awaited),
]

FANNED_OUT = Firing(f"fan out an entry, {BATCH} at once", Budget(1, 40, 6), "firing", _timers)
"""Beyond what the timer costs that makes the entry: see `measure`."""


def measure(bench: Bench, repeat: int) -> list[Measured]:
    """Measure what fires, each `repeat` times, with nobody subscribed and then with one who is."""
    measured = [_measure(bench, firing, repeat) for firing in FIRED]
    bench.send("PUT", f"/destinations/{_NOWHERE}", {"url": "https://bench.invalid/"})
    told = {"types": ["event.accepted"], "destination": _NOWHERE}
    bench.send("PUT", "/subscriptions/bench", told)
    both = _measure(bench, FANNED_OUT, repeat)
    alone = measured[0]
    written, read = both.rows_written - alone.rows_written, both.rows_read - alone.rows_read
    return [*measured, replace(both, trips=max(0, both.trips - alone.trips), rows_read=read, rows_written=written)]


def _measure(bench: Bench, firing: Firing, repeat: int) -> Measured:
    return Measured.of(firing, [_item(bench, firing, number) for number in range(repeat)])


def _item(bench: Bench, firing: Firing, number: int) -> Cost:
    fire_at = _now(bench) + timedelta(seconds=_AHEAD)
    firing.prepare(bench, number, fire_at.isoformat(timespec="milliseconds"))
    # What was told in history meanwhile is sealed on the way, and nothing but the items comes due in the move that counts.
    _move(bench, _AHEAD - 2 * _IDLE)
    idle, _ = _move(bench, _IDLE)
    spent, milliseconds = _move(bench, (fire_at - _now(bench)).total_seconds() + _PAST)
    more = {name: spent[firing.part][name] - idle[firing.part][name] for name in ("trips", "rows_read", "rows_written")}
    trips, rows_read, rows_written = (round(total / BATCH) for total in more.values())
    return Cost(trips, rows_read, rows_written, milliseconds / BATCH)


def _now(bench: Bench) -> datetime:
    return datetime.fromisoformat(bench.send("GET", "/testing/clock").json()["now"])


def _move(bench: Bench, seconds: float) -> tuple[dict[str, dict[str, int]], float]:
    response = bench.send("POST", "/testing/clock", {"advance_seconds": seconds})
    cost: dict[str, dict[str, int]] = response.json()["cost"]
    return cost, response.elapsed.total_seconds() * 1000
