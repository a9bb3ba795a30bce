"""The SQL of awakeables. A pending one ends once, and is never pending again."""

from typing import Final

from moorage.history.append import CLOCK
from moorage.kernel.limits import AWAKE_RETENTION_SECONDS

JOURNAL: Final = "moorage:journal"
"""The actor of an end that the registry took from the journal."""

RUNS: Final = "moorage:runs"
"""The actor of an end that came because the run that minted it was over."""

# What is read of an awakeable: past its deadline a pending one reads as timed out, though nobody wrote it down yet.
_SEEN = f"""
SELECT id, CASE WHEN state = 'pending' AND deadline <= :now THEN 'timed_out' ELSE state END AS state,
    subject, label, metadata, created_at, created_by, deadline, failure, execution_id, payload_blob,
    CASE WHEN state = 'pending' AND deadline <= :now THEN deadline ELSE ended_at END AS ended_at,
    CASE WHEN state = 'pending' AND deadline <= :now THEN '{CLOCK}' ELSE ended_by END AS ended_by
"""

# How an awakeable `a` has ended, as the value that the journal records for whoever awaits it (clause awake.journal). Past
# its deadline a pending one has timed out, though nobody wrote it down yet. A payload that is an object of the bucket was
# stored as this very value, so that both rows name one object.
HAS_ENDED = "(a.state <> 'pending' OR a.deadline <= :now)"
OUTCOME_VALUE = """
CASE a.state
    WHEN 'resolved' THEN '{"resolved":' || a.payload || '}'
    WHEN 'rejected' THEN '{"rejected":' || a.failure || '}'
    ELSE '{"timed_out":"' || strftime('%Y-%m-%dT%H:%M:%S', a.deadline / 1000, 'unixepoch')
        || printf('.%03dZ"}', a.deadline % 1000)
END
""".strip()
OUTCOME_BLOB = "a.payload_blob"
OUTCOME_SIZE = f"coalesce(a.payload_size, length(CAST({OUTCOME_VALUE} AS BLOB)))"
OUTCOME_AT = "coalesce(a.ended_at, a.deadline)"

# Mints one, pending whatever its deadline.
MINT = """
INSERT INTO awakeables (id, token_sha256, state, subject, label, metadata, created_at, created_by, deadline)
VALUES (:id, :token_sha256, 'pending', :subject, :label, :metadata, :created_at, :caller, :deadline)
"""

# Mints the awakeable of a run's entry, if the entry that the transaction has just written is the one that names it.
MINT_FOR_ENTRY = """
INSERT INTO awakeables (id, token_sha256, state, subject, label, metadata, created_at, created_by, deadline, execution_id)
SELECT :id, :token_sha256, 'pending', :subject, :entry, :metadata, :created_at, :caller, :deadline, :execution_id
FROM journal WHERE execution_id = :execution_id AND label = :entry AND input_sha256 = :input_sha256 AND ref = :id
"""

# The awakeable that a run's entry names, with what proves that a token is its own.
OF_ENTRY = """
SELECT a.id, a.token_sha256, a.deadline FROM journal AS j JOIN awakeables AS a ON a.id = j.ref
WHERE j.execution_id = :execution_id AND j.label = :entry AND j.input_sha256 = :input_sha256
"""

# The awakeables of an execution, with what proves that a token is its own.
OF_EXECUTION = "SELECT id, token_sha256, deadline FROM awakeables WHERE execution_id = :execution_id"

# The history entry of the awakeable of an id that the statement just before changed.
CHANGED_BY_ID = """
SELECT 0 AS ordinal, id AS subject, NULL AS kind, :data AS data, NULL AS content_sha256
FROM awakeables WHERE id = :id AND changes() = 1
"""

# Reads one that its minter mints again under the same idempotency key, with what proves that the token is the same.
MINTED = f"{_SEEN}, payload, token_sha256 FROM awakeables WHERE id = :id"

# What the journal holds for the wait for the awakeable, as the registry would hold it (clause awake.reconcile): the end that
# a run has read is the end, whatever else the registry's row was about to become.
_STATE = """
CASE WHEN j.blob IS NOT NULL OR substr(j.value, 1, 12) = '{"resolved":' THEN 'resolved'
    WHEN substr(j.value, 1, 12) = '{"rejected":' THEN 'rejected' ELSE 'timed_out' END
""".strip()
_INNER = "substr(j.value, 13, length(j.value) - 13)"
_RECORDED = f"""
SELECT 0 AS rank, {_STATE} AS state,
    CASE WHEN substr(j.value, 1, 12) = '{{"resolved":' THEN {_INNER} END AS payload, NULL AS payload_sha256,
    j.blob AS payload_blob, CASE WHEN j.blob IS NOT NULL THEN j.size END AS payload_size,
    CASE WHEN substr(j.value, 1, 12) = '{{"rejected":' THEN {_INNER} END AS failure,
    CASE {_STATE} WHEN 'timed_out' THEN awakeables.deadline ELSE j.ended_at END AS ended_at,
    CASE {_STATE} WHEN 'timed_out' THEN '{CLOCK}' ELSE '{JOURNAL}' END AS ended_by
FROM journal AS j
WHERE j.kind = 'wait' AND j.ref = awakeables.id AND j.state = 'done' AND j.execution_id = awakeables.execution_id
"""

