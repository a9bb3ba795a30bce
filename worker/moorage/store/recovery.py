"""The recovery identity: one row of the database and one object of the bucket that name each other (clause
store.recovery-identity).

A database that came back without its bucket, a bucket without its database, one of them from another day, or the storage of
another project: in each case what was sent or paid for cannot be known, so nothing with an effect is admitted. Reading, and
whatever the database alone decides, goes on. Only `initialize` makes an identity, and only where nothing was bound before; a
start never does.

The row comes first and counts once the object is there and it says so, which makes every step repeatable: an initialization
whose answer was lost is simply asked for again.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from moorage.kernel import canonical, ids
from moorage.kernel.errors import ExecutionRecoveryMismatch, StorageCapabilityMissing, StorageProfileUnsupported
from moorage.kernel.instants import Instant, render
from moorage.store.blobkeys import recovery_key
from moorage.store.ports import Database, Frontiers
from moorage.store.schema import SCHEMA
from moorage.store.transaction import Reading, Transaction

PROFILE: Final = "cloudflare-d1-r2"
"""The one storage profile that there is."""

FORMAT: Final = "moorage-recovery-1"
"""Names what the object holds."""

COMMAND: Final = "moorage storage initialize"

# The row, if there is one.
_ROW = """
SELECT identity, project, schema, generation, object_key, object_sha256, created_at, updated_at, confirmed_at
FROM recovery WHERE id = 1
"""

# Writes the row, not yet confirmed, where there is none.
_BEGIN = """
INSERT INTO recovery (id, identity, project, schema, generation, object_key, object_sha256, created_at, updated_at)
VALUES (1, :identity, :project, :schema, :generation, :object_key, :object_sha256, :now, :now) ON CONFLICT (id) DO NOTHING
"""

# Takes away the row that was seen, so that another can be written.
_GIVE_UP = "DELETE FROM recovery WHERE identity = :identity AND generation = :generation"

# Binds the identity to another schema, in a new generation whose object is still to be written.
_REBIND = """
UPDATE recovery SET schema = :schema, generation = :generation, object_sha256 = :object_sha256, updated_at = :now,
    confirmed_at = NULL
WHERE identity = :identity AND generation = CAST(:generation AS INTEGER) - 1
"""

# From now on the row counts: its object is there.
_CONFIRM = """
UPDATE recovery SET confirmed_at = :now
WHERE identity = :identity AND generation = :generation AND object_sha256 = :object_sha256 AND confirmed_at IS NULL
"""

State = Literal[
    "bound", "unbound", "unfinished", "other_project", "other_schema", "object_missing", "object_differs", "row_missing"
]
"""What `look` may find; everything but `bound` keeps effectful work out."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the row says. `confirmed_at` is None until the object was written."""

    identity: str
    project: str
    schema: int
    generation: int
    object_key: str
    object_sha256: str
    created_at: Instant
    updated_at: Instant
    confirmed_at: Instant | None

    @classmethod
    def fresh(cls, project: str, now: Instant) -> "Identity":
        """A new identity for a project, in its first generation."""
        identity = ids.new("rcv", now)
        return cls(identity, project, SCHEMA, 1, recovery_key(identity), "", now, now, None).sealed()

    def next(self) -> "Identity":
        """The same for this executable's schema, in the next generation; not yet confirmed."""
        return replace(self, schema=SCHEMA, generation=self.generation + 1, confirmed_at=None).sealed()

    def sealed(self) -> "Identity":
        """The same with the digest of its object."""
        return replace(self, object_sha256=canonical.digest(self.text()))

    def text(self) -> str:
        """The object: what the row says, as canonical JSON."""
        return canonical.dumps(
            {
                "format": FORMAT,
                "identity": self.identity,
                "project": self.project,
                "schema": self.schema,
                "generation": self.generation,
                "created_at": render(self.created_at),
            }
        )


@dataclass(frozen=True, slots=True)
class Found:
    """How database and bucket stand to each other: in what `state`, why in words, and what was found of an identity.

    `given_up` is the identity that `initialize` must be told to give up before it makes another.
    """

    state: State
    detail: str
    identity: Identity | None = None
    given_up: str | None = None

    @property
    def is_bound(self) -> bool:
        return self.state == "bound"


async def look(db: Database, frontiers: Frontiers, project: str) -> Found:
    """Compare the row, the object, the project and this executable's schema. One round trip to each; changes nothing."""
    row = await read(db)
    if row is None:
        return _without_row(await frontiers.identities())
    found = _of_row(row, project)
    if found is not None:
        return found
    content = await frontiers.read(row.identity)
    if content is None:
        return Found(
            "object_missing",
            f"the database is bound to {row.object_key}, and the bucket has no such object: this is not the bucket that "
            "belongs to the database",
            row,
            row.identity,
        )
    if hashlib.sha256(content).hexdigest() != row.object_sha256:
        return Found("object_differs", _difference(row, content), row, row.identity)
    if row.schema != SCHEMA:
        detail = f"the identity is bound to schema {row.schema}, this executable has {SCHEMA}: run `{COMMAND}`"
        return Found("other_schema", detail, row)
    return Found("bound", f"{row.identity}, generation {row.generation}", row)


