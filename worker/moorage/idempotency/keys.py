"""Remembering what an Idempotency-Key made, in the transaction that made it (clause records.idempotent).

A room that takes a key calls `remember` while it plans; when the commit raises AlreadyDone it calls `recall` and builds
the first answer again from the reference. A secret that was minted under a key is never stored: `derive_secret` gives the
same one to the same bearer again.
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.kernel import canonical
from moorage.kernel.errors import IdempotencyConflict
from moorage.kernel.ids import check_key
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import IDEMPOTENCY_SECONDS
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Scalar, Transaction

# An expired key is as good as none.
_FORGET_EXPIRED = "DELETE FROM idempotency WHERE subject = :subject AND key = :key AND expires_at <= :now"

# Fails on a key that is in use: the uniqueness of (subject, key) is what lets one of two equal requests win.
_REMEMBER = """
INSERT INTO idempotency (subject, key, digest, reference, expires_at)
VALUES (:subject, :key, :digest, :reference, :expires_at)
"""

# What was made is known only to the transaction itself: a SELECT tells the reference.
_NOTE = "UPDATE idempotency SET reference = ({told}) WHERE subject = :key_subject AND key = :key_text"

_RECALL = "SELECT digest, reference FROM idempotency WHERE subject = :subject AND key = :key"


class AlreadyDone(Exception):
    """The key was used before: `recall` tells with what. It never leaves the house."""


@dataclass(frozen=True, slots=True)
class Key:
    """One use of a key: whose it is, the key, and the digest of what was asked with it."""

    subject: str
    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class Derivation:
    """How a secret minted under a key is derived: the bearer's own token is the key, so nobody else can repeat it."""

    bearer: bytes = field(repr=False)
    salt: str = field(default_factory=lambda: secrets.token_hex(16))


def key_for(subject: str, header: str | None, route: str, content: Any) -> Key | None:
    """The key of a request, or None when it carries none.

    `content` is what the answer depends on. Raises IdInvalid for an empty or overlong key.
    """
    if header is None:
        return None
    digest = canonical.digest(canonical.dumps([route, content]))
    return Key(subject, check_key(header), digest)


def remember(tx: Transaction, key: Key | None, reference: Mapping[str, Any]) -> None:
    """Bind the key to what this transaction makes; the commit raises AlreadyDone when it is bound already."""
    if key is None:
        return
    tx.refuse("idempotency.subject", AlreadyDone())
    tx.run(_FORGET_EXPIRED, subject=key.subject, key=key.key)
    tx.run(
        _REMEMBER,
        subject=key.subject,
        key=key.key,
        digest=key.digest,
        reference=canonical.dumps(dict(reference)),
        expires_at=after(tx.now, IDEMPOTENCY_SECONDS),
    )


def note(tx: Transaction, key: Key | None, told: str, **parameters: Scalar) -> None:
    """Let `told`, a SELECT of one JSON object at this place in the transaction, be the reference of a remembered key."""
    if key is not None:
        tx.run(_NOTE.replace("{told}", told), **parameters, key_subject=key.subject, key_text=key.key)


def bound_until(tx: Transaction, key: Key | None) -> Instant | None:
    """How long a replay may ask for what this transaction makes under the key; None without one."""
    return None if key is None else after(tx.now, IDEMPOTENCY_SECONDS)


async def bind(db: Database, tx: Transaction, key: Key | None) -> None:
    """Bind a key in a transaction of its own, ahead of work that may be repeated as it is: what it is bound to is only
    the content. Costs a round trip where there is a key. Raises IdempotencyConflict when it was used with other content.
    """
    if key is None:
        return
    remember(tx, key, {})
    try:
        await db.commit(tx)
    except AlreadyDone:
        await recall(db, key)


async def is_done(db: Database, key: Key | None) -> bool:
    """Whether what the key asks for was done already: what it was to change may be gone since. Raises IdempotencyConflict
    when the key was used with other content."""
    if key is None:
        return False
    reading = Reading()
    found = reading.ask(_RECALL, subject=key.subject, key=key.key)
    await db.read(reading)
    row = found.first()
    if row is not None and not hmac.compare_digest(row["digest"], key.digest):
        raise IdempotencyConflict()
    return row is not None


async def recall(db: Database, key: Key | None) -> dict[str, Any]:
    """What the key made. Raises IdempotencyConflict when it was used with other content."""
    if key is None:
        raise IdempotencyConflict("the request carried no key")
    reading = Reading()
    found = reading.ask(_RECALL, subject=key.subject, key=key.key)
    await db.read(reading)
    row = found.one(IdempotencyConflict("the idempotency key is in use; try again"))
    if not hmac.compare_digest(row["digest"], key.digest):
        raise IdempotencyConflict()
    reference: dict[str, Any] = json.loads(row["reference"])
    return reference


def derive_secret(derivation: Derivation, key: Key, prefix: str) -> str:
    """The secret that this bearer gets under this key: 256 bits, the same each time."""
    message = canonical.dumps([derivation.salt, key.subject, key.key, prefix]).encode()
    raw = hmac.new(derivation.bearer, message, hashlib.sha256).digest()
    return f"{prefix}_{base64.urlsafe_b64encode(raw).rstrip(b'=').decode()}"
