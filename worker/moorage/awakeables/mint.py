"""Minting an awakeable (clauses awake.mint, awake.deadline)."""

from moorage.awakeables import checks, statements
from moorage.awakeables.model import TOKEN_PREFIX, Awakeable, Draft, Minted, token_sha256
from moorage.catalog.access import Action, Caller
from moorage.history.append import Event, append
from moorage.idempotency.keys import AlreadyDone, Derivation, Key, derive_secret, recall, remember
from moorage.kernel import ids
from moorage.kernel.errors import AwakeableUnknown, Forbidden, IdempotencyConflict
from moorage.kernel.instants import Instant, render
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction

MINTERS: tuple[Action, ...] = ("publish", "execute")
"""Who may mint: whoever may put work in, by a record or by a run, on whatever kind."""


async def mint(db: Database, caller: Caller, now: Instant, draft: Draft, key: Key | None = None) -> Minted:
    """Persist a pending awakeable and answer its single-use token of 256 bits; nothing else ever tells the token.

    With a key the token is derived from the caller's bearer token, so that the same request gets the same answer. A
    deadline that has passed already (an old `created_at`) is accepted: the awakeable is timed out at the first look.

    Raises Forbidden unless the caller may publish or execute somewhere; RequestInvalid for a ttl_seconds outside
    0.001..AWAKE_TTL_SECONDS, a deadline further ahead than that, or a text or metadata past its limit;
    IdempotencyConflict when the key was used with other content or by another bearer token.
    """
    if not caller.may_somewhere(MINTERS):
        raise Forbidden("minting an awakeable needs the action publish or execute")
    created_at, deadline = checks.span(draft.ttl_seconds, draft.created_at, now)
    awakeable_id = ids.new("awk", now)
    derivation = Derivation(caller.bearer)
    token = ids.token(TOKEN_PREFIX) if key is None else derive_secret(derivation, key, TOKEN_PREFIX)
    tx = Transaction(now)
    caller.guard(tx)
    remember(tx, key, {"id": awakeable_id, "salt": derivation.salt})
    tx.run(
        statements.MINT,
        id=awakeable_id,
        token_sha256=token_sha256(token),
        subject=checks.text(draft.subject, "subject"),
        label=checks.text(draft.label, "label"),
        metadata=checks.metadata(draft.metadata),
        created_at=created_at,
        caller=caller.subject,
        deadline=deadline,
    )
    append(tx, caller.subject, Event(awakeable_id, "awakeable.minted", {"deadline": render(deadline)}))
    minted = tx.run(statements.MINTED, id=awakeable_id)
    try:
        await db.commit(tx)
    except AlreadyDone:
        if key is None:
            raise
        return await _minted_before(db, caller, now, key)
    return Minted(Awakeable.of(minted.one()), token)


async def _minted_before(db: Database, caller: Caller, now: Instant, key: Key) -> Minted:
    reference = await recall(db, key)
    token = derive_secret(Derivation(caller.bearer, reference["salt"]), key, TOKEN_PREFIX)
    reading = Reading()
    minted = reading.ask(statements.MINTED, id=reference["id"], now=now)
    await db.read(reading)
    row = minted.one(AwakeableUnknown())
    if row["token_sha256"] != token_sha256(token):
        raise IdempotencyConflict("the idempotency key was used with another bearer token of this subject")
    return Minted(Awakeable.of(row), token)
