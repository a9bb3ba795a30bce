"""Expired Idempotency-Keys, forgotten in bulk.

A key past its expiry counts as unused already, so nothing waits for this: it keeps the table small. Hence the sweep
falls due at the next full ten minutes, and a busy deployment is not woken for every single key.
"""

from typing import Final

from moorage.kernel.instants import Instant
from moorage.store.ports import Database
from moorage.store.transaction import Transaction

SWEEP_KEYS: Final = 500
"""Keys that one transaction forgets."""

# The full ten minutes at or after the earliest expiry, unless the sweep is set aside.
_EARLIEST = """
SELECT (expires_at + 599999) / 600000 * 600000 AS due FROM idempotency
WHERE NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'idempotency_expired' AND item = 'sweep')
ORDER BY expires_at LIMIT 1
"""

# The sweep as one item, once that instant has come.
_PAGE = f"SELECT 'sweep' AS item, due FROM ({_EARLIEST}) WHERE due <= :now"  # noqa: S608  both parts are constants

# Forgets some expired keys and no live one, the longest expired first.
_FORGET = """
DELETE FROM idempotency WHERE (subject, key) IN (
    SELECT subject, key FROM idempotency WHERE expires_at <= :now ORDER BY expires_at LIMIT CAST(:limit AS INTEGER)
)
"""


class ExpiredKeys:
    """The Clock's class of work that forgets expired keys; what it counts are keys."""

    name = "idempotency_expired"
    shard: Final = "upkeep"
    earliest = _EARLIEST
    page = _PAGE

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Forget at most SWEEP_KEYS expired keys; what is left is listed again at once."""
        tx = Transaction(now)
        forgotten = tx.run(_FORGET, limit=SWEEP_KEYS)
        await db.commit(tx)
        return forgotten.changes
