"""Hosts outside the Worker: what they may open, take and write, and how what they wait for stands (clause runs.substrate).

An owner outside the Worker is written `<subject>/<host's name>`; no name of a host has a slash. A host shows its fence with
everything it asks; what another subject holds is to it as an epoch that never was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.journal.model import Fence, Lease
from moorage.kernel import canonical
from moorage.kernel.errors import ExecutionUnknown, LeaseFenced
from moorage.kernel.ids import check_client_id
from moorage.kernel.instants import Instant, render
from moorage.runs import admission, authority, take
from moorage.runs import hosting_statements as statements
from moorage.runs.admission import Planned, Start
from moorage.runs.model import CAPABILITIES, TERMINAL, BodyInfo, Build, Execution, Status, Stop
from moorage.runs.placement import RUNNERS
from moorage.runs.take import NO_TOKENS, Tokens
from moorage.runs.wire import lease_wire, stop_wire
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Reading, Row, Transaction

_REMEMBERED: Final = 2000


def owner_of(caller: Caller, holder: str) -> str:
    """The owner that a lease names. Raises IdInvalid for a host's name that is none."""
    return f"{caller.subject}/{check_client_id(holder, 'the name of a host')}"


def info_of(build: Build) -> BodyInfo:
    """A body that a host has and offers to nobody."""
    return BodyInfo(build.body, "remote", build)


@dataclass(frozen=True, slots=True)
class Standing:
    """How an execution stands. `due`: there is something to do, for whoever may take it or for who holds it."""

    execution_id: str
    run_id: str
    body: str
    scope: str
    status: Status
    due: bool
    lease: Lease | None = None
    stop: Stop | None = None
    wake_at: Instant | None = None

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        told: dict[str, Any] = {
            "execution_id": self.execution_id,
            "run_id": self.run_id,
            "body": self.body,
            "scope": self.scope,
            "status": self.status,
            "due": self.due,
        }
        if self.lease is not None:
            told["lease"] = lease_wire(self.lease)
        if self.stop is not None:
            told["stop"] = stop_wire(self.stop)
        return told if self.wake_at is None else {**told, "wake_at": render(self.wake_at)}


class Fences:
    """Whose fences are whose, as one isolate has seen it: neither an epoch's owner nor its body ever changes."""

    def __init__(self) -> None:
        self._known: dict[Fence, tuple[str, str | None]] = {}

    async def check(self, db: Database, caller: Caller, fences: Sequence[Fence]) -> set[Fence]:
        """Those of the fences that the caller may write under: none of another owner, none of a body that it may not
        execute, none of the Worker. One round trip, or none where all of them are known."""
        if unknown := [fence for fence in fences if fence not in self._known]:
            reading = Reading()
            asked = {fence: reading.ask(statements.OWNER, **_where(fence)) for fence in unknown}
            await db.read(reading)
            for fence, answer in asked.items():
                if (row := answer.first()) is not None:
                    self._remember(fence, row)
        return {fence for fence in fences if self._is_of(caller, fence)}

    async def demand(self, db: Database, caller: Caller, fence: Fence) -> None:
        """Raise LeaseFenced unless the caller may write under this fence."""
        if not await self.check(db, caller, [fence]):
            raise LeaseFenced()

    def _remember(self, fence: Fence, row: Row) -> None:
        if len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[fence] = row["body"], row["owner"]

    def _is_of(self, caller: Caller, fence: Fence) -> bool:
        body, owner = self._known.get(fence, ("", ""))
        mine = owner is None or owner.rpartition("/")[0] == caller.subject
        return mine and fence in self._known and authority.holds(caller, "execute", body)


