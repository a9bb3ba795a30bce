"""Declaring a kind: additive, or refused with the reason (clause catalog.kind).

A path that is added to a kind with records is looked up in all of them and filled in, in the transaction that declares
it, so that a pattern over it finds old records and new ones alike.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moorage.catalog import paths, schemas, statements
from moorage.catalog.access import Caller
from moorage.catalog.builtin import check_declaration
from moorage.catalog.kinds import Kind, KindChanged, Kinds
from moorage.catalog.model import ClaimDeclaration, KindDeclaration
from moorage.catalog.paths import DeclaredPath, Encoded, PathType
from moorage.history.append import Event, append
from moorage.kernel import canonical
from moorage.kernel.errors import BodyInvalid, KindConflict
from moorage.kernel.ids import check_kind
from moorage.kernel.instants import Instant
from moorage.kernel.limits import KIND_BACKFILL, KIND_BACKFILL_BYTES
from moorage.kernel.refusals import refused
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

_TRIES: Final = 5
_PAIRS_CHARACTERS: Final = 250_000
"""Characters of one statement's pairs: four bytes each at most, which a bound value may have."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """What a new path holds in the records up to position `last`: for each path's slot, pairs of id and value."""

    last: int
    pairs: Mapping[int, Sequence[tuple[str, Encoded]]]


async def declare(db: Database, caller: Caller, now: Instant, kinds: Kinds, name: str, declaration: KindDeclaration) -> Kind:
    """Declare a kind, or declare it again with more.

    New paths get the next free slots. The claim policy, the schema and the retention may change, and stay as they are
    when they are left out; null takes a schema or a retention away. A path may neither go nor change its type. Records
    that are stored already are not held against a new schema. A declaration that changes nothing leaves the revision and
    writes no history. Raises Forbidden, IdInvalid (the name), RequestInvalid (a path, a schema, a policy that names no
    declared path), and KindConflict with the reason.
    """
    check_kind(name)
    caller.demand("admin", name)
    check_declaration(name, declaration)
    if declaration.json_schema is not None:
        schemas.check(declaration.json_schema)
    for _ in range(_TRIES):
        try:
            return await _declare_once(db, caller, now, kinds, name, declaration)
        except KindChanged:
            continue
    raise KindConflict("the kind is being declared or published to at this moment; try again", retry_after=1)


async def _declare_once(
    db: Database, caller: Caller, now: Instant, kinds: Kinds, name: str, declaration: KindDeclaration
) -> Kind:
    before = await _stored(db, name)
    if before is not None:
        declaration = _with_what_stands(before, declaration)
    declared = _merge(before, declaration.paths)
    if before is not None and declared == before.paths and _same_policy(before, declaration):
        return before
    if declaration.claim.concurrency is not None and declaration.claim.concurrency.path not in declared:
        raise refused("/claim/concurrency/path", "must be a declared path")
    added = [path for text, path in declared.items() if before is None or text not in before.paths]
    backfill = await _look_up(db, name, added) if before is not None and added else Backfill(0, {})
    tx = Transaction(now)
    caller.guard(tx)
    if before is None:
        tx.require(statements.KIND_IS_ABSENT, KindChanged(), name=name)
    else:
        before.guard(tx)
        if added:
            tx.require(statements.KIND_ENDS_AT, KindChanged(), name=name, last=backfill.last)
    stored = tx.run(statements.DECLARE_KIND, created_by=caller.subject, **_columns(name, declared, declaration))
    for slot, pairs in backfill.pairs.items():
        for text in _chunks(pairs):
            tx.run(statements.BACKFILL[slot - 1], pairs=text)
    _keep_counts(tx, name, before, declared, declaration.claim)
    append(tx, caller.subject, Event(f"kind:{name}", "kind.declared", _summary(declared, declaration), kind=name))
    await db.commit(tx)
    kind = Kind.of(stored.one())
    kinds.put(now, kind)
    return kind


async def _stored(db: Database, name: str) -> Kind | None:
    reading = Reading()
    row = reading.ask(statements.KIND, name=name)
    await db.read(reading)
    found = row.first()
    return None if found is None else Kind.of(found)


def _merge(before: Kind | None, types: Mapping[str, PathType]) -> dict[str, DeclaredPath]:
    kept: Mapping[str, DeclaredPath] = {} if before is None else before.paths
    for text, path in kept.items():
        if text not in types:
            raise KindConflict(f"the path {paths.shown(text)} is declared and may not go")
        if types[text] != path.type:
            raise KindConflict(f"the path {paths.shown(text)} is declared {path.type} and may not become {types[text]}")
    return paths.declare(types, kept)


def _with_what_stands(before: Kind, declaration: KindDeclaration) -> KindDeclaration:
    """The declaration, with what it leaves out as it was declared before."""
    standing = {"claim": before.claim, "json_schema": before.schema, "retention_seconds": before.retention_seconds}
    left_out = {name: value for name, value in standing.items() if name not in declaration.model_fields_set}
    return declaration.model_copy(update=left_out)


def _same_policy(kind: Kind, declaration: KindDeclaration) -> bool:
    return (kind.claim, kind.schema, kind.retention_seconds) == (
        declaration.claim,
        declaration.json_schema,
        declaration.retention_seconds,
    )


def _keep_counts(
    tx: Transaction, name: str, before: Kind | None, declared: Mapping[str, DeclaredPath], claim: ClaimDeclaration
) -> None:
    """Count what a new policy counts, in the records that are there already."""
    lanes = None if claim.concurrency is None else claim.concurrency.path
    counted = None if before is None or before.concurrency is None else before.concurrency.path
    if before is not None and lanes is not None and lanes != counted:
        tx.run(statements.LANES[declared[lanes].slot - 1], name=name)
    if claim.depth_limit is not None:
        tx.run(statements.KEEP_DEPTH, name=name)
    elif before is not None and before.depth_limit is not None:
        tx.run(statements.FORGET_DEPTH, name=name)


async def _look_up(db: Database, name: str, added: Sequence[DeclaredPath]) -> Backfill:
    """What the added paths hold in the kind's records. Raises KindConflict when these are too many or do not fit."""
    sizing = Reading()
    extent = sizing.ask(statements.KIND_EXTENT, name=name, most=int(KIND_BACKFILL))
    await db.read(sizing)
    held = extent.one()
    if held["records"] > KIND_BACKFILL:
        raise KindConflict(f"the kind has more than {KIND_BACKFILL} records; no path can be added to it any more")
    if held["bytes"] > KIND_BACKFILL_BYTES:
        raise KindConflict(f"the kind's bodies pass {KIND_BACKFILL_BYTES} bytes; no path can be added to it any more")
    if not held["records"]:
        return Backfill(0, {})
    reading = Reading()
    bodies = reading.ask(statements.KIND_BODIES, name=name, limit=int(KIND_BACKFILL))
    await db.read(reading)
    pairs: dict[int, list[tuple[str, Encoded]]] = {path.slot: [] for path in added}
    for row in bodies.rows:
        for slot, value in _new_values(row, added):
            pairs[slot].append((row["id"], value))
    return Backfill(held["last"], pairs)


