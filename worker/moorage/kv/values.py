"""Small values by namespace and key (clause kv.ops).

They are for coordination: cursors, observations, small state of a consumer. What a value may hold is bounded by
KV_VALUE_BYTES; larger things are records and artifacts. A namespace is granted as a kind of its name is: `publish` changes
it, `read` reads it, and a grant that a pattern narrows gives neither.
"""

from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical
from moorage.kernel.errors import KeyConflict, KeyUnknown
from moorage.kernel.ids import check_client_id
from moorage.kernel.instants import Instant
from moorage.kernel.limits import PAGE_BYTES
from moorage.kernel.pages import Page, PageRequest
from moorage.kv import changes, statements
from moorage.kv.model import Change, Entry, check_names
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction

_ABSENT: Final = 0


async def put(
    db: Database,
    caller: Caller,
    now: Instant,
    namespace: str,
    key: str,
    value: Any,
    revision: int | None = None,
    once: Key | None = None,
) -> Entry:
    """Put a value under a key, in one round trip: whatever stands there, or with `revision` only if the key has that one; 0
    is a key that is absent.

    Under `once`, an Idempotency-Key, the same put again answers what the first one made. Raises IdInvalid, Forbidden,
    PayloadTooLarge past KV_VALUE_BYTES, KeyConflict at another revision, IdempotencyConflict.
    """
    change = Change.put(namespace, key, value)
    caller.demand_whole("publish", namespace)
    tx = Transaction(now)
    caller.guard(tx)
    keys.remember(tx, once, {})
    if revision is not None:
        tx.require(statements.IS_AT, KeyConflict(), namespace=namespace, key=key, revision=revision)
    [stored] = changes.plan(tx, caller.subject, [change])
    keys.note(tx, once, statements.PUT_MADE, namespace=namespace, kv_key=key)
    try:
        await db.commit(tx)
    except AlreadyDone:
        made = await keys.recall(db, once)
        return Entry(namespace, key, canonical.stored(change.text or ""), made["revision"], made["updated_at"])
    return Entry.of(stored.one())


async def delete(
    db: Database,
    caller: Caller,
    now: Instant,
    namespace: str,
    key: str,
    revision: int | None = None,
    once: Key | None = None,
) -> None:
    """Delete a key, in one round trip; one that is absent already is fine. Under `once` it is deleted once: what was put
    since stays.

    Raises IdInvalid, Forbidden, KeyConflict when the key is there at another revision than the one named,
    IdempotencyConflict.
    """
    change = Change.delete(namespace, key)
    caller.demand_whole("publish", namespace)
    tx = Transaction(now)
    caller.guard(tx)
    keys.remember(tx, once, {})
    if revision is not None:
        tx.require(statements.IS_AT_OR_GONE, KeyConflict(), namespace=namespace, key=key, revision=revision)
    changes.plan(tx, caller.subject, [change])
    try:
        await db.commit(tx)
    except AlreadyDone:
        await keys.recall(db, once)


async def get(db: Database, caller: Caller, namespace: str, key: str) -> Entry:
    """The value under a key, a copy. Raises IdInvalid, Forbidden, KeyUnknown."""
    check_names(namespace, key)
    caller.demand_whole("read", namespace)
    reading = Reading()
    found = reading.ask(statements.GET, namespace=namespace, key=key)
    await db.read(reading)
    return Entry.of(found.one(KeyUnknown()))


async def list_keys(
    db: Database, caller: Caller, namespace: str, page: PageRequest, prefix: str | None = None
) -> Page[Entry]:
    """A page of a namespace's keys with their values, by key; only those that begin with `prefix`.

    A page ends early where its values pass PAGE_BYTES. Raises IdInvalid, Forbidden, CursorMismatch.
    """
    check_client_id(namespace, "a namespace")
    if prefix:
        # A prefix may be what no whole key is: '.' begins '.x'.
        check_client_id(prefix if len(prefix) > 2 else f"{prefix}_", "a prefix")
    caller.demand_whole("read", namespace)
    filters = ["kv", namespace, prefix]
    [after] = page.after(filters, str) or [""]
    reading = Reading()
    rows = reading.ask(
        statements.PAGE,
        namespace=namespace,
        after=after,
        prefix=prefix or "",
        limit=page.limit + 1,
        bytes=int(PAGE_BYTES),
    )
    await db.read(reading)
    met = rows.rows[0]["met"] if rows.rows else _ABSENT
    return page.page(rows.rows, filters, lambda row: [row["key"]], Entry.of, met)
