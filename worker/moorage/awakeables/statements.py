"""The SQL of awakeables. A pending one ends once, and is never pending again."""

from moorage.history.append import CLOCK

# What is read of an awakeable: past its deadline a pending one reads as timed out, though nobody wrote it down yet.
_SEEN = f"""
SELECT id, CASE WHEN state = 'pending' AND deadline <= :now THEN 'timed_out' ELSE state END AS state,
    subject, label, metadata, created_at, created_by, deadline, failure,
    CASE WHEN state = 'pending' AND deadline <= :now THEN deadline ELSE ended_at END AS ended_at,
    CASE WHEN state = 'pending' AND deadline <= :now THEN '{CLOCK}' ELSE ended_by END AS ended_by
"""

# How an awakeable `a` has ended, as the value that the journal records for whoever awaits it (clause awake.journal). Past its
# deadline a pending one has timed out, though nobody wrote it down yet. A payload that is an object of the bucket was stored
# as this very value, so that both rows name one object.
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

# The history entry of the awakeable of an id that the statement just before changed.
CHANGED_BY_ID = """
SELECT 0 AS ordinal, id AS subject, NULL AS kind, :data AS data, NULL AS content_sha256
FROM awakeables WHERE id = :id AND changes() = 1
"""

# Reads one that its minter mints again under the same idempotency key, with what proves that the token is the same.
MINTED = f"{_SEEN}, payload, token_sha256 FROM awakeables WHERE id = :id"

# Writes down that the deadline has passed, for whoever may see it. At its deadline an awakeable has passed it.
TIME_OUT = f"""
UPDATE awakeables SET state = 'timed_out', ended_at = deadline, ended_by = '{CLOCK}'
WHERE token_sha256 = :token_sha256 AND state = 'pending' AND deadline <= :now
AND (subject IS NULL OR subject = :caller)
"""

# Ends a pending one with a payload or a failure, before its deadline, by whom it is bound to. One of many callers wins.
END = """
UPDATE awakeables SET state = :state, payload = :payload, payload_sha256 = :payload_sha256, failure = :failure,
    ended_at = :now, ended_by = :caller
WHERE token_sha256 = :token_sha256 AND state = 'pending' AND deadline > :now
AND (subject IS NULL OR subject = :caller)
"""

# The history entry of the awakeable that the statement just before changed, and none when it changed nothing.
CHANGED = """
SELECT 0 AS ordinal, id AS subject, NULL AS kind, :data AS data, payload_sha256 AS content_sha256
FROM awakeables WHERE token_sha256 = :token_sha256 AND changes() = 1
"""

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

# Times one out by its id: nothing happens to one that has ended or whose deadline lies ahead.
TIME_OUT_DUE = f"""
UPDATE awakeables SET state = 'timed_out', ended_at = deadline, ended_by = '{CLOCK}'
WHERE id = :id AND state = 'pending' AND deadline <= :now
"""

# The history entry of the awakeable that TIME_OUT_DUE just changed.
CHANGED_DUE = """
SELECT 0 AS ordinal, id AS subject, NULL AS kind, '{}' AS data, NULL AS content_sha256
FROM awakeables WHERE id = :id AND changes() = 1
"""
