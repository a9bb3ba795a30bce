"""What a request of a host outside the Worker asks of the substrate, and waiting for something to do.

The waiting is in Bells, as for claims of records: in that of each body that the host has, or in that of an execution. Every
host that waits in a Bell is woken by each of its rings and reads for itself; one of them takes what there is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from moorage.api.requests import ApiRequest
from moorage.api.waiting import spend
from moorage.journal.model import Fence
from moorage.kernel.errors import StorageCapabilityMissing
from moorage.runs.substrate import LocalSubstrate
from moorage.runs.take import Tokens
from moorage.store.ports import Blobs
from moorage.timers.bell import Wish, Woken

T = TypeVar("T")

BODIES: Final = 20
"""Bodies for which one request may wait: it waits in as many Bells."""


def blobs_of(request: ApiRequest) -> Blobs:
    """The bucket. Raises StorageCapabilityMissing without one."""
    if request.ports.blobs is None:
        raise StorageCapabilityMissing("hosts of bodies need the bucket")
    return request.ports.blobs


def substrate_of(request: ApiRequest) -> LocalSubstrate:
    """The substrate, at the cost of this request."""
    ports = request.ports
    return LocalSubstrate(
        lambda: request.db,
        blobs_of(request),
        ports.now,
        ports.kinds,
        ports.settings.derivation_keys,
        ports.settings.url or request.origin,
        ports.bodies.get,
        ports.wake,
    )


def tokens_of(request: ApiRequest) -> Tokens:
    """What tells the tokens of awakeables to whoever holds their execution."""
    settings = request.ports.settings
    return Tokens(settings.derivation_keys, settings.url or request.origin)


async def held(request: ApiRequest, execution_id: str, epoch: int) -> Fence:
    """The fence that the request shows. Raises LeaseFenced unless it is the caller's."""
    fence = Fence(execution_id, epoch)
    await request.ports.fences.demand(request.db, request.caller, fence)
    return fence


async def until(
    request: ApiRequest, bells: Sequence[str], seconds: float, look: Callable[[], Awaitable[T | None]]
) -> T | None:
    """What `look` finds, at once or within `seconds`; None when it does not."""
    ports = request.ports
    deadline = began = _now(request)
    deadline += seconds
    woken = {bell: Woken("ring") for bell in bells}
    while True:
        for bell in bells:
            ports.bells.expect(bell)
        found = await look()
        left = deadline - _now(request)
        if found is not None or left <= 0:
            return found
        wishes = {
            bell: Wish(left, group=request.exchange.id, age_seconds=_now(request) - began, seen=last.seen, place=last.place)
            for bell, last in woken.items()
        }
        rung = await _first_of(request, wishes)
        woken |= rung
        if all(one.reason == "timeout" for one in rung.values()):
            return await look()


async def _first_of(request: ApiRequest, wishes: dict[str, Wish]) -> dict[str, Woken]:
    """Wait in all of the Bells until one of them wakes; what those said that did."""
    bells = request.ports.bells
    if len(wishes) == 1:
        ((bell, wish),) = wishes.items()
        woken = await bells.wait(bell, wish)
        spend(request, woken)
        return {bell: woken}
    tasks = {asyncio.ensure_future(bells.wait(bell, wish)): bell for bell, wish in wishes.items()}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    rung = {tasks[task]: task.result() for task in done}
    for woken in rung.values():
        spend(request, woken)
    return rung


def _now(request: ApiRequest) -> float:
    return request.ports.ticks() / 1000
