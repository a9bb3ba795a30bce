# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of renewing and settling many claims at once. An item is `[record, epoch, milliseconds]`, at its place."""

from moorage.records.admission_statements import OF_KINDS
from moorage.records.statements import RECORD_COLUMNS, RETURNED_COLUMNS, of_end

# In {of_kinds} and {of_kinds_r} stands, where the caller may claim only some kinds, that the record is of one of them: see
# `of_kinds`.

# The claims that are the caller's and have not run out: the fence of one claim, for each item.
_HELD = """
records.id = item.value ->> 0 AND records.epoch = item.value ->> 1 AND records.claimed_by = :actor
    AND records.state = 'claimed' AND records.expires_at > :now {of_kinds}
"""

# Extends every claim that may be extended, by the kind's own length where none is given; never shortens one.
RENEW = f"""
UPDATE records SET
    expires_at = max(expires_at, CAST(:now + coalesce(item.value ->> 2, k.lease_seconds * 1000) AS INTEGER))
FROM json_each(:items) AS item CROSS JOIN kinds AS k
WHERE {_HELD} AND k.name = records.kind
RETURNING records.id, records.epoch, records.owner, records.expires_at, records.attempts
"""

# What was extended, for its history entries: a claim that was held before is held after.
RENEWED = f"""
SELECT item.key AS ordinal, records.id AS subject, records.kind, records.body_sha256 AS content_sha256,
    json_object('attempt', records.attempts, 'epoch', records.epoch,
        'expires_at', strftime('%Y-%m-%dT%H:%M:%fZ', records.expires_at / 1000.0, 'unixepoch'),
        'owner', records.owner) AS data
FROM json_each(:items) AS item CROSS JOIN records WHERE {_HELD}
"""

# How each item stands: its record exists, its epoch is the caller's, its lease has not run out.
STANDING = """
SELECT item.key AS place, r.id IS NOT NULL {of_kinds_r} AS known,
    r.id IS NOT NULL AND r.epoch = item.value ->> 1 AND r.claimed_by IS :actor
        AND (r.state = 'claimed' OR (r.state IN ('ready', 'dead') AND r.failure ->> 'code' IS 'LeaseExpired')) AS mine,
    r.id IS NOT NULL AND r.state = 'claimed' AND r.expires_at > :now AS live
FROM json_each(:items) AS item LEFT JOIN records AS r ON r.id = item.value ->> 0
"""

# Every item is a claim that is the caller's and has not run out.
ALL_HELD = f"""
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:items) AS item WHERE NOT EXISTS (SELECT 1 FROM records WHERE {_HELD})
)
"""

# The settlements of the items that the caller made before under the same epochs.
SETTLED = f"""
SELECT item.key AS place, r.settlement_sha256, r.receipt, {RECORD_COLUMNS}
FROM json_each(:items) AS item CROSS JOIN records AS r ON r.id = item.value ->> 0
WHERE r.epoch = item.value ->> 1 AND r.claimed_by = :actor AND r.state = 'consumed' {{of_kinds_r}}
"""

# Which of these ids were ever used.
USED = """
SELECT wish.value AS id FROM json_each(:ids) AS wish
WHERE EXISTS (SELECT 1 FROM records WHERE id = wish.value)
    OR EXISTS (SELECT 1 FROM history WHERE subject = wish.value AND type <> 'record.published')
"""

# Consumes the records, each with its receipt; an item is `[record, epoch, sha256, receipt]`.
CONSUME = f"""
UPDATE records SET state = 'consumed', ended_at = :now, settlement_sha256 = item.value ->> 2, receipt = item.value ->> 3,
    failure = NULL, owner = NULL, claim = NULL, expires_at = NULL
FROM json_each(:items) AS item
WHERE records.id = item.value ->> 0 AND records.epoch = item.value ->> 1 AND records.state = 'claimed'
RETURNING {RETURNED_COLUMNS}
"""

# The records that are about to be settled, for their history entries; an item is `[record, results]`.
SETTLING = f"""
SELECT item.key AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    {of_end("json_object('epoch', r.epoch, 'results', json(item.value ->> 1))")} AS data
FROM json_each(:settling) AS item CROSS JOIN records AS r ON r.id = item.value ->> 0 WHERE r.state = 'claimed'
"""


def of_kinds(sql: str, limited: bool) -> str:
    """The statement for a caller that may claim all kinds, or if `limited` those in `:granted`."""
    for part, table in (("{of_kinds}", "records"), ("{of_kinds_r}", "r")):
        sql = sql.replace(part, f"AND {OF_KINDS.replace('{kind}', f'{table}.kind')}" if limited else "")
    return sql
