"""Publishing records (clauses records.publish, records.idempotent, records.lineage, records.undeclared)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kind, Kinds
from moorage.catalog.paths import slots
from moorage.catalog.revisions import KindChanged, guard_kinds
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
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import (
    METADATA_BYTES,
    NOT_BEFORE_SECONDS,
    PUBLISH_BATCH,
    PUBLISH_BATCH_BYTES,
    RECORD_BODY_BYTES,
    RECORD_PARENTS,
    RECORD_PRIORITY,
)
from moorage.records import query, statements
from moorage.records.model import Draft, Record
from moorage.records.patterns import evaluate
from moorage.records.visibility import narrowed, visible_kind
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Transaction

_CHUNK_BYTES = 400_000
_REPLANS = 3


@dataclass(frozen=True, slots=True)
class Planned:
    """A draft that was checked and given its id: everything that its row and its history entry need."""

    id: str
    draft: Draft
    body: str
    body_sha256: str
    metadata: str
    parents: tuple[str, ...]
    available: bool
    slots: list[str | int | float | None]

    def row(self, body: str | None) -> dict[str, Any]:
        """What the INSERT reads; the body apart when it is large."""
        return {
            "id": self.id,
            "kind": self.draft.kind,
            "body": body,
            "body_sha256": self.body_sha256,
            "metadata": self.metadata,
            "priority": self.draft.priority,
            "available": int(self.available),
            "not_before": self.draft.not_before,
            "slots": self.slots,
        }

    def event(self) -> Event:
        """The entry of history that tells of the publication."""
        data = {"parents": list(self.parents)} if self.parents else {}
        return Event(self.id, "record.published", data, self.draft.kind, self.body_sha256)

    def record(self, seq: int, now: Instant, creator: str) -> Record:
        """The record as stored, without reading it back."""
        return Record(
            id=self.id,
            seq=seq,
            kind=self.draft.kind,
            body=canonical.loads(self.body.encode()),
            metadata=canonical.loads(self.metadata.encode()),
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
        )


async def publish(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, drafts: Sequence[Draft], key: Key | None = None
) -> list[Record]:
    """Store 1 to PUBLISH_BATCH records in one transaction, all or none, and answer them in the order given.

    Raises KindUnknown, Forbidden (no grant, or a body outside the grant's pattern), BodyInvalid with pointers,
    PayloadTooLarge, ParentUnknown, RecordExists for a client's id that was ever used, IdempotencyConflict. The same key
    with the same content answers the records of the first time, as they are now.
    """
    if not 1 <= len(drafts) <= PUBLISH_BATCH:
        raise RequestInvalid(f"a batch has 1 to {PUBLISH_BATCH} records")
    for attempt in range(_REPLANS):
        tx = Transaction(now)
        caller.guard(tx)
        planned = await plan(db, kinds, caller, now, drafts, fresh=attempt > 0)
        keys.remember(tx, key, {"records": [one.id for one in planned]})
        await _require_parents(db, kinds, caller, now, tx, drafts)
        inserted = insert(tx, caller.subject, planned)
        try:
            await db.commit(tx)
        except KindChanged:
            continue
        except AlreadyDone:
            return await _published_before(db, key)
        return stored(planned, inserted, now, caller.subject)
    raise KindConflict("the kind is being redeclared; try again")


async def plan(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, drafts: Sequence[Draft], *, fresh: bool = False
) -> "Plan":
    """Check the drafts and give them ids; nothing is stored. Kinds come from the cache unless `fresh`."""
    used: dict[str, Kind] = {}
    for name in {draft.kind for draft in drafts}:
        used[name] = await visible_kind(db, kinds, caller, now, name, "publish", fresh=fresh)
    new_ids = ids.several("rec", now, len(drafts))
    planned = [
        _plan_one(caller, used[draft.kind], draft, new_id, now, f"/records/{place}" if len(drafts) > 1 else "")
        for place, (draft, new_id) in enumerate(zip(drafts, new_ids, strict=True))
    ]
    if sum(canonical.size(one.body) + canonical.size(one.metadata) for one in planned) > _batch_bytes(planned):
        raise PayloadTooLarge(f"the bodies of one transaction pass {PUBLISH_BATCH_BYTES} bytes")
    if len({one.id for one in planned}) < len(planned):
        raise RecordExists("two records of the batch have the same id")
    return Plan(planned, used.values())


class Plan(list[Planned]):
    """Planned records, and the kinds they were planned with."""

    def __init__(self, planned: Iterable[Planned], used: Iterable[Kind]) -> None:
        super().__init__(planned)
        self.kinds = list(used)


def insert(tx: Transaction, actor: str, planned: Plan) -> list[Answer]:
    """Add the planned records, their lineage and their history to a transaction; large bodies travel apart."""
    if not planned:
        return []
    guard_kinds(tx, planned.kinds)
    wished = [one.id for one in planned if one.draft.id is not None]
    if wished:
        tx.require(statements.IDS_ARE_UNUSED, RecordExists("an id was used before"), ids=canonical.compact(wished))
    tx.refuse("records.id", RecordExists())
    tx.refuse("records.seq", RecordExists())
    append_many(tx, actor, [one.event() for one in planned])
    inserted = [
        tx.run(statements.INSERT, drafts=canonical.compact(rows), body=body, actor=actor) for rows, body in _chunks(planned)
    ]
    pairs = [[one.id, parent] for one in planned for parent in one.parents]
    if pairs:
        tx.run(statements.INSERT_PARENTS, pairs=canonical.compact(pairs))
    return inserted


def stored(planned: Plan, inserted: Sequence[Answer], now: Instant, creator: str) -> list[Record]:
    """The records of a committed plan, in its order."""
    seqs = {row["id"]: row["seq"] for answer in inserted for row in answer.rows}
    return [one.record(seqs[one.id], now, creator) for one in planned]


def _plan_one(caller: Caller, kind: Kind, draft: Draft, new_id: str, now: Instant, pointer: str) -> Planned:
    body, metadata = canonical.dumps(dict(draft.body)), canonical.dumps(dict(draft.metadata))
    if canonical.size(body) > RECORD_BODY_BYTES:
        raise PayloadTooLarge(f"a body has at most {RECORD_BODY_BYTES} bytes; publish an artifact and its digest instead")
    if canonical.size(metadata) > METADATA_BYTES:
        raise PayloadTooLarge(f"metadata has at most {METADATA_BYTES} bytes")
    _check_wishes(draft, now, pointer)
    if not evaluate(narrowed(caller, "publish", kind), draft.body):
        raise Forbidden("the body is outside what the credential's grant lets it publish")
    try:
        values = slots(dict(draft.body), kind.paths)
    except BodyInvalid as error:
        located = [{**one, "pointer": f"{pointer}/body{one['pointer']}"} for one in error.errors or []]
        raise BodyInvalid(error.detail, errors=located) from None
    return Planned(
        id=draft.id if draft.id is not None else new_id,
        draft=draft,
        body=body,
        body_sha256=canonical.digest(body),
        metadata=metadata,
        parents=tuple(dict.fromkeys(draft.parents)),
        available=draft.not_before is None or draft.not_before <= now,
        slots=values,
    )


def _check_wishes(draft: Draft, now: Instant, pointer: str) -> None:
    if draft.id is not None:
        ids.check_client_id(draft.id, "a record's id")
        if draft.id.startswith("rec_"):
            raise IdInvalid("ids that begin with rec_ are the runtime's own")
    if len(draft.parents) > RECORD_PARENTS:
        raise RequestInvalid(f"a record has at most {RECORD_PARENTS} parents")
    if abs(draft.priority) > RECORD_PRIORITY:
        raise RequestInvalid(f"a priority lies between -{RECORD_PRIORITY} and {RECORD_PRIORITY}")
    if draft.not_before is not None and draft.not_before > after(now, NOT_BEFORE_SECONDS):
        message = f"not_before lies at most {NOT_BEFORE_SECONDS} seconds ahead"
        raise RequestInvalid(message, errors=[{"pointer": f"{pointer}/not_before", "message": message}])


def _batch_bytes(planned: Sequence[Planned]) -> int:
    """One record may use the whole of RECORD_BODY_BYTES and METADATA_BYTES; several share PUBLISH_BATCH_BYTES."""
    return RECORD_BODY_BYTES + METADATA_BYTES if len(planned) == 1 else PUBLISH_BATCH_BYTES


async def _require_parents(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, tx: Transaction, drafts: Sequence[Draft]
) -> None:
    parents = sorted({parent for draft in drafts for parent in draft.parents})
    if not parents:
        return
    if caller.narrowing("read", "") is not None:
        seen = await query.get_many(db, kinds, caller, now, parents)
        missing = sorted(set(parents) - {record.id for record in seen})
        if missing:
            raise ParentUnknown(f"no record {missing[0]!r}", parents=missing)
    tx.require(statements.PARENTS_EXIST, ParentUnknown(), parents=canonical.compact(parents))


def _chunks(planned: Sequence[Planned]) -> Iterable[tuple[list[Mapping[str, Any]], str | None]]:
    """Rows in statements of bounded size; a body too large to share one travels in a parameter of its own."""
    rows: list[Mapping[str, Any]] = []
    filled = 0
    for one in planned:
        if len(one.body) > _CHUNK_BYTES // 4:
            yield [one.row(None)], one.body
            continue
        rows.append(one.row(one.body))
        filled += len(one.body) + len(one.metadata)
        if filled > _CHUNK_BYTES:
            yield rows, None
            rows, filled = [], 0
    if rows:
        yield rows, None


async def _published_before(db: Database, key: Key | None) -> list[Record]:
    reference = await keys.recall(db, key)
    records = {record.id: record for record in await query.read(db, reference["records"])}
    if len(records) < len(reference["records"]):
        raise IdempotencyConflict("the records that this key published are gone")
    return [records[one] for one in reference["records"]]
