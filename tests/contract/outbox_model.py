"""A model of the outbox: what was committed, what each subscription means, and so which deliveries there must be."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.catalog import declare, destinations
from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kind, Kinds
from moorage.catalog.model import DestinationDeclaration, KindDeclaration
from moorage.history.query import Entry
from moorage.kernel.errors import RecordEnded, StorageBindingUnavailable, SubscriptionUnknown
from moorage.kernel.instants import Instant
from moorage.kernel.limits import FAN_OUT_BATCH
from moorage.messages.outbox import subscriptions
from moorage.messages.outbox.domain_events import event_id_of
from moorage.messages.outbox.fan_out import OutboxFanOut
from moorage.messages.outbox.subscriptions import Declaration
from moorage.records import cancel, publish
from moorage.records.model import Draft
from moorage.records.patterns import evaluate, parse
from moorage.store.ports import Cost, Database
from moorage.store.transaction import Reading, Transaction
from tests.contract.adapters import Store
from tests.contract.faults import Fault, FaultyDatabase, Plan

START: Final = Instant(1_800_000_000_000)
KINDS: Final = ("parcels", "parts", "letters")
NAMES: Final = ("one", "two")
TYPES: Final = (("*",), ("record.*",), ("record.published",), ("record.c*", "destination.declared"), ("kind.declared",))
OF_KINDS: Final = ((), ("parcels",), ("par*",), ("letters", "parts"))
FILTERS: Final[tuple[dict[str, Any] | None, ...]] = (
    None,
    {},
    {"weight": {"$gte": 2}},
    {"$not": {"weight": 1}},
    {"weight": {"$exists": False}},
)


class Meanwhile:
    """A database with something that happens between a reading and the commit that follows it."""

    def __init__(self, db: Database, happens: Callable[[], Awaitable[Any]]) -> None:
        self._db = db
        self._happens: Callable[[], Awaitable[Any]] | None = happens
        self.cost: Cost = db.cost

    async def read(self, reading: Reading) -> None:
        await self._db.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        happens, self._happens = self._happens, None
        if happens is not None:
            await happens()
        await self._db.commit(transaction)

    async def initialize(self, statements: list[str]) -> None:
        await self._db.initialize(statements)


@dataclass
class Meant:
    """What a subscription means as it was declared last, and up to where it has looked."""

    declaration: Declaration
    position: int
    active: bool


@dataclass
class Play:
    """A store, and what the model knows of it. `expected` are the deliveries, as subscription and event."""

    store: Store
    caller: Caller = field(default_factory=lambda: Caller("root"))
    kinds: Kinds = field(default_factory=Kinds)
    declared: dict[str, Kind] = field(default_factory=dict)
    bodies: dict[str, Any] = field(default_factory=dict)
    meant: dict[str, Meant] = field(default_factory=dict)
    expected: set[tuple[str, str]] = field(default_factory=set)
    now: Instant = START

    @classmethod
    async def begin(cls, store: Store) -> "Play":
        play = cls(store)
        for kind in KINDS:
            declaration = KindDeclaration.model_validate({"paths": {"weight": "number"}})
            db = store.db()
            play.declared[kind] = await declare.declare(db, play.caller, play.now, play.kinds, kind, declaration)
        await play.change_destination()
        return play

    async def change_destination(self) -> None:
        told = DestinationDeclaration.model_validate({"url": "https://there.example.com/"})
        await destinations.put(self.store.db(), self.caller, self.now, "there", told)

    async def publish(self, kind: str, weights: list[int | None], fault: Fault) -> None:
        """Publish several records in one transaction; one that is lost on the way tells of nothing."""
        drafts = [Draft(kind, {"n": 1} if weight is None else {"weight": weight, "n": 1}) for weight in weights]
        db = FaultyDatabase(self.store.db(), Plan(commits=[fault]))
        try:
            await publish.publish(db, self.kinds, self.caller, self.now, drafts)
        except StorageBindingUnavailable:
            assert fault in (Fault.FAIL_BEFORE, Fault.FAIL_AFTER)
        for row in await self.store.sql("SELECT id, body FROM records"):
            self.bodies[row["id"]] = json.loads(row["body"])

    async def cancel(self, number: int) -> None:
        if self.bodies:
            record = sorted(self.bodies)[number % len(self.bodies)]
            try:
                await cancel.cancel(self.store.db(), self.kinds, self.caller, self.now, record, "not wanted")
            except RecordEnded:
                return

    async def declare(self, name: str, declaration: Declaration) -> None:
        db = self.store.db()
        shown = await subscriptions.put(db, self.kinds, self.caller, self.now, name, declaration)
        last = await self.last()
        before = self.meant.get(name)
        start = declaration.start
        if start is None:
            position = last if before is None else before.position
        else:
            position = last if start == "now" else min(start, last)
        self.meant[name] = Meant(declaration, position, not declaration.paused)
        assert (shown.position, shown.behind) == (position, last - position)

    async def switch(self, name: str, on: bool) -> None:
        """Pause or resume."""
        try:
            if on:
                await subscriptions.resume(self.store.db(), self.caller, self.now, name)
            else:
                await subscriptions.pause(self.store.db(), self.caller, self.now, name)
        except SubscriptionUnknown:
            assert name not in self.meant
            return
        self.meant[name].active = on

    async def delete(self, name: str) -> None:
        try:
            await subscriptions.delete(self.store.db(), self.caller, self.now, name)
        except SubscriptionUnknown:
            assert name not in self.meant
            return
        del self.meant[name]

    async def fan_out(self, name: str, fault: Fault, meanwhile: Callable[[], Awaitable[Any]] | None = None) -> None:
        """Look on, dying where `fault` says, with something else happening in between."""
        db: Database = FaultyDatabase(self.store.db(), Plan(commits=[fault]))
        if meanwhile is not None:
            db = Meanwhile(db, meanwhile)
        try:
            await OutboxFanOut("shop").look_further(db, self.now, name)
        except StorageBindingUnavailable:
            assert fault in (Fault.FAIL_BEFORE, Fault.FAIL_AFTER)
        await self.follow(name)

    async def follow(self, name: str) -> None:
        """Take over how far a subscription looked, and expect what it has to have told."""
        meant = self.meant.get(name)
        rows = await self.store.sql("SELECT position FROM subscriptions WHERE name = ?", name)
        if meant is None:
            assert rows == []
            return
        reached = rows[0]["position"]
        assert reached == meant.position or (meant.active and meant.position < reached <= meant.position + FAN_OUT_BATCH)
        found = await self.store.sql("SELECT * FROM history WHERE position > ? AND position <= ?", meant.position, reached)
        told = {(name, event_id_of(Entry.of(entry))) for entry in found if self.fits(meant.declaration, entry)}
        self.expected |= told
        meant.position = reached

    def fits(self, declaration: Declaration, entry: dict[str, Any]) -> bool:
        """What the subscription says, read by somebody else."""
        if not any(
            entry["type"] == one or (one[-1] == "*" and entry["type"].startswith(one[:-1])) for one in declaration.types
        ):
            return False
        kind = entry["kind"] or ""
        if declaration.kinds and not any(
            kind == one or (one[-1] == "*" and kind.startswith(one[:-1])) for one in declaration.kinds
        ):
            return False
        if declaration.filter is None:
            return True
        pattern = parse(declaration.filter, self.declared["parcels"].paths)
        return evaluate(pattern, self.bodies[entry["subject"]])

    async def last(self) -> int:
        [row] = await self.store.sql("SELECT max(position) AS last FROM history")
        return int(row["last"])

    async def agrees(self) -> None:
        """Exactly the expected deliveries are there, each once; positions and revisions have no gaps."""
        rows = await self.store.sql("SELECT subscription, destination, event_id FROM deliveries")
        told = [(row["subscription"], row["event_id"]) for row in rows]
        assert len(told) == len(set(told))
        assert set(told) == self.expected
        entries = await self.store.sql("SELECT position, subject, revision FROM history ORDER BY position")
        assert [entry["position"] for entry in entries] == list(range(1, len(entries) + 1))
        revisions: dict[str, int] = {}
        for entry in entries:
            assert entry["revision"] == revisions.get(entry["subject"], 0) + 1
            revisions[entry["subject"]] = entry["revision"]

    async def catch_up(self) -> None:
        """Let every subscription look at everything; afterwards nothing is behind but what is paused."""
        for name, meant in self.meant.items():
            while meant.active and meant.position < await self.last():
                await self.fan_out(name, Fault.NONE)
