# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of the outbox: subscriptions, completions, and what is told to them."""

from moorage.kernel.limits import DELIVERY_RETENTION_SECONDS

SUBSCRIPTION_COLUMNS = "name, state, destination, position, created_by, created_at, updated_at, reason, types, kinds, filter"

# --- fan-out --------------------------------------------------------------------------------------------------------

# What the Clock looks further is a subscription as it was declared, paused or resumed last.
_ITEM = "s.name || '@' || s.updated_at"
_NOT_ASIDE = f"NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'outbox_fan_out' AND item = {_ITEM})"

# The instant of the oldest entry that some active subscription has not looked at. Positions have no gaps, so it is the entry
# behind its position. It reads two rows a subscription.
EARLIEST = f"""
SELECT h.at AS due FROM subscriptions AS s JOIN history AS h ON h.position = s.position + 1
WHERE s.state = 'active' AND {_NOT_ASIDE} ORDER BY h.at LIMIT 1
"""

# The active subscriptions that have not looked at everything, the one that is furthest behind first.
BEHIND = f"""
SELECT {_ITEM} AS item, h.at AS due FROM subscriptions AS s JOIN history AS h ON h.position = s.position + 1
WHERE s.state = 'active' AND h.at <= :now AND {_NOT_ASIDE} ORDER BY h.at, s.name LIMIT CAST(:limit AS INTEGER)
"""

# One subscription.
SUBSCRIPTION = f"SELECT {SUBSCRIPTION_COLUMNS} FROM subscriptions WHERE name = :name"

_UNSEEN = """
SELECT position, subject, revision, type, kind, actor, at, data, content_sha256 FROM history
WHERE position > (SELECT position FROM subscriptions WHERE name = :name AND state = 'active')
ORDER BY position LIMIT CAST(:limit AS INTEGER)
"""

# The next entries that an active subscription has not looked at, oldest first.
UNSEEN = _UNSEEN

# Who asked to be told of the ends of runs among the same entries.
COMPLETIONS_OF_UNSEEN = f"""
SELECT e.position, c.destination FROM ({_UNSEEN}) AS e JOIN completions AS c ON c.run_id = e.subject
WHERE e.type IN ('run.closed', 'run.reaped') ORDER BY e.position, c.destination
"""

# The bodies of records, in the order of `ids`, a JSON array; those past so many characters together are left out, never the
# first. A record that is gone has no row.
BODIES = """
WITH found AS (
    SELECT r.id, one.key AS ordinal, r.body,
        sum(length(r.body)) OVER (ORDER BY one.key) AS characters
    FROM json_each(:ids) AS one JOIN records AS r ON r.id = one.value
)
SELECT id, ordinal, CASE WHEN characters <= :characters OR characters = length(body) THEN body END AS body
FROM found ORDER BY ordinal
"""

# The subscription is as it was read: it is active, has told of nothing since, and means the same entries.
UNCHANGED = """
SELECT 1 FROM subscriptions WHERE name = :name AND position = :position AND state = 'active' AND types = :types
AND kinds = :kinds AND filter IS :filter AND destination IS :destination
"""

# Everything up to a position was looked at.
ADVANCE = "UPDATE subscriptions SET position = CAST(:to AS INTEGER) WHERE name = :name"

# Inserts deliveries, one for each element of a JSON array, due at once. Who has one of the event already gets no other; nor
# does who asked for the end of the run :once_for before, which the fan-out told them of.
INSERT = """
INSERT INTO deliveries (delivery_id, subscription, destination, event_id, type, aggregate_id, position, generation, state,
    attempts, epoch, next_attempt_at, occurred_at, created_at, body)
SELECT one.value ->> 'delivery_id', :subscription, one.value ->> 'destination', one.value ->> 'event_id',
    one.value ->> 'type', one.value ->> 'aggregate_id', one.value ->> 'position', 1, 'pending',
    0, 0, :now, one.value ->> 'occurred_at', :now, one.value ->> 'body'
FROM json_each(:deliveries) AS one
WHERE NOT EXISTS (SELECT 1 FROM completions WHERE run_id = :once_for AND destination = one.value ->> 'destination')
ORDER BY one.key
ON CONFLICT (event_id, subscription, destination) DO NOTHING
"""

# --- subscriptions --------------------------------------------------------------------------------------------------

_BEHIND_BY = "max(0, coalesce((SELECT max(position) FROM history), 0) - position) AS behind"

_SHOWN = f"{SUBSCRIPTION_COLUMNS}, {_BEHIND_BY}"

# The destination is declared.
DESTINATION_EXISTS = "SELECT 1 FROM destinations WHERE name = :destination"

# There is room for a subscription of this name, or it is there. Those of the product's own do not count.
HAS_ROOM = """
SELECT 1 WHERE EXISTS (SELECT 1 FROM subscriptions WHERE name = :name)
OR (SELECT count(*) FROM subscriptions WHERE name NOT GLOB '_*') < CAST(:most AS INTEGER)
"""

# Declares a subscription, or declares it anew. A new one begins behind the last entry, and one that is there stays where it
# is, unless `start` says from where; past the last entry there is nothing to begin from.
PUT = f"""
INSERT INTO subscriptions ({SUBSCRIPTION_COLUMNS})
SELECT :name, :state, :destination, min(coalesce(CAST(:start AS INTEGER), last.position), last.position), :by, :now, :now,
    NULL, :types, :kinds, :filter
FROM (SELECT coalesce((SELECT max(position) FROM history), 0) AS position) AS last WHERE true
ON CONFLICT (name) DO UPDATE SET state = excluded.state, destination = excluded.destination, reason = NULL,
    types = excluded.types, kinds = excluded.kinds, filter = excluded.filter, updated_at = excluded.updated_at,
    position = CASE WHEN CAST(:moves AS INTEGER) = 1 THEN excluded.position ELSE subscriptions.position END
RETURNING {_SHOWN}
"""