async def open_(
    db: Database,
    blobs: Blobs,
    caller: Caller,
    now: Instant,
    info: BodyInfo,
    start: Start,
    holder: str,
    key: Key | None = None,
    *,
    shards: int = RUNNERS,
    tokens: Tokens = NO_TOKENS,
) -> Execution:
    """Open or resume an execution that `holder` holds from then on. One round trip, or two where it goes on.

    Raises what admission raises, and ExecutionUnknown when it was opened under this key before and is held no more.
    """
    admission.check(caller, info, start)
    owner = owner_of(caller, holder)

    def planning(tx: Transaction, told: Start) -> Planned:
        return admission.plan(tx, now, info, told, handoff=False, owner=owner, shards=shards)

    try:
        planned = await admission.commit(db, blobs, caller, now, start, key, planning)
    except AlreadyDone:
        before = await admission.admitted_before(db, key)
        return await _held(db, blobs, now, before.execution_id, owner, tokens=tokens)
    if planned.is_fresh:
        return replace(planned.execution, capabilities=CAPABILITIES)
    lease = planned.execution.lease
    return await _held(db, blobs, now, planned.run.one()["execution_id"], owner, lease.expires_at, tokens)


async def take_one(
    db: Database,
    blobs: Blobs,
    now: Instant,
    execution_id: str,
    owner: str,
    builds: Mapping[str, Build],
    tokens: Tokens = NO_TOKENS,
) -> Execution | None:
    """Take this execution if it is due, and bound to one of the builds; None otherwise. Two round trips."""
    reading = Reading()
    found = reading.ask(statements.DUE, execution=execution_id, now=now)
    await db.read(reading)
    row = found.first()
    wanted = None if row is None else builds.get(row["body"])
    if row is None or wanted is None or wanted.digest != row["build"]:
        return None
    return await take.take(db, blobs, now, execution_id, owner, {row["body"]: row["build"]}, tokens)


async def take_several(
    db: Database,
    blobs: Blobs,
    now: Instant,
    owner: str,
    builds: Mapping[str, Build],
    limit: int,
    tokens: Tokens = NO_TOKENS,
) -> list[Execution]:
    """Take up to `limit` executions that wait for a host with one of these builds, the oldest first."""
    wanted = {name: build.digest for name, build in builds.items()}
    taken: list[Execution] = []
    while len(taken) < limit:
        one = await take.take_next(db, blobs, now, owner, wanted, tokens)
        if one is None:
            break
        taken.append(one)
    return taken


async def anything_waits(db: Database, now: Instant, builds: Mapping[str, Build]) -> bool:
    """Whether an execution waits for a host that has one of these builds, and may be taken. One round trip."""
    reading = Reading()
    wanted = canonical.compact({name: build.digest for name, build in builds.items()})
    found = reading.ask(statements.WAITS, builds=wanted, now=now)
    await db.read(reading)
    return bool(found.one()["waits"])


async def standing(db: Database, caller: Caller, now: Instant, execution_id: str) -> Standing:
    """How an execution of a host outside the Worker stands, in one round trip.

    Raises ExecutionUnknown, also for one that the caller may not execute or that has been retired.
    """
    reading = Reading()
    found = reading.ask(statements.STANDING, execution=execution_id, now=now)
    await db.read(reading)
    row = found.first()
    if row is None or not authority.holds(caller, "execute", row["body"]):
        raise ExecutionUnknown()
    stop = take.stop_of(row)
    held = row["owner"] is not None and row["expires_at"] > now
    ended = row["status"] in TERMINAL
    due = bool(row["ended"]) or stop is not None if held else _may_be_taken(row)
    return Standing(
        execution_id=execution_id,
        run_id=row["run_id"],
        body=row["body"],
        scope=row["scope"],
        status=row["status"],
        due=due and not ended,
        lease=Lease(row["epoch"], row["owner"], row["expires_at"], row["attempt"]) if held else None,
        stop=stop,
        wake_at=None if held else row["wake_at"],
    )


async def _held(
    db: Database,
    blobs: Blobs,
    now: Instant,
    execution_id: str,
    owner: str,
    expires_at: Instant | None = None,
    tokens: Tokens = NO_TOKENS,
) -> Execution:
    found = await take.held_by(db, blobs, now, execution_id, owner, expires_at, tokens)
    if found is None:
        raise ExecutionUnknown("the execution is held no more")
    return found


def _may_be_taken(row: Row) -> bool:
    """Of an execution that nobody holds."""
    return not row["blocked"] and (bool(row["claimable"]) or row["owner"] is not None)


def _where(fence: Fence) -> dict[str, Any]:
    return {"execution": fence.execution_id, "epoch": fence.epoch}
