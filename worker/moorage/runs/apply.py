"""Applying what a host has done and wants to do next: one list of operations, one transaction (clause runs.substrate).

Everything that is plain goes into the journal's one upsert. Whatever does something beside its entry (a child, records, a
cursor) is done once: the transaction commits only if no such entry stands yet, and is planned anew without what stands. So
a list whose answer was lost may be sent again as it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from moorage.awakeables import entries as awakeables
from moorage.catalog.revisions import REPLANS, KindChanged
from moorage.guards.admit import NotAdmitted, Occupied
from moorage.guards.entities import Denied
from moorage.guards.entities import why as why_denied
from moorage.journal import load
from moorage.journal.model import Entry, EntryKey, Fence, Value
from moorage.kernel import canonical
from moorage.kernel.errors import (
    EntryUnknown,
    EventMatched,
    KindConflict,
    LeaseExpired,
    LeaseFenced,
    MoorageError,
    PayloadTooLarge,
    RequestInvalid,
    RunEnded,
    RunMetadataTooLarge,
    StorageBindingUnavailable,
    StorageLimitExceeded,
    UploadTimedOut,
)
from moorage.kernel.ids import check_client_id
from moorage.kernel.limits import APPLY_OPERATIONS, CURSOR_POSITION_BYTES, ID_CHARACTERS, METADATA_BYTES
from moorage.messages.inbox.waits import Wanted, look
from moorage.runs import answers, events, guarding, statements, values
from moorage.runs.model import Minted
from moorage.runs.operations import (
    AdmitGuard,
    Await,
    AwaitEvent,
    Claim,
    Claimed,
    Close,
    CommitCursor,
    Done,
    HoldEntity,
    LetEntity,
    Mint,
    Operation,
    Outcome,
    Put,
    Record,
    Recorded,
    ReleaseGuard,
    SetMetadata,
    StartChild,
    Suspend,
)
from moorage.runs.planning import ACTING, ONCE, Lost, Planned, Planner, Ports, Stands
from moorage.store.blobkeys import is_digest
from moorage.store.transaction import Answer, Reading, Row
from moorage.timers.due import Due

_PLANS = 2 * REPLANS
_LOOKS = 20
"""How often events may come between looking for them and storing a wait."""

_ABOUT_NO_ENTRY = (SetMetadata, ReleaseGuard, HoldEntity, LetEntity, Suspend, Close)
_UNSTORED = (Mint, *_ABOUT_NO_ENTRY)
_ENDINGS: Final[frozenset[type]] = frozenset({Suspend, Close})
_CLAIMS = (Claim, Await, AwaitEvent, StartChild)


async def apply(ports: Ports, fence: Fence, operations: Sequence[Operation]) -> tuple[list[Outcome], list[Due]]:
    """Commit the operations as one transaction and answer each. See `Substrate.apply` and the operations.

    The instants are those of which the Clock is to know now. Raises LeaseFenced, LeaseExpired, RunEnded, ExecutionWoken,
    CursorMoved, EntryUnknown for a record of what was never claimed, RequestInvalid, also for a blob that was never
    uploaded, UploadTimedOut for one that was but too long ago, PayloadTooLarge, RunMetadataTooLarge, what publishing and
    starting raise, and what the operations of guards and entities do.
    """
    if not operations:
        return [], []
    try:
        return await _checked(ports, fence, operations)
    except StorageLimitExceeded as error:
        # Nothing of it was stored: whoever sends less at a time gets it through.
        raise PayloadTooLarge(
            f"the operations pass what one transaction takes ({error.detail}): send fewer at once"
        ) from error


async def _checked(ports: Ports, fence: Fence, operations: Sequence[Operation]) -> tuple[list[Outcome], list[Due]]:
    check(operations)
    stored, large = _placed(operations)
    if not large:
        return await _Applying(ports, fence, stored, large).commit()
    await values.store(ports.db, ports.blobs, ports.now, fence.execution_id, large)
    try:
        return await _Applying(ports, fence, stored, large).commit()
    except StorageBindingUnavailable:
        raise  # it may have been applied, and then the rows need the objects
    except MoorageError:
        await values.give_back(ports.db, ports.now, fence.execution_id, large)
        raise


def check(operations: Sequence[Operation]) -> None:
    """Raise RequestInvalid, PayloadTooLarge or RunMetadataTooLarge for what no transaction is to be planned with."""
    if len(operations) > APPLY_OPERATIONS:
        raise RequestInvalid(f"a host applies at most {APPLY_OPERATIONS} operations at once")
    if any(type(one) in _ENDINGS for one in operations[:-1]):
        raise RequestInvalid("only the last operation may let go of the execution")
    guarding.check(operations)
    for one in operations:
        if not isinstance(one, _ABOUT_NO_ENTRY):
            _check_key(one.key)
        elif isinstance(one, SetMetadata):
            size = canonical.size(canonical.dumps(dict(one.metadata)))
            if size > METADATA_BYTES:
                detail = f"{size} bytes of metadata; the limit is {METADATA_BYTES}"
                raise RunMetadataTooLarge(detail, size=size, limit=int(METADATA_BYTES))
        if isinstance(one, AwaitEvent):
            events.check(one)
        if isinstance(one, CommitCursor):
            check_client_id(one.name, "a cursor's name")
            if one.value.text is None or one.value.size > CURSOR_POSITION_BYTES:
                raise PayloadTooLarge(f"a cursor's position has at most {CURSOR_POSITION_BYTES} bytes")
        elif isinstance(one, Close) and one.status != "success" and one.result is not None:
            raise RequestInvalid("only a run that succeeds has a result")


def _check_key(key: EntryKey) -> None:
    """A label is text for people; what cannot be printed (a NUL, half a surrogate pair) could not be told apart in the
    database."""
    if not 1 <= len(key.label) <= ID_CHARACTERS or not key.label.isprintable():
        raise RequestInvalid(f"a step's label has 1 to {ID_CHARACTERS} printable characters")
    if not is_digest(key.input_sha256):
        raise RequestInvalid("the hash of a step's input is a SHA-256 in lower-case hex")


def _named(operations: Sequence[Operation]) -> dict[str, str]:
    """The objects that operations name, and where."""
    found: dict[str, str] = {}
    for number, one in enumerate(operations):
        for member in ("value", "input", "result"):
            value = getattr(one, member, None)
            if isinstance(value, Value) and value.blob is not None:
                found.setdefault(value.blob, f"/operations/{number}/blob")
    return found


class _Applying:
    """One list of operations on its way into the database."""

    def __init__(self, ports: Ports, fence: Fence, operations: Sequence[Operation], large: Sequence[Value]) -> None:
        self._ports = ports
        self._fence = fence
        self._operations = operations
        self._planner = Planner(ports, fence, operations, large)
        last = operations[-1]
        large_result = isinstance(last, Close) and last.result is not None and last.result.blob is not None
        self._needs_principal = large_result or any(type(one) in ACTING for one in operations)

    async def commit(self) -> tuple[list[Outcome], list[Due]]:
        """Plan, send, and answer."""
        ports = self._ports
        if self._needs_principal:
            try:
                self._planner.principal = await ports.principal(ports.db, self._fence)
            except LeaseFenced:
                return await self._lost(), []
            events.demand(self._planner.principal.caller, self._operations)
        fresh = False
        wanted = events.wanted(self._operations)
        if wanted:
            await self._look(wanted)
        for _ in range(_PLANS + (_LOOKS if wanted else 0)):
            planned = await self._planner.plan(fresh=fresh)
            try:
                await ports.db.commit(planned.tx)
            except Lost:
                return await self._lost(), []
            except Stands:
                once = [one.key for one in self._operations if isinstance(one, ONCE)]
                self._planner.standing = await self._read(once)
                continue
            except KindChanged:
                fresh = True
                continue
            except EventMatched:
                await self._look(wanted)
                continue
            except (Occupied, NotAdmitted, Denied) as refusal:
                await self._guarded(refusal)
                continue
            except UploadTimedOut:
                await values.require_uploaded(ports.db, ports.now, self._fence.execution_id, _named(self._operations))
                raise
            released = planned.released.first() if planned.released is not None else None
            suspended = [released["wake_at"]] if released and released["wake_at"] is not None else []
            due: list[Due] = [(instant, "runs") for instant in [*planned.due, *suspended]]
            return await self._answer(planned), due + [(instant, "records") for instant in planned.waiting]
        if wanted:
            raise EventMatched("events come faster than they can be looked at; try again")
        raise KindConflict("a kind is being redeclared; try again")

    async def _look(self, wanted: Sequence[Wanted]) -> None:
        """Read which events are there for the waits of the list."""
        ports, execution = self._ports, self._fence.execution_id
        self._planner.looked = await look(ports.db, ports.now, execution, wanted, self._planner.looked)

    async def _guarded(self, refusal: Occupied | NotAdmitted | Denied) -> None:
        """Return when it was admitted before and the answer was lost, or nothing is in the way any more; else raise why."""
        ports, own = self._ports, self._planner.guarding
        if isinstance(refusal, Denied):
            raise await why_denied(ports.db, ports.now, refusal.wish)
        if own is not None and isinstance(refusal, NotAdmitted):
            raise await own.why(ports.db, ports.now)
        if own is not None:
            await own.occupied(ports.db, ports.now)

    # --- answers ------------------------------------------------------------------------------------------------------

    async def _answer(self, planned: Planned) -> list[Outcome]:
        operations, places, written = self._operations, planned.places, planned.written
        rows = [written.row(places[number]) if number in places else None for number in range(len(operations))]
        standing = self._planner.standing
        guards = self._planner.guarding
        told = {} if guards is None else {number: guards.outcome(number, one) for number, one in enumerate(operations)}
        missing = [
            one.key
            for number, one in enumerate(operations)
            if rows[number] is None
            and not isinstance(one, _UNSTORED)
            and one.key not in standing
            and not (isinstance(one, AdmitGuard) and told[number])
        ]
        if missing and not isinstance(operations[-1], Close):
            standing = standing | await self._read(missing)
        settled = {entry.key: entry for answer in planned.settled for entry in load.entries_of(answer.rows)}
        return [
            told.get(number)
            or self._outcome(planned, number, one, rows[number], settled)
            or answers.repeated(one, self._fence, self._ports.now, standing)
            for number, one in enumerate(operations)
        ]

    def _outcome(
        self, planned: Planned, number: int, operation: Operation, row: Row | None, settled: dict[EntryKey, Entry]
    ) -> Outcome | None:
        """What the transaction itself tells of an operation; None where what stood before stands."""
        match operation:
            case Suspend() | Close() | SetMetadata():
                return Done()
            case Mint():
                return self._minted(*planned.minted[number])
            case Await() | AwaitEvent() | StartChild() if operation.key in settled:
                return Recorded(settled[operation.key])
        if row is None:
            return None
        if isinstance(operation, _CLAIMS):
            return Claimed(row["attempt"], row["ref"])
        failure = planned.failures.get(number)
        return Recorded(planned.written.entry(planned.places[number], row, self._fence, self._ports.now, failure))

    def _minted(self, wanted: awakeables.Wanted, answer: Answer) -> Minted:
        told = awakeables.told(self._ports.keys, wanted, answer.one(EntryUnknown()))
        return self._told(told)

    def _told(self, told: awakeables.Told) -> Minted:
        return Minted(told.id, told.token, told.deadline, f"{self._ports.url}/awake/{told.token}")

    async def _read(self, keys: Iterable[EntryKey]) -> dict[EntryKey, Entry]:
        reading = Reading()
        rows = load.of_keys(reading, self._fence.execution_id, list(dict.fromkeys(keys)))
        await self._ports.db.read(reading)
        return {entry.key: entry for entry in load.entries_of(rows.rows)}

    # --- a fence that did not hold ------------------------------------------------------------------------------------

    async def _lost(self) -> list[Outcome]:
        """Why: or the answer after all, when it was this very list that let go of the execution."""
        fence, ports, last = self._fence, self._ports, self._operations[-1]
        reading = Reading()
        found = reading.ask(statements.STANDING, execution=fence.execution_id)
        keys = dict.fromkeys(one.key for one in self._operations if not isinstance(one, _ABOUT_NO_ENTRY))
        rows = load.of_keys(reading, fence.execution_id, list(keys))
        await ports.db.read(reading)
        row = found.one(LeaseFenced())
        mine = row["epoch"] == fence.epoch
        if isinstance(last, Close) and row["ended_at"] is not None and (mine or row["epoch"] is None):
            if row["ended_epoch"] != fence.epoch or row["status"] != last.status:
                raise RunEnded(f"the run has ended as {row['status']}", run_id=row["run_id"], run_status=row["status"])
            return self._again(load.entries_of(rows.rows))
        if isinstance(last, Suspend) and mine and row["owner"] is None and row["status"] == last.status:
            return self._again(load.entries_of(rows.rows))
        if mine and row["owner"] is not None and row["expires_at"] <= ports.now:
            raise LeaseExpired()
        if mine and row["owner"] is not None and isinstance(last, Close) and row["ended_at"] is None:
            raise await guarding.refusal(ports.db, ports.now, fence.execution_id)
        raise LeaseFenced()

    def _again(self, entries: Sequence[Entry]) -> list[Outcome]:
        standing = {entry.key: entry for entry in entries}
        return [answers.repeated(one, self._fence, self._ports.now, standing) for one in self._operations]


def _placed(operations: Sequence[Operation]) -> tuple[Sequence[Operation], list[Value]]:
    """The operations with their large values placed, and these values; as they are when there is none."""
    if not any(values.is_large(_value(one)) for one in operations):
        return operations, []
    changed: list[Operation] = []
    large: list[Value] = []
    for one in operations:
        value = _value(one)
        if value is None or not values.is_large(value):
            changed.append(one)
            continue
        placed = values.placed(value)
        large.append(placed)
        changed.append(_with_value(one, placed))
    return changed, large


def _value(operation: Operation) -> Value | None:
    match operation:
        case Record() | Put():
            return operation.value
        case StartChild():
            return operation.input
        case Close():
            return operation.result
        case _:
            return None


def _with_value(operation: Operation, value: Value) -> Operation:
    match operation:
        case Record() | Put():
            return replace(operation, value=value)
        case StartChild():
            return replace(operation, input=value)
        case Close():
            return replace(operation, result=value)
        case _:
            return operation
