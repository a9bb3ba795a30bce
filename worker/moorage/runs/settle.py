"""Waits that are over, written into the journal: awakeables and children that have ended, events that came (clauses
awake.journal, runs.wake, waits.match).

What ended is the truth of its own row, and never changes again. An entry that waits for it takes it over under the lease of
whoever holds the execution: when it is taken, when the host asks, and when the wait itself is asked for. So an end that came
before the wait was stored is found as well (clause awake.early), and one whose wake was lost (clause awake.reconcile).
"""

from collections.abc import Sequence

from moorage.awakeables.statements import HAS_ENDED, OUTCOME_AT, OUTCOME_BLOB, OUTCOME_SIZE, OUTCOME_VALUE
from moorage.blobs import references
from moorage.journal import load
from moorage.journal.model import Entry, EntryKey, Fence, Value
from moorage.journal.write import Write, write
from moorage.kernel import canonical
from moorage.kernel.errors import LeaseFenced
from moorage.kernel.instants import Instant
from moorage.kernel.limits import JOURNAL_REPLAY_BYTES
from moorage.messages.inbox.wait_statements import IS_OVER, OUTCOME, OVER_AT
from moorage.runs import statements, values
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Answer, Row, Transaction

_PENDING = """
journal.execution_id = :execution AND journal.kind IN ('wait', 'child') AND journal.state = 'pending'
""".strip()
_EPOCH = "(SELECT e.epoch FROM executions AS e WHERE e.execution_id = :execution)"
_TAKEN = """
AND EXISTS (SELECT 1 FROM executions AS e WHERE e.execution_id = :execution AND e.owner = :owner
    AND e.expires_at = :expires_at)
""".strip()
_THESE = """
AND EXISTS (SELECT 1 FROM json_each(:keys) AS one
    WHERE journal.label = one.value ->> 0 AND journal.input_sha256 = one.value ->> 1)
""".strip()
_TOLD = """
RETURNING label, input_sha256, kind, position, state, attempt, epoch, started_at, ended_at, ref, next_attempt_at, size, blob,
    failure, value
""".strip()

# Takes over how awakeables ended that the holder of an execution awaits.
SETTLE_WAITS = f"""
UPDATE journal INDEXED BY journal_awaited SET state = 'done', epoch = {_EPOCH},
    ended_at = max(journal.started_at, {OUTCOME_AT}),
    size = {OUTCOME_SIZE}, value = {OUTCOME_VALUE}, blob = {OUTCOME_BLOB}
FROM awakeables AS a WHERE {_PENDING} AND a.id = journal.ref AND {HAS_ENDED}
"""  # noqa: S608

# How a child `r` ended, as canonical JSON. A result of more than a mebibyte is put together apart.
_CHILD = """
'{' || coalesce('"error":' || r.error || ',', '') || coalesce('"result":' || r.result || ',', '')
    || '"run_id":"' || r.run_id || '","status":"' || r.status || '"}'
""".strip()

# Takes over how children ended that the holder of an execution waits for.
SETTLE_CHILDREN = f"""
UPDATE journal INDEXED BY journal_awaited SET state = 'done', epoch = {_EPOCH},
    ended_at = max(journal.started_at, r.ended_at),
    size = length(CAST({_CHILD} AS BLOB)), value = {_CHILD}, blob = NULL
FROM runs AS r WHERE {_PENDING} AND r.run_id = journal.ref AND r.ended_at IS NOT NULL
    AND r.result_blob IS NULL
"""  # noqa: S608

# Takes over how waits for events ended that the holder of an execution awaits. An event is never so large that it would not
# fit into a row.
SETTLE_EVENTS = f"""
UPDATE journal INDEXED BY journal_events SET state = 'done', epoch = {_EPOCH}, next_attempt_at = NULL,
    ended_at = max(journal.started_at, {OVER_AT}),
    size = length(CAST({OUTCOME} AS BLOB)), value = {OUTCOME}, blob = NULL
FROM event_waits AS w LEFT JOIN events AS e ON e.seq = w.event
WHERE journal.execution_id = :execution AND journal.kind = 'event' AND journal.state = 'pending'
    AND w.execution_id = journal.execution_id AND w.label = journal.label AND w.input_sha256 = journal.input_sha256
    AND {IS_OVER} AND (w.event IS NULL OR e.seq IS NOT NULL)
"""  # noqa: S608

# The children that ended with a result in the bucket, as far as nobody took them over.
LARGE_CHILDREN = """
SELECT j.label, j.input_sha256, r.run_id, r.status, r.result_blob, r.result_size
FROM journal AS j INDEXED BY journal_awaited CROSS JOIN runs AS r ON r.run_id = j.ref
WHERE j.execution_id = :execution AND j.kind IN ('wait', 'child') AND j.state = 'pending' AND r.result_blob IS NOT NULL
"""

# The same for an execution only if this transaction has taken it: whoever holds it has to be told.
SETTLE_TAKEN_WAITS = f"{SETTLE_WAITS} {_TAKEN}"
SETTLE_TAKEN_CHILDREN = f"{SETTLE_CHILDREN} {_TAKEN}"
SETTLE_TAKEN_EVENTS = f"{SETTLE_EVENTS} {_TAKEN}"

