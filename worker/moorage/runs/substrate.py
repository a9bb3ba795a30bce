"""The substrate on the deployment's own database and bucket (clause runs.substrate)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from moorage.awakeables.derive import Keys
from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.guards import holders
from moorage.journal import load
from moorage.journal.model import Entry, EntryKey, Fence, Lease, Value
from moorage.kernel import canonical
from moorage.kernel.errors import BodyUnknown, EntryUnknown, LeaseFenced
from moorage.kernel.instants import Instant
from moorage.messages.inbox import waits
from moorage.messages.inbox.wait_statements import OVERDUE
from moorage.runs import cursors, leases, settle, statements, values
from moorage.runs.apply import apply
from moorage.runs.letting_go import RUNNER
from moorage.runs.model import BodyInfo, Pins, Stop
from moorage.runs.operations import Operation, Outcome
from moorage.runs.planning import Ports
from moorage.runs.principals import Principal, principal_of
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Answer, Reading, Transaction
from moorage.store.transport import resend
from moorage.timers.due import Shard

_PRINCIPALS: Final = 1000

WORKER: Final = Caller(RUNNER)
"""As whom the Worker's own hosts register: nobody else's subject can be called so."""


def _no_bodies(_name: str) -> BodyInfo | None:
    return None


def _nobody(_instant: Instant, _shard: Shard) -> None:
    return None


@dataclass(slots=True)
class LocalSubstrate:
    """`Substrate` beside the database: in the Runner for bodies of the Worker, and behind the API for others.

    `database` gives each call a Database of its own, as each request has; `now` is the instant of the call. `keys` derive
    the tokens of awakeables, `url` is the deployment's own address without a slash at its end, `bodies` finds a body of the
    Worker, and `wake` tells the Clock of a shard of an instant that may be its earliest.
    """

    database: Callable[[], Database]
    blobs: Blobs
    now: Callable[[], Instant]
    kinds: Kinds
    keys: Keys = ()
    url: str = ""
    bodies: Callable[[str], BodyInfo | None] = _no_bodies
    wake: Callable[[Instant, Shard], None] = _nobody
    _principals: dict[Fence, Principal] = field(default_factory=dict)

    async def apply(self, fence: Fence, operations: Sequence[Operation]) -> list[Outcome]:
        """See `Substrate.apply`; what it raises see `runs.apply.apply`."""
        ports = Ports(self.database(), self.blobs, self.now(), self.kinds, self.keys, self.url, self._body, self._principal)
        outcomes, due = await apply(ports, fence, operations)
        for shard in {shard for _, shard in due}:
            self.wake(min(instant for instant, of in due if of == shard), shard)
        return outcomes

    async def refresh(self, fence: Fence) -> list[Entry]:
        """See `Substrate.refresh`. It tells all that ended under this epoch, so that a lost answer is made up for by asking
        again, which this does by itself. Raises LeaseFenced, LeaseExpired, BlobMissing, BlobCorrupt.

        A host that gets no answer may have missed an end: it asks again before it suspends."""
        db, now = self.database(), self.now()
        try:
            settled, large, overdue = await resend(lambda: _refreshed(db, now, fence))
        except LeaseFenced:
            await self._require_held(db, now, fence)
            raise
        if overdue.rows:
            # A host that looks itself goes by the Clock's rule: what came in time is routed first.
            await waits.time_out(db, now, fence.execution_id)
            settled, large, _ = await resend(lambda: _refreshed(db, now, fence))
        entries = load.entries_of(settled.rows)
        return entries + (await settle.large(db, self.blobs, now, fence, large.rows) if large.rows else [])

    async def values(self, fence: Fence, keys: Sequence[EntryKey]) -> list[Value]:
        """See `Substrate.values`. Raises EntryUnknown for a key without a value, LeaseFenced, LeaseExpired, BlobMissing,
        BlobCorrupt."""
        db, now = self.database(), self.now()
        found: dict[EntryKey, Value] = {}
        wanted = list(dict.fromkeys(keys))
        while missing := [key for key in wanted if key not in found]:
            reading = Reading()
            lease = reading.ask(statements.LEASE, execution=fence.execution_id)
            rows = load.of_keys(reading, fence.execution_id, missing)
            await db.read(reading)
            leases.require_held(lease.first(), fence, now)
            entries = {entry.key: entry for entry in load.entries_of(rows.rows)}
            lost = next((key for key in missing if key not in entries or entries[key].value is None), None)
            if lost is not None:
                raise EntryUnknown(f"the execution has recorded no value under {lost.label!r}", label=lost.label)
            loaded = [value for key in missing if (value := entries[key].value) is not None and _is_complete(value)]
            told = await values.load_all(self.blobs, loaded)
            keyed = [key for key in missing if (value := entries[key].value) is not None and _is_complete(value)]
            found |= dict(zip(keyed, told, strict=True))
        return [found[key] for key in keys]

    async def cursor(self, fence: Fence, name: str) -> tuple[Value | None, int]:
        """See `Substrate.cursor`. Raises LeaseFenced, LeaseExpired."""
        return await cursors.read(self.database(), self.now(), fence, name)

    async def renew(self, fences: Sequence[Fence]) -> dict[str, Lease]:
        """See `Substrate.renew`."""
        return await leases.renew(self.database(), self.now(), fences)

    async def stops(self, fences: Sequence[Fence]) -> dict[str, Stop]:
        """See `Substrate.stops`."""
        return await leases.stops(self.database(), fences)

    async def register_holder(self, holder: str, name: str) -> None:
        """See `Substrate.register_holder`: a holder of the Worker. Raises IdInvalid, HolderUnknown once it has exited."""
        await holders.register(self.database(), WORKER, self.now(), holder, name, "worker")

    async def exit_holder(self, holder: str, reason: str) -> None:
        """See `Substrate.exit_holder`. Raises HolderUnknown."""
        await holders.exit_(self.database(), WORKER, self.now(), holder, reason, "worker")

    # --- large values that travel apart -------------------------------------------------------------------------------

    async def store(self, fence: Fence, text: str) -> Value:
        """Put a value into the bucket ahead of the operation that records it, by its digest; it counts for an hour.

        Raises LeaseFenced, LeaseExpired, PayloadTooLarge, BlobBusy.
        """
        db, now = self.database(), self.now()
        await self._require_held(db, now, fence)
        whole = Value.of(text)
        value = values.placed(Value(text, whole.size, canonical.digest(text)))
        await values.store(db, self.blobs, now, fence.execution_id, [value])
        return Value(None, value.size, value.blob)

    async def blob(self, fence: Fence, sha256: str) -> bytes:
        """The bytes of an object that the execution refers to: its input's, or those of a value that it recorded.

        Raises LeaseFenced, LeaseExpired, EntryUnknown for what the execution does not refer to, BlobMissing, BlobCorrupt.
        """
        db, now = self.database(), self.now()
        reading = Reading()
        lease = reading.ask(statements.LEASE, execution=fence.execution_id)
        refers = reading.ask(statements.REFERS, execution=fence.execution_id, sha256=sha256)
        await db.read(reading)
        leases.require_held(lease.first(), fence, now)
        if not refers.rows:
            raise EntryUnknown("the execution refers to no such object")
        return await self.blobs.get(sha256)

    # --- whom and what --------------------------------------------------------------------------------------------------

    async def _require_held(self, db: Database, now: Instant, fence: Fence) -> None:
        reading = Reading()
        lease = reading.ask(statements.LEASE, execution=fence.execution_id)
        await db.read(reading)
        leases.require_held(lease.first(), fence, now)

    async def _principal(self, db: Database, fence: Fence) -> Principal:
        found = self._principals.get(fence)
        if found is None:
            found = await principal_of(db, fence.execution_id)
            if len(self._principals) >= _PRINCIPALS:
                del self._principals[next(iter(self._principals))]
            self._principals[fence] = found
        return found

    async def _body(self, db: Database, name: str) -> BodyInfo:
        info = self.bodies(name)
        if info is not None:
            return info
        reading = Reading()
        found = reading.ask(statements.REMOTE_BODY, name=name)
        await db.read(reading)
        row = found.one(BodyUnknown(f"no body {name!r} is registered"))
        return BodyInfo(
            name=row["name"],
            host="remote",
            build=Pins.of({"input": "", **json.loads(row["pins"])}).build,
            effects=json.loads(row["effects"]),
            description=row["description"],
            input_schema=json.loads(row["input_schema"]) if row["input_schema"] else None,
            result_schema=json.loads(row["result_schema"]) if row["result_schema"] else None,
        )


async def _refreshed(db: Database, now: Instant, fence: Fence) -> tuple[Answer, Answer, Answer]:
    """One look at what ended, and at waits for events whose time has passed. It may be sent again: what it writes down once
    it tells each time."""
    tx = Transaction(now)
    tx.require(statements.HELD, LeaseFenced(), execution=fence.execution_id, epoch=fence.epoch)
    settled, large = settle.held(tx, fence)
    overdue = tx.run(OVERDUE, execution=fence.execution_id, due=None, limit=1)
    await db.commit(tx)
    return settled, large, overdue


def _is_complete(value: Value) -> bool:
    """Whether the value was read, or lies in the bucket; the others are read in another round trip."""
    return value.text is not None or value.blob is not None
