"""Sessions: a worker numbers its claims, and a claim whose answer was lost is answered again (clause records.claim-replay).

In a session each consumer counts its claims up. The latest one that completed is kept, an empty answer too: asked again
in the same words it answers the same claim, and takes nothing. Only the latest: a consumer asks for the next claim when
it has the answer to the one before.
"""

import hmac
from dataclasses import dataclass
from typing import Final

from moorage.catalog.access import Caller
from moorage.history.append import Event, append, append_selected
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import ids
from moorage.kernel.errors import (
    Forbidden,
    RequestInvalid,
    SequenceConflict,
    SequenceStale,
    SessionExpired,
    SessionUnknown,
)
from moorage.kernel.instants import Instant, after, full_ten_minutes, render
from moorage.kernel.limits import SESSION_CONSUMERS, SESSION_SECONDS
from moorage.kernel.refusals import refused
from moorage.records import session_statements as statements
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Scalar, Transaction

DEFAULT_SECONDS: Final = 3600
MAX_SEQUENCE: Final = 2**53 - 1
SWEEP_SESSIONS: Final = 50
"""Sessions that one transaction forgets, each with at most SESSION_CONSUMERS cursors."""


class AlreadyClaimed(Exception):
    """This number, or a later one, is completed: `recall` tells with what. It never leaves the room."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One numbered claim: the session, who counts in it, the number, and the digest of what is asked."""

    session: str
    consumer: str
    sequence: int
    digest: str


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a consumer has come."""

    consumer: str
    sequence: int
    completed_at: Instant


@dataclass(frozen=True, slots=True)
class Session:
    """A session of the caller's."""

    id: str
    created_at: Instant
    expires_at: Instant
    consumers: tuple[Cursor, ...] = ()

    @classmethod
    def of(cls, row: Row) -> "Session":
        """The session that a row holds."""
        return cls(row["id"], row["created_at"], row["expires_at"])


async def open_session(
    db: Database, caller: Caller, now: Instant, seconds: float = DEFAULT_SECONDS, key: Key | None = None
) -> Session:
    """A new session of the caller's that ends in `seconds`. Raises Forbidden for who may claim nothing, RequestInvalid."""
    if not caller.may_somewhere({"claim"}):
        raise Forbidden("the credential does not grant claim on any kind")
    tx = Transaction(now)
    caller.guard(tx)
    session = ids.new("ses", now)
    keys.remember(tx, key, {"session": session})
    expires_at = _end(now, seconds)
    opened = tx.run(statements.OPEN, session=session, actor=caller.subject, expires_at=expires_at)
    append(tx, caller.subject, Event(session, "session.opened", {"expires_at": render(expires_at)}))
    try:
        await db.commit(tx)
    except AlreadyDone:
        return await show(db, caller, (await keys.recall(db, key))["session"])
    return Session.of(opened.one())


async def renew(db: Database, caller: Caller, now: Instant, session: str, seconds: float = DEFAULT_SECONDS) -> Session:
    """Let the session end no sooner than `seconds` from now. Raises SessionUnknown, SessionExpired, RequestInvalid."""
    tx = Transaction(now)
    caller.guard(tx)
    _require_live(tx, caller, session)
    renewed = tx.run(statements.RENEW, session=session, actor=caller.subject, expires_at=_end(now, seconds))
    append_selected(tx, caller.subject, "session.renewed", statements.LIVE, session=session)
    await db.commit(tx)
    return Session.of(renewed.one())


async def close(db: Database, caller: Caller, now: Instant, session: str) -> None:
    """End the session at once; what it claimed stays claimed. Again is fine. Raises SessionUnknown."""
    tx = Transaction(now)
    caller.guard(tx)
    tx.require(statements.EXISTS, SessionUnknown(), session=session, actor=caller.subject)
    append_selected(tx, caller.subject, "session.closed", statements.LIVE, session=session)
    tx.run(statements.CLOSE, session=session, actor=caller.subject)
    await db.commit(tx)