# At its deadline an awakeable has passed it.
_PASSED = f"""
SELECT 1, 'timed_out', NULL, NULL, NULL, NULL, NULL, awakeables.deadline, '{CLOCK}' WHERE awakeables.deadline <= :now
"""

# What somebody asks for.
_ASKED = "SELECT 2, :state, :payload, :payload_sha256, :payload_blob, :payload_size, :failure, :now, :caller"

_BECOME = """
UPDATE awakeables SET
    (state, payload, payload_sha256, payload_blob, payload_size, failure, ended_at, ended_by) = (
        SELECT state, payload, payload_sha256, payload_blob, payload_size, failure, ended_at, ended_by
        FROM ({outcomes}) ORDER BY rank LIMIT 1
    )
"""

# Ends a pending one, for whoever may see it: as the journal has recorded it, else as timed out, else with the payload or the
# failure that is asked for. One of many callers wins.
END = f"""
{_BECOME.replace("{outcomes}", f"{_RECORDED} UNION ALL {_PASSED} UNION ALL {_ASKED}")}
WHERE token_sha256 = :token_sha256 AND state = 'pending' AND (subject IS NULL OR subject = :caller)
"""

# The same by its id when the deadline has passed: nothing happens to one that has ended or whose deadline lies ahead.
TIME_OUT_DUE = f"""
{_BECOME.replace("{outcomes}", f"{_RECORDED} UNION ALL {_PASSED}")}
WHERE id = :id AND state = 'pending' AND deadline <= :now
"""

# The history entry of the awakeable that the statement just before ended, and none when it ended nothing.
_CHANGED = """
SELECT 0 AS ordinal, id AS subject, NULL AS kind, payload_sha256 AS content_sha256, 'awakeable.' || state AS type,
    ended_by AS actor, CASE state WHEN 'rejected' THEN json_object('tag', failure ->> 'tag') ELSE '{}' END AS data
FROM awakeables WHERE {which} AND changes() = 1
"""
CHANGED = _CHANGED.replace("{which}", "token_sha256 = :token_sha256")
CHANGED_DUE = _CHANGED.replace("{which}", "id = :id")

# Who waits for the awakeable whose end the statement just before told history, and nobody when it told nothing.
_WAITING = "SELECT execution_id FROM awakeables WHERE {which} AND execution_id IS NOT NULL AND changes() = 1"
WAITING = _WAITING.replace("{which}", "token_sha256 = :token_sha256")
WAITING_DUE = _WAITING.replace("{which}", "id = :id")

# --- an execution's awakeables ---

# The history entries of those that are about to end with their executions.
_ENDING = f"""
SELECT row_number() OVER (ORDER BY awakeables.id) AS ordinal, awakeables.id AS subject, NULL AS kind,
    NULL AS content_sha256, 'awakeable.' || {{state}} AS type,
    CASE WHEN {{state}} = 'timed_out' THEN '{CLOCK}' WHEN j.state IS NULL THEN '{RUNS}' ELSE '{JOURNAL}' END AS actor,
    CASE WHEN {{state}} = 'rejected' THEN json_object('tag', coalesce(j.value ->> '$.rejected.tag', :tag))
        ELSE '{{{{}}}}' END AS data
FROM awakeables {{join}} JOIN journal AS j
    ON j.kind = 'wait' AND j.ref = awakeables.id AND j.state = 'done' AND j.execution_id = awakeables.execution_id
WHERE awakeables.execution_id IN ({{{{executions}}}}) AND awakeables.state = 'pending'
GROUP BY awakeables.id
"""
_LAST_STATE = f"""
CASE WHEN j.state IS NOT NULL THEN {_STATE} WHEN awakeables.deadline <= :now THEN 'timed_out' ELSE 'rejected' END
""".strip()

# Those that are pending though the journal has recorded their end, for their history entries.
RECONCILING = _ENDING.format(state=f"({_STATE})", join="")

# They are completed from the journal (clause awake.reconcile).
RECONCILE = f"""
{_BECOME.replace("{outcomes}", _RECORDED)}
WHERE execution_id IN ({{executions}}) AND state = 'pending' AND EXISTS ({_RECORDED})
"""

# All that are still pending when their execution is retired, for their history entries.
RETIRING = _ENDING.format(state=f"({_LAST_STATE})", join="LEFT")

# Nobody waits for them any more: they end as the journal has recorded, else as timed out, else as they are asked to.
RETIRE = f"""
{_BECOME.replace("{outcomes}", f"{_RECORDED} UNION ALL {_PASSED} UNION ALL {_ASKED}")}
WHERE execution_id IN ({{executions}}) AND state = 'pending'
"""

