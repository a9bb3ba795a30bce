"""Subscriptions: which entries of history are told to which destination (clauses outbox.atomic, outbox.deliver)."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kind, Kinds
from moorage.history.append import Event, append
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical
from moorage.kernel.errors import DestinationUnknown, MoorageError, SubscriptionUnknown
from moorage.kernel.ids import check_client_id
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import SUBSCRIPTION_TYPES, SUBSCRIPTIONS
from moorage.kernel.pages import Page, PageRequest
from moorage.kernel.refusals import check_reason, refused
from moorage.messages import filters
from moorage.messages.outbox import outbox_statements as statements
from moorage.messages.outbox.fan_out import NEVER_TOLD
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

State = Literal["active", "paused", "disabled"]

_OWN: Final = "_"
"""With this begin the names of the product's own subscriptions."""

SUBJECTS: Final = (
    "artifact", "awakeable", "body", "correlation", "credential", "destination", "event", "execution", "guard", "holder",
    "inbox", "interest", "kind", "kv", "record", "run", "schedule", "scope", "sender", "session", "subscription", "timer",
)  # fmt: skip
"""What entries of history may be about: their types' first words, without that of deliveries, which nobody is told of."""

_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*|([a-z][a-z0-9_.]*)?\*")
_KIND = re.compile(r"[a-z][a-z0-9._-]{0,99}|[a-z][a-z0-9._-]{0,98}\*")


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a subscription is declared with.

    `types` are types of entries, or prefixes that end in `*`; `kinds` the same of kinds, none meaning every entry, of a
    kind or of none. `start` is the position past which it begins: None is where it stands, or behind the last entry for a
    new one.
    """

    destination: str
    types: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    filter: Mapping[str, Any] | None = None
    paused: bool = False
    start: int | Literal["now"] | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription. `position` is the last entry that it looked at, `behind` how many there are past it."""

    name: str
    state: State
    destination: str
    position: int
    created_by: str
    created_at: Instant
    updated_at: Instant
    reason: str | None
    types: tuple[str, ...]
    kinds: tuple[str, ...]
    filter: Mapping[str, Any] | None = field(repr=False)
    behind: int

    @classmethod
    def of(cls, row: Row) -> "Subscription":
        """The subscription that a row holds."""
        stored = row["filter"]
        match = None if stored is None else filters.match_of(stored)
        return cls(
            **{**row, "types": tuple(json.loads(row["types"])), "kinds": tuple(json.loads(row["kinds"])), "filter": match}
        )

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {
            "name": self.name,
            "state": self.state,
            "reason": self.reason,
            "destination": self.destination,
            "types": list(self.types),
            "kinds": list(self.kinds),
            "filter": None if self.filter is None else dict(self.filter),
            "position": self.position,
            "behind": self.behind,
            "created_by": self.created_by,
            "created_at": render(self.created_at),
            "updated_at": render(self.updated_at),
        }


async def put(db: Database, kinds: Kinds, caller: Caller, now: Instant, name: str, declaration: Declaration) -> Subscription:
    """Declare a subscription, or declare it anew.

    A filter is about the bodies of records where every type is one of records and `kinds` names exactly one kind, and about
    what the entries themselves tell otherwise. Raises Forbidden, IdInvalid, RequestInvalid for what is no type or kind, past
    SUBSCRIPTION_TYPES or SUBSCRIPTIONS, DestinationUnknown, KindUnknown, PatternInvalid.
    """
    caller.demand("operate")
    _check_name(name)
    _check_names(declaration.types, "/types", _TYPE, "a type of entries, as record.published, or a prefix with * at its end")
    _check_names(declaration.kinds, "/kinds", _KIND, "a kind's name, or a prefix with * at its end")
    if not declaration.types:
        raise refused("/types", "must name a type; * is all of them")
    for index, type_ in enumerate(declaration.types):
        _check_type(type_, f"/types/{index}")
    filter_ = None
    if declaration.filter is not None:
        filter_ = filters.check(declaration.filter, await _kind_of(db, kinds, now, declaration))
    tx = Transaction(now)
    caller.guard(tx)
    tx.require(statements.DESTINATION_EXISTS, DestinationUnknown(), destination=declaration.destination)
    tx.require(statements.HAS_ROOM, _too_many(), name=name, most=int(SUBSCRIPTIONS))
    told = {"types": list(declaration.types), "kinds": list(declaration.kinds), "destination": declaration.destination}
    state = "paused" if declaration.paused else "active"
    append(tx, caller.subject, Event(_subject(name), "subscription.declared", {**told, "state": state}))
    stored = tx.run(
        statements.PUT,
        name=name,
        state=state,
        destination=declaration.destination,
        start=None if declaration.start == "now" else declaration.start,
        moves=int(declaration.start is not None),
        by=caller.subject,
        types=canonical.dumps(told["types"]),
        kinds=canonical.dumps(told["kinds"]),
        filter=filter_,
    )
    await db.commit(tx)
    return Subscription.of(stored.one())


