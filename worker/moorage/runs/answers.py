"""What each operation of an `apply` is answered, once it is committed."""

from collections.abc import Mapping

from moorage.journal.model import Entry, EntryKey, Fence, Value
from moorage.kernel.instants import Instant
from moorage.runs.operations import Claim, Claimed, Done, Operation, Outcome, Put, Record, Recorded

Standing = Mapping[EntryKey, Entry]


def taken(entry: Entry, fence: Fence, operation: Operation) -> Outcome:
    """The answer to a claim of an entry that was there: it is the host's own already, or it holds something.

    A wait of time is the host's own as long as it is for the instant that it asks for.
    """
    if entry.state == "pending" and entry.epoch == fence.epoch:
        return Claimed(entry.attempt, entry.ref)
    waits = isinstance(operation, Claim) and operation.until is not None and entry.state == "waiting"
    if waits and isinstance(operation, Claim) and entry.next_attempt_at == operation.until and entry.failure is None:
        return Claimed(entry.attempt, entry.ref)
    return Recorded(entry)


def repeated(operation: Operation, fence: Fence, now: Instant, standing: Standing) -> Outcome:
    """The answer to an operation whose transaction was committed before, when its answer was lost.

    A journal that was retired in it can no longer be asked: then the host's own word is the answer, and it has let go.
    """
    key = getattr(operation, "key", None)
    entry = standing.get(key) if key is not None else None
    if entry is not None:
        claims = operation.op in ("claim", "await", "await_event", "start_child")
        return taken(entry, fence, operation) if claims else Recorded(entry)
    match operation:
        case Claim():
            return Claimed(1)
        case Record() | Put():
            kind = operation.kind if isinstance(operation, Put) else "step"
            position = operation.position if isinstance(operation, Put) else ""
            value: Value = operation.value
            return Recorded(Entry(operation.key, kind, position, "done", 1, fence.epoch, now, now, value=value))
        case _:
            return Done()