# Those that an execution still waits for, or may wait for: pending before their deadline (clause runs.rewind-unsafe).
_PENDING_OF = """
FROM awakeables WHERE execution_id = :execution_id AND state = 'pending' AND deadline > :now
AND NOT EXISTS (SELECT 1 FROM journal AS j WHERE j.kind = 'wait' AND j.ref = awakeables.id AND j.state = 'done')
"""
PENDING_OF = f"SELECT id, label, deadline {_PENDING_OF} ORDER BY deadline, id LIMIT CAST(:limit AS INTEGER)"
NONE_PENDING = f"SELECT 1 WHERE NOT EXISTS (SELECT 1 {_PENDING_OF})"

# All of these are the execution's.
ARE_OWN = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:ids) AS one LEFT JOIN awakeables AS a ON a.id = one.value
    WHERE a.execution_id IS NULL OR a.execution_id <> :execution_id
)
"""

# The awakeables of executions that are forgotten, as holders of their payloads.
HOLDERS = "SELECT id AS value FROM awakeables WHERE execution_id IN ({executions})"
FORGET = "DELETE FROM awakeables WHERE execution_id IN ({executions})"

# A large payload that was uploaded belongs to the awakeable that it has resolved, unless that one has it already.
CONFIRM_PAYLOAD = """
UPDATE blob_references SET uploading_until = NULL,
    holder = (SELECT id FROM awakeables WHERE token_sha256 = :token_sha256)
WHERE sha256 = :sha256 AND holder = :upload AND uploading_until IS NOT NULL AND EXISTS (
    SELECT 1 FROM awakeables AS a WHERE a.token_sha256 = :token_sha256 AND a.payload_blob = :sha256
    AND NOT EXISTS (SELECT 1 FROM blob_references AS r WHERE r.sha256 = :sha256 AND r.holder = a.id)
)
"""

# --- looking ---

# Reads what a resolver is answered from. A bound one is there for its subject only.
ANSWER = f"""
{_SEEN}, payload, payload_sha256 FROM awakeables
WHERE token_sha256 = :token_sha256 AND (subject IS NULL OR subject = :caller)
"""

# Reads one by its token. A bound one is there for its subject only.
SHOW = f"""
{_SEEN}, payload FROM awakeables WHERE token_sha256 = :token_sha256 AND (subject IS NULL OR subject = :caller)
"""

# Reads one by its id, for its minter and those who operate.
SHOW_ONE = f"""
{_SEEN}, payload FROM awakeables WHERE id = :id AND (created_by = :caller OR CAST(:operates AS INTEGER) = 1)
"""

# A page in the order of minting, without payloads. The order is that of ids, which never change.
PAGE = f"""
SELECT * FROM ({_SEEN}, NULL AS payload FROM awakeables WHERE id > :after)
WHERE :state IS NULL OR state = :state ORDER BY id LIMIT CAST(:limit AS INTEGER)
"""

# The deadline that passes first, unless the Clock has it set aside.
EARLIEST_DEADLINE = """
SELECT deadline AS due FROM awakeables WHERE state = 'pending'
AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'awakeable_timed_out' AND item = awakeables.id)
ORDER BY deadline LIMIT 1
"""

# The awakeables whose deadline has passed, unless the Clock has them set aside.
PASSED_DEADLINES = """
SELECT id AS item, deadline AS due FROM awakeables WHERE state = 'pending' AND deadline <= :now
AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'awakeable_timed_out' AND item = awakeables.id)
ORDER BY deadline, id LIMIT CAST(:limit AS INTEGER)
"""

# --- retention ---

# The full ten minutes at or after the first instant at which one of no run has been over for long enough.
EARLIEST_ENDED = f"""
SELECT (ended_at + {int(AWAKE_RETENTION_SECONDS) * 1000} + 599999) / 600000 * 600000 AS due FROM awakeables
WHERE ended_at IS NOT NULL AND execution_id IS NULL
    AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'awakeable_retention' AND item = 'sweep')
ORDER BY ended_at LIMIT 1
"""
ENDED = f"SELECT 'sweep' AS item, due FROM ({EARLIEST_ENDED}) WHERE due <= :now AND CAST(:limit AS INTEGER) > 0"

# Those of no run that have been over for longest, as holders of their payloads.
OLD = """
SELECT id AS value FROM awakeables WHERE execution_id IS NULL AND ended_at <= :before
ORDER BY ended_at, id LIMIT CAST(:limit AS INTEGER)
""".strip()
REMOVING_OLD = f"""
SELECT row_number() OVER (ORDER BY ended_at, id) AS ordinal, id AS subject, NULL AS kind, NULL AS content_sha256,
    '{{}}' AS data
FROM awakeables WHERE id IN ({OLD})
"""
REMOVE_OLD = f"DELETE FROM awakeables WHERE id IN ({OLD})"