# One subscription as it is shown.
SHOW = f"SELECT {_SHOWN} FROM subscriptions WHERE name = :name"

# A page of subscriptions after a name.
PAGE = f"""
SELECT {_SHOWN} FROM subscriptions WHERE name > :after AND name NOT GLOB '_*'
ORDER BY name LIMIT CAST(:limit AS INTEGER)
"""

# Tells nothing more until it is resumed, or goes on.
SET_STATE = f"""
UPDATE subscriptions SET state = :state, reason = :reason, updated_at = :now WHERE name = :name RETURNING {_SHOWN}
"""

# It is there.
EXISTS = "SELECT 1 FROM subscriptions WHERE name = :name"

# Takes it away. What it has told already is still delivered.
DELETE = "DELETE FROM subscriptions WHERE name = :name"

# --- completions ----------------------------------------------------------------------------------------------------

# Every one of the destinations, a JSON array of names, is declared.
DESTINATIONS_EXIST = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:destinations) AS one WHERE NOT EXISTS (SELECT 1 FROM destinations WHERE name = one.value)
)
"""

# The run may be told of to this destination too: it is already, or to few enough others.
COMPLETION_HAS_ROOM = """
SELECT 1 WHERE EXISTS (SELECT 1 FROM completions WHERE run_id = :run_id AND destination = :destination)
OR (SELECT count(*) FROM completions WHERE run_id = :run_id) < CAST(:most AS INTEGER)
"""

# Asks that a run's end be told to destinations, a JSON array of names; of a run that is on record and was not refused.
ASK = """
INSERT INTO completions (run_id, destination, created_at, created_by)
SELECT r.run_id, one.value, :now, :by FROM json_each(:destinations) AS one CROSS JOIN runs AS r ON r.run_id = :run_id
WHERE r.ended_at IS NULL OR CAST(:ended AS INTEGER) = 1
ON CONFLICT (run_id, destination) DO NOTHING
"""

# The subscription to which the deliveries of runs' ends belong, from the first time that somebody asks for one.
LISTEN = f"""
INSERT INTO subscriptions ({SUBSCRIPTION_COLUMNS})
SELECT '_completions', 'active', NULL, last.position, :by, :now, :now, NULL, '["run.closed","run.reaped"]', '[]', NULL
FROM (SELECT coalesce((SELECT max(position) FROM history), 0) AS position) AS last
WHERE NOT EXISTS (SELECT 1 FROM subscriptions WHERE name = '_completions')
"""

# The entry that tells of a run's end, if it has ended: one that was refused has none but that of its opening.
END_OF_RUN = """
SELECT h.position, h.subject, h.revision, h.type, h.kind, h.actor, h.at, h.data, h.content_sha256 FROM history AS h
WHERE h.subject = :run_id AND h.type <> 'record.published' AND (h.type IN ('run.closed', 'run.reaped')
    OR EXISTS (SELECT 1 FROM runs AS r WHERE r.run_id = :run_id AND r.status = 'failed' AND h.type = 'run.opened'
        AND h.data ->> 'status' = 'failed'))
ORDER BY h.revision DESC LIMIT 1
"""

# No such entry has been written.
HAS_NOT_ENDED = f"SELECT 1 WHERE NOT EXISTS ({END_OF_RUN})"

# The run is on record.
RUN_EXISTS = "SELECT 1 FROM runs WHERE run_id = :run_id"

# To whom a run's end is told.
COMPLETIONS_OF = """
SELECT destination, created_at, created_by FROM completions WHERE run_id = :run_id ORDER BY destination
"""

# Forgets who asked for the ends of runs, a JSON array of ids, that are removed.
FORGET_COMPLETIONS = "DELETE FROM completions WHERE run_id IN (SELECT value FROM json_each(:runs))"

# --- how far behind it is -------------------------------------------------------------------------------------------

# The instant of the oldest entry that some active subscription has not looked at, set aside or not.
OLDEST_UNTOLD = """
SELECT h.at AS oldest FROM subscriptions AS s JOIN history AS h ON h.position = s.position + 1
WHERE s.state = 'active' ORDER BY h.at LIMIT 1
"""

# Whether anything listens to history at all: what an isolate asks before it rings after every commit.
LISTENS = "SELECT EXISTS (SELECT 1 FROM subscriptions WHERE state = 'active') AS listens"

# --- retention ------------------------------------------------------------------------------------------------------

_ENDED = "state IN ('delivered', 'canceled')"

# The full ten minutes at or after the first instant at which a delivery has been over for long enough.
EARLIEST_REMOVAL = f"""
SELECT (ended_at + {int(DELIVERY_RETENTION_SECONDS) * 1000} + 599999) / 600000 * 600000 AS due FROM deliveries
WHERE {_ENDED} AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'delivery_removed' AND item = 'sweep')
ORDER BY ended_at LIMIT 1
"""
REMOVALS = f"SELECT 'sweep' AS item, due FROM ({EARLIEST_REMOVAL}) WHERE due <= :now AND CAST(:limit AS INTEGER) > 0"

# Removes deliveries that were over by then, those that have been for longest first.
REMOVE = f"""
DELETE FROM deliveries WHERE delivery_id IN (
    SELECT delivery_id FROM deliveries WHERE {_ENDED} AND ended_at <= :ended_before
    ORDER BY ended_at LIMIT CAST(:limit AS INTEGER)
)
"""
