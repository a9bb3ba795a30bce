# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of retention and of cancelling: how records end otherwise than by a claim, and how they leave.

`records_ended` holds the terminal records of a kind by their end, `records_held` those that are not to be looked at before
`held_until`. A record stands in one of the two, so that finding the next candidates never walks over what must stay.
"""

from moorage.kernel.limits import RETENTION_BATCH, RETENTION_CHILDREN
from moorage.records.statements import RETURNED_COLUMNS, of_end

_ENDED_TEXT = "strftime('%Y-%m-%dT%H:%M:%fZ', r.ended_at / 1000.0, 'unixepoch')"

# Something that happened to it is still to be delivered, and names it as where it is read. An event's id begins with the
# position of its entry, so it is found by that; where nothing waits to be delivered nothing is looked for. That of its
# publication is its own `seq`: the index of history by subject leaves these out.
_PENDING = """
deliveries AS d INDEXED BY deliveries_by_event ON d.state = 'pending'
    AND d.event_id > printf('dom_%016d_', {position}) AND d.event_id < printf('dom_%016d`', {position})
""".strip()
_UNTOLD = f"""
    EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_in_order WHERE state = 'pending') AND (
        EXISTS (SELECT 1 FROM (SELECT 1) CROSS JOIN {_PENDING.replace("{position}", "r.seq")})
        OR EXISTS (
            SELECT 1 FROM history AS told CROSS JOIN {_PENDING.replace("{position}", "told.position")}
            WHERE told.subject = r.id AND told.type <> 'record.published'
        )
    )
""".strip()

# A live record descends from it; it has more children than may be asked; or it is still to be told of.
_NEEDED = f"""(
    (SELECT count(*) FROM (SELECT 1 FROM record_parents WHERE parent = r.id LIMIT {RETENTION_CHILDREN + 1}))
        > {RETENTION_CHILDREN}
    OR EXISTS (
        SELECT 1 FROM record_parents AS p JOIN records AS c ON c.id = p.child WHERE p.parent = r.id AND c.ended_at IS NULL
    )
    OR {_UNTOLD}
)"""

# When a kind with retention next has something to look at: its longest ended record, and the first held one.
_LOOKS = """
SELECT k.name AS kind, k.retention_seconds AS kept, k.retention_seconds * 1000 + (
    SELECT r.ended_at FROM records AS r INDEXED BY records_ended
    WHERE r.kind = k.name AND r.ended_at IS NOT NULL AND r.held_until IS NULL ORDER BY r.ended_at LIMIT 1
) AS due
FROM kinds AS k INDEXED BY kinds_retained WHERE k.retention_seconds IS NOT NULL
UNION ALL
SELECT k.name AS kind, k.retention_seconds AS kept, (
    SELECT r.held_until FROM records AS r INDEXED BY records_held
    WHERE r.kind = k.name AND r.ended_at IS NOT NULL AND r.held_until IS NOT NULL ORDER BY r.held_until LIMIT 1
) AS due
FROM kinds AS k INDEXED BY kinds_retained WHERE k.retention_seconds IS NOT NULL
"""

# The kinds to look at, each at the full minute at or after its first record's instant, unless it is set aside. One that
# keeps its records for another time from now on is another item.
_ITEM = "look.kind || '@' || look.kept"
_KINDS_DUE = f"""
SELECT {_ITEM} AS item, (min(look.due) + 59999) / 60000 * 60000 AS due FROM ({_LOOKS}) AS look
WHERE look.due IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'retention_swept' AND item = {_ITEM})
GROUP BY look.kind
"""

EARLIEST = f"SELECT due FROM ({_KINDS_DUE}) ORDER BY due LIMIT 1"

PAGE = f"SELECT item, due FROM ({_KINDS_DUE}) WHERE due <= :now ORDER BY due, item LIMIT CAST(:limit AS INTEGER)"

# The next candidates of a kind: those past their age, and those held whose time to be looked at has come.
CANDIDATES = f"""
SELECT r.id, {_NEEDED} AS needed, r.ended_at > :now - k.retention_seconds * 1000 AS early
FROM (
    SELECT * FROM (
        SELECT a.id FROM records AS a INDEXED BY records_ended
        WHERE a.kind = :kind AND a.ended_at IS NOT NULL AND a.held_until IS NULL
            AND a.ended_at <= :now - (SELECT retention_seconds FROM kinds WHERE name = :kind) * 1000
        ORDER BY a.ended_at LIMIT {RETENTION_BATCH}
    )
    UNION ALL
    SELECT * FROM (
        SELECT h.id FROM records AS h INDEXED BY records_held
        WHERE h.kind = :kind AND h.ended_at IS NOT NULL AND h.held_until IS NOT NULL AND h.held_until <= :now
        ORDER BY h.held_until LIMIT {RETENTION_BATCH}
    )
    LIMIT {RETENTION_BATCH}
) AS chosen CROSS JOIN records AS r ON r.id = chosen.id
JOIN kinds AS k ON k.name = :kind
WHERE k.retention_seconds IS NOT NULL
"""

# Those of the chosen records that may go: terminal for as long as the kind keeps them, held by nothing, needed by nobody.
_MAY_GO = f"""
FROM json_each(:ids) AS chosen CROSS JOIN records AS r ON r.id = chosen.value
JOIN kinds AS k ON k.name = r.kind
WHERE r.ended_at IS NOT NULL AND r.ended_at <= :now - k.retention_seconds * 1000
    AND coalesce(r.held_until, 0) <= :now AND NOT {_NEEDED}
