"""The SQL of history. Entries are only ever inserted; nothing here updates or deletes one."""

# Appends one entry. The position follows the last one; the revision follows the subject's last one: both gapless within
# the batch's atomicity.
APPEND = """
INSERT INTO history (position, subject, revision, type, kind, actor, at, data, content_sha256)
SELECT coalesce((SELECT max(position) FROM history), 0) + 1, :subject,
    coalesce((SELECT max(revision) FROM history WHERE subject = :subject), 0) + 1,
    :type, :kind, :actor, :now, :data, :content_sha256
RETURNING position
"""

# Appends one entry for each element of a JSON array, in its order. Each subject may occur once in the array.
APPEND_MANY = """
INSERT INTO history (position, subject, revision, type, kind, actor, at, data, content_sha256)
SELECT coalesce((SELECT max(position) FROM history), 0) + 1 + entry.key, entry.value ->> 'subject',
    coalesce((SELECT max(revision) FROM history WHERE subject = entry.value ->> 'subject'), 0) + 1,
    entry.value ->> 'type', entry.value ->> 'kind', :actor, :now, entry.value ->> 'data', entry.value ->> 'content_sha256'
FROM json_each(:entries) AS entry WHERE true ORDER BY entry.key
"""

# A page of all entries after a position, oldest first.
PAGE = """
SELECT position, subject, revision, type, kind, actor, at, data, content_sha256 FROM history
WHERE position > :after ORDER BY position LIMIT CAST(:limit AS INTEGER)
"""

# A page of one subject's entries after a position, oldest first.
PAGE_OF_SUBJECT = """
SELECT position, subject, revision, type, kind, actor, at, data, content_sha256 FROM history
WHERE subject = :subject AND position > :after ORDER BY revision LIMIT CAST(:limit AS INTEGER)
"""

# Appends one entry for the only row of a selection, if it gives one.
APPEND_SELECTED_ONE = """
INSERT INTO history (position, subject, revision, type, kind, actor, at, data, content_sha256)
SELECT coalesce((SELECT max(position) FROM history), 0) + 1, chosen.subject,
    coalesce((SELECT max(revision) FROM history WHERE subject = chosen.subject), 0) + 1,
    :type, chosen.kind, :actor, :now, chosen.data, chosen.content_sha256
FROM ({selection}) AS chosen
"""

# Appends one entry for each row of a selection, in the order of its column `ordinal`; each subject may occur once.
# The selection gives ordinal, subject, kind, data and content_sha256.
APPEND_SELECTED = """
INSERT INTO history (position, subject, revision, type, kind, actor, at, data, content_sha256)
SELECT coalesce((SELECT max(position) FROM history), 0) + row_number() OVER (ORDER BY chosen.ordinal), chosen.subject,
    coalesce((SELECT max(revision) FROM history WHERE subject = chosen.subject), 0) + 1,
    :type, chosen.kind, :actor, :now, chosen.data, chosen.content_sha256
FROM ({selection}) AS chosen
"""