# The same for some entries.
SETTLE_THESE_WAITS = f"{SETTLE_WAITS} {_THESE} {_TOLD}"
SETTLE_THESE_CHILDREN = f"{SETTLE_CHILDREN} {_THESE} {_TOLD}"
SETTLE_THESE_EVENTS = f"{SETTLE_EVENTS} {_THESE} {_TOLD}"

# What was taken over under this epoch, oldest first.
SETTLED = """
SELECT j.label, j.input_sha256, j.kind, j.position, j.state, j.attempt, j.epoch, j.started_at, j.ended_at, j.ref,
    j.next_attempt_at, j.size, j.blob, j.failure,
    CASE WHEN sum(iif(j.blob IS NULL, j.size, 0)) OVER (ORDER BY j.ended_at DESC, j.label, j.input_sha256
        ROWS UNBOUNDED PRECEDING) <= :bytes THEN j.value END AS value
FROM (
    SELECT label, input_sha256 FROM journal INDEXED BY journal_awaited
    WHERE execution_id = :execution AND kind IN ('wait', 'child') AND state = 'done' AND epoch = :epoch
    UNION ALL
    SELECT label, input_sha256 FROM journal INDEXED BY journal_events
    WHERE execution_id = :execution AND kind = 'event' AND state = 'done' AND epoch = :epoch
) AS one CROSS JOIN journal AS j
    ON j.execution_id = :execution AND j.label = one.label AND j.input_sha256 = one.input_sha256
ORDER BY j.ended_at, j.label, j.input_sha256
"""


def these(
    tx: Transaction,
    fence: Fence,
    waits: Sequence[EntryKey],
    children: Sequence[EntryKey],
    events: Sequence[EntryKey] = (),
) -> list[Answer]:
    """Take over the ends of these entries, and no others, in a fenced transaction; the answers hold their rows."""
    asked = ((SETTLE_THESE_WAITS, waits), (SETTLE_THESE_CHILDREN, children), (SETTLE_THESE_EVENTS, events))
    return [tx.run(sql, execution=fence.execution_id, keys=load.keys_text(keys)) for sql, keys in asked if keys]


def held(tx: Transaction, fence: Fence) -> tuple[Answer, Answer]:
    """Take over every end, in a fenced transaction.

    The answers hold what was taken over under this epoch so far, and the children whose results are put together apart.
    """
    tx.run(SETTLE_WAITS, execution=fence.execution_id)
    tx.run(SETTLE_CHILDREN, execution=fence.execution_id)
    tx.run(SETTLE_EVENTS, execution=fence.execution_id)
    settled = tx.run(SETTLED, execution=fence.execution_id, epoch=fence.epoch, bytes=int(JOURNAL_REPLAY_BYTES))
    return settled, tx.run(LARGE_CHILDREN, execution=fence.execution_id)


def taken(tx: Transaction, execution_id: str, owner: str, expires_at: Instant) -> Answer:
    """Take over every end if this transaction has taken the execution; answers the children as `held` does."""
    tx.run(SETTLE_TAKEN_WAITS, execution=execution_id, owner=owner, expires_at=expires_at)
    tx.run(SETTLE_TAKEN_CHILDREN, execution=execution_id, owner=owner, expires_at=expires_at)
    tx.run(SETTLE_TAKEN_EVENTS, execution=execution_id, owner=owner, expires_at=expires_at)
    return tx.run(LARGE_CHILDREN, execution=execution_id)


async def large(db: Database, blobs: Blobs, now: Instant, fence: Fence, children: Sequence[Row]) -> list[Entry]:
    """Take over children whose results lie in the bucket; their entries, with their values.

    Raises BlobMissing, BlobCorrupt, LeaseFenced, BlobBusy.
    """
    ended = []
    for row in children:
        result = await values.load(blobs, Value(None, row["result_size"], row["result_blob"]))
        text = f'{{"result":{result.text},"run_id":"{row["run_id"]}","status":"{row["status"]}"}}'
        ended.append(Write(EntryKey(row["label"], row["input_sha256"]), "done", value=_placed(text)))
    kept = [one.value for one in ended if one.value is not None]
    await values.store(db, blobs, now, fence.execution_id, kept)
    tx = Transaction(now)
    tx.require(statements.HELD, LeaseFenced(), execution=fence.execution_id, epoch=fence.epoch)
    digests = sorted({value.blob for value in kept if value.blob is not None})
    references.confirm_all(tx, digests, values.upload_of(fence.execution_id), fence.execution_id)
    written = write(tx, fence, ended)
    await db.commit(tx)
    rows = ((place, written.row(place)) for place in range(len(ended)))
    return [written.entry(place, row, fence, now) for place, row in rows if row is not None]


def _placed(text: str) -> Value:
    """A child's outcome, which is a little larger than the result in it."""
    return Value(text, canonical.size(text), canonical.digest(text))