"""

# What is about to be removed, for its history entries: they name the entry that tells of the publication.
REMOVING = f"""
SELECT r.seq AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    json_object('ended_at', {_ENDED_TEXT}, 'seq', r.seq, 'state', r.state) AS data
{_MAY_GO}
"""

REMOVE = f"DELETE FROM records WHERE id IN (SELECT r.id {_MAY_GO}) RETURNING id"

# None of these records is left.
ALL_GONE = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:ids) AS chosen CROSS JOIN records ON records.id = chosen.value
)
"""

# The edges of which a removed record was the child; those of which it was the parent stay with its children.
REMOVE_EDGES = """
DELETE FROM record_parents WHERE child IN (
    SELECT chosen.value FROM json_each(:ids) AS chosen
    WHERE NOT EXISTS (SELECT 1 FROM records WHERE id = chosen.value)
)
"""

# Puts off what is still needed: for as long as it has been ended already, within ten minutes and a day.
PUT_OFF = f"""
UPDATE records SET held_until = CAST(:now + min(max(:now - ended_at, 600000), 86400000) AS INTEGER)
WHERE id IN (
    SELECT r.id FROM json_each(:ids) AS chosen CROSS JOIN records AS r ON r.id = chosen.value
    WHERE r.ended_at IS NOT NULL AND coalesce(r.held_until, 0) <= :now AND {_NEEDED}
)
RETURNING id
"""

# Lets what was held and is not old enough wait for its age like any other.
LET_GO = """
UPDATE records SET held_until = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND held_until <= :now
    AND ended_at > :now - (SELECT k.retention_seconds FROM kinds AS k WHERE k.name = records.kind) * 1000
RETURNING id
"""

# Keeps records at least until an instant: a key may ask for them until then.
HOLD = """
UPDATE records SET held_until = max(coalesce(held_until, 0), CAST(:until AS INTEGER))
WHERE id IN (SELECT value FROM json_each(:ids))
"""

# The same for the records that a SELECT of ids chooses.
HOLD_CHOSEN = """
UPDATE records SET held_until = max(coalesce(held_until, 0), CAST(:until AS INTEGER)) WHERE id IN ({chosen})
"""

# The last that happened under an id; the removal of a record is always that.
LAST_ENTRY = """
SELECT kind, type FROM history WHERE subject = :record AND type <> 'record.published' ORDER BY revision DESC LIMIT 1
"""

# --- preview ---

# How many terminal records of a kind ended by an instant, counted no further than :most.
COUNT = """
SELECT count(*) AS records FROM (
    SELECT 1 FROM records AS r INDEXED BY records_ended
    WHERE r.kind = :kind AND r.ended_at IS NOT NULL AND r.held_until IS NULL AND r.ended_at <= :until
    LIMIT CAST(:most AS INTEGER)
)
"""

# How many of a kind's terminal records are held back for now.
COUNT_HELD = """
SELECT count(*) AS records FROM (
    SELECT 1 FROM records AS r INDEXED BY records_held
    WHERE r.kind = :kind AND r.ended_at IS NOT NULL AND r.held_until IS NOT NULL
    LIMIT CAST(:most AS INTEGER)
)
"""

# The longest ended of them.
OLDEST = """
SELECT r.id, r.state, r.ended_at FROM records AS r INDEXED BY records_ended
WHERE r.kind = :kind AND r.ended_at IS NOT NULL AND r.held_until IS NULL AND r.ended_at <= :until
ORDER BY r.ended_at, r.id LIMIT CAST(:limit AS INTEGER)
"""

# --- cancel ---

IS_LIVE = "SELECT 1 FROM records WHERE id = :record AND state IN ('ready', 'claimed')"

# A record that is about to be cancelled, for its history entry.
CANCELING = f"""
SELECT 1 AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    {of_end("json_object('attempts', r.attempts, 'epoch', r.epoch, 'reason', :reason, 'state', r.state)")} AS data
FROM records AS r WHERE r.id = :record AND r.state IN ('ready', 'claimed')
"""

# Ends a ready or claimed record; whoever holds it has no claim any more, and the attempt is not blamed for it.
CANCEL = f"""
UPDATE records SET state = 'dead', available = 0, not_before = NULL, ended_at = :now, failure = :failure, owner = NULL,
    claim = NULL, expires_at = NULL
WHERE id = :record AND state IN ('ready', 'claimed')
RETURNING {RETURNED_COLUMNS}
"""