async def show(db: Database, caller: Caller, session: str) -> Session:
    """A session of the caller's with its consumers, ended or not. Raises SessionUnknown."""
    reading = Reading()
    found = reading.ask(statements.SESSION, session=session, actor=caller.subject)
    cursors = reading.ask(statements.CURSORS, session=session, actor=caller.subject)
    await db.read(reading)
    row = found.one(SessionUnknown())
    return Session(row["id"], row["created_at"], row["expires_at"], tuple(Cursor(**one) for one in cursors.rows))


def begin(tx: Transaction, caller: Caller, turn: Turn) -> None:
    """Let the transaction commit only as this turn's claim.

    The commit raises SessionUnknown, SessionExpired, RequestInvalid for one consumer too many, and AlreadyClaimed when
    this turn or a later one was taken.
    """
    ids.check_client_id(turn.consumer, "a consumer's name")
    if not 1 <= turn.sequence <= MAX_SEQUENCE:
        raise RequestInvalid(f"a sequence lies between 1 and {MAX_SEQUENCE}")
    _require_live(tx, caller, turn.session)
    who: dict[str, Scalar] = {"session": turn.session, "consumer": turn.consumer}
    tx.require(statements.IS_NEXT, AlreadyClaimed(), **who, sequence=turn.sequence)
    full = RequestInvalid(f"a session has at most {SESSION_CONSUMERS} consumers")
    tx.require(statements.HAS_PLACE, full, **who, most=int(SESSION_CONSUMERS))


def complete(tx: Transaction, turn: Turn, claim: str, expires_at: Instant) -> None:
    """Keep what the claim took as the turn's answer; to be called after the claim and before anything ends it."""
    tx.run(
        statements.COMPLETE,
        session=turn.session,
        consumer=turn.consumer,
        sequence=turn.sequence,
        digest=turn.digest,
        claim=claim,
        expires_at=expires_at,
    )


async def recall(db: Database, turn: Turn) -> list[Row]:
    """What the turn's claim still holds: rows of records with their leases.

    Raises SequenceStale when a later turn was taken, SequenceConflict when this one was asked in other words,
    SessionUnknown when the session was forgotten meanwhile.
    """
    reading = Reading()
    found = reading.ask(statements.COMPLETED, session=turn.session, consumer=turn.consumer)
    held = reading.ask(statements.STILL_HELD, session=turn.session, consumer=turn.consumer)
    await db.read(reading)
    row = found.one(SessionUnknown())
    if row["sequence"] > turn.sequence:
        raise SequenceStale(latest=row["sequence"])
    if not hmac.compare_digest(row["digest"], turn.digest):
        raise SequenceConflict()
    return held.rows


def forgotten_at(session: Session) -> Instant:
    """When the Clock forgets the session, if it is not renewed."""
    return full_ten_minutes(after(session.expires_at, 86_400))


class ExpiredSessions:
    """The Clock's class of work that forgets sessions a day after their end; until then they are answered SessionExpired."""

    name = "session_expired"
    shard: Final = "records"
    earliest = statements.EARLIEST_OVER
    page = statements.OVER

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Forget at most SWEEP_SESSIONS of them with their cursors; what is left is listed again at once."""
        tx = Transaction(now)
        tx.run(statements.FORGET_CURSORS, limit=SWEEP_SESSIONS)
        forgotten = tx.run(statements.FORGET, limit=SWEEP_SESSIONS)
        await db.commit(tx)
        return forgotten.changes


def _require_live(tx: Transaction, caller: Caller, session: str) -> None:
    tx.require(statements.EXISTS, SessionUnknown(), session=session, actor=caller.subject)
    tx.require(statements.IS_LIVE, SessionExpired(), session=session, actor=caller.subject)


def _end(now: Instant, seconds: float) -> Instant:
    if not 1 <= seconds <= SESSION_SECONDS:
        message = f"a session lasts 1 to {SESSION_SECONDS} seconds"
        raise refused("/ttl_seconds", message, message)
    return after(now, seconds)
