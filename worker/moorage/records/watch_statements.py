# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of watching: history as it was committed, with the records it speaks of."""

from moorage.records.statements import RECORD_COLUMNS

# The newest position, and whether a record of the kind is claimable: what a Bell looks at for all who wait.
LOOK = """
SELECT coalesce((SELECT max(position) FROM history), 0) AS position,
    EXISTS (SELECT 1 FROM records AS r WHERE r.kind = :kind AND r.available = 1) AS ready
"""

# The newest position.
NEWEST = "SELECT coalesce(max(position), 0) AS position FROM history"

_PAGE = """
SELECT position, subject, type, kind FROM history
WHERE position > :after ORDER BY position LIMIT CAST(:scan AS INTEGER)
"""

# How far a page reaches: whatever it holds, nothing before its end is met again.
REACH = f"SELECT max(position) AS position, count(*) AS seen FROM ({_PAGE})"

# The page's entries about records of a kind that match a pattern, oldest first, at most so many and, after the first, so
# many characters; `matched` counts those that were left out too. {where} is compiled from constants and slots; its records
# have the alias r.
WATCHED = f"""
WITH page AS ({_PAGE}),
hits AS (
    SELECT page.position, row_number() OVER (ORDER BY page.position) AS number,
        sum(coalesce(length(r.body) + length(r.metadata), 0)) OVER (ORDER BY page.position) AS characters
    FROM page LEFT JOIN records AS r ON r.id = page.subject
    WHERE page.kind = :kind AND ({{where}})
)
SELECT h.position AS entry_position, h.subject AS entry_subject, h.revision AS entry_revision, h.type AS entry_type,
    h.kind AS entry_kind, h.actor AS entry_actor, h.at AS entry_at, h.data AS entry_data,
    h.content_sha256 AS entry_content_sha256, (SELECT count(*) FROM hits) AS matched, {RECORD_COLUMNS}
FROM hits JOIN history AS h ON h.position = hits.position LEFT JOIN records AS r ON r.id = h.subject
WHERE hits.number = 1 OR (hits.number <= :limit AND hits.characters <= :characters)
ORDER BY h.position
"""

# Without a pattern, an entry is watched also when its record is gone.
ANY_RECORD = "r.id IS NOT NULL OR page.type GLOB 'record.*'"

# With one, only a record that is there can match.
MATCHING_RECORD = "r.id IS NOT NULL AND ({where})"
