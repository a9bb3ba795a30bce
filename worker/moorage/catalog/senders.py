"""Webhook senders: who may call in with a signature instead of a credential (clause awake.senders).

A sender may also say how its webhooks become events, which `messages.webhooks` follows (clause inbox.accept). Secrets are
written here and read by verification alone; no answer, error or history entry holds one.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.catalog import signatures, statements
from moorage.catalog.access import Caller
from moorage.catalog.model import (
    IN_HEADER,
    Scheme,
    SenderDeclaration,
    SenderEventDeclaration,
    check_subject,
    secret_name,
)
from moorage.history.append import Event, append
from moorage.kernel import canonical
from moorage.kernel.errors import ScopeUnknown, SenderUnknown
from moorage.kernel.ids import check_client_id
from moorage.kernel.instants import EARLIEST, Instant, render
from moorage.kernel.limits import TEXT_CHARACTERS
from moorage.kernel.masking import names_a_secret
from moorage.kernel.pages import Page, PageRequest
from moorage.kernel.refusals import refused
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

Bindings = Callable[[str], str | None]
"""The Worker's secret of a name, or None when there is none."""

_YOUNGER: Final[frozenset[Scheme]] = frozenset({"slack"})
"""Schemes that the column of `senders` has no word for, since a table that exists keeps its checks. They stand in
`sender_events`, and `senders` names _OTHER_WORD for them, by which nothing signed for them verifies."""

_OTHER_WORD: Final = "stripe"


@dataclass(frozen=True, slots=True)
class Sender:
    """A sender as it is shown: `secrets` is how many it has, `event` how its webhooks become events, where it says so."""

    name: str
    scheme: Scheme
    subject: str
    tolerance_seconds: int
    created_at: Instant
    updated_at: Instant
    secrets: int
    event: SenderEventDeclaration | None = None

    @classmethod
    def of(cls, row: Row) -> "Sender":
        """The sender that a row holds."""
        event = None if row["event"] is None else SenderEventDeclaration.model_construct(**json.loads(row["event"]))
        return cls(**{**row, "event": event})

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {
            "name": self.name,
            "scheme": self.scheme,
            "subject": self.subject,
            "tolerance_seconds": self.tolerance_seconds,
            "secrets": self.secrets,
            "event": None if self.event is None else self.event.model_dump(),
            "created_at": render(self.created_at),
            "updated_at": render(self.updated_at),
        }


@dataclass(frozen=True, slots=True)
class SenderCaller(Caller):
    """A webhook whose signature was verified: the sender's subject, and no grant at all.

    A mutation by it commits only while the sender is declared as it was then.
    """

    sender: str = ""
    declared_at: Instant = EARLIEST

    @property
    def is_root(self) -> bool:
        return False

    def guard(self, tx: Transaction) -> None:
        """Let the transaction commit only while the sender is as it was; it aborts with Unauthenticated."""
        tx.require(statements.SENDER_IS_UNCHANGED, signatures.refusal(), sender=self.sender, updated_at=self.declared_at)


@dataclass(frozen=True, slots=True)
class Verification:
    """A sender with its secrets, to verify one request and then be dropped."""

    sender: Sender
    secrets: tuple[str, ...] = field(repr=False)

    def admit(self, headers: Mapping[str, str], raw: bytes, now: Instant) -> SenderCaller:
        """The caller that the signature over `raw` proves. Raises Unauthenticated."""
        sender = self.sender
        signatures.verify(sender.scheme, self.secrets, sender.tolerance_seconds, headers, raw, now)
        return SenderCaller(sender.subject, sender=sender.name, declared_at=sender.updated_at)


async def put(
    db: Database, caller: Caller, now: Instant, name: str, declaration: SenderDeclaration, bindings: Bindings
) -> Sender:
    """Declare a sender, or declare it anew: its secrets are replaced by those given.

    Raises Forbidden, IdInvalid, ScopeUnknown, and RequestInvalid for a reserved subject, for a secret that the scheme cannot
    use or that the deployment has not got, and for a delivery's id in a header that carries a secret.
    """
    caller.demand("admin")
    check_client_id(name, "a sender's name")
    check_subject(declaration.subject)
    kept = [
        _kept(declaration.scheme, secret, f"/secrets/{number}", bindings)
        for number, secret in enumerate(declaration.secrets)
    ]
    tx = Transaction(now)
    caller.guard(tx)
    tx.run(
        statements.DECLARE_SENDER,
        name=name,
        scheme=_OTHER_WORD if declaration.scheme in _YOUNGER else declaration.scheme,
        subject=declaration.subject,
        tolerance_seconds=declaration.tolerance_seconds,
    )
    tx.run(statements.FORGET_SECRETS, name=name)
    tx.run(statements.KEEP_SECRETS, name=name, secrets=canonical.dumps(kept))
    data: dict[str, Any] = {
        "scheme": declaration.scheme,
        "subject": declaration.subject,
        "tolerance_seconds": declaration.tolerance_seconds,
        "secrets": len(kept),
    }
    tx.run(statements.FORGET_SENDER_EVENTS, name=name)
    _keep_event(tx, name, declaration)
    if declaration.event is not None:
        data["event"] = declaration.event.model_dump(exclude_defaults=True)
    stored = tx.run(statements.SENDER, name=name)
    append(tx, caller.subject, Event(f"sender:{name}", "sender.declared", data))
    await db.commit(tx)
    return Sender.of(stored.one())


