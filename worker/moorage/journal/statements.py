"""The SQL of the journal.

One upsert carries every plain operation of a host: each row of `:writes` is what an entry becomes, and the entry's own
state decides whether it may. An entry that has ended never changes again (clause runs.step-output).
"""

from moorage.kernel.limits import JOURNAL_REPLAY_BYTES

# What is read of an entry beside its value.
ENTRY_COLUMNS = (
    "j.label, j.input_sha256, j.kind, j.position, j.state, j.attempt, j.epoch, j.started_at, j.ended_at, j.ref,"
    " j.next_attempt_at, j.size, j.blob, j.failure"
)

# Writes entries, each an array of label, input's hash, position, kind, state, attempt, ref, next attempt, size, blob,
# failure and value; a large value comes apart. Without a kind the entry has to be there already: its kind is not NULL.
#   pending   claims an entry, or takes over what an earlier owner had claimed, or what has waited long enough
#   waiting   a wait of time that begins; or, with a failure, an attempt that failed and is made again
#   failed    the last attempt failed
#   done      records: the first value stands, and a wait of time is not over before its instant
#   canceled  gives up what has not ended
# What stands against it changes nothing and gives no row.
WRITE = """
INSERT INTO journal (execution_id, label, input_sha256, position, kind, state, attempt, epoch, ref, next_attempt_at,
    started_at, ended_at, size, blob, failure, value)
SELECT :execution, one.value ->> 0, one.value ->> 1, one.value ->> 2,
    coalesce(one.value ->> 3, (SELECT j.kind FROM journal AS j
        WHERE j.execution_id = :execution AND j.label = one.value ->> 0 AND j.input_sha256 = one.value ->> 1)),
    one.value ->> 4, one.value ->> 5, :epoch, one.value ->> 6, one.value ->> 7, :now,
    CASE WHEN one.value ->> 4 IN ('pending', 'waiting') THEN NULL ELSE CAST(:now AS INTEGER) END,
    one.value ->> 8, one.value ->> 9, one.value ->> 10, coalesce(one.value ->> 11, :value)
FROM json_each(:writes) AS one WHERE true
ON CONFLICT (execution_id, label, input_sha256) DO UPDATE SET
    state = excluded.state,
    attempt = CASE WHEN excluded.state = 'pending' THEN journal.attempt + 1 ELSE journal.attempt END,
    epoch = excluded.epoch, next_attempt_at = excluded.next_attempt_at, ended_at = excluded.ended_at,
    size = excluded.size, blob = excluded.blob, failure = excluded.failure, value = excluded.value,
    ref = coalesce(journal.ref, excluded.ref)
WHERE CASE excluded.state
    WHEN 'pending' THEN (journal.state = 'pending' AND journal.epoch < excluded.epoch)
        OR (journal.state = 'waiting' AND journal.next_attempt_at <= :now)
    WHEN 'done' THEN journal.state = 'pending' OR (journal.state = 'waiting' AND journal.next_attempt_at <= :now)
    WHEN 'canceled' THEN journal.state IN ('pending', 'waiting')
    ELSE excluded.failure IS NOT NULL AND journal.state = 'pending' AND journal.attempt = excluded.attempt
END
RETURNING label, input_sha256, kind, position, attempt, started_at, ref
"""

# The entries of these keys, with values as far as one answer holds them.
OF_KEYS = f"""
SELECT {ENTRY_COLUMNS},
    CASE WHEN sum(iif(j.blob IS NULL, j.size, 0)) OVER (ORDER BY one.key ROWS UNBOUNDED PRECEDING)
        <= {JOURNAL_REPLAY_BYTES:d} THEN j.value END AS value
FROM json_each(:keys) AS one CROSS JOIN journal AS j
    ON j.execution_id = :execution AND j.label = one.value ->> 0 AND j.input_sha256 = one.value ->> 1
"""

# Every entry in the order in which they began, the values of the first of them as far as one answer holds them.
ALL = f"""
WITH met AS MATERIALIZED (
    SELECT label, input_sha256, started_at, position,
        sum(iif(blob IS NULL, size, 0)) OVER (ORDER BY started_at, position, label, input_sha256
            ROWS UNBOUNDED PRECEDING) AS bytes
    FROM journal WHERE execution_id = :execution
)
SELECT {ENTRY_COLUMNS}, CASE WHEN met.bytes <= {JOURNAL_REPLAY_BYTES:d} THEN j.value END AS value
FROM met CROSS JOIN journal AS j
    ON j.execution_id = :execution AND j.label = met.label AND j.input_sha256 = met.input_sha256
ORDER BY met.started_at, met.position, met.label, met.input_sha256
"""
