"""The tree of scopes: opaque configuration under an id, a parent that exists, no cycle (clause catalog.scopes)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from moorage.catalog import statements
from moorage.catalog.access import Caller
from moorage.catalog.model import ScopeDeclaration, secret_name
from moorage.catalog.paths import pointer
from moorage.history.append import Event, append
from moorage.kernel import canonical
from moorage.kernel.errors import ScopeConflict, ScopeUnknown
from moorage.kernel.ids import check_client_id
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import CONFIG_BYTES
from moorage.kernel.pages import Page, PageRequest
from moorage.kernel.refusals import refused
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction


@dataclass(frozen=True, slots=True)
class Scope:
    """A scope. `config` is the client's own; a text in it that begins with `env:` names a secret binding."""

    id: str
    parent: str | None
    config: dict[str, Any]
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, row: Row) -> "Scope":
        """The scope that a row holds."""
        return cls(**{**row, "config": canonical.loads(row["config"].encode())})

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {
            "id": self.id,
            "parent": self.parent,
            "config": self.config,
            "created_at": render(self.created_at),
            "updated_at": render(self.updated_at),
        }


async def put(db: Database, caller: Caller, now: Instant, scope: str, declaration: ScopeDeclaration) -> Scope:
    """Declare a scope, or declare it anew, in one round trip; without a parent it is a root of its own.

    Raises Forbidden, IdInvalid, RequestInvalid (config too large, a malformed secret reference in it), and
    ScopeConflict when the parent does not exist or is the scope itself or one below it.
    """
    caller.demand("admin")
    check_client_id(scope, "a scope's id")
    config = canonical.dumps(declaration.config)
    if canonical.size(config) > CONFIG_BYTES:
        raise refused("/config", f"is longer than {CONFIG_BYTES} bytes")
    for place, text in _texts(declaration.config, ("config",)):
        secret_name(text, pointer(place))
    tx = Transaction(now)
    caller.guard(tx)
    if declaration.parent is not None:
        cycle = ScopeConflict("the parent is the scope itself or one below it")
        unknown = ScopeConflict("the parent does not exist")
        tx.require(statements.SCOPE_MAKES_NO_CYCLE, cycle, id=scope, parent=declaration.parent)
        tx.require(statements.SCOPE_EXISTS, unknown, parent=declaration.parent)
    stored = tx.run(statements.DECLARE_SCOPE, id=scope, parent=declaration.parent, config=config)
    event = Event(
        f"scope:{scope}",
        "scope.declared",
        {"parent": declaration.parent},
        content_sha256=canonical.digest(config),
    )
    append(tx, caller.subject, event)
    await db.commit(tx)
    return Scope.of(stored.one())


async def show(db: Database, caller: Caller, scope: str) -> Scope:
    """One scope. Raises Forbidden, ScopeUnknown."""
    caller.demand("operate")
    reading = Reading()
    row = reading.ask(statements.SCOPE, id=scope)
    await db.read(reading)
    return Scope.of(row.one(ScopeUnknown()))


async def list_scopes(db: Database, caller: Caller, page: PageRequest) -> Page[Scope]:
    """The scopes by id. Raises Forbidden, CursorMismatch."""
    caller.demand("operate")
    filters = ["scopes"]
    after = page.after(filters, str) or [""]
    reading = Reading()
    rows = reading.ask(statements.SCOPES, after=after[0], limit=page.limit + 1)
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["id"]], Scope.of)


def _texts(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text of a JSON value with where it stands. Its depth is bounded by JSON_DEPTH."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*place, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _texts(item, (*place, str(number)))
