"""A small model of guards, and a play that does everything to the store and to the model and compares.

The model knows who holds what, which effects are in flight and what destinations did. It says of each act whether it is to
succeed; a destination executes what arrives unless it knows the key still.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

from moorage.guards.model import EntityLease
from moorage.journal.model import EntryKey, Fence, idempotency_key
from moorage.kernel.errors import (
    ExecutionBusy,
    ExecutionGuardBlocked,
    ExecutionGuardHeld,
    GuardedElsewhere,
    LeaseExpired,
    LeaseFenced,
    LeaseHeld,
    MoorageError,
)
from moorage.kernel.instants import Instant
from moorage.runs import stop
from moorage.runs.operations import Admitted, Close, Doubtful, LetEntity, ReleaseGuard, Suspend
from tests.contract.harbor import ROOT, claim, key, record, value
from tests.contract.watch_house import WatchHouse, admit, admitted

SCOPES = ("job", "job/one", "job/two", "solo")
PROCESSES = ("ann", "ben")
DESTINATIONS = {"shop": 120, "printer": None, "press": None}
LEASE = 30_000
LATE = 5
"""How many seconds after a crash a request that was on its way arrives at the latest."""

_LOST = (LeaseFenced, LeaseExpired)


def above(scope: str) -> set[str]:
    """A scope and every one above it."""
    parts = scope.split("/")
    return {"/".join(parts[: end + 1]) for end in range(len(parts))}


@dataclass
class InFlight:
    """A guard as the model knows it."""

    token: str
    scope: str
    execution: str
    epoch: int
    holder: str
    process: str
    destination: str
    key: str
    step: str
    since: int
    rows: set[str]
    held: dict[str, tuple[str, int]]

    def covers(self, now: int) -> bool:
        window = DESTINATIONS[self.destination]
        return window is not None and now < self.since + window * 1000


@dataclass
class Place:
    """An execution as the model knows it."""

    execution: str
    run: str = ""
    epoch: int = 0
    owner: str | None = None
    expires: int = 0
    open: bool = True
    done: int = 0
    recorded: int = 0


@dataclass
class Process:
    """A host: its holder, and what it believes to hold."""

    holder: str
    fences: dict[str, Fence] = field(default_factory=dict)
    sent: dict[str, InFlight] = field(default_factory=dict)


class Destinations:
    """The other side: what it executed, by key, and until when it knows each."""

    def __init__(self) -> None:
        self.executed: dict[str, int] = {}
        self._known: dict[str, int] = {}

    def arrive(self, guard: InFlight, now: int) -> None:
        """A request arrives."""
        window = DESTINATIONS[guard.destination]
        if window is not None and self._known.get(guard.key, -1) > now:
            return
        self.executed[guard.key] = self.executed.get(guard.key, 0) + 1
        self._known[guard.key] = now + (window or 0) * 1000


class Play:
    """Does things to a house and to the model of it."""

    def __init__(self, house: WatchHouse) -> None:
        self.house = house
        self.places: dict[str, Place] = {}
        self.processes: dict[str, Process] = {}
        self.guards: dict[str, InFlight] = {}
        self.entities: dict[str, tuple[str, int, int]] = {}
        self.since: dict[str, int] = {}
        self.again: dict[str, str] = {}
        self.gone: set[str] = set()
        self.ended: dict[str, str] = {}
        self.late: list[tuple[int, InFlight]] = []
        self.world = Destinations()

    @classmethod
    async def begin(cls, house: WatchHouse) -> "Play":
        """Everything is opened, and held by nobody."""
        play = cls(house)
        await house.declare("shop", dedup_window_seconds=DESTINATIONS["shop"])
        for scope in SCOPES:
            play.places[scope] = await play._fresh(scope)
        for name in PROCESSES:
            play.processes[name] = Process(await house.engine(name))
        return play

    @property
    def now(self) -> Instant:
        return self.house.now

    # --- what the model says -----------------------------------------------------------------------------------------

    def protecting(self, *rows: str) -> list[InFlight]:
        """The guards that protect one of the rows."""
        return [guard for guard in self.guards.values() if guard.rows & set(rows)]

    def gives_way(self, place: Place, guard: InFlight) -> bool:
        return guard.execution == place.execution and guard.holder in self.gone and guard.covers(self.now)

    def is_held(self, place: Place) -> bool:
        return place.owner is not None and place.expires > self.now

    def is_current(self, who: str, scope: str) -> bool:
        """Whether the process holds the scope's execution in fact."""
        place, fence = self.places[scope], self.processes[who].fences.get(scope)
        return fence == Fence(place.execution, place.epoch) and place.owner == who and self.is_held(place)

    def entity_rows(self, execution: str) -> set[str]:
        return {
            f"lease:{name}" for name, (owner, _, until) in self.entities.items() if owner == execution and until > self.now
        }

    # --- taking, holding, letting go ---------------------------------------------------------------------------------

    async def take(self, who: str, scope: str) -> None:
        place = self.places[scope]
        blocking = [guard for guard in self.protecting(f"scope:{scope}") if not self.gives_way(place, guard)]
        free = not self.is_held(place) and place.open
        if free and blocking:
            await self._refused(self.house.take(place.execution, who), ExecutionGuardBlocked, blocking[0].token)
            return
        taken = await self.house.take(place.execution, who)
        assert (taken is not None) == free
        if taken is None:
            return
        for guard in self.protecting(f"scope:{scope}"):
            self._end(guard, "replayed")
            self._send_again(guard)
        place.epoch, place.owner, place.expires = taken.lease.epoch, who, self.now + LEASE
        self.processes[who].fences[scope] = taken.fence
        self.processes[who].sent.pop(scope, None)
        place.done = sum(entry.state == "done" for entry in taken.entries)

    async def reopen(self, scope: str) -> None:
        """Another run of the scope."""
        place = self.places[scope]
        blocking = [guard for guard in self.protecting(f"scope:{scope}") if not self.gives_way(place, guard)]
        if self.is_held(place):
            await self._refused(self.house.open(scope=scope), ExecutionBusy)
        elif blocking:
            await self._refused(self.house.open(scope=scope), ExecutionGuardBlocked, blocking[0].token)
        else:
            assert await self.house.open(scope=scope) == place.execution
            place.open, place.owner, place.run = True, None, await self._run_of(place.execution)

    async def renew(self, who: str) -> None:
        """What the process believes to hold."""
        held = self.processes[who].fences
        kept = await self.house.substrate.renew(list(held.values()))
        assert set(kept) == {self.places[scope].execution for scope in held if self.is_current(who, scope)}
        for scope in [scope for scope in held if self.is_current(who, scope)]:
            place = self.places[scope]
            place.expires = self.now + LEASE
            for name, (owner, epoch, until) in self.entities.items():
                if owner == place.execution and until > self.now:
                    self.entities[name] = owner, epoch, self.now + LEASE
        for scope in [scope for scope in held if not self.is_current(who, scope)]:
            self._forget(who, scope)

    async def suspend(self, who: str, scope: str) -> None:
        fence = self.processes[who].fences[scope]
        applying = self.house.apply(fence, Suspend("suspended", None))
        if await self._applies(who, scope, applying):
            self.places[scope].owner = None
            self._forget(who, scope)

    async def close(self, who: str, scope: str) -> None:
        """A success, after which the scope is opened anew."""
        applying = self.house.apply(self.processes[who].fences[scope], Close("success", value(1)))
        blocking = self.protecting(f"scope:{scope}")
        if self.is_current(who, scope) and blocking:
            await self._refused(applying, ExecutionGuardBlocked, blocking[0].token)
        elif await self._applies(who, scope, applying):
            self._forget(who, scope)
            self.places[scope] = await self._fresh(scope)

    async def cancel(self, scope: str) -> None:
        """Stop a run that nobody holds: it ends there and then."""
        place = self.places[scope]
        if self.is_held(place) or not place.open:
            return
        await stop.stop(self.house.db(), ROOT, self.now, place.run)
        place.open, place.owner = False, None
        kept = bool(place.recorded or self.protecting(f"scope:{scope}") or place.execution in self.again.values())
        assert (await self.house.row(place.execution) is not None) == kept
        if not kept:
            self.places[scope] = await self._fresh(scope)

    # --- entities ----------------------------------------------------------------------------------------------------

    async def hold(self, who: str, scope: str, name: str) -> None:
        place, lease = self.places[scope], f"entity:customer:{name}"
        holding = self.house.hold(self.processes[who].fences[scope], name)
        owner, epoch, until = self.entities.get(lease, ("", 0, 0))
        blocking = self.protecting(f"lease:{lease}")
        live, mine = until > self.now, owner == place.execution
        if self.is_current(who, scope) and live and not mine:
            await self._refused(holding, LeaseHeld)
        elif self.is_current(who, scope) and not live and blocking:
            await self._refused(holding, ExecutionGuardBlocked, blocking[0].token)
        elif await self._applies(who, scope, holding):
            self.entities[lease] = place.execution, epoch if live else epoch + 1, self.now + LEASE

    async def let(self, who: str, scope: str, name: str) -> None:
        place, lease = self.places[scope], f"entity:customer:{name}"
        letting = self.house.apply(self.processes[who].fences[scope], LetEntity("customer", name))
        owner, epoch, _ = self.entities.get(lease, ("", 0, 0))
        blocking = self.protecting(f"lease:{lease}")
        if self.is_current(who, scope) and owner == place.execution and blocking:
            await self._refused(letting, ExecutionGuardBlocked, blocking[0].token)
        elif await self._applies(who, scope, letting) and owner == place.execution:
            self.entities[lease] = "", epoch, 0

    # --- effects -----------------------------------------------------------------------------------------------------

    async def admit(self, who: str, scope: str, destination: str, arrives: bool) -> None:
        """Admit the next effect and send it. Whether anything comes back is for later."""
        process, place = self.processes[who], self.places[scope]
        fence = process.fences[scope]
        step = f"e{place.done}-{destination}"
        rows = {f"scope:{one}" for one in above(scope)} | self.entity_rows(place.execution)
        leases = [self._lease(row) for row in rows if row.startswith("lease:")]
        wanted = admit(process.holder, EntryKey(step), destination, entities=leases)
        applying = self.house.apply(fence, claim(step), wanted)
        blocking = self.protecting(*rows)
        if self.is_current(who, scope) and blocking:
            own = [one for one in blocking if (one.execution, one.epoch, one.step) == (place.execution, place.epoch, step)]
            if own:
                told = (await applying)[1]
                assert isinstance(told, Admitted | Doubtful)
                assert told.token == own[0].token
            else:
                await self._refused(applying, GuardedElsewhere, *[one.token for one in blocking])
            return
        outcomes: list[Any] = []
        if not await self._applies(who, scope, applying, outcomes):
            return
        told = outcomes[1]
        made = idempotency_key(place.execution, key(step))
        since = self.since.get(made, self.now)
        held = {one: self._standing(one) for one in rows}
        guard = InFlight(
            told.token, scope, place.execution, place.epoch, process.holder, who, destination, made, step, since, rows, held
        )
        self.guards[told.token] = guard
        if since < self.now and not guard.covers(self.now):
            assert isinstance(told, Doubtful)
            return
        assert admitted(told).idempotency_key == made
        process.sent[scope] = guard
        if arrives:
            self.world.arrive(guard, self.now)

    async def answer(self, who: str, scope: str) -> None:
        """The destination has answered: release and record."""
        process, guard = self.processes[who], self.processes[who].sent[scope]
        if self.world.executed.get(guard.key, 0) == 0:
            self.world.arrive(guard, self.now)
        done = ReleaseGuard(guard.token, guard.holder), record(guard.step, "done")
        fence = Fence(guard.execution, guard.epoch)
        if await self._applies(who, scope, self.house.apply(fence, *done)):
            self._end(guard, "released")
            self.again.pop(guard.key, None)
            del process.sent[scope]
            self.places[scope].done += 1
            self.places[scope].recorded += 1

    async def resend(self, who: str, scope: str) -> None:
        """Nobody knows what came of it: within the window the same holder sends again under the same guard."""
        guard = self.processes[who].sent[scope]
        if self.is_current(who, scope) and guard.covers(self.now):
            self.world.arrive(guard, self.now)

    # --- the end of processes ----------------------------------------------------------------------------------------

    async def crash(self, who: str, *, late: bool) -> None:
        """The process is no more and says nothing. What it sent may still arrive."""
        process = self.processes[who]
        for guard in process.sent.values():
            if late and self.world.executed.get(guard.key, 0) == 0:
                self.late.append((self.now + LATE * 1000, guard))
        self.processes[who] = Process(await self.house.engine(who))

    async def leave(self, who: str) -> None:
        """The process stops in order: nothing of it is under way any more."""
        await self.house.leave(self.processes[who].holder)
        self.gone.add(self.processes[who].holder)
        self.processes[who] = Process(await self.house.engine(who))

    async def hand_over(self, who: str) -> None:
        """The process stops in order, and another takes what it left as soon as it may."""
        left = list(self.processes[who].fences)
        await self.leave(who)
        self.pass_time(LEASE // 1000)
        other = next(name for name in PROCESSES if name != who)
        for scope in left:
            await self.take(other, scope)

    def pass_time(self, seconds: int) -> None:
        for at, guard in sorted(self.late, key=lambda one: one[0]):
            if at <= self.now + seconds * 1000:
                self.world.arrive(guard, at)
                self.late.remove((at, guard))
        self.house.pass_time(seconds)

    # --- operators ---------------------------------------------------------------------------------------------------

    async def reconcile(self, guard: InFlight) -> None:
        """An operator looks at the destination, and says what is to be seen there."""
        place = next(one for one in self.places.values() if one.execution == guard.execution)
        if self.world.executed.get(guard.key):
            evidence = f"receipt:{guard.key}:r1"
        elif guard.covers(self.now):
            evidence = f"idempotency:{guard.key}"
        elif any(one.key == guard.key for _, one in self.late) or self.is_held(place):
            return
        else:
            # It never happened, and nobody can say that to the guard: it is done by hand, which has a receipt.
            self.world.arrive(guard, self.now)
            evidence = f"receipt:{guard.key}:by-hand"
        reconciling = self.house.reconcile(guard.token, evidence)
        if self.is_held(place) and guard.holder not in self.gone:
            await self._refused(reconciling, ExecutionGuardHeld, guard.token)
            return
        done = await reconciling
        self._end(guard, done.audit)
        if done.receipt is None:
            self._send_again(guard)
        else:
            self.again.pop(guard.key, None)
            place.done += 1
            place.recorded += 1

    # --- comparing ---------------------------------------------------------------------------------------------------

    async def agrees(self) -> None:
        """The invariants of the whole."""
        assert all(count == 1 for count in self.world.executed.values()), "an effect was sent twice"
        found = {row["token"]: row for row in await self.house.rows("guards")}
        assert set(found) == set(self.guards), "a guard is there that should not be, or is not"
        since = {token: row["since"] for token, row in found.items()}
        assert since == {token: guard.since for token, guard in self.guards.items()}, "a window counts from elsewhere"
        replays = [row for row in await self.house.rows("guard_replays") if not row["settled"]]
        again = {row["idempotency_key"]: row["execution_id"] for row in replays}
        assert again == self.again, "other keys are to be sent again"
        rows: dict[str, set[str]] = {token: set() for token in found}
        for row in await self.house.rows("guard_rows"):
            rows[row["token"]].add(row["row"])
        assert rows == {token: guard.rows for token, guard in self.guards.items()}, "other rows are protected"
        for guard in self.guards.values():
            for one, was in guard.held.items():
                assert await self._stands(one) == was, f"{one} has changed hands under {guard.token}"
        audited = {row["token"]: row["id"] for row in await self.house.audit()}
        assert audited == {token: how for token, how in self.ended.items() if how.startswith("aud_")}
        assert not set(self.ended) & set(found)

    async def _stands(self, row: str) -> tuple[str, int]:
        sort, _, name = row.partition(":")
        if sort == "scope":
            [found] = await self.house.store.sql("SELECT execution_id, epoch FROM executions WHERE scope = ?", name)
            return found["execution_id"], found["epoch"]
        [found] = await self.house.store.sql("SELECT owner, epoch FROM leases WHERE key = ?", name)
        return found["owner"], found["epoch"]

    # --- within ------------------------------------------------------------------------------------------------------

    async def _fresh(self, scope: str) -> Place:
        execution = await self.house.open(scope=scope)
        return Place(execution, await self._run_of(execution))

    async def _run_of(self, execution: str) -> str:
        row = await self.house.row(execution)
        assert row is not None
        return str(row["run_id"])

    def _standing(self, row: str) -> tuple[str, int]:
        sort, _, name = row.partition(":")
        if sort == "scope":
            return self.places[name].execution, self.places[name].epoch
        owner, epoch, _ = self.entities[name]
        return owner, epoch

    def _lease(self, row: str) -> EntityLease:
        _, _, namespace, name = row.split(":")
        return EntityLease(namespace, name, self.entities[row.partition(":")[2]][1])

    def _send_again(self, guard: InFlight) -> None:
        """Its key is all that tells of the effect, until somebody has sent it again."""
        self.since.setdefault(guard.key, guard.since)
        self.again[guard.key] = guard.execution

    def _end(self, guard: InFlight, how: str) -> None:
        del self.guards[guard.token]
        self.ended[guard.token] = how

    def _forget(self, who: str, scope: str) -> None:
        self.processes[who].fences.pop(scope, None)
        self.processes[who].sent.pop(scope, None)

    async def _applies(self, who: str, scope: str, applying: Any, outcomes: list[Any] | None = None) -> bool:
        """Whether it was applied, which is to be exactly when the process holds the execution."""
        current = self.is_current(who, scope)
        try:
            told = await applying
        except _LOST:
            assert not current
            self._forget(who, scope)
            return False
        assert current
        if outcomes is not None:
            outcomes += told
        return True

    async def _refused(self, asking: Any, error: type[MoorageError], *tokens: str) -> None:
        with pytest.raises(error) as refusal:
            await asking
        assert not tokens or refusal.value.members["token"] in tokens
