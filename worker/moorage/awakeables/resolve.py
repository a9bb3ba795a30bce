"""Resolving, rejecting and looking at an awakeable by its token."""

from dataclasses import dataclass, replace

from moorage.awakeables import large, statements
from moorage.awakeables.model import Awakeable, Rejection, Shown, State, token_sha256
from moorage.awakeables.payloads import Payload
from moorage.catalog.access import Caller
from moorage.history.append import append_told
from moorage.journal.wake import wake
from moorage.kernel import canonical
from moorage.kernel.errors import (
    AwakeableAlreadyResolved,
    AwakeableRejected,
    AwakeableTimedOut,
    AwakeableUnknown,
)
from moorage.kernel.instants import Instant
from moorage.kernel.limits import TEXT_CHARACTERS
from moorage.kernel.refusals import refused
from moorage.records.bounds import draw
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Reading, Row, Transaction


async def resolve(
    db: Database, caller: Caller, now: Instant, token: str, payload: Payload, blobs: Blobs | None = None
) -> Awakeable:
    """Record the payload if the awakeable is pending, in one round trip; the same payload again is answered alike.

    Of any number of callers at once one wins, and the execution that minted it is woken in the same transaction. A large
    payload is written to the bucket first, which takes a few more trips. Where a journal holds the recorded end already, the
    registry is completed from it, and the answer is by that (clause awake.reconcile).

    Raises AwakeableAlreadyResolved when another payload is recorded (clause awake.idempotent), AwakeableTimedOut from the
    deadline on, which is then recorded for good (awake.expired), AwakeableRejected, and AwakeableUnknown for an unknown
    token or one bound to another subject, whoever minted it and root included (awake.unknown, awake.binding); nothing of
    these changes or allocates anything else. For a large payload also StorageCapabilityMissing without a bucket, BlobBusy
    and UploadTimedOut.
    """
    row = await (_resolve_large if payload.is_large else _resolve_inline)(db, caller, now, token, payload, blobs)
    if row["state"] == "resolved" and _is(payload, row):
        return replace(Awakeable.of(row), payload=payload.text)
    raise _refusal(row)


async def reject(db: Database, caller: Caller, now: Instant, token: str, rejection: Rejection) -> Awakeable:
    """End a pending awakeable with a failure (clause awake.reject); the same rejection again is answered alike.

    The message is for whoever waits: it is kept as given and appears in neither history nor errors. Raises
    RequestInvalid for a message past TEXT_CHARACTERS, AwakeableRejected when another rejection is recorded, and
    otherwise what `resolve` raises.
    """
    if len(rejection.message) > TEXT_CHARACTERS:
        problem = f"must have at most {TEXT_CHARACTERS} characters"
        raise refused("/message", problem, f"message {problem}")
    failure = canonical.dumps(rejection.wire())
    row = await _end(db, caller, now, token, _Ending("rejected", failure=failure))
    if row["state"] == "rejected" and row["failure"] == failure:
        return Awakeable.of(row)
    raise _refusal(row)


async def show(db: Database, caller: Caller, now: Instant, token: str, blobs: Blobs | None = None) -> Shown:
    """The awakeable of a token as of `now`; nothing is resumed and nothing written.

    A large payload comes from `blobs`, which raises StorageCapabilityMissing, BlobMissing and BlobCorrupt. Its minter and
    those who may operate on every kind see it in full, others the outline. Raises AwakeableUnknown for an
    unknown token, and for one bound to another subject, whoever minted it and root included: by its id they see it.
    """
    reading = Reading()
    seen = reading.ask(statements.SHOW, token_sha256=token_sha256(token), caller=caller.subject, now=now)
    await db.read(reading)
    awakeable = Awakeable.of(seen.one(AwakeableUnknown()))
    if not caller.may("operate") and awakeable.created_by != caller.subject:
        return Shown(awakeable, full=False)
    return Shown(await large.load(blobs, awakeable), full=True)


async def show_one(db: Database, caller: Caller, now: Instant, awakeable: str, blobs: Blobs | None = None) -> Shown:
    """The awakeable of an id as of `now`, in full and without its token; a large payload comes from `blobs`, as in `show`.

    Raises AwakeableUnknown unless the caller minted it or may operate on every kind.
    """
    reading = Reading()
    operates = int(caller.may("operate"))
    seen = reading.ask(statements.SHOW_ONE, id=awakeable, caller=caller.subject, operates=operates, now=now)
    await db.read(reading)
    return Shown(await large.load(blobs, Awakeable.of(seen.one(AwakeableUnknown()))), full=True)


async def _resolve_inline(
    db: Database, caller: Caller, now: Instant, token: str, payload: Payload, blobs: Blobs | None
) -> Row:
    return await _end(db, caller, now, token, _Ending("resolved", payload.text, payload.sha256))


async def _resolve_large(
    db: Database, caller: Caller, now: Instant, token: str, payload: Payload, blobs: Blobs | None
) -> Row:
    """Nothing is written to the bucket for an awakeable that nobody can resolve any more."""
    reading = Reading()
    seen = reading.ask(statements.ANSWER, caller=caller.subject, token_sha256=token_sha256(token), now=now)
    await db.read(reading)
    row = seen.one(AwakeableUnknown())
    if row["state"] == "timed_out":
        return await _end(db, caller, now, token, _Ending("timed_out"))
    if row["state"] != "pending":
        return row
    uploaded = await large.upload(db, blobs, now, payload, caller.guard)
    ending = _Ending("resolved", None, payload.sha256, uploaded=uploaded)
    try:
        return await _end(db, caller, now, token, ending)
    except BaseException:
        await uploaded.give_up()
        raise


@dataclass(frozen=True, slots=True)
class _Ending:
    """What somebody asks an awakeable to become."""

    state: State
    payload: str | None = None
    payload_sha256: str | None = None
    failure: str | None = None
    uploaded: large.Uploaded | None = None


async def _end(db: Database, caller: Caller, now: Instant, token: str, ending: _Ending) -> Row:
    """Everything is decided inside the transaction; the row tells the outcome, and history holds what changed."""
    tx = Transaction(now)
    caller.guard(tx)
    draw(tx, caller, 1)
    uploaded = ending.uploaded
    if uploaded:
        uploaded.require(tx)
    digest = token_sha256(token)
    tx.run(
        statements.END,
        state=ending.state,
        payload=ending.payload,
        payload_sha256=ending.payload_sha256,
        payload_blob=uploaded.sha256 if uploaded else None,
        payload_size=uploaded.size if uploaded else None,
        failure=ending.failure,
        caller=caller.subject,
        token_sha256=digest,
    )
    append_told(tx, statements.CHANGED, token_sha256=digest)
    wake(tx, statements.WAITING, token_sha256=digest)
    if uploaded:
        uploaded.settle(tx, digest)
    answer = tx.run(statements.ANSWER, caller=caller.subject, token_sha256=digest)
    await db.commit(tx)
    return answer.one(AwakeableUnknown())


def _is(payload: Payload, row: Row) -> bool:
    """Whether the payload is the recorded one. The digest of one that came from the journal is not stored."""
    if row["payload_sha256"] is not None:
        return bool(row["payload_sha256"] == payload.sha256)
    if row["payload_blob"] is not None:
        return bool(row["payload_blob"] == canonical.digest(payload.outcome))
    return bool(row["payload"] == payload.text)


def _refusal(row: Row) -> Exception:
    match row["state"]:
        case "timed_out":
            return AwakeableTimedOut()
        case "rejected":
            return AwakeableRejected()
        case _:
            return AwakeableAlreadyResolved()
