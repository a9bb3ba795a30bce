# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of timers. A timer's row goes when it fires or is deleted; history alone remembers its revisions."""

from moorage.timers.statements import FAILING

COLUMNS = (
    "id, revision, fire_at, every_ms, source, type, delivery_id, subject, keys, created_by, credential, created_at,"
    " updated_at"
)

# The timer is just what is being asked for, by the same credential; an id that was not asked for is the one made of it.
_IS_SAME = """
SELECT 1 FROM timers AS t WHERE t.id = :id AND t.fire_at = :fire_at AND t.every_ms IS :every_ms AND t.source = :source
    AND t.type = :event_type AND t.subject IS :subject AND t.keys = :keys AND t.data IS :data AND t.created_by = :owner
    AND t.credential IS :credential AND t.delivery_id = coalesce(:event_id, t.id || ':' || t.revision)
""".strip()

# What history is told of a timer that is set; the same again is nothing new.
SETTING = f"""
SELECT 1 AS ordinal, 'timer:' || :id AS subject, NULL AS kind, :sha256 AS content_sha256, :told AS data
WHERE NOT EXISTS ({_IS_SAME})
"""

# Sets a timer, or sets it anew, at the revision of the entry that history has just been told.
SET = f"""
INSERT INTO timers (id, revision, fire_at, every_ms, source, type, delivery_id, subject, keys, created_by, credential,
    created_at, updated_at, data)
SELECT :id, made.revision, :fire_at, :every_ms, :source, :event_type,
    coalesce(:event_id, :id || ':' || made.revision), :subject, :keys, :owner, :credential, :now, :now, :data
FROM (
    SELECT max(h.revision) AS revision FROM history AS h
    WHERE h.subject = 'timer:' || :id AND h.type <> 'record.published'
) AS made WHERE NOT EXISTS ({_IS_SAME})
ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, fire_at = excluded.fire_at, every_ms = excluded.every_ms,
    source = excluded.source, type = excluded.type, delivery_id = excluded.delivery_id, subject = excluded.subject,
    keys = excluded.keys, created_by = excluded.created_by, credential = excluded.credential,
    updated_at = excluded.updated_at, data = excluded.data
"""

# What the Clock fires is a timer at a revision: one that was set aside and is set anew is another item.
_ITEM = "timers.id || '@' || timers.revision"
_FAILING = FAILING.format(works="'timer_fired'", item=_ITEM)

# One timer.
GET = f"SELECT {COLUMNS}, data, {_FAILING} AS failing FROM timers WHERE id = :id"

# One timer, and whether the credential that set it may still do so.
GET_TO_FIRE = f"""
SELECT {COLUMNS}, data, credential IS NULL OR EXISTS (
    SELECT 1 FROM credentials AS c WHERE c.id = timers.credential AND c.revoked_at IS NULL
        AND (c.expires_at IS NULL OR c.expires_at > :now)
) AS alive
FROM timers WHERE id = :id
"""

# What a timer that was set under an Idempotency-Key was answered with, but for what the request itself tells.
SET_MADE = """
SELECT json_object('revision', revision, 'fire_at', fire_at, 'delivery_id', delivery_id, 'created_at', created_at,
    'updated_at', updated_at) FROM timers WHERE id = :id
"""

# A page of timers by id.
PAGE = f"SELECT {COLUMNS}, {_FAILING} AS failing FROM timers WHERE id > :after ORDER BY id LIMIT CAST(:limit AS INTEGER)"

# The timer has the named revision; 0 stands for one that is not there.
IS_AT = "SELECT 1 WHERE coalesce((SELECT revision FROM timers WHERE id = :id), 0) = CAST(:revision AS INTEGER)"

# Nobody has set a timer of this id whose event is of another type than these names and prefixes.
IS_OF_TYPES = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM timers AS t WHERE t.id = :id AND NOT EXISTS (
        SELECT 1 FROM json_each(:types) AS pattern
        WHERE pattern.value = t.type OR (
            substr(pattern.value, -1) = '*'
            AND substr(t.type, 1, length(pattern.value) - 1) = substr(pattern.value, 1, length(pattern.value) - 1)
        )
    )
)
"""

# The timer is due at this revision.
IS_DUE = "SELECT 1 FROM timers WHERE id = :id AND revision = CAST(:revision AS INTEGER) AND fire_at <= :now"

# What history is told of a firing: which event stands for it, and whether that was accepted just now, by the last entry.
FIRING = """
SELECT 1 AS ordinal, 'timer:' || :id AS subject, NULL AS kind, NULL AS content_sha256,
    json_object('due', :due, 'event', e.event_id,
        'added', json(CASE WHEN e.seq = (SELECT max(position) FROM history) THEN 'true' ELSE 'false' END)) AS data
FROM events AS e WHERE e.source = :source AND e.delivery_id = :delivery_id
"""

# Sets a timer that repeats to its next instant, at the revision of the entry that history has just been told.
REARM = """
UPDATE timers SET fire_at = :next, updated_at = :now, revision = (
    SELECT max(h.revision) FROM history AS h WHERE h.subject = 'timer:' || :id AND h.type <> 'record.published'
)
WHERE id = :id
"""

REMOVE = "DELETE FROM timers WHERE id = :id"

_DUE = f"""
FROM timers
WHERE NOT EXISTS (SELECT 1 FROM due_failures AS f WHERE f.work = 'timer_fired' AND f.item = {_ITEM})
""".strip()

# The earliest timer that is not set aside, and those whose time has come.
EARLIEST = f"SELECT fire_at AS due {_DUE} ORDER BY fire_at LIMIT 1"
DUE = f"SELECT {_ITEM} AS item, fire_at AS due {_DUE} AND fire_at <= :now ORDER BY fire_at, id LIMIT CAST(:limit AS INTEGER)"
