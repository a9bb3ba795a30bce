"""Publishing records (clauses records.publish, records.idempotent, records.lineage, records.undeclared)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.catalog.builtin import check_publisher
from moorage.catalog.kinds import Kind, Kinds
from moorage.catalog.paths import slots
from moorage.catalog.revisions import REPLANS, KindChanged, guard_kinds
from moorage.catalog.schemas import Budget
from moorage.history.append import Event, append_many
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical, ids
from moorage.kernel.errors import (
    BodyInvalid,
    Forbidden,
    IdempotencyConflict,
    IdInvalid,
    KindConflict,
    ParentUnknown,
    PayloadTooLarge,
    RecordExists,
    RequestInvalid,
)
from moorage.kernel.instants import Instant, after, render
from moorage.kernel.limits import (
    ID_CHARACTERS,
    METADATA_BYTES,
    NOT_BEFORE_SECONDS,
    PUBLISH_BATCH,
    PUBLISH_BATCH_BYTES,
    RECORD_BODY_BYTES,
    RECORD_PARENTS,
    RECORD_PRIORITY,
)
from moorage.kernel.refusals import refused
from moorage.records import bounds, query, statements
from moorage.records.model import Draft, Record
from moorage.records.patterns import evaluate
from moorage.records.visibility import narrowed, visible, visible_kind
from moorage.store.chunks import json_arrays
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Scalar, Transaction

APART_BYTES: Final = 200_000
"""A row with more than this is stored by a statement of its own, its body in a parameter of its own."""


_RESERVED: Final = tuple(
    "rec_ run_ exe_ awk_ grd_ crd_ clm_ req_ ses_ upl_ evt_ dlv_ kind: sender: destination: scope: interest: timer:"
    " schedule: subscription: kv: inbox:".split()
)
"""How the ids of the runtime begin, and the names under which history keeps what is no record."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A draft that was checked and given its id: everything that its row and its history entry need.

    `shown` is body and metadata as they will be read back.
    """

    id: str
    draft: Draft
    body: str
    body_sha256: str
    metadata: str
    shown: tuple[dict[str, Any], dict[str, Any]]
    parents: tuple[str, ...]
    available: bool
    slots: list[str | int | float | None]
    ready_until: Instant | None
    debounce_until: Instant | None

    def size(self) -> int:
        """Bytes that count towards PUBLISH_BATCH_BYTES."""
        return sum(canonical.size(text) for text in (self.body, self.metadata, *self.parents))

    def row(self, place: int, body: str | None) -> dict[str, Any]:
        """What the INSERT reads: the place among the planned records, and the body apart when it is large."""
        return {
            "place": place,
            "id": self.id,
            "kind": self.draft.kind,
            "body": body,
            "body_sha256": self.body_sha256,
            "metadata": self.metadata,
            "priority": self.draft.priority,
            "available": int(self.available),
            "not_before": self.draft.not_before,
            "slots": self.slots,
            "ready_until": self.ready_until,
            "debounce_key": None if self.draft.debounce is None else self.draft.debounce.key,
            "debounce_until": self.debounce_until,
        }

    def event(self) -> Event:
        """The entry of history that tells of the publication."""
        data: dict[str, Any] = {"parents": list(self.parents)} if self.parents else {}
        if not self.available and self.draft.not_before is not None:
            data["not_before"] = render(self.draft.not_before)
        return Event(self.id, "record.published", data, self.draft.kind, self.body_sha256)

    def record(self, seq: int, now: Instant, creator: str) -> Record:
        """The record as stored, without reading it back."""
        return Record(
            id=self.id,
            seq=seq,
            kind=self.draft.kind,
            body=self.shown[0],
            metadata=self.shown[1],
            parents=sorted(self.parents),
            state="ready",
            created_at=now,
            created_by=creator,
            body_sha256=self.body_sha256,
            priority=self.draft.priority,
            attempts=0,
            not_before=None if self.available else self.draft.not_before,
            ended_at=None,
            failure=None,
            ready_until=self.ready_until,
        )


Also = Callable[[Transaction, Sequence[Planned]], None]
"""Adds to the transaction that stores the planned records."""


async def publish(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    drafts: Sequence[Draft],
    key: Key | None = None,
    also: Also | None = None,
) -> list[Record]:
    """Store 1 to PUBLISH_BATCH records in one transaction, all or none, and answer them in the order given.

    `also` adds what an operation of the product's own needs to the transaction; without it built-in kinds are refused.

    Raises KindUnknown, Forbidden (no grant, or a body outside the grant's pattern), BodyInvalid with pointers,
    PayloadTooLarge, KindFull past the kind's depth limit, RateLimited, ParentUnknown, RecordExists for a client's id that
    was ever used, IdempotencyConflict. The same key with the same content answers the records of the first time, as they
    are now.
    """
    if not 1 <= len(drafts) <= PUBLISH_BATCH:
        raise RequestInvalid(f"a batch has 1 to {PUBLISH_BATCH} records")
    if any(draft.debounce is not None for draft in drafts):
        raise RequestInvalid("a debounced record is published by itself")
    if also is None:
        check_publisher({draft.kind for draft in drafts})
    for attempt in range(REPLANS):
        tx = Transaction(now)
        caller.guard(tx)
        planned = await plan(db, kinds, caller, now, drafts, fresh=attempt > 0)
        keys.remember(tx, key, {"records": [one.id for one in planned]})
        await require_parents(db, kinds, caller, now, tx, drafts)
        if also is not None:
            also(tx, planned)
        bounds.draw(tx, caller, len(planned))
        inserted = insert(tx, caller.subject, planned, keys.bound_until(tx, key))
        bounds.require_depth(tx, planned.kinds)
        try:
            await db.commit(tx)
        except KindChanged:
            continue
        except AlreadyDone:
            return await published_before(db, kinds, caller, now, key)
        return stored(planned, inserted, now, caller.subject)
    raise KindConflict("the kind is being redeclared; try again")


async def plan(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    drafts: Sequence[Draft],
    *,
    fresh: bool = False,
    budget: Budget | None = None,
) -> "Plan":
    """Check the drafts and give them ids; nothing is stored. Kinds come from the cache unless `fresh`.

    The plans of one transaction share a `budget` for what JSON Schemas make of their bodies; a lone plan has its own.
    """
    budget = budget or Budget()
    left = budget.left
    used = await _used(db, kinds, caller, now, drafts, fresh=fresh)
    try:
        planned = _plan_all(caller, used, drafts, now, budget)
    except BodyInvalid:
        # The kind as remembered may have a schema that was replaced elsewhere a moment ago.
        if fresh or all(kind.schema is None for kind in used.values()):
            raise
        current = await _used(db, kinds, caller, now, drafts, fresh=True)
        if all(current[name].revision == kind.revision for name, kind in used.items()):
            raise
        used, budget.left = current, left
        planned = _plan_all(caller, used, drafts, now, budget)
    if len(planned) > 1 and sum(one.size() for one in planned) > PUBLISH_BATCH_BYTES:
        raise PayloadTooLarge(f"the records of one transaction pass {PUBLISH_BATCH_BYTES} bytes")
    if len({one.id for one in planned}) < len(planned):
        raise RecordExists("two records of the batch have the same id")
    return Plan(planned, used.values())


async def _used(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, drafts: Sequence[Draft], *, fresh: bool
) -> dict[str, Kind]:
    return {
        name: await visible_kind(db, kinds, caller, now, name, "publish", fresh=fresh, guarded=True)
        for name in {draft.kind for draft in drafts}
    }


def _plan_all(
    caller: Caller, used: Mapping[str, Kind], drafts: Sequence[Draft], now: Instant, budget: Budget
) -> list[Planned]:
    new_ids = ids.several("rec", now, len(drafts))
    return [
        _plan_one(caller, used[draft.kind], draft, new_id, now, f"/records/{place}" if len(drafts) > 1 else "", budget)
        for place, (draft, new_id) in enumerate(zip(drafts, new_ids, strict=True))
    ]


class Plan(list[Planned]):
    """Planned records, and the kinds they were planned with."""

    def __init__(self, planned: Iterable[Planned], used: Iterable[Kind]) -> None:
        super().__init__(planned)
        self.kinds = list(used)


def insert(tx: Transaction, actor: str, planned: Plan, held_until: Instant | None = None) -> list[Answer]:
    """Add the planned records, their lineage and their history to a transaction; large bodies travel apart.

    Retention keeps them until `held_until`, whatever becomes of them (clause records.retention).
    """
    if not planned:
        return []
    guard_kinds(tx, planned.kinds)
    wished = [one.id for one in planned if one.draft.id is not None]
    if wished:
        tx.require(statements.IDS_ARE_UNUSED, RecordExists("an id was used before"), ids=canonical.compact(wished))
    tx.refuse("records.id", RecordExists("an id was used before"))
    append_many(tx, actor, [one.event() for one in planned])
    common: dict[str, Scalar] = {"actor": actor, "count": len(planned), "held_until": held_until}
    inserted = [tx.run(statements.INSERT, drafts=rows, body=body, **common) for rows, body in _chunks(planned)]
    for pairs in json_arrays(canonical.compact([one.id, parent]) for one in planned for parent in one.parents):
        tx.run(statements.INSERT_PARENTS, pairs=pairs)
    return inserted


def stored(planned: Plan, inserted: Sequence[Answer], now: Instant, creator: str) -> list[Record]:
    """The records of a committed plan, in its order."""
    seqs = {row["id"]: row["seq"] for answer in inserted for row in answer.rows}
    return [one.record(seqs[one.id], now, creator) for one in planned]


def _plan_one(caller: Caller, kind: Kind, draft: Draft, new_id: str, now: Instant, pointer: str, budget: Budget) -> Planned:
    body, metadata = canonical.dumps(dict(draft.body)), canonical.dumps(dict(draft.metadata))
    shown = (canonical.loads(body.encode()), canonical.loads(metadata.encode()))
    if canonical.size(body) > RECORD_BODY_BYTES:
        raise PayloadTooLarge(f"a body has at most {RECORD_BODY_BYTES} bytes; publish an artifact and its digest instead")
    if canonical.size(metadata) > METADATA_BYTES:
        raise PayloadTooLarge(f"metadata has at most {METADATA_BYTES} bytes")
    _check_wishes(draft, now, pointer)
    try:
        values = slots(shown[0], kind.paths)
    except BodyInvalid as error:
        located = [{**one, "pointer": f"{pointer}/body{one['pointer']}"} for one in error.errors or []]
        raise BodyInvalid(error.detail, errors=located) from None
    check_schema(kind, shown[0], f"{pointer}/body", budget)
    if not evaluate(narrowed(caller, "publish", kind), shown[0]):
        raise Forbidden("the body is outside what the credential's grant lets it publish")
    return Planned(
        id=draft.id if draft.id is not None else new_id,
        draft=draft,
        body=body,
        body_sha256=canonical.digest(body),
        metadata=metadata,
        shown=shown,
        parents=tuple(dict.fromkeys(draft.parents)),
        available=draft.not_before is None or draft.not_before <= now,
        slots=values,
        ready_until=_ready_until(kind, draft, now),
        debounce_until=None if draft.debounce is None else after(now, draft.debounce.max_seconds),
    )


def _ready_until(kind: Kind, draft: Draft, now: Instant) -> Instant | None:
    if kind.ttl_seconds is None:
        return None
    return after(now if draft.not_before is None else max(now, draft.not_before), kind.ttl_seconds)


def check_schema(kind: Kind, body: Mapping[str, Any], pointer: str, budget: Budget) -> None:
    """Raise BodyInvalid, with pointers that begin with `pointer`, unless the body fits the kind's JSON Schema."""
    if kind.validator is None:
        return
    found = [{**one, "pointer": pointer + one["pointer"]} for one in kind.validator.problems(body, budget)]
    if found:
        raise BodyInvalid(f"{found[0]['pointer']} {found[0]['message']}", errors=found)


def _check_wishes(draft: Draft, now: Instant, pointer: str) -> None:
    if draft.id is not None:
        ids.check_client_id(draft.id, "a record's id")
        if draft.id.startswith(_RESERVED):
            raise IdInvalid(f"ids that begin with one of {', '.join(_RESERVED)} are the runtime's own")
    if len(draft.parents) > RECORD_PARENTS:
        raise RequestInvalid(f"a record has at most {RECORD_PARENTS} parents")
    if any(len(parent) > ID_CHARACTERS for parent in draft.parents):
        raise ParentUnknown("a parent's id is longer than any id")
    if abs(draft.priority) > RECORD_PRIORITY:
        raise RequestInvalid(f"a priority lies between -{RECORD_PRIORITY} and {RECORD_PRIORITY}")
    if draft.not_before is not None and draft.not_before > after(now, NOT_BEFORE_SECONDS):
        message = f"not_before lies at most {NOT_BEFORE_SECONDS} seconds ahead"
        raise refused(f"{pointer}/not_before", message, message)


async def require_parents(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, tx: Transaction, drafts: Sequence[Draft]
) -> None:
    """Let the transaction commit only if every parent exists and the caller may see it; it raises ParentUnknown."""
    parents = sorted({parent for draft in drafts for parent in draft.parents})
    if not parents:
        return
    if caller.narrowing("read", "") is not None:
        seen = await query.get_many(db, kinds, caller, now, parents)
        missing = sorted(set(parents) - {record.id for record in seen})
        if missing:
            raise ParentUnknown(f"no record {missing[0]!r}", parents=missing)
    tx.require(statements.PARENTS_EXIST, ParentUnknown(), parents=canonical.compact(parents))


def _chunks(planned: Sequence[Planned]) -> Iterable[tuple[str, str | None]]:
    """The rows as JSON arrays of bounded size: first the small ones together, then each large one with its body apart.

    What counts is the text that is bound: quotes and backslashes of a body double there.
    """
    texts = [canonical.compact(one.row(place, one.body)) for place, one in enumerate(planned)]
    large = [place for place, text in enumerate(texts) if canonical.size(text) > APART_BYTES]
    for rows in json_arrays(text for text in texts if canonical.size(text) <= APART_BYTES):
        yield rows, None
    for place in large:
        yield canonical.compact([planned[place].row(place, None)]), planned[place].body


async def published_before(db: Database, kinds: Kinds, caller: Caller, now: Instant, key: Key | None) -> list[Record]:
    """The records that the key's first request published, as they are now.

    Raises IdempotencyConflict, also when one is gone or is not the caller's to publish now, which a later burst can make of
    a debounced record.
    """
    reference = await keys.recall(db, key)
    shown = await visible(db, kinds, caller, now, await query.read(db, reference["records"]), "publish")
    records = {record.id: record for record in shown}
    if len(records) < len(reference["records"]):
        raise IdempotencyConflict("the records that this key published are gone")
    return [records[one] for one in reference["records"]]
