"""The SQL of references to objects.

A row of blob_references counts when its upload is over (no `uploading_until`) or still has time. Two rules keep bytes under
every reference (clause blobs.order):
  - no reference to a digest begins while a row of blob_deletions has it;
  - no row of blob_deletions begins while a reference to its digest counts.
"""

# Nobody is deleting the object or about to.
IS_NOT_BEING_DELETED = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM blob_deletions WHERE sha256 = :sha256)"

# An upload begins to count.
HOLD = """
INSERT INTO blob_references (sha256, holder, uploading_until) VALUES (:sha256, :holder, :until)
ON CONFLICT (sha256, holder) DO UPDATE SET uploading_until = excluded.uploading_until
"""

# The first reference of all plans the first sweep.
PLAN_SWEEP = """
INSERT INTO blob_sweep (id, started_at, due_at, after)
VALUES (1, :now, CAST(:now AS INTEGER) + CAST(:period AS INTEGER), '') ON CONFLICT (id) DO NOTHING
"""

# The upload still counts.
IS_HELD = """
SELECT 1 FROM blob_references WHERE sha256 = :sha256 AND holder = :upload AND uploading_until > :now
"""

# What was uploaded belongs to its holder from now on.
CONFIRM = """
UPDATE blob_references SET holder = :holder, uploading_until = NULL
WHERE sha256 = :sha256 AND holder = :upload AND uploading_until IS NOT NULL
"""

# An upload that is over counts no more; one that was confirmed is nobody's to abandon.
ABANDON = """
DELETE FROM blob_references WHERE sha256 = :sha256 AND holder = :upload AND uploading_until IS NOT NULL
"""

# The same for several objects at once. A holder may refer to one of them already.
NONE_IS_BEING_DELETED = """
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM json_each(:digests) AS one CROSS JOIN blob_deletions AS d ON d.sha256 = one.value)
"""
HOLD_ALL = """
INSERT INTO blob_references (sha256, holder, uploading_until)
SELECT one.value, :holder, :until FROM json_each(:digests) AS one WHERE true
ON CONFLICT (sha256, holder) DO UPDATE SET uploading_until = excluded.uploading_until
"""
ALL_ARE_HELD = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:digests) AS one WHERE NOT EXISTS (
        SELECT 1 FROM blob_references AS r WHERE r.sha256 = one.value
            AND ((r.holder = :upload AND r.uploading_until > :now) OR (r.holder = :holder AND r.uploading_until IS NULL))
    )
)
"""

# Those of which neither holder nor upload has a row, not even one whose time is over.
NEVER_HELD = """
SELECT one.value AS sha256 FROM json_each(:digests) AS one WHERE NOT EXISTS (
    SELECT 1 FROM blob_references AS r WHERE r.sha256 = one.value AND r.holder IN (:upload, :holder)
)
"""
REFER_ALL = """
INSERT INTO blob_references (sha256, holder) SELECT one.value, :holder FROM json_each(:digests) AS one WHERE true
ON CONFLICT (sha256, holder) DO UPDATE SET uploading_until = NULL
"""
END_UPLOADS = """
DELETE FROM blob_references WHERE holder = :upload AND uploading_until IS NOT NULL
    AND sha256 IN (SELECT value FROM json_each(:digests))
"""

# A holder needs its object no more.
RELEASE = "DELETE FROM blob_references WHERE sha256 = :sha256 AND holder = :holder AND uploading_until IS NULL"

# Whether the holder refers to the object.
REFERS = """
SELECT 1 FROM blob_references WHERE holder = :holder AND sha256 = :sha256 AND uploading_until IS NULL
"""

_UNREFERENCED = """
NOT EXISTS (SELECT 1 FROM blob_references AS r
    WHERE r.sha256 = {digest} AND (r.uploading_until IS NULL OR r.uploading_until > :now))
