"""Claims that wait for a match (clause records.claim-wait).

A claim is tried at once, and again whenever the Bell of its kind rings. The waiting itself happens in the Bell: a request
awaits nothing that another request brings about. It is always bounded, because a client that has gone cannot be seen.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from moorage.api.requests import ApiRequest
from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.records.claim import NothingMatches
from moorage.records.model import Claim
from moorage.timers.bell import Ring, Wish, Woken

Attempt = Callable[[Instant, bool], Awaitable[list[Claim]]]
"""Claims at an instant; with True it raises NothingMatches where it would else answer, and remember, that nothing did."""


async def claim_or_wait(
    request: ApiRequest,
    kind: str,
    match: dict[str, Any],
    seconds: float,
    attempt: Attempt,
    remembered: bool = False,
) -> list[Claim]:
    """What `attempt` claims, at once or within `seconds`; what it raises is raised. `remembered` says that an empty answer
    must be kept, too."""
    if not seconds:
        return await attempt(request.now, False)
    ports, woken = request.ports, Woken("ring")
    ports.bells.expect(kind)
    deadline = began = _now(request)
    deadline += seconds
    group = canonical.digest(canonical.dumps([match, request.caller.narrowing("claim", kind)]))
    while True:
        try:
            claims = await attempt(ports.now(), True)
        except NothingMatches as nothing:
            left = deadline - _now(request)
            if left <= 0:
                return await _give_up(attempt, request, remembered)
            look_in = nothing.retry_after
        else:
            if woken.reason == "scan":
                # A ring was lost, perhaps more than one: let another look as well.
                ports.bells.ring({kind: Ring(ready=1, again=True)})
            return claims
        declared = ports.kinds.remembered(kind)
        wish = Wish(
            seconds=left,
            group=group,
            bounded=declared is not None and declared.concurrency is not None,
            age_seconds=_now(request) - began,
            look_in=look_in,
            seen=woken.seen,
            place=woken.place,
        )
        woken = await ports.bells.wait(kind, wish)
        spend(request, woken)
        if woken.reason == "timeout":
            return await _give_up(attempt, request, remembered)


def spend(request: ApiRequest, woken: Woken) -> None:
    """Count what looking for others cost in the Bell to what the request cost."""
    request.db.cost.trips += woken.trips
    request.db.cost.rows_read += woken.rows_read


async def _give_up(attempt: Attempt, request: ApiRequest, remembered: bool) -> list[Claim]:
    """An empty answer that must be remembered takes a claim that may be empty; else nothing is asked."""
    if remembered:
        return await attempt(request.ports.now(), False)
    return []


def _now(request: ApiRequest) -> float:
    return request.ports.ticks() / 1000