async def show(db: Database, caller: Caller, name: str) -> Subscription:
    """One subscription. Raises Forbidden, SubscriptionUnknown."""
    caller.demand("operate")
    _known(name)
    reading = Reading()
    row = reading.ask(statements.SHOW, name=name)
    await db.read(reading)
    return Subscription.of(row.one(SubscriptionUnknown()))


async def list_subscriptions(db: Database, caller: Caller, page: PageRequest) -> Page[Subscription]:
    """The subscriptions by name. Raises Forbidden, CursorMismatch."""
    caller.demand("operate")
    listed = ["subscriptions"]
    after = page.after(listed, str) or [""]
    reading = Reading()
    rows = reading.ask(statements.PAGE, after=after[0], limit=page.limit + 1)
    await db.read(reading)
    return page.page(rows.rows, listed, lambda row: [row["name"]], Subscription.of)


async def pause(db: Database, caller: Caller, now: Instant, name: str, reason: str | None = None) -> Subscription:
    """Tell nothing more until it is resumed; it then goes on where it stood. What was told already is still delivered.

    Raises Forbidden, SubscriptionUnknown, RequestInvalid for a reason that is none.
    """
    return await _set(db, caller, now, name, "paused", reason)


async def resume(db: Database, caller: Caller, now: Instant, name: str) -> Subscription:
    """Go on with the first entry that was not looked at. Raises Forbidden, SubscriptionUnknown."""
    return await _set(db, caller, now, name, "active", None)


async def delete(db: Database, caller: Caller, now: Instant, name: str, key: Key | None = None) -> None:
    """Tell nothing more. What was told already is still delivered. Under a key that happens once: one that was declared
    since stays. Raises Forbidden, SubscriptionUnknown, IdempotencyConflict."""
    caller.demand("operate")
    _known(name)
    tx = Transaction(now)
    caller.guard(tx)
    keys.remember(tx, key, {})
    tx.require(statements.EXISTS, SubscriptionUnknown(), name=name)
    append(tx, caller.subject, Event(_subject(name), "subscription.deleted"))
    tx.run(statements.DELETE, name=name)
    try:
        await db.commit(tx)
    except AlreadyDone:
        await keys.recall(db, key)


async def _set(
    db: Database, caller: Caller, now: Instant, name: str, state: Literal["active", "paused"], reason: str | None
) -> Subscription:
    caller.demand("operate")
    _known(name)
    if reason is not None:
        check_reason(reason)
    tx = Transaction(now)
    caller.guard(tx)
    tx.require(statements.EXISTS, SubscriptionUnknown(), name=name)
    type_ = "subscription.paused" if state == "paused" else "subscription.resumed"
    append(tx, caller.subject, Event(_subject(name), type_, {} if reason is None else {"reason": reason}))
    stored = tx.run(statements.SET_STATE, name=name, state=state, reason=reason)
    await db.commit(tx)
    return Subscription.of(stored.one())


async def _kind_of(db: Database, kinds: Kinds, now: Instant, declaration: Declaration) -> Kind | None:
    """The kind whose bodies a filter is about; None for one about what entries tell. Raises KindUnknown."""
    one = declaration.kinds[0] if len(declaration.kinds) == 1 else "*"
    if one.endswith("*") or not all(type_.startswith("record.") for type_ in declaration.types):
        return None
    return await kinds.get(db, now, one, fresh=True)


def _check_name(name: str) -> None:
    check_client_id(name, "a subscription's name")
    if name.startswith(_OWN):
        raise refused("/name", f"must not begin with {_OWN}: those are the product's own")


def _known(name: str) -> None:
    """Raise SubscriptionUnknown for the product's own ones, which nobody may look at or change by name."""
    if name.startswith(_OWN):
        raise SubscriptionUnknown()


def _check_names(names: tuple[str, ...], pointer: str, pattern: re.Pattern[str], what: str) -> None:
    if len(names) > SUBSCRIPTION_TYPES:
        raise refused(pointer, f"must have at most {SUBSCRIPTION_TYPES} items")
    if len(set(names)) < len(names):
        raise refused(pointer, "must not name anything twice")
    for index, name in enumerate(names):
        if len(name) > 100 or pattern.fullmatch(name) is None:
            raise refused(f"{pointer}/{index}", f"must be {what}")


def _check_type(type_: str, pointer: str) -> None:
    """Raise RequestInvalid for a type that no entry can have, so that nobody waits for what never comes."""
    if type_.startswith(NEVER_TOLD):
        raise refused(pointer, "is about deliveries, and what happens to them is told to nobody")
    stem = type_.removesuffix("*")
    if any(stem.startswith(f"{one}.") or (stem != type_ and f"{one}.".startswith(stem)) for one in SUBJECTS):
        return
    raise refused(pointer, "is no type of entries of history; an event's own type is for a filter on event.accepted")


def _too_many() -> MoorageError:
    return refused("/name", f"would be one of more than {SUBSCRIPTIONS} subscriptions")


def _subject(name: str) -> str:
    return f"subscription:{name}"