"""

# Plans the deletion of an object, unless a reference counts.
PLAN_DELETION = f"""
INSERT INTO blob_deletions (sha256, due_at) SELECT :sha256, :now WHERE {_UNREFERENCED.replace("{digest}", ":sha256")}
ON CONFLICT (sha256) DO NOTHING
"""

# The same for many, for the sweep.
PLAN_DELETIONS = f"""
INSERT INTO blob_deletions (sha256, due_at) SELECT one.value, :now FROM json_each(:digests) AS one
WHERE {_UNREFERENCED.replace("{digest}", "one.value")}
ON CONFLICT (sha256) DO NOTHING
"""

# The same for all that these holders are about to release. {holders} is a SELECT of them as `value`.
PLAN_DELETIONS_OF = """
INSERT INTO blob_deletions (sha256, due_at)
SELECT mine.sha256, :now FROM ({holders}) AS one CROSS JOIN blob_references AS mine ON mine.holder = one.value
WHERE mine.uploading_until IS NULL AND NOT EXISTS (SELECT 1 FROM blob_references AS r
    WHERE r.sha256 = mine.sha256 AND r.holder NOT IN ({holders})
        AND (r.uploading_until IS NULL OR r.uploading_until > :now))
ON CONFLICT (sha256) DO NOTHING
"""
RELEASE_ALL = "DELETE FROM blob_references WHERE holder IN ({holders}) AND uploading_until IS NULL"
LISTED = "SELECT value FROM json_each(:holders)"

# --- deletion ---

# An object may be stored again once that it is deleted, and be deleted again.
EARLIEST_DELETION = """
SELECT due_at AS due FROM blob_deletions
WHERE NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'blob_deleted' AND item = sha256 || '@' || due_at)
ORDER BY due_at LIMIT 1
"""
DUE_DELETIONS = """
SELECT sha256 || '@' || due_at AS item, due_at AS due FROM blob_deletions WHERE due_at <= :now
    AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'blob_deleted' AND item = sha256 || '@' || due_at)
ORDER BY due_at LIMIT CAST(:limit AS INTEGER)
"""

# One deleter at a time: whoever moves `due_at` ahead has until then.
TAKE_DELETION = "UPDATE blob_deletions SET due_at = :until WHERE sha256 = :sha256 AND due_at <= :now RETURNING sha256"

# The object is gone; references to its digest may begin again.
END_DELETION = "DELETE FROM blob_deletions WHERE sha256 = :sha256 AND due_at = :until"

# --- uploads that were never finished ---

EARLIEST_ABANDONED = """
SELECT uploading_until AS due FROM blob_references INDEXED BY blob_references_uploading WHERE uploading_until IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'upload_abandoned' AND item = sha256 || '/' || holder)
ORDER BY uploading_until LIMIT 1
"""
ABANDONED = """
SELECT sha256 || '/' || holder AS item, uploading_until AS due FROM blob_references WHERE uploading_until <= :now
    AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'upload_abandoned' AND item = sha256 || '/' || holder)
ORDER BY uploading_until LIMIT CAST(:limit AS INTEGER)
"""
END_ABANDONED = """
DELETE FROM blob_references WHERE sha256 = :sha256 AND holder = :upload AND uploading_until <= :now RETURNING sha256
"""

# --- sweep ---

# The next batch of the sweep as one item, named by how far the sweep has come.
SWEEP = """
SELECT due_at AS due FROM blob_sweep
WHERE id = 1 AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'blob_sweep' AND item = 'after:' || after)
"""
DUE_SWEEP = """
SELECT 'after:' || after AS item, due_at AS due FROM blob_sweep WHERE id = 1 AND due_at <= :now
    AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'blob_sweep' AND item = 'after:' || after)
    AND CAST(:limit AS INTEGER) > 0
"""

# The sweep has come to `after` and goes on at once, or is over and begins again a period after it began.
ADVANCE_SWEEP = """
UPDATE blob_sweep SET after = :after,
    started_at = CASE WHEN :before = '' THEN :now ELSE started_at END,
    due_at = CASE WHEN :after = '' THEN
        CAST(:now AS INTEGER) + CAST(:period AS INTEGER) - CASE WHEN :before = '' THEN 0 ELSE :now - started_at END
        ELSE :now END
WHERE id = 1 AND after = :before AND due_at <= :now
RETURNING due_at
"""
