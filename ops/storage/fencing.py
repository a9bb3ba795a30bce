"""What a restore does to a database before anybody may open it: whoever held something in the past is fenced from it.

What a holder did since the backup is not known, and the holder may still be alive. So every lease ends under a larger epoch,
and what was held can be taken again. Guards stay as they are: a request that was under way then may have arrived, and that a
database came back says nothing about it.
"""

from dataclasses import dataclass, replace
from typing import Final

from moorage.history.append import Event, append, append_selected
from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.store import recovery
from moorage.store.recovery import Identity
from moorage.store.transaction import Transaction
from ops.failure import CommandFailed
from ops.storage.contents import Snapshot

ACTOR: Final = "moorage:restore"
"""The actor of what a restore did; no subject can be called so."""

SUBJECT: Final = "moorage:storage"
"""The subject of the entry that tells of the restore itself."""

# Records that somebody held, for their history entries; before they are let go.
_HELD_RECORDS: Final = """
SELECT r.seq AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    json_object('attempt', r.attempts, 'epoch', r.epoch + 1, 'generation', CAST(:generation AS INTEGER),
        'owner', r.owner) AS data
FROM records AS r WHERE r.state = 'claimed'
"""

# They can be claimed again at once. The attempt that was under way stays counted, and none is taken from them for it: what
# ended it was no fault of theirs.
_LET_GO_OF_RECORDS: Final = """
UPDATE records SET state = 'ready', available = 1, epoch = epoch + 1, owner = NULL, claimed_by = NULL, claim = NULL,
    expires_at = NULL
WHERE state = 'claimed' RETURNING id
"""

# Executions that somebody held, for their history entries.
_HELD_EXECUTIONS: Final = """
SELECT row_number() OVER (ORDER BY e.execution_id) AS ordinal, e.execution_id AS subject, NULL AS kind,
    NULL AS content_sha256,
    json_object('epoch', e.epoch + 1, 'generation', CAST(:generation AS INTEGER), 'owner', e.owner,
        'run_id', e.run_id) AS data
FROM executions AS e WHERE e.owner IS NOT NULL
"""

# Nobody holds an execution. Those that somebody held, the Clock looks after at once: a Runner takes them over, or they are
# offered to hosts elsewhere, as another attempt.
_LET_GO_OF_EXECUTIONS: Final = """
UPDATE executions SET epoch = epoch + 1,
    attempt = CASE WHEN owner IS NULL THEN attempt ELSE attempt + 1 END,
    wake_at = CASE WHEN owner IS NULL THEN wake_at ELSE :now END,
    wakes = CASE WHEN owner IS NULL THEN wakes ELSE 0 END,
    claimable = CASE WHEN owner IS NULL THEN claimable ELSE 0 END,
    owner = NULL, expires_at = NULL
"""

# Leases of everything that has no row of its own; the keys that were held are counted.
_LET_GO_OF_LEASES: Final = """
UPDATE leases SET epoch = epoch + 1, owner = NULL, expires_at = NULL WHERE owner IS NOT NULL RETURNING key
"""
_FENCE_LEASES: Final = "UPDATE leases SET epoch = epoch + 1 WHERE owner IS NULL"

# What was being sent is due at once, with the same identity and bytes: whether it arrived is not known. Whoever sends it
# still can write down nothing.
_LET_GO_OF_DELIVERIES: Final = """
UPDATE deliveries SET epoch = epoch + 1, leased_until = NULL,
    next_attempt_at = CASE WHEN leased_until IS NULL THEN next_attempt_at ELSE :now END
WHERE state = 'pending'
"""
_REST_COURIERS: Final = "UPDATE couriers SET poke_at = NULL WHERE poke_at IS NOT NULL"

# Binds the identity in its next generation. The object that it names is written before anybody opens the database.
_BIND: Final = """
UPDATE recovery SET generation = :generation, object_sha256 = :object_sha256, updated_at = :now, confirmed_at = :now
WHERE identity = :identity
"""

_GUARDS: Final = "SELECT count(*) AS held FROM guards"


@dataclass(frozen=True)
class Fenced:
    """Who was fenced, and what the storage is bound to from now on. `guards` are still held."""

    identity: Identity
    records: int
    executions: int
    leases: int
    guards: int


async def fence(snapshot: Snapshot, now: Instant, backup: str) -> Fenced:
    """Fence everybody, in one transaction; `backup` is the digest of the manifest, for history.

    Raises CommandFailed for a database that is bound to no identity.
    """
    before = await recovery.read(snapshot)
    if before is None:
        raise CommandFailed("the database is bound to no recovery identity")
    identity = replace(before, generation=before.generation + 1, updated_at=now, confirmed_at=now).sealed()
    generation = identity.generation
    tx = Transaction(now)
    told = {"backup": backup, "generation": generation, "identity": identity.identity}
    append(tx, ACTOR, Event(SUBJECT, "storage.restored", told))
    append_selected(tx, ACTOR, "record.fenced", _HELD_RECORDS, many=True, generation=generation)
    records = tx.run(_LET_GO_OF_RECORDS)
    executions = append_selected(tx, ACTOR, "execution.fenced", _HELD_EXECUTIONS, many=True, generation=generation)
    tx.run(_LET_GO_OF_EXECUTIONS)
    tx.run(_FENCE_LEASES)
    leases = tx.run(_LET_GO_OF_LEASES)
    tx.run(_LET_GO_OF_DELIVERIES)
    tx.run(_REST_COURIERS)
    guards = tx.run(_GUARDS)
    tx.run(_BIND, identity=identity.identity, generation=generation, object_sha256=canonical.digest(identity.text()))
    await snapshot.commit(tx)
    return Fenced(identity, len(records.rows), len(executions.rows), len(leases.rows), guards.one()["held"])