async def initialize(
    db: Database, frontiers: Frontiers, now: Instant, project: str, give_up: str | None = None
) -> tuple[Found, bool]:
    """Bind database, bucket and project to one another if they are bound to nothing; answers how they stand, and whether
    something was bound now.

    It goes on where an interrupted one ended, changes nothing where all is bound, and binds an identity whose object is
    right to this executable's schema. Anything else is what a restore left behind: it raises ExecutionRecoveryMismatch
    unless `give_up` names the identity that is to count no longer.
    """
    found = await look(db, frontiers, project)
    if found.is_bound:
        return found, False
    # An unfinished identity of an earlier schema takes two turns.
    for _ in range(2):
        await _advance(db, now, project, found, give_up)
        await _finish(db, frontiers, now)
        found = await look(db, frontiers, project)
        if found.is_bound:
            return found, True
    raise ExecutionRecoveryMismatch(found.detail)


class Gate:
    """Remembers, for the life of the isolate, that effectful work may be admitted.

    Bindings do not change within an isolate's life, and whatever is restored or bound anew begins with other isolates.
    """

    def __init__(self) -> None:
        self._passed = False

    async def require(
        self,
        database: Callable[[], Database],
        frontiers: Frontiers | None,
        project: str,
        profile: str = PROFILE,
        missing: tuple[str, ...] = (),
    ) -> None:
        """Raise unless profile, bindings and recovery identity are right; the storage is asked until they are once.

        Raises StorageProfileUnsupported, StorageCapabilityMissing naming the `missing` bindings (clause store.incomplete),
        ExecutionRecoveryMismatch.
        """
        if self._passed:
            return
        if profile != PROFILE:
            raise StorageProfileUnsupported(f"the storage profile is {profile[:100]!r}; this executable knows {PROFILE!r}")
        if missing:
            raise StorageCapabilityMissing(f"the deployment has no binding {', '.join(missing)}")
        if frontiers is None:
            raise StorageCapabilityMissing("the deployment has no binding BLOBS")
        found = await look(database(), frontiers, project)
        if not found.is_bound:
            raise ExecutionRecoveryMismatch(found.detail)
        self._passed = True


def _without_row(identities: Sequence[str]) -> Found:
    if not identities:
        return Found("unbound", f"no recovery identity was made yet: run `{COMMAND}`")
    newest = identities[-1]
    return Found(
        "row_missing",
        f"the bucket belongs to the identity {newest}, and the database has none: "
        "the objects came back without their database",
        given_up=newest,
    )


def _of_row(row: Identity, project: str) -> Found | None:
    if row.project != project:
        detail = f"the storage belongs to the project {row.project!r}, this deployment is {project!r}"
        return Found("other_project", detail, row, row.identity)
    if row.confirmed_at is None:
        return Found("unfinished", f"an initialization did not end: run `{COMMAND}` again", row)
    return None


def _difference(row: Identity, content: bytes) -> str:
    try:
        told = json.loads(content)
        generation = told["generation"]
        if isinstance(generation, int) and generation != row.generation:
            older = "bucket" if generation < row.generation else "database"
            return (
                f"{row.object_key} is of generation {generation}, the database of {row.generation}: the {older} is of an "
                "earlier day"
            )
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return f"{row.object_key} is not the object that the database is bound to"


def _refusal(found: Found) -> str:
    return (
        f"{found.detail}. Restore what is missing. If the storage is to begin anew as it is, `{COMMAND} --give-up "
        f"{found.given_up}` binds it, and whatever was under way under that identity is not known here"
    )


async def _advance(db: Database, now: Instant, project: str, found: Found, give_up: str | None) -> None:
    """Write the row that `found` lacks. Raises ExecutionRecoveryMismatch where that is not to be done unasked."""
    if found.state == "unbound":
        await _begin(db, now, Identity.fresh(project, now))
    elif found.state == "other_schema" and found.identity is not None:
        await _rebind(db, now, found.identity.next())
    elif found.state != "unfinished":
        if give_up is None or give_up != found.given_up:
            raise ExecutionRecoveryMismatch(_refusal(found))
        await _begin(db, now, Identity.fresh(project, now), found.identity)


async def read(db: Database) -> Identity | None:
    """What the database says it is bound to, or None."""
    reading = Reading()
    found = reading.ask(_ROW)
    await db.read(reading)
    row = found.first()
    return None if row is None else Identity(**row)


async def _begin(db: Database, now: Instant, identity: Identity, instead_of: Identity | None = None) -> None:
    tx = Transaction(now)
    if instead_of is not None:
        tx.run(_GIVE_UP, identity=instead_of.identity, generation=instead_of.generation)
    tx.run(
        _BEGIN,
        identity=identity.identity,
        project=identity.project,
        schema=identity.schema,
        generation=identity.generation,
        object_key=identity.object_key,
        object_sha256=identity.object_sha256,
    )
    await db.commit(tx)


async def _rebind(db: Database, now: Instant, identity: Identity) -> None:
    tx = Transaction(now)
    tx.run(
        _REBIND,
        identity=identity.identity,
        schema=identity.schema,
        generation=identity.generation,
        object_sha256=identity.object_sha256,
    )
    await db.commit(tx)


async def _finish(db: Database, frontiers: Frontiers, now: Instant) -> None:
    """Write the object of whatever row is not confirmed, then confirm it."""
    row = await read(db)
    if row is None or row.confirmed_at is not None:
        return
    await frontiers.keep(row.identity, row.text().encode())
    tx = Transaction(now)
    tx.run(_CONFIRM, identity=row.identity, generation=row.generation, object_sha256=row.object_sha256)
    await db.commit(tx)
