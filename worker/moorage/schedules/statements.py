"""The SQL of schedules and of what became of their windows.

Whoever starts a window moves `current_window`, and plans on the value that it read: of two that start at once one fails.
"""

from moorage.kernel.limits import TRIGGER_RETENTION_SECONDS
from moorage.timers.statements import FAILING

_NAMES = """
s.name, s.cron, s.every_ms, s.timezone, s.overlap, s.catch_up, s.catch_up_ms, s.paused, s.anchor, s.next_at, s.waiting,
s.current_window, s.created_by, s.credential, s.created_at, s.updated_at, s.target
""".strip()

# What the window that was started last has started, and whether that goes on. A run or a record that was removed has ended.
_CURRENT = """
LEFT JOIN schedule_triggers AS t ON t.schedule = s.name AND t.window_start = s.current_window
LEFT JOIN runs AS r ON r.run_id = t.run_id
LEFT JOIN records AS c ON c.id = t.record
""".strip()
_BUSY = "((r.run_id IS NOT NULL AND r.ended_at IS NULL) OR (c.id IS NOT NULL AND c.state IN ('ready', 'claimed')))"

# What the Clock sees to is a schedule as it was declared, paused or resumed last: one that was set aside and is declared
# anew is another item.
_ITEM = "s.name || '@' || s.updated_at"
_FAILING = FAILING.format(works="'schedule_fired', 'schedule_resumed'", item=_ITEM)

_SCHEDULE = f"""
SELECT {_NAMES}, coalesce({_BUSY}, 0) AS busy, k.grants AS grants, t.run_id AS current_run, t.record AS current_record,
    CASE WHEN s.waiting = 1
        THEN (
            SELECT count(*) FROM schedule_triggers AS q INDEXED BY schedule_triggers_queued
            WHERE q.schedule = s.name AND q.state = 'queued'
        ) ELSE 0
    END AS queued, {_FAILING} AS failing
FROM schedules AS s {_CURRENT}
LEFT JOIN credentials AS k ON k.id = s.credential AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)
"""

# One schedule, with the grants of its credential as long as that is alive.
SCHEDULE = f"{_SCHEDULE} WHERE s.name = :name"

# A page of schedules by name.
SCHEDULES = f"{_SCHEDULE} WHERE s.name > :after ORDER BY s.name LIMIT CAST(:limit AS INTEGER)"

# The schedule is as it was when the transaction was planned.
UNCHANGED = """
SELECT 1 FROM schedules WHERE name = :name AND next_at IS :next_at AND current_window IS :current_window
    AND updated_at = :updated_at
"""

# There is no schedule of this name yet.
IS_NEW = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM schedules WHERE name = :name)"

# Declares a schedule, or declares it anew; what is under way and waits stays.
PUT = """
INSERT INTO schedules (name, cron, every_ms, timezone, overlap, catch_up, catch_up_ms, paused, anchor, next_at, created_by,
    credential, created_at, updated_at, target)
VALUES (:name, :cron, :every_ms, :timezone, :overlap, :catch_up, :catch_up_ms, :paused, :anchor, :new_next_at, :caller,
    :credential, :now, :now, :target)
ON CONFLICT (name) DO UPDATE SET cron = excluded.cron, every_ms = excluded.every_ms, timezone = excluded.timezone,
    overlap = excluded.overlap, catch_up = excluded.catch_up, catch_up_ms = excluded.catch_up_ms, paused = excluded.paused,
    anchor = excluded.anchor, next_at = excluded.next_at, created_by = excluded.created_by,
    credential = excluded.credential, updated_at = excluded.updated_at, target = excluded.target
"""

# Pauses a schedule or lets it go on.
SET_PAUSED = "UPDATE schedules SET paused = :paused, next_at = :new_next_at, updated_at = :now WHERE name = :name"

# Removes a schedule. What became of its windows is remembered: made anew it starts none of them twice.
DELETE = "DELETE FROM schedules WHERE name = :name"

# The windows that wait go with their schedule.
DROP_QUEUED = """
UPDATE schedule_triggers INDEXED BY schedule_triggers_queued SET state = 'skipped', error = '{"reason":"deleted"}'
WHERE schedule = :name AND state = 'queued'
"""


