# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of correlations: a key belongs to one work, from when it is attached and for ever."""

# No key of a JSON array belongs to another work.
KEYS_ARE_FREE = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:keys) AS one JOIN correlations AS c
        ON c.source = one.value ->> 'source' AND c.external_id = one.value ->> 'external_id'
    WHERE c.work <> :work
)
"""

# What history is told: the keys of the array that belong to nobody yet, if there are any.
ATTACHING = """
SELECT 0 AS ordinal, :subject AS subject, NULL AS kind, NULL AS content_sha256, json_object('keys', json_group_array(
    json_object('external_id', one.value ->> 'external_id', 'source', one.value ->> 'source'))) AS data
FROM json_each(:keys) AS one
WHERE NOT EXISTS (
    SELECT 1 FROM correlations AS c WHERE c.source = one.value ->> 'source' AND c.external_id = one.value ->> 'external_id'
)
HAVING count(*) > 0
"""

# Attaches those keys of the array that belong to nobody.
ATTACH = """
INSERT INTO correlations (source, external_id, work, attached_at, attached_by)
SELECT one.value ->> 'source', one.value ->> 'external_id', :work, :now, :by FROM json_each(:keys) AS one WHERE true
ON CONFLICT (source, external_id) DO NOTHING
"""

_COLUMNS = "source, external_id, work, attached_at, attached_by"

# The keys of the array as they stand, in its order.
ATTACHED = """
SELECT c.source, c.external_id, c.work, c.attached_at, c.attached_by
FROM json_each(:keys) AS one CROSS JOIN correlations AS c
    ON c.source = one.value ->> 'source' AND c.external_id = one.value ->> 'external_id'
ORDER BY one.key
"""

# One key.
KEY = f"SELECT {_COLUMNS} FROM correlations WHERE source = :source AND external_id = :external_id"

# A page of a work's keys.
OF_WORK = f"""
SELECT {_COLUMNS} FROM correlations WHERE work = :work AND (source, external_id) > (:source, :external_id)
ORDER BY source, external_id LIMIT CAST(:limit AS INTEGER)
"""
