"""The SQL of seals. A seal is only ever inserted; nothing here updates or deletes one."""

# The end of the chain: the last sealed position, its link, and the last position of all. Each is read at a table's end.
ENDS = """
SELECT (SELECT max(position) FROM seals) AS sealed,
    (SELECT substr(links, -64) FROM seals WHERE position = (SELECT max(position) FROM seals)) AS link,
    (SELECT max(position) FROM history) AS last
"""

# The first entries behind the last seal.
UNSEALED = """
SELECT position, subject, revision, type, kind, actor, at, data, content_sha256 FROM history
WHERE position > coalesce((SELECT max(position) FROM seals), 0) AND position <= 9007199254740991
ORDER BY position LIMIT CAST(:limit AS INTEGER)
"""

# Nobody sealed since the chain's end was read: two sealers never both go on from one link.
SEALED_UP_TO = "SELECT 1 WHERE coalesce((SELECT max(position) FROM seals), 0) = CAST(:last AS INTEGER)"

# Adds a seal over the entries whose last is at this position.
SEAL = "INSERT INTO seals (position, sealed_at, seal, links) VALUES (:position, :now, :seal, :links)"

# When the Clock seals: at the second full five seconds after the first unsealed entry, so that entries gather and
# the entries of five seconds give one instant. Reads one row of each table, however much is waiting. What goes on from
# another link, because somebody sealed by hand, is another item.
SEAL_DUE = """
SELECT 'after:' || coalesce((SELECT max(position) FROM seals), 0) AS item, (at / 5000 + 2) * 5000 AS due FROM history
WHERE position > coalesce((SELECT max(position) FROM seals), 0) AND position <= 9007199254740991
AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'history_sealed'
    AND item = 'after:' || coalesce((SELECT max(position) FROM seals), 0))
ORDER BY position LIMIT 1
"""

# The sealing as one item, once that instant has come.
SEAL_DUE_NOW = f"SELECT item, due FROM ({SEAL_DUE}) WHERE due <= :now"  # noqa: S608  both parts are constants

# A page of seals, oldest first.
SEALS = """
SELECT position, sealed_at, length(links) / 64 AS entries, substr(links, -64) AS link FROM seals
WHERE position > :start ORDER BY position LIMIT CAST(:limit AS INTEGER)
"""

# A page of seals, newest first.
SEALS_BACKWARDS = """
SELECT position, sealed_at, length(links) / 64 AS entries, substr(links, -64) AS link FROM seals
WHERE position < :start ORDER BY position DESC LIMIT CAST(:limit AS INTEGER)
"""

# The seals over the positions from :after to :until: up to the first that reaches :until. Their positions differ, so there
# are never more of them than positions.
SEALS_OVER = """
SELECT position, sealed_at, seal, links FROM seals
WHERE position >= :after AND position <= coalesce(
    (SELECT position FROM seals WHERE position >= :until ORDER BY position LIMIT 1), 9007199254740991)
ORDER BY position
"""

# The entries of a stretch of positions, as far as they are sealed.
SEALED_ENTRIES = """
SELECT position, subject, revision, type, kind, actor, at, data, content_sha256 FROM history
WHERE position > :after AND position <= min(CAST(:until AS INTEGER), (SELECT max(position) FROM seals)) ORDER BY position
"""

# The first sealed entry behind a stretch of positions.
NEXT_SEALED = """
SELECT position FROM history WHERE position > :until AND position <= (SELECT max(position) FROM seals)
ORDER BY position LIMIT 1
"""

# Entries and seals that stand before the first position, where none ever stood.
STRAYS = """
SELECT min(coalesce((SELECT min(position) FROM history), 1), coalesce((SELECT min(position) FROM seals), 1)) AS position
"""