# What became of a window, if it came.
TRIGGER = """
SELECT schedule, window_start, window_end, trigger_id, state, run_id, record, backfill, created_at, started_at, error
FROM schedule_triggers WHERE schedule = :name AND window_start = :window_start
"""

# The first millisecond at or after :now past all windows that have come, a second at most: none comes before its time, but
# clocks may differ.
NEXT_FREE = """
SELECT coalesce(max(window_start) + 1, CAST(:now AS INTEGER)) AS free FROM schedule_triggers
WHERE schedule = :name AND window_start >= :now AND window_start < :now + 1000
"""

# A page of a schedule's windows, the latest first.
TRIGGERS = """
SELECT schedule, window_start, window_end, trigger_id, state, run_id, record, backfill, created_at, started_at, error
FROM schedule_triggers WHERE schedule = :name AND window_start < :before
ORDER BY window_start DESC LIMIT CAST(:limit AS INTEGER)
"""

# Notes what became of a window. That it came already breaks the transaction: nothing fires twice.
INSERT_TRIGGER = """
INSERT INTO schedule_triggers (schedule, window_start, window_end, trigger_id, state, run_id, record, created_at, started_at,
    error)
VALUES (:name, :window_start, :window_end, :trigger_id, :state, :run_id, :record, :now,
    CASE WHEN :state = 'started' THEN CAST(:now AS INTEGER) END, :error)
"""

# A window that waited has had its turn.
END_QUEUED = """
UPDATE schedule_triggers SET state = :state, run_id = :run_id, record = :record, error = :error,
    started_at = CASE WHEN :state = 'started' THEN CAST(:now AS INTEGER) END
WHERE schedule = :name AND window_start = :window_start AND state = 'queued'
"""

# The window waits still.
IS_QUEUED = "SELECT 1 FROM schedule_triggers WHERE schedule = :name AND window_start = :window_start AND state = 'queued'"

# The one window that coalesce waits with gives its place to a later one; backfills wait on their own.
COALESCE = """
UPDATE schedule_triggers INDEXED BY schedule_triggers_queued SET state = 'coalesced'
WHERE schedule = :name AND state = 'queued' AND backfill = 0
"""

# Where the schedule stands after a window: `started` is that window if it started something.
ADVANCE = """
UPDATE schedules SET next_at = :new_next_at, current_window = coalesce(:started, current_window),
    waiting = EXISTS (
        SELECT 1 FROM schedule_triggers AS q INDEXED BY schedule_triggers_queued
        WHERE q.schedule = :name AND q.state = 'queued'
    )
WHERE name = :name
"""

# The full ten minutes at or after the first instant at which what became of a window has been remembered for long enough.
EARLIEST_FORGOTTEN = f"""
SELECT (t.created_at + {int(TRIGGER_RETENTION_SECONDS) * 1000} + 599999) / 600000 * 600000 AS due
FROM schedule_triggers AS t INDEXED BY schedule_triggers_over
WHERE t.state <> 'queued'
    AND NOT EXISTS (SELECT 1 FROM due_failures AS f WHERE f.work = 'schedule_forgotten' AND f.item = 'sweep')
ORDER BY t.created_at LIMIT 1
"""
FORGOTTEN = f"SELECT 'sweep' AS item, due FROM ({EARLIEST_FORGOTTEN}) WHERE due <= :now AND CAST(:limit AS INTEGER) > 0"

_FORGOTTEN_NOW = """
SELECT t.schedule, t.window_start FROM schedule_triggers AS t INDEXED BY schedule_triggers_over
WHERE t.state <> 'queued' AND t.created_at <= :before
ORDER BY t.created_at, t.schedule, t.window_start LIMIT CAST(:limit AS INTEGER)
"""

# How many windows of which schedule are forgotten now, for history.
FORGETTING = f"""
SELECT row_number() OVER (ORDER BY schedule) AS ordinal, 'schedule:' || schedule AS subject, NULL AS kind,
    NULL AS content_sha256, json_object('windows', count(*)) AS data
FROM ({_FORGOTTEN_NOW}) GROUP BY schedule
"""

# Forgets windows that came by then, of schedules that are gone too; those that came first are the first to go.
FORGET = f"DELETE FROM schedule_triggers WHERE (schedule, window_start) IN ({_FORGOTTEN_NOW})"