def _new_values(row: Row, added: Sequence[DeclaredPath]) -> Iterator[tuple[int, Encoded]]:
    try:
        values = paths.slots(canonical.loads(row["body"].encode()), {path.text: path for path in added})
    except BodyInvalid as error:
        raise KindConflict(f"record {row['id']} does not fit: {error.detail}", errors=error.errors) from None
    return ((slot, value) for slot, value in enumerate(values, 1) if value is not None)


def _chunks(pairs: Iterable[tuple[str, Encoded]]) -> Iterator[str]:
    """The pairs as JSON arrays, none longer than a bound value may be. No pair comes near that by itself."""
    texts: list[str] = []
    length = 0
    for pair in pairs:
        text = json.dumps(pair, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        if texts and length + len(text) > _PAIRS_CHARACTERS:
            yield f"[{','.join(texts)}]"
            texts, length = [], 0
        texts.append(text)
        length += len(text) + 1
    if texts:
        yield f"[{','.join(texts)}]"


def _columns(name: str, declared: Mapping[str, DeclaredPath], declaration: KindDeclaration) -> dict[str, str | int | None]:
    claim = declaration.claim
    return {
        "name": name,
        "paths": canonical.dumps([{"path": p.text, "type": p.type, "slot": p.slot} for p in declared.values()]),
        "lease_seconds": claim.lease_seconds,
        "max_attempts": claim.max_attempts,
        "retry": canonical.dumps(claim.retry.model_dump()),
        "retry_delays": canonical.dumps(claim.retry.delays(claim.max_attempts)),
        "concurrency": None if claim.concurrency is None else canonical.dumps(claim.concurrency.model_dump()),
        "depth_limit": claim.depth_limit,
        "ttl_seconds": claim.ttl_seconds,
        "rate": None if claim.rate is None else canonical.dumps(claim.rate.model_dump()),
        "schema": None if declaration.json_schema is None else canonical.dumps(declaration.json_schema),
        "retention_seconds": declaration.retention_seconds,
    }


def _summary(declared: Mapping[str, DeclaredPath], declaration: KindDeclaration) -> dict[str, object]:
    schema = declaration.json_schema
    return {
        "paths": {text: path.type for text, path in declared.items()},
        "claim": declaration.claim.model_dump(),
        "schema_sha256": None if schema is None else canonical.digest(canonical.dumps(schema)),
        "retention_seconds": declaration.retention_seconds,
    }