async def show(db: Database, caller: Caller, name: str) -> Sender:
    """One sender. Raises Forbidden, SenderUnknown."""
    caller.demand("operate")
    reading = Reading()
    row = reading.ask(statements.SENDER, name=name)
    await db.read(reading)
    return Sender.of(row.one(SenderUnknown()))


async def list_senders(db: Database, caller: Caller, page: PageRequest) -> Page[Sender]:
    """The senders by name. Raises Forbidden, CursorMismatch."""
    caller.demand("operate")
    filters = ["senders"]
    after = page.after(filters, str) or [""]
    reading = Reading()
    rows = reading.ask(statements.SENDERS, after=after[0], limit=page.limit + 1)
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["name"]], Sender.of)


async def delete(db: Database, caller: Caller, now: Instant, name: str) -> None:
    """Remove a sender and its secrets: from now on its webhooks are refused. Raises Forbidden, SenderUnknown."""
    caller.demand("admin")
    tx = Transaction(now)
    caller.guard(tx)
    tx.require(statements.SENDER_EXISTS, SenderUnknown(), name=name)
    tx.run(statements.FORGET_SECRETS, name=name)
    tx.run(statements.FORGET_SENDER_EVENTS, name=name)
    tx.run(statements.DELETE_SENDER, name=name)
    append(tx, caller.subject, Event(f"sender:{name}", "sender.deleted"))
    await db.commit(tx)


async def verification(db: Database, name: str, bindings: Bindings) -> Verification:
    """What verifies a request of this sender, in one round trip.

    Raises Unauthenticated for an unknown sender too: who may call in is not told to those who may not.
    """
    reading = Reading()
    found = reading.ask(statements.SENDER, name=name)
    secrets = reading.ask(statements.SECRETS, name=name)
    await db.read(reading)
    sender = Sender.of(found.one(signatures.refusal()))
    return Verification(sender, tuple(_usable(sender, secrets.rows, bindings)))


def _keep_event(tx: Transaction, name: str, declaration: SenderDeclaration) -> None:
    """Keep how the webhooks become events. An id is shown to whoever may read events, so no secret may be one."""
    scheme = declaration.scheme if declaration.scheme in _YOUNGER else None
    event = declaration.event or SenderEventDeclaration()
    header = (event.id or "").removeprefix(IN_HEADER).lower() if (event.id or "").startswith(IN_HEADER) else ""
    if header == "cookie" or names_a_secret(header):
        raise refused("/event/id", "must not name a header that carries a secret")
    if event.scope is not None:
        tx.require(statements.SCOPE_EXISTS, ScopeUnknown(), parent=event.scope)
    keys = None if declaration.event is None else canonical.dumps(event.keys)
    if scheme is None and keys is None:
        return
    told = {"type": event.type, "id": event.id, "keys": keys, "scope": event.scope}
    tx.run(statements.KEEP_SENDER_EVENTS, name=name, scheme=scheme, **told)


def _usable(sender: Sender, rows: Sequence[Row], bindings: Bindings) -> list[str]:
    """The secrets themselves, or for the bearer scheme their hashes; a binding that is gone verifies nothing."""
    found: list[str] = []
    for row in rows:
        name = secret_name(row["secret"], "/secrets")
        secret = row["secret"] if name is None else bindings(name)
        if secret:
            found.append(canonical.digest(secret) if name is not None and sender.scheme == "bearer" else secret)
    return found


def _kept(scheme: Scheme, secret: str, pointer: str, bindings: Bindings) -> str:
    """A secret as it is stored: a reference as it is, a bearer token as its hash, a signing secret itself."""
    name = secret_name(secret, pointer)
    value = secret if name is None else bindings(name)
    if value is None:
        raise refused(pointer, "names a secret that the deployment does not have")
    if not 1 <= len(value) <= TEXT_CHARACTERS or not value.isascii() or not value.isprintable():
        raise refused(pointer, f"must have 1 to {TEXT_CHARACTERS} printable ASCII characters")
    if scheme == "bearer" and not signatures.is_token(value):
        raise refused(pointer, "must be a token of 1 to 512 characters without spaces")
    if scheme == "standard" and signatures.standard_key(value) is None:
        raise refused(pointer, "must be base64, with or without whsec_ before it")
    return canonical.digest(value) if scheme == "bearer" and name is None else secret
