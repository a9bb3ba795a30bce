"""The SQL of history. Entries are only ever inserted; nothing here updates or deletes one.

The index by subject leaves out `record.published`: the record's row names that entry's position, and it is always the
subject's first. So a publication writes no index row, and everything that asks by subject says which part it means.
"""

# The revision that a subject's next entry gets; {subject} is the SQL of the subject. A record whose only entry is its
# publication has no entry in the index.
_NEXT_REVISION = """
coalesce(
    (SELECT max(revision) FROM history WHERE subject = {subject} AND type <> 'record.published'),
    (SELECT 1 FROM records WHERE id = {subject}),
    0
) + 1
""".strip()

# Appends one entry. The position follows the last one; the revision follows the subject's last one: both gapless within
# the batch's atomicity.
APPEND = """
INSERT INTO history (position, subject, revision, type, kind, actor, at, data, content_sha256)
SELECT coalesce((SELECT max(position) FROM history), 0) + 1, :subject,
    {revision},
    :type, :kind, :actor, :now, :data, :content_sha256
RETURNING position
""".replace("{revision}", _NEXT_REVISION.replace("{subject}", ":subject"))

# Appends one entry for each element of a JSON array, in its order. Each subject may occur once in the array. A publication
# is its subject's first entry by its type; it is followed by the row that it tells of.
APPEND_MANY = """
INSERT INTO history (position, subject, revision, type, kind, actor, at, data, content_sha256)
SELECT coalesce((SELECT max(position) FROM history), 0) + 1 + entry.key, entry.value ->> 'subject',
    CASE entry.value ->> 'type' WHEN 'record.published' THEN 1 ELSE {revision} END,
    entry.value ->> 'type', entry.value ->> 'kind', :actor, :now, entry.value ->> 'data', entry.value ->> 'content_sha256'
FROM json_each(:entries) AS entry WHERE true ORDER BY entry.key
""".replace("{revision}", _NEXT_REVISION.replace("{subject}", "entry.value ->> 'subject'"))

# A page of all entries after a position, oldest first.
PAGE = """
SELECT position, subject, revision, type, kind, actor, at, data, content_sha256 FROM history
WHERE position > :after ORDER BY position LIMIT CAST(:limit AS INTEGER)
"""

# A page of one subject's entries after a position, oldest first: a record's publication, which its row finds (or, once the
# record is gone, the entry that tells of its removal), and then what the index by subject has. An entry of removal that was
# edited and is no JSON finds nothing.
PAGE_OF_SUBJECT = """
WITH publication (seq) AS (
    SELECT coalesce(
        (SELECT seq FROM records WHERE id = :subject),
        (SELECT CASE WHEN json_valid(data) THEN data ->> 'seq' END FROM history
            WHERE subject = :subject AND type <> 'record.published' AND type = 'record.removed')
    )
)
SELECT position, subject, revision, type, kind, actor, at, data, content_sha256 FROM history
WHERE position = (SELECT seq FROM publication) AND position > :after AND subject = :subject
UNION ALL
SELECT * FROM (
    SELECT position, subject, revision, type, kind, actor, at, data, content_sha256 FROM history
    WHERE subject = :subject AND type <> 'record.published' AND position > :after
    ORDER BY revision LIMIT CAST(:limit AS INTEGER)
)
ORDER BY position LIMIT CAST(:limit AS INTEGER)
"""

# Appends one entry for the only row of a selection, if it gives one.
APPEND_SELECTED_ONE = """
INSERT INTO history (position, subject, revision, type, kind, actor, at, data, content_sha256)
SELECT coalesce((SELECT max(position) FROM history), 0) + 1, chosen.subject,
    {revision},
    :type, chosen.kind, :actor, :now, chosen.data, chosen.content_sha256
FROM ({selection}) AS chosen
""".replace("{revision}", _NEXT_REVISION.replace("{subject}", "chosen.subject"))

# Appends one entry for each row of a selection, in the order of its column `ordinal`; each subject may occur once.
# The selection gives ordinal, subject, kind, data and content_sha256.
APPEND_SELECTED = """
INSERT INTO history (position, subject, revision, type, kind, actor, at, data, content_sha256)
SELECT coalesce((SELECT max(position) FROM history), 0) + row_number() OVER (ORDER BY chosen.ordinal), chosen.subject,
    {revision},
    :type, chosen.kind, :actor, :now, chosen.data, chosen.content_sha256
FROM ({selection}) AS chosen
""".replace("{revision}", _NEXT_REVISION.replace("{subject}", "chosen.subject"))
