"""The nouns of guards (clauses guards.identity, guards.window, guards.class)."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from moorage.journal.model import EntryKey
from moorage.kernel import ids
from moorage.kernel.errors import IdInvalid
from moorage.kernel.ids import check_kind
from moorage.kernel.instants import Instant, after, render
from moorage.kernel.limits import ID_CHARACTERS
from moorage.store.transaction import Row

EvidenceClass = Literal["replay-safe", "receipt-required", "unknown"]
"""What it takes to release a guard: the same key sent again, a receipt of the publication, or whatever is found out."""

HolderKind = Literal["worker", "remote"]

COMMAND: Final = "moorage storage reconcile-guard --project <project> {token} --evidence <evidence> --operator <operator>"
"""What releases a guard by hand."""

_HOLDER = re.compile(r"hld_[0-9a-hjkmnp-tv-z]{26}")


@dataclass(frozen=True, slots=True)
class EntityLease:
    """A lease on one entity: the namespace, the entity's key in it, and the epoch under which an execution holds it."""

    namespace: str
    key: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Guard:
    """An effect that may be in flight: of which attempt and entry, what its request carries, and what it protects.

    The window counts from `since`: the admission, or an earlier one of the same key whose request may have arrived. So it
    ends no later than the destination's own, however often the key is sent again.
    """

    token: str
    execution_id: str
    run_id: str
    scope: str
    attempt: int
    epoch: int
    holder: str
    key: EntryKey
    idempotency_key: str
    destination: str | None
    publication: bool
    window_seconds: int | None
    admitted_at: Instant
    since: Instant
    scopes: tuple[str, ...]
    lease_keys: tuple[str, ...]

    @classmethod
    def of(cls, row: Row) -> "Guard":
        """The guard that a row of `statements.COLUMNS` holds."""
        return cls(
            token=row["token"],
            execution_id=row["execution_id"],
            run_id=row["run_id"],
            scope=row["scope"],
            attempt=row["attempt"],
            epoch=row["epoch"],
            holder=row["holder"],
            key=EntryKey(row["label"], row["input_sha256"]),
            idempotency_key=row["idempotency_key"],
            destination=row["destination"],
            publication=bool(row["publication"]),
            window_seconds=row["window_seconds"],
            admitted_at=row["admitted_at"],
            since=row["since"],
            scopes=tuple(json.loads(row["scopes"])),
            lease_keys=tuple(json.loads(row["lease_keys"])),
        )

    @property
    def window_ends_at(self) -> Instant | None:
        """When the destination may have forgotten the key; None when it never promised to know it."""
        return None if self.window_seconds is None else after(self.since, self.window_seconds)

    def covers(self, now: Instant) -> bool:
        """Whether the destination still knows the key, so that sending it again does nothing twice."""
        ends = self.window_ends_at
        return ends is not None and now < ends

    @property
    def is_replayed(self) -> bool:
        """Whether an earlier request with its key may have arrived."""
        return self.since < self.admitted_at

    @property
    def is_doubtful(self) -> bool:
        """Whether nothing may be sent under it: when it was admitted, the window of an earlier request was over."""
        return self.is_replayed and not self.covers(self.admitted_at)

    def evidence_class(self, now: Instant) -> EvidenceClass:
        """What it takes to release this guard at this instant."""
        if self.covers(now):
            return "replay-safe"
        return "receipt-required" if self.publication else "unknown"

    def wire(self, now: Instant) -> dict[str, Any]:
        """As JSON, for operators."""
        ends = self.window_ends_at
        told: dict[str, Any] = {
            "token": self.token,
            "class": self.evidence_class(now),
            "publication": self.publication,
            "scopes": list(self.scopes),
            "lease_keys": list(self.lease_keys),
            "execution_id": self.execution_id,
            "run_id": self.run_id,
            "scope": self.scope,
            "attempt": self.attempt,
            "epoch": self.epoch,
            "holder": self.holder,
            "entry_key": {"label": self.key.label, "input_sha256": self.key.input_sha256},
            "idempotency_key": self.idempotency_key,
            "destination": self.destination,
            "admitted_at": render(self.admitted_at),
            "since": render(self.since),
            "window_seconds": self.window_seconds,
        }
        return told if ends is None else {**told, "window_ends_at": render(ends)}


@dataclass(frozen=True, slots=True)
class Seen(Guard):
    """A guard as operators see it: with what tells whether its callback may still be under way.

    `lease_expires_at` is that of the execution's owner, None when nobody owns it.
    """

    holder_name: str | None
    holder_exited_at: Instant | None
    lease_expires_at: Instant | None

    @classmethod
    def of(cls, row: Row) -> "Seen":
        """The guard that a row of `statements.SHOW` holds."""
        guard = Guard.of(row)
        told = {one.name: getattr(guard, one.name) for one in fields(Guard)}
        return cls(**told, **{name: row[name] for name in ("holder_name", "holder_exited_at", "lease_expires_at")})

    def wire(self, now: Instant) -> dict[str, Any]:
        """As JSON, for operators."""
        exited, expires = self.holder_exited_at, self.lease_expires_at
        return {
            **Guard.wire(self, now),
            "holder_name": self.holder_name,
            "holder_exited_at": None if exited is None else render(exited),
            "lease_expires_at": None if expires is None else render(expires),
        }


@dataclass(frozen=True, slots=True)
class Target:
    """A declared destination, as it is told to whoever was admitted to send there. `secret` names a binding."""

    name: str
    url: str
    methods: tuple[str, ...]
    secret: str | None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who executes. `exited_at` is None until the holder itself said that it has stopped."""

    holder_id: str
    kind: HolderKind
    name: str
    subject: str
    registered_at: Instant
    exited_at: Instant | None
    exit_reason: str | None

    @classmethod
    def of(cls, row: Row) -> "Holder":
        """The holder that a row holds."""
        return cls(**row)

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "id": self.holder_id,
            "kind": self.kind,
            "name": self.name,
            "subject": self.subject,
            "registered_at": render(self.registered_at),
            "exited_at": None if self.exited_at is None else render(self.exited_at),
            "exit_reason": self.exit_reason,
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """What an operator released: the whole guard as it was, on which evidence, who vouched for it, and who asked."""

    id: str
    token: str
    guard: Mapping[str, Any]
    evidence: str
    operator: str
    actor: str
    released_at: Instant

    @classmethod
    def of(cls, row: Row) -> "Audit":
        """The record that a row holds."""
        return cls(**{**row, "guard": json.loads(row["guard"])})

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "id": self.id,
            "token": self.token,
            "guard": dict(self.guard),
            "evidence": self.evidence,
            "operator": self.operator,
            "actor": self.actor,
            "released_at": render(self.released_at),
        }


def new_holder(now: Instant) -> str:
    """An id that a host draws for itself as it starts (clause guards.holder-identity)."""
    return ids.new("hld", now)


def check_holder(holder: str) -> str:
    """A holder's id, unchanged. Raises IdInvalid for what `new_holder` never draws."""
    if _HOLDER.fullmatch(holder) is None:
        raise IdInvalid("a holder's id is hld_ and 26 characters of Crockford's base 32, drawn at random")
    return holder


def lease_key(namespace: str, key: str) -> str:
    """The key of an entity's lease. Raises IdInvalid for a namespace that is no kind's name, or a key that is too long or
    not printable."""
    check_kind(namespace)
    if not 1 <= len(key) <= ID_CHARACTERS or not key.isprintable():
        raise IdInvalid(f"an entity's key has 1 to {ID_CHARACTERS} printable characters")
    return f"entity:{namespace}:{key}"
