# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of what bounds claims and publications: token buckets, depth, lanes, time to live, debounced records."""

from typing import Final

from moorage.kernel.limits import KIND_PATHS
from moorage.records.statements import CLAIM, RETURNED_COLUMNS, of_end

# --- rates ---

# Fills a bucket up to this instant, an empty table's with all its burst. Time that runs backwards fills nothing.
FILL = """
INSERT INTO rates (key, tokens, at) VALUES (:rate_key, :burst, :now)
ON CONFLICT (key) DO UPDATE SET
    tokens = min(:burst, rates.tokens + max(0, :now - rates.at) * :per_second / 1000.0), at = max(rates.at, excluded.at)
RETURNING tokens
"""

# The bucket holds so many tokens; a sum of fractions may fall short of a whole one by a hair.
HAS_TOKENS = "SELECT 1 FROM rates WHERE key = :rate_key AND tokens + 0.000001 >= :count"

# Takes them out.
SPEND = "UPDATE rates SET tokens = tokens - :count WHERE key = :rate_key"

# Takes out a token for each record that a claim took.
SPEND_TAKEN = """
UPDATE rates SET tokens = tokens - (
    SELECT count(*) FROM records WHERE state = 'claimed' AND expires_at = :expires_at AND claim = :claim
) WHERE key = :rate_key
"""

# --- depth ---

# No kind holds more ready records than its limit, of those that are named with theirs.
DEPTHS_HOLD = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:limits) AS bound CROSS JOIN kind_depths ON kind_depths.kind = bound.key
    WHERE kind_depths.ready > bound.value
)
"""

# --- lanes ---

# For each slot, the claim that notes the value there of every record that it takes.
CLAIM_IN_LANES: Final[tuple[str, ...]] = tuple(
    CLAIM.replace("SET state", f"SET lane = s{slot}, state", 1) for slot in range(1, KIND_PATHS + 1)
)

# --- time to live ---

_STALE = "r.state = 'ready' AND r.ready_until IS NOT NULL"

_STALE_ITEM = "r.id || '@' || r.ready_until"
_STALE_NOT_ASIDE = f"NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'record_stale' AND item = {_STALE_ITEM})"

# The ready record whose time to live ends first, and those for which it has ended.
EARLIEST_STALE = f"""
SELECT r.ready_until AS due FROM records AS r WHERE {_STALE}
    AND {_STALE_NOT_ASIDE}
ORDER BY r.ready_until LIMIT 1
"""
STALE = f"""
SELECT {_STALE_ITEM} AS item, r.ready_until AS due FROM records AS r WHERE {_STALE} AND r.ready_until <= :now
    AND {_STALE_NOT_ASIDE}
ORDER BY r.ready_until LIMIT CAST(:limit AS INTEGER)
"""

# The record whose time to live ends now, for its history entry, before it becomes a dead letter.
BECOMING_STALE = f"""
SELECT 1 AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    {of_end("json_object('attempts', r.attempts, 'failure', json(:failure))")} AS data
FROM records AS r WHERE r.id = :record AND r.state = 'ready'
    AND r.ready_until = CAST(:due AS INTEGER) AND r.ready_until <= :now
"""

# Makes it one.
END_STALE = """
UPDATE records SET state = 'dead', available = 0, not_before = NULL, ended_at = :now, failure = :failure
WHERE id = :record AND state = 'ready' AND ready_until = CAST(:due AS INTEGER) AND ready_until <= :now
RETURNING id
"""

# --- debounced records ---

_PENDING = "available = 0 AND state = 'ready' AND attempts = 0 AND debounce_key = :debounce_key"

# The record that waits under a key of the publisher's own, if one does.
PENDING = f"SELECT id FROM records WHERE kind = :kind AND created_by = :actor AND {_PENDING}"

# It still waits.
IS_PENDING = f"SELECT 1 FROM records WHERE id = :record AND kind = :kind AND created_by = :actor AND {_PENDING}"

# Puts what was published now in its place, and pushes it back as far as its own bound allows.
REPLACE = f"""
UPDATE records SET
    body = coalesce(:body, draft.value ->> 'body'), body_sha256 = draft.value ->> 'body_sha256',
    metadata = draft.value ->> 'metadata', priority = draft.value ->> 'priority',
    not_before = min(draft.value ->> 'not_before', records.debounce_until),
    ready_until = draft.value ->> 'ready_until' + min(0, records.debounce_until - (draft.value ->> 'not_before')),
    {", ".join(f"s{slot} = draft.value ->> '$.slots[{slot - 1}]'" for slot in range(1, KIND_PATHS + 1))}
FROM (SELECT :draft AS value) AS draft
WHERE records.id = :record
RETURNING {RETURNED_COLUMNS}
"""

# The record that was put in place of what waited, for its history entry.
REPLACED = """
SELECT 1 AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    json_object('not_before', strftime('%Y-%m-%dT%H:%M:%fZ', r.not_before / 1000.0, 'unixepoch')) AS data
FROM records AS r WHERE r.id = :record
"""
