"""Planning a list of operations into one transaction."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.awakeables import entries as awakeables
from moorage.awakeables.derive import Keys
from moorage.awakeables.executions import require_own
from moorage.blobs import references
from moorage.catalog.kinds import Kinds
from moorage.journal import load
from moorage.journal.model import Entry, EntryKey, Fence, Value
from moorage.journal.write import Write, Written, write
from moorage.kernel import canonical
from moorage.kernel.errors import AwakeableUnknown, CursorMoved
from moorage.kernel.instants import Instant
from moorage.messages.inbox import waits
from moorage.records import publish
from moorage.runs import children, events, letting_go, publication, settle, statements
from moorage.runs.errors_text import stored
from moorage.runs.guarding import GUARDING, Guarding
from moorage.runs.model import BodyInfo
from moorage.runs.operations import (
    Await,
    AwaitEvent,
    Claim,
    Close,
    CommitCursor,
    Fail,
    GiveUp,
    Mint,
    Operation,
    Publish,
    Put,
    Record,
    SetMetadata,
    StartChild,
    Suspend,
)
from moorage.runs.principals import Principal
from moorage.runs.values import upload_of
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Answer, Transaction

Once = StartChild | Publish | CommitCursor
ONCE: Final = (StartChild, Publish, CommitCursor)
"""Operations that do something beside their entry, which must not be done again."""

ACTING: Final[frozenset[type]] = frozenset({Mint, AwaitEvent, *ONCE})
"""Operations that are done as whoever started the run."""


class Lost(Exception):
    """The fence did not hold. It never leaves the room."""


class Stands(Exception):
    """An entry stands already that must be made once. It never leaves the room."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What applying needs: the request's database, the bucket, the instant, and what the deployment is made of.

    `body` finds a registered body or raises BodyUnknown; `principal` is whom an execution acts as.
    """

    db: Database
    blobs: Blobs
    now: Instant
    kinds: Kinds
    keys: Keys
    url: str
    body: Callable[[Database, str], Awaitable[BodyInfo]]
    principal: Callable[[Database, Fence], Awaitable[Principal]]


@dataclass(slots=True)
class Planned:
    """One attempt at the transaction, and where each operation's answer will be.

    `due` are instants of which the Clock of the runs is to know after the commit, `waiting` those of which the records' is;
    `released` holds `wake_at` after a suspension.
    """

    tx: Transaction
    writes: list[Write] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    written: Written = field(default_factory=Written)
    prepared: dict[int, awakeables.Prepared] = field(default_factory=dict)
    minted: dict[int, tuple[awakeables.Wanted, Answer]] = field(default_factory=dict)
    settled: list[Answer] = field(default_factory=list)
    failures: dict[int, dict[str, Any]] = field(default_factory=dict)
    due: list[Instant] = field(default_factory=list)
    waiting: list[Instant] = field(default_factory=list)
    released: Answer | None = None

    def add(self, number: int, one: Write) -> None:
        """Let the operation of this number be this write."""
        self.places[number] = len(self.writes)
        self.writes.append(one)


class Planner:
    """Plans one list of operations, as often as it takes. `standing` are entries of ONCE that are there already; `looked` is
    what was read for waits for events."""

    def __init__(self, ports: Ports, fence: Fence, operations: Sequence[Operation], large: Sequence[Value]) -> None:
        self._ports = ports
        self._fence = fence
        self._operations = operations
        self._large = large
        self._execution = {"execution": fence.execution_id}
        self.standing: dict[EntryKey, Entry] = {}
        self.principal: Principal | None = None
        self.looked: waits.Looked | None = None
        self.guarding = Guarding(fence, operations) if any(isinstance(one, GUARDING) for one in operations) else None

    async def plan(self, *, fresh: bool) -> Planned:
        """The whole transaction; kinds are read anew when `fresh`."""
        fence, last = self._fence, self._operations[-1]
        tx = Transaction(self._ports.now)
        planned = Planned(tx)
        guarding = self.guarding
        if guarding is not None:
            guarding.release(tx)
        held = letting_go.closes_under(last) if isinstance(last, Close) else statements.HELD
        tx.require(held, Lost(), execution=fence.execution_id, epoch=fence.epoch)
        if guarding is not None:
            guarding.require_released(tx)
        if self.principal is not None and any(type(one) in ACTING for one in self._operations):
            await self._act(planned, self.principal, fresh)
        awaited = [one.awakeable for one in self._operations if isinstance(one, Await)]
        if awaited:
            unknown = AwakeableUnknown("the execution has minted no such awakeable")
            tx.require(statements.ALL_ARE_MINE, unknown, **self._execution, awakeables=canonical.compact(awaited))
        if self.looked is not None:
            waits.require(tx, self.looked)
            planned.due += self.looked.due
        for number, operation in enumerate(self._operations):
            self._plain(planned, number, operation)
        if self._large:
            self._confirm(tx, last)
        planned.written = write(tx, fence, planned.writes)
        self._after(planned)
        if guarding is not None:
            guarding.begin(tx)
        if isinstance(last, Suspend):
            planned.released = letting_go.suspend(tx, fence, last)
        else:
            self._settle(planned)
        if isinstance(last, Close):
            letting_go.close(tx, fence, last)
        return planned

    def _plain(self, planned: Planned, number: int, operation: Operation) -> None:
        """The write of an operation that does nothing beside its entry."""
        match operation:
            case Record():
                planned.add(number, Write(operation.key, "done", value=operation.value))
            case Claim(until=None):
                planned.add(number, Write(operation.key, "pending", operation.kind, operation.position))
            case Claim():
                kind, position, until = operation.kind, operation.position, operation.until
                planned.add(number, Write(operation.key, "waiting", kind, position, next_attempt_at=until))
            case Put():
                kind, position, value = operation.kind, operation.position, operation.value
                planned.add(number, Write(operation.key, "done", kind, position, value=value))
            case Fail():
                planned.add(number, _failed(operation, planned.failures.setdefault(number, failure_of(operation))))
            case GiveUp():
                planned.add(number, Write(operation.key, "canceled"))
            case Await():
                planned.add(number, Write(operation.key, "pending", "wait", operation.position, ref=operation.awakeable))
            case AwaitEvent():
                position, until = operation.position, operation.timeout_at
                planned.add(number, Write(operation.key, "pending", "event", position, next_attempt_at=until))
            case SetMetadata():
                metadata = canonical.dumps(dict(operation.metadata))
                planned.tx.run(statements.SET_METADATA, **self._execution, metadata=metadata)
            case _:
                pass

    async def _act(self, planned: Planned, principal: Principal, fresh: bool) -> None:
        """What is done as whoever started the run, and the entries of it. What stands already is passed over."""
        tx, ports = planned.tx, self._ports
        principal.caller.guard(tx)
        new = [
            (number, one)
            for number, one in enumerate(self._operations)
            if isinstance(one, ONCE) and one.key not in self.standing
        ]
        if new:
            keys = load.keys_text(one.key for _, one in new)
            tx.require(statements.NONE_STANDS, Stands(), **self._execution, keys=keys)
        for _, one in new:
            if isinstance(one, CommitCursor):
                stands = statements.CURSOR_STANDS
                tx.require(stands, CursorMoved(), **self._execution, name=one.name, expected=one.expected)
        published = await self._publish(planned, principal, [one for _, one in new], fresh)
        for number, one in new:
            match one:
                case StartChild():
                    info = await ports.body(ports.db, one.body)
                    planned.add(number, children.start(tx, self._fence, principal, info, one))
                case Publish():
                    value = Value.of(canonical.dumps({"records": published[one.key]}))
                    planned.add(number, Write(one.key, "done", "publish", one.position, value=value))
                case CommitCursor():
                    planned.add(number, self._move(tx, one))
        for number, operation in enumerate(self._operations):
            if isinstance(operation, Mint):
                self._mint(planned, number, operation)

    async def _publish(
        self, planned: Planned, principal: Principal, once: Sequence[Once], fresh: bool
    ) -> dict[EntryKey, list[str]]:
        """Publish the records of all operations together; the ids of each, by its entry."""
        of_each = [
            (one.key, publication.drafts_of(one.records))
            for one in once
            if isinstance(one, Publish) or (isinstance(one, CommitCursor) and one.records)
        ]
        drafts = [draft for _, own in of_each for draft in own]
        if not drafts:
            return {}
        ports, caller = self._ports, principal.caller
        records: publish.Plan = await publication.plan(ports.db, ports.kinds, caller, ports.now, drafts, fresh=fresh)
        await publication.insert(ports.db, ports.kinds, caller, planned.tx, drafts, records)
        planned.waiting += [draft.not_before for draft in drafts if draft.not_before is not None]
        told = iter(records)
        return {key: [next(told).id for _ in own] for key, own in of_each}

    def _move(self, tx: Transaction, one: CommitCursor) -> Write:
        position, revision = one.value.text or "null", one.expected + 1
        tx.run(statements.MOVE_CURSOR, **self._execution, name=one.name, position=position, expected=one.expected)
        value = Value.of(f'{{"position":{position},"revision":{revision}}}')
        return Write(one.key, "done", "cursor", one.position, value=value)

    def _mint(self, planned: Planned, number: int, one: Mint) -> None:
        wanted = awakeables.Wanted(self._fence.execution_id, one.key, one.ttl_seconds, one.subject, one.metadata)
        prepared = awakeables.prepare(self._ports.keys, self._ports.now, wanted)
        planned.prepared[number] = prepared
        value = Value.of(prepared.value)
        planned.add(number, Write(one.key, "done", "awakeable", one.position, ref=prepared.id, value=value))
        planned.due.append(prepared.deadline)

    def _after(self, planned: Planned) -> None:
        """What needs the entries to be there."""
        awaited = [one.awakeable for one in self._operations if isinstance(one, Await)]
        if awaited:
            require_own(planned.tx, self._fence.execution_id, awaited)
        if given_up := events.given_up(self._operations):
            waits.cancel(planned.tx, self._fence.execution_id, given_up)
        if self.looked is not None:
            waits.plan(planned.tx, self.looked)
        if self.principal is None:
            return
        for number, prepared in planned.prepared.items():
            row = awakeables.insert(planned.tx, self.principal.caller, prepared)
            planned.minted[number] = (prepared.wanted, row)

    def _confirm(self, tx: Transaction, last: Operation) -> None:
        """Let the large values be held by the execution, and a large result by its run."""
        upload = upload_of(self._fence.execution_id)
        result = last.result.blob if isinstance(last, Close) and last.result is not None else None
        digests = sorted({value.blob for value in self._large if value.blob is not None and value.blob != result})
        if digests:
            references.confirm_all(tx, digests, upload, self._fence.execution_id)
        if result is not None and self.principal is not None:
            references.confirm_all(tx, [result], upload, self.principal.run_id)

    def _settle(self, planned: Planned) -> None:
        """Take over how what is asked for has ended; nothing else, because only what is asked for is told."""
        awaited, runs, received = (
            [one.key for one in self._operations if isinstance(one, kind)] for kind in (Await, StartChild, AwaitEvent)
        )
        if awaited or runs or received:
            planned.settled = settle.these(planned.tx, self._fence, awaited, runs, received)


def failure_of(operation: Fail) -> dict[str, Any]:
    """What is stored of a failure: masked and bounded, with the bound that was struck."""
    told = stored(operation.failure).wire()
    return told if operation.bound is None else {**told, "bound": operation.bound}


def _failed(operation: Fail, failure: dict[str, Any]) -> Write:
    until = operation.next_attempt_at
    told = canonical.dumps(failure)
    if until is None:
        return Write(operation.key, "failed", attempt=operation.attempt, failure=told)
    return Write(operation.key, "waiting", attempt=operation.attempt, next_attempt_at=until, failure=told)
