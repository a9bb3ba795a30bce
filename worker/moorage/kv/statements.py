"""The SQL of small values. A key's revision is that of its last entry in history, so that revisions grow on over
deletion and making anew, and nothing is kept of a key that is gone."""

# The key is at the named revision; 0 stands for a key that is not there.
IS_AT = """
SELECT 1 WHERE CAST(:revision AS INTEGER) = coalesce(
    (SELECT revision FROM kv WHERE namespace = :namespace AND key = :key), 0
)
"""

# The key is at the named revision, or gone already.
IS_AT_OR_GONE = """
SELECT 1 WHERE coalesce((SELECT revision FROM kv WHERE namespace = :namespace AND key = :key), CAST(:revision AS INTEGER))
    = CAST(:revision AS INTEGER)
"""

# Puts values under their keys, each at the revision of the entry that history has just been told.
PUT = """
INSERT INTO kv (namespace, key, revision, updated_at, updated_by, value)
SELECT change.value ->> 0, change.value ->> 1,
    (SELECT max(h.revision) FROM history AS h
        WHERE h.subject = 'kv:' || (change.value ->> 0) || '/' || (change.value ->> 1) AND h.type <> 'record.published'),
    :now, :actor, change.value ->> 2
FROM json_each(:changes) AS change WHERE true
ON CONFLICT (namespace, key) DO UPDATE SET revision = excluded.revision, updated_at = excluded.updated_at,
    updated_by = excluded.updated_by, value = excluded.value
RETURNING namespace, key, value, revision, updated_at
"""

# What is about to be deleted, for its entries of history; a key that is not there has none.
DELETING = """
SELECT change.key AS ordinal, 'kv:' || kv.namespace || '/' || kv.key AS subject, NULL AS kind, NULL AS content_sha256,
    '{}' AS data
FROM json_each(:changes) AS change
JOIN kv ON kv.namespace = change.value ->> 0 AND kv.key = change.value ->> 1
"""

# Deletes keys that may be absent.
DELETE = """
DELETE FROM kv WHERE (namespace, key) IN (SELECT change.value ->> 0, change.value ->> 1 FROM json_each(:changes) AS change)
"""

# What a put under an Idempotency-Key made: the key as it stands at this place in the transaction.
PUT_MADE = """
SELECT json_object('revision', revision, 'updated_at', updated_at) FROM kv WHERE namespace = :namespace AND key = :kv_key
"""

# One value.
GET = "SELECT namespace, key, value, revision, updated_at FROM kv WHERE namespace = :namespace AND key = :key"

# A page of a namespace's keys with a prefix, in their order, ended where their values pass :bytes; the first is always
# given. `met` is how many there were. No key has a character past the tilde.
PAGE = """
SELECT namespace, key, value, revision, updated_at, met FROM (
    SELECT *, sum(octets) OVER (ORDER BY key ROWS UNBOUNDED PRECEDING) - octets AS before, count(*) OVER () AS met
    FROM (
        SELECT namespace, key, value, revision, updated_at, length(CAST(value AS BLOB)) AS octets FROM kv
        WHERE namespace = :namespace AND key > :after AND key >= :prefix AND key < :prefix || char(127)
        ORDER BY key LIMIT CAST(:limit AS INTEGER)
    )
) WHERE before <= CAST(:bytes AS INTEGER) ORDER BY key
"""
