"""One suite for every substrate: hosts that are killed at every write and at every outbound call, and what is left.

A body does everything that a body can do. It is run to its end by as many hosts as it takes, one of them killed at a place
of its choice; whatever was recorded must have been recorded once, and nothing that was may be done again (clause
runs.substrate). What a deployment is, a `Deployment` says: SQLite in this process, or the real edge.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from moorage.bodies import Failed, Retry, Run, Step, body, each
from moorage.bodies.host import Host
from moorage.journal.model import Entry, EntryKey, Fence, Lease, Value
from moorage.runs.model import Execution, Stop
from moorage.runs.operations import Operation, Outcome
from moorage.runs.substrate_port import Substrate

When = Literal["before", "after"]
Place = tuple[Literal["write", "call"], int, When]

BODY: Final = "conformance"
GIVEN: Final = [3, 1, 2]
KIND: Final = "conformed"
PAID: Final = "conformed.paid"
RESULT: Final = {
    "looked": "look!",
    "packed": ["pack 3!", "pack 1!", "pack 2!"],
    "shaky": "flaky!",
    "approved": {"by": "Ada"},
    "read": 6,
    "paid": 1250,
}
CALLED: Final = {"look": 1, "pack 3": 1, "pack 1": 1, "pack 2": 1, "flaky": 3, "send": 1}
"""How often each is called when nobody is killed."""

SLEEP_SECONDS: Final = 60
LAPSE_SECONDS: Final = 31
_HOSTS: Final = 12


class Outside:
    """Whom the body calls: each call with its idempotency key, in the order in which they came."""

    def __init__(self, kill: "Kill | None" = None) -> None:
        self.calls: list[tuple[str, str]] = []
        self.failed = 0
        self.kill = kill
        self.token: str | None = None
        self.key: str | None = None

    async def call(self, what: str, step: Step) -> str:
        """Answer; the one that is called `flaky`, at the third time."""
        self.calls.append((what, step.idempotency_key))
        number = len(self.calls)
        if self.kill is not None:
            await self.kill.at("call", number, "before")
        if what == "flaky" and self.failed < 2:
            self.failed += 1
            raise Failed("Transient", "not yet")
        if self.kill is not None:
            await self.kill.at("call", number, "after")
        return f"{what}!"


outside = Outside()


@body(BODY, effects=["look", each("pack"), "flaky", "approval", "paid", "keep", "send"], retry=Retry(base_ms=1, jitter_ms=0))
async def conformance(run: Run, items: list[int]) -> dict[str, Any]:
    drawn = str(run.uuid())
    looked = await run.step("look", lambda step: outside.call("look", step))
    packed = await run.gather(*(run.step("pack", _packing, input=item) for item in items))
    shaky = await run.step("flaky", lambda step: outside.call("flaky", step))
    await run.sleep(SLEEP_SECONDS)
    handle = await run.awakeable("approval", ttl=100_000)
    outside.token = handle.token
    approved = await handle
    outside.key = drawn
    paid = await run.wait_event("paid", keys=[drawn], types=[PAID], match={"amount": {"$gt": 0}})
    cursor = await run.cursor("place")
    records = [{"kind": KIND, "body": {"of": drawn, "item": item}} for item in items]
    await run.commit("keep", cursor, (cursor.position or 0) + sum(items), records=records)
    # Another value on a replay would be another input of the same label, which ends the run.
    await run.step("send", lambda given, step: outside.call("send", step), input=drawn)
    return {
        "looked": looked,
        "packed": packed,
        "shaky": shaky,
        "approved": approved,
        "read": sum(items),
        "paid": paid.data["amount"],
    }


async def _packing(item: int, step: Step) -> str:
    return await outside.call(f"pack {item}", step)


class Kill:
    """Kills the host at one place: whatever is under way there never goes on."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self.done = asyncio.Event()

    async def at(self, what: Literal["write", "call"], number: int, when: When) -> None:
        """Nothing, or the end of whoever calls this."""
        if self.place == (what, number, when):
            self.place = None
            self.done.set()
        if self.done.is_set():
            await asyncio.get_running_loop().create_future()

    def another(self) -> None:
        """Another host begins, which nobody kills."""
        self.done = asyncio.Event()


class Mortal:
    """A substrate whose host may be killed before or after any write."""

    def __init__(self, behind: Substrate, kill: Kill) -> None:
        self._behind = behind
        self._kill = kill
        self.writes = 0

    async def apply(self, fence: Fence, operations: Sequence[Operation]) -> list[Outcome]:
        self.writes += 1
        number = self.writes
        await self._kill.at("write", number, "before")
        outcomes = await self._behind.apply(fence, operations)
        await self._kill.at("write", number, "after")
        return outcomes

    async def refresh(self, fence: Fence) -> list[Entry]:
        return await self._behind.refresh(fence)

    async def values(self, fence: Fence, keys: Sequence[EntryKey]) -> list[Value]:
        return await self._behind.values(fence, keys)

    async def cursor(self, fence: Fence, name: str) -> tuple[Value | None, int]:
        return await self._behind.cursor(fence, name)

    async def renew(self, fences: Sequence[Fence]) -> dict[str, Lease]:
        return await self._behind.renew(fences)

    async def stops(self, fences: Sequence[Fence]) -> dict[str, Stop]:
        return await self._behind.stops(fences)

    async def register_holder(self, holder: str, name: str) -> None:
        await self._behind.register_holder(holder, name)

    async def exit_holder(self, holder: str, reason: str) -> None:
        await self._behind.exit_holder(holder, reason)


