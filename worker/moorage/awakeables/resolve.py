"""Resolving, rejecting and looking at an awakeable by its token."""

from typing import Any

from moorage.awakeables import statements
from moorage.awakeables.model import Awakeable, Rejection, Shown, State, token_sha256
from moorage.awakeables.payloads import Payload
from moorage.catalog.access import Caller
from moorage.history.append import CLOCK, append_selected
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
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction


async def resolve(db: Database, caller: Caller, now: Instant, token: str, payload: Payload) -> Awakeable:
    """Record the payload if the awakeable is pending, in one round trip; the same payload again is answered alike.

    Of any number of callers at once one wins. Raises AwakeableAlreadyResolved when another payload is recorded (clause
    awake.idempotent), AwakeableTimedOut from the deadline on, which is then recorded for good (awake.expired),
    AwakeableRejected, and AwakeableUnknown for an unknown token or one bound to another subject, whoever minted it and
    root included (awake.unknown, awake.binding). Nothing of these changes or allocates anything else.
    """
    row = await _end(db, caller, now, token, state="resolved", payload=payload)
    if row["state"] == "resolved" and row["payload_sha256"] == payload.sha256:
        return Awakeable.of(row)
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
    row = await _end(db, caller, now, token, state="rejected", failure=failure, data={"tag": rejection.tag.value})
    if row["state"] == "rejected" and row["failure"] == failure:
        return Awakeable.of(row)
    raise _refusal(row)


async def show(db: Database, caller: Caller, now: Instant, token: str) -> Shown:
    """The awakeable of a token as of `now`; nothing is resumed and nothing written.

    Its minter and those who may operate on every kind see it in full, others the outline. Raises AwakeableUnknown for an
    unknown token, and for one bound to another subject, whoever minted it and root included: by its id they see it.
    """
    reading = Reading()
    seen = reading.ask(statements.SHOW, token_sha256=token_sha256(token), caller=caller.subject, now=now)
    await db.read(reading)
    awakeable = Awakeable.of(seen.one(AwakeableUnknown()))
    return Shown(awakeable, full=caller.may("operate") or awakeable.created_by == caller.subject)


async def show_one(db: Database, caller: Caller, now: Instant, awakeable: str) -> Shown:
    """The awakeable of an id as of `now`, in full and without its token.

    Raises AwakeableUnknown unless the caller minted it or may operate on every kind.
    """
    reading = Reading()
    operates = int(caller.may("operate"))
    seen = reading.ask(statements.SHOW_ONE, id=awakeable, caller=caller.subject, operates=operates, now=now)
    await db.read(reading)
    return Shown(Awakeable.of(seen.one(AwakeableUnknown())), full=True)


async def _end(
    db: Database,
    caller: Caller,
    now: Instant,
    token: str,
    *,
    state: State,
    payload: Payload | None = None,
    failure: str | None = None,
    data: dict[str, Any] | None = None,
) -> Row:
    """Everything is decided inside the transaction; the row tells the outcome, and history holds what changed."""
    tx = Transaction(now)
    caller.guard(tx)
    digest = token_sha256(token)
    tx.run(statements.TIME_OUT, caller=caller.subject, token_sha256=digest)
    append_selected(tx, CLOCK, "awakeable.timed_out", statements.CHANGED, data="{}", token_sha256=digest)
    tx.run(
        statements.END,
        state=state,
        payload=payload.text if payload else None,
        payload_sha256=payload.sha256 if payload else None,
        failure=failure,
        caller=caller.subject,
        token_sha256=digest,
    )
    told = canonical.dumps(data or {})
    append_selected(tx, caller.subject, f"awakeable.{state}", statements.CHANGED, data=told, token_sha256=digest)
    answer = tx.run(statements.ANSWER, caller=caller.subject, token_sha256=digest)
    await db.commit(tx)
    return answer.one(AwakeableUnknown())


def _refusal(row: Row) -> Exception:
    match row["state"]:
        case "timed_out":
            return AwakeableTimedOut()
        case "rejected":
            return AwakeableRejected()
        case _:
            return AwakeableAlreadyResolved()
