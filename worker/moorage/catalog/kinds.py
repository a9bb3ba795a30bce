"""Kinds as they are stored, and how the rest of the house reads them (clause catalog.kind); `declare` writes them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from moorage.catalog import statements
from moorage.catalog.access import ACTIONS, Caller
from moorage.catalog.model import ClaimDeclaration, ConcurrencyDeclaration, RateDeclaration, RetryDeclaration
from moorage.catalog.paths import DeclaredPath, parse_path
from moorage.catalog.revisions import KindChanged, guard_kinds
from moorage.catalog.schemas import Validator
from moorage.kernel import canonical
from moorage.kernel.errors import KindUnknown
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import KIND_CACHE_SECONDS
from moorage.kernel.pages import Page, PageRequest
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

__all__ = ["Concurrency", "Kind", "KindChanged", "Kinds", "Rate", "Retry", "sees"]

Retry = RetryDeclaration
Concurrency = ConcurrencyDeclaration
Rate = RateDeclaration

_CACHED_KINDS: Final = 1000


@dataclass(frozen=True)
class Kind:
    """A kind. `revision` counts the declarations that changed it; a slot, once given to a path, stays the path's."""

    name: str
    revision: int
    paths: Mapping[str, DeclaredPath]
    lease_seconds: int
    max_attempts: int
    retry: Retry
    retention_seconds: int | None
    created_at: Instant
    updated_at: Instant
    created_by: str
    concurrency: Concurrency | None = None
    depth_limit: int | None = None
    ttl_seconds: int | None = None
    rate: Rate | None = None
    schema: dict[str, Any] | None = None

    @classmethod
    def of(cls, row: Row) -> "Kind":
        """The kind that a row holds."""
        paths = {
            entry["path"]: DeclaredPath(entry["path"], parse_path(entry["path"]), entry["type"], entry["slot"])
            for entry in json.loads(row["paths"])
        }
        return cls(
            **{
                **row,
                "paths": MappingProxyType(paths),
                "retry": Retry(**json.loads(row["retry"])),
                "concurrency": Concurrency(**json.loads(row["concurrency"])) if row["concurrency"] else None,
                "rate": _rate(row["rate"]) if row["rate"] else None,
                "schema": json.loads(row["schema"]) if row["schema"] else None,
            }
        )

    @property
    def claim(self) -> ClaimDeclaration:
        """The claim policy, as it would be declared."""
        return ClaimDeclaration(
            lease_seconds=self.lease_seconds,
            max_attempts=self.max_attempts,
            retry=self.retry,
            concurrency=self.concurrency,
            depth_limit=self.depth_limit,
            ttl_seconds=self.ttl_seconds,
            rate=self.rate,
        )

    @cached_property
    def validator(self) -> Validator | None:
        """What checks a body against the kind's JSON Schema; made once for the kind as it was read."""
        return None if self.schema is None else Validator(self.schema)

    def guard(self, tx: Transaction) -> None:
        """Let the transaction commit only while the kind is as it was read; it aborts with KindChanged."""
        guard_kinds(tx, [self])

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {
            "kind": self.name,
            "revision": self.revision,
            "paths": {text: path.type for text, path in self.paths.items()},
            "schema": self.schema,
            "claim": self.claim.model_dump(),
            "retention_seconds": self.retention_seconds,
            "created_at": render(self.created_at),
            "updated_at": render(self.updated_at),
            "created_by": self.created_by,
        }


class Kinds:
    """The kinds that this isolate has read: at most KIND_CACHE_SECONDS ago for readers, and a bounded number of them.

    A stale kind does no harm to a mutation: it guards its plan with `guard_kinds`, and reads again on KindChanged. So it
    may plan with a kind of any age, and costs one round trip however long ago the kind was read.
    """

    def __init__(self) -> None:
        self._read: dict[str, tuple[Instant, Kind]] = {}

    async def get(self, db: Database, now: Instant, name: str, *, fresh: bool = False, guarded: bool = False) -> Kind:
        """The kind of this name; from the database when `fresh`, or when it was not read lately and is not `guarded`.

        Raises KindUnknown. Absence is never remembered.
        """
        at, kind = self._read.get(name, (None, None))
        if kind is not None and at is not None and not fresh and (guarded or 0 <= now - at < KIND_CACHE_SECONDS * 1000):
            return kind
        reading = Reading()
        row = reading.ask(statements.KIND, name=name)
        await db.read(reading)
        if row.first() is None:
            self._read.pop(name, None)
            raise KindUnknown
        kind = Kind.of(row.one())
        self.put(now, kind)
        return kind

    def remembered(self, name: str) -> Kind | None:
        """The kind as this isolate last read it, however long ago; None when it never did. Asks nobody."""
        return self._read[name][1] if name in self._read else None

    def put(self, now: Instant, kind: Kind) -> None:
        """Remember a kind that was just read or written."""
        self._read.pop(kind.name, None)
        if len(self._read) >= _CACHED_KINDS:
            del self._read[next(iter(self._read))]
        self._read[kind.name] = (now, kind)

    async def show(self, db: Database, caller: Caller, now: Instant, name: str) -> Kind:
        """A kind for a client. Raises KindUnknown when no grant of the caller names it, too (clause catalog.grants)."""
        if not sees(caller, name):
            raise KindUnknown
        return await self.get(db, now, name, fresh=True)

    async def list_kinds(self, db: Database, caller: Caller, page: PageRequest) -> Page[Kind]:
        """The kinds that the caller has some grant on, by name. Raises CursorMismatch."""
        filters = ["kinds"]
        after = page.after(filters, str) or [""]
        visible = None if caller.is_root else _visible(caller)
        reading = Reading()
        rows = reading.ask(
            statements.KINDS,
            after=after[0],
            everything=visible is None,
            visible=canonical.dumps(visible or []),
            limit=page.limit + 1,
        )
        await db.read(reading)
        return page.page(rows.rows, filters, lambda row: [row["name"]], Kind.of)


def _rate(stored: str) -> Rate:
    """A stored rate as it was declared, which may have been below what is accepted now."""
    held = json.loads(stored)
    return Rate.model_construct(per_second=float(held["per_second"]), burst=held["burst"])


def sees(caller: Caller, kind: str) -> bool:
    """Whether the caller has some grant on the kind; one without sees no such kind."""
    return any(caller.may(action, kind) for action in ACTIONS)


def _visible(caller: Caller) -> list[str] | None:
    """The names and prefixes of the caller's grants; None when one of them is for all kinds."""
    if any(not grant.kinds for grant in caller.grants):
        return None
    return sorted({pattern for grant in caller.grants for pattern in grant.kinds})
