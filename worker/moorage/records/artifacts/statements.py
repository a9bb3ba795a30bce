"""The SQL of artifacts. That an artifact has its bytes is told by its reference to them (see blobs.statements)."""

# Whether the artifact still refers to its bytes.
HAS_BYTES = "SELECT 1 AS stored FROM blob_references WHERE holder = :record AND uploading_until IS NULL"

# What is about to be shredded, if it still has its bytes, for its history entry.
SHREDDING = """
SELECT 1 AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    json_object('digest', r.body ->> 'digest', 'reason', :reason) AS data
FROM records AS r WHERE r.id = :record
    AND EXISTS (SELECT 1 FROM blob_references WHERE holder = :record AND uploading_until IS NULL)
"""

# Nobody has to attach the artifact any more.
FORGET_DEADLINE = "DELETE FROM artifact_deadlines WHERE record = :record"

# The artifact is to be attached by then.
SET_DEADLINE = "INSERT INTO artifact_deadlines (record, attach_by) VALUES (:record, :attach_by)"

# --- due work ---

EARLIEST_DEADLINE = """
SELECT attach_by AS due FROM artifact_deadlines
WHERE NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'artifact_orphaned' AND item = artifact_deadlines.record)
ORDER BY attach_by LIMIT 1
"""
PASSED_DEADLINES = """
SELECT record AS item, attach_by AS due FROM artifact_deadlines WHERE attach_by <= :now
    AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'artifact_orphaned' AND item = artifact_deadlines.record)
ORDER BY attach_by LIMIT CAST(:limit AS INTEGER)
"""

_ORPHANED = """
EXISTS (SELECT 1 FROM artifact_deadlines WHERE record = :record AND attach_by <= :now)
    AND NOT EXISTS (SELECT 1 FROM record_parents WHERE parent = :record)
"""

# The digest of an artifact that is due and that no record names as a parent.
ORPHANS_DIGEST = f"""
SELECT r.body ->> 'digest' AS digest FROM records AS r WHERE r.id = :record AND {_ORPHANED}
"""

# It, for its history entry.
ORPHANED = f"""
SELECT 1 AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    json_object('digest', r.body ->> 'digest') AS data
FROM records AS r WHERE r.id = :record AND {_ORPHANED}
    AND EXISTS (SELECT 1 FROM blob_references WHERE holder = :record AND uploading_until IS NULL)
"""

# It refers to its bytes no more.
RELEASE_ORPHAN = f"""
DELETE FROM blob_references WHERE sha256 = :sha256 AND holder = :record AND uploading_until IS NULL AND {_ORPHANED}
"""

# The deadline has passed, whatever came of it.
END_DEADLINE = "DELETE FROM artifact_deadlines WHERE record = :record AND attach_by <= :now RETURNING record"