# Lets past windows wait for their turn, unless they started something or wait already.
BACKFILL = """
INSERT INTO schedule_triggers (schedule, window_start, window_end, trigger_id, state, backfill, created_at)
SELECT :name, one.value ->> 0, one.value ->> 1, one.value ->> 2, 'queued', 1, CAST(:now AS INTEGER)
FROM json_each(:windows) AS one WHERE true
ON CONFLICT (schedule, window_start) DO UPDATE SET state = 'queued', backfill = 1, window_end = excluded.window_end,
    created_at = excluded.created_at, error = NULL
WHERE schedule_triggers.state IN ('skipped', 'coalesced', 'failed')
RETURNING window_start
"""

# No more windows wait than the line has room for.
HAS_ROOM = """
SELECT 1 WHERE (
    SELECT count(*) FROM schedule_triggers INDEXED BY schedule_triggers_queued WHERE schedule = :name AND state = 'queued'
) <= CAST(:most AS INTEGER)
"""

_NOT_ASIDE = f"NOT EXISTS (SELECT 1 FROM due_failures AS f WHERE f.work = 'schedule_fired' AND f.item = {_ITEM})"

# The start of the first window of all schedules.
EARLIEST = f"""
SELECT s.next_at AS due FROM schedules AS s WHERE s.next_at IS NOT NULL AND {_NOT_ASIDE} ORDER BY s.next_at LIMIT 1
"""

# The schedules of which a window has begun.
DUE = f"""
SELECT {_ITEM} AS item, s.next_at AS due FROM schedules AS s WHERE s.next_at <= :now AND {_NOT_ASIDE}
ORDER BY s.next_at, s.name LIMIT CAST(:limit AS INTEGER)
"""

# Schedules whose first waiting window may have its turn, and since when: what was started last has ended, or, where records
# are published after the fact, nothing need end.
_READY = f"""
SELECT {_ITEM} AS item, max(q.created_at, coalesce(r.ended_at, c.ended_at, q.created_at)) AS due
FROM schedules AS s INDEXED BY schedules_waiting
CROSS JOIN schedule_triggers AS q ON q.schedule = s.name AND q.window_start = (
    SELECT min(w.window_start) FROM schedule_triggers AS w INDEXED BY schedule_triggers_queued
    WHERE w.schedule = s.name AND w.state = 'queued'
) {_CURRENT}
WHERE s.waiting = 1 AND s.paused = 0
    AND (NOT coalesce({_BUSY}, 0) OR (q.backfill = 1 AND s.target ->> '$.record' IS NOT NULL))
    AND NOT EXISTS (SELECT 1 FROM due_failures AS f WHERE f.work = 'schedule_resumed' AND f.item = {_ITEM})
"""
EARLIEST_READY = f"SELECT due FROM ({_READY}) ORDER BY due LIMIT 1"
READY = f"SELECT item, due FROM ({_READY}) WHERE due <= :now ORDER BY due, item LIMIT CAST(:limit AS INTEGER)"

# The window of a schedule that has waited for longest.
FIRST_QUEUED = """
SELECT window_start, window_end, backfill FROM schedule_triggers INDEXED BY schedule_triggers_queued
WHERE schedule = :name AND state = 'queued'
ORDER BY window_start LIMIT 1
"""

# What has become of the window that is next, if somebody started or asked for it already.
NEXT_TRIGGER = """
SELECT state FROM schedule_triggers
WHERE schedule = :name AND window_start = (SELECT next_at FROM schedules WHERE name = :name)
"""

# Notes that windows were passed over, in the row of the first of them, unless something became of that one.
MISSED = """
INSERT INTO schedule_triggers (schedule, window_start, window_end, trigger_id, state, created_at, error)
VALUES (:name, :window_start, :window_end, :trigger_id, 'skipped', :now, :error)
ON CONFLICT (schedule, window_start) DO NOTHING
"""

# What a backfill did, for whoever asks again under its key.
BACKFILLED = """
SELECT json_object('windows', CAST(:windows AS INTEGER), 'queued', (
    SELECT count(*) FROM schedule_triggers INDEXED BY schedule_triggers_queued
    WHERE schedule = :name AND state = 'queued' AND backfill = 1 AND created_at = :now
))
"""