class Deployment(Protocol):
    """A deployment as the suite needs it."""

    @property
    def substrate(self) -> Substrate:
        """What its hosts speak to."""

    def host(self, substrate: Substrate) -> Host:
        """A host of the suite's body, on this substrate."""

    async def open(self, scope: str) -> Execution:
        """Open the scope, or resume what is pending there, with GIVEN."""

    async def take(self, execution_id: str) -> Execution | None:
        """Take the execution, if it is due."""

    async def run(self, run_id: str) -> dict[str, Any]:
        """The run as others see it."""

    async def steps(self, run_id: str) -> list[dict[str, Any]]:
        """Its steps, as others see them."""

    async def advance(self, seconds: float) -> None:
        """Let time pass, with all that falls due."""

    async def resolve(self, token: str) -> None:
        """Keep the promise of a token with what RESULT tells."""

    async def pay(self, key: str) -> None:
        """Send an event of the type PAID with this key and the amount that RESULT tells, and see it routed."""

    async def records(self) -> list[dict[str, Any]]:
        """The bodies of all records that the suite has published."""


@dataclass
class Survived:
    """What is left once the body has come to its end."""

    run: dict[str, Any]
    steps: list[dict[str, Any]]
    calls: list[tuple[str, str]]
    writes: int
    hosts: int
    records: int = field(default=0)


async def survive(there: Deployment, scope: str, place: Place | None = None) -> Survived:
    """Run the body to its end, on as many hosts as it takes, the first of them killed at this place."""
    global outside
    kill = Kill(place)
    outside = Outside(kill)
    before = len(await there.records())
    mortal = Mortal(there.substrate, kill)
    opened = await there.open(scope)
    execution: Execution | None = opened
    for hosts in range(1, _HOSTS):
        host = there.host(mortal)
        killed = False
        if execution is not None:
            driving, dying = host.start(execution), asyncio.ensure_future(kill.done.wait())
            await asyncio.wait({driving, dying}, return_when=asyncio.FIRST_COMPLETED)
            dying.cancel()
            killed = kill.done.is_set()
            if killed:
                driving.cancel()
                await asyncio.wait([driving], timeout=0.2)
                kill.another()
            await host.close()
        run = await there.run(opened.run_id)
        if run["status"] in ("success", "failed", "canceled"):
            made = len(await there.records()) - before
            return Survived(run, await there.steps(opened.run_id), outside.calls, mortal.writes, hosts, made)
        if run["status"] == "running" or killed:
            await there.advance(LAPSE_SECONDS)
        elif run["status"] == "waiting":
            await there.advance(SLEEP_SECONDS)
        elif outside.key is not None:
            await there.pay(outside.key)
        elif outside.token is not None:
            await there.resolve(outside.token)
        if (await there.run(opened.run_id))["status"] == "partial_failure":
            execution = opened = await there.open(scope)
        else:
            execution = await there.take(opened.execution_id)
    raise AssertionError(f"not at its end: {opened.run_id}")


def check(survived: Survived, kills: int) -> None:
    """What must hold, wherever the host was killed."""
    run = survived.run
    assert (run["status"], run.get("result")) == ("success", RESULT), run
    assert {step["status"] for step in survived.steps} == {"success"}, survived.steps
    assert survived.records == len(GIVEN)
    keys: dict[str, set[str]] = {}
    for what, key in survived.calls:
        keys.setdefault(what, set()).add(key)
    assert all(len(found) == 1 for found in keys.values()), survived.calls
    assert len(set.union(*keys.values())) == len(CALLED)
    again = {what: sum(1 for one, _ in survived.calls if one == what) - often for what, often in CALLED.items()}
    assert all(more >= 0 for more in again.values()), again
    # Whoever was killed may have left the branches of one gather under way, and no effect else.
    assert sum(again.values()) <= kills * len(GIVEN), again


async def every_place(there: Deployment, name: Callable[[str], str]) -> list[Place]:
    """Run once undisturbed, and tell every place at which a host can be killed."""
    undisturbed = await survive(there, name("undisturbed"))
    check(undisturbed, 0)
    assert {what: sum(1 for one, _ in undisturbed.calls if one == what) for what in CALLED} == CALLED
    places: list[Place] = [
        ("write", number, when) for number in range(1, undisturbed.writes + 1) for when in ("before", "after")
    ]
    return places + [
        ("call", number, when) for number in range(1, len(undisturbed.calls) + 1) for when in ("before", "after")
    ]


async def check_every_place(there: Deployment, name: Callable[[str], str]) -> int:
    """Kill a host at every place, one after the other; answers how many places there were."""
    places = await every_place(there, name)
    for what, number, when in places:
        survived = await survive(there, name(f"{what}-{number}-{when}"), (what, number, when))
        try:
            check(survived, 1)
        except AssertionError as error:
            raise AssertionError(f"killed {when} {what} {number}: {error}") from error
    return len(places)
