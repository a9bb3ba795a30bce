# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of the outbox: subscriptions, what is told to them, and the deliveries as their owners see them."""

SUBSCRIPTION_COLUMNS = "name, state, destination, position, created_by, created_at, updated_at, reason, types, kinds, filter"

_HEAD = (
    "delivery_id, subscription, destination, event_id, type, aggregate_id, position, generation, state, attempts, epoch, "
    "next_attempt_at, leased_until, occurred_at, created_at, first_attempt_at, ended_at, last_status, last_error"
)

DELIVERY_COLUMNS = f"{_HEAD}, body"

# --- fan-out --------------------------------------------------------------------------------------------------------

_NOT_ASIDE = "NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'outbox_fan_out' AND item = s.name)"

# The instant of the oldest entry that some active subscription has not looked at. Positions have no gaps, so it is the entry
# behind its position. It reads two rows a subscription.
EARLIEST = f"""
SELECT h.at AS due FROM subscriptions AS s JOIN history AS h ON h.position = s.position + 1
WHERE s.state = 'active' AND {_NOT_ASIDE} ORDER BY h.at LIMIT 1
"""

# The active subscriptions that have not looked at everything, the one that is furthest behind first.
BEHIND = f"""
SELECT s.name AS item, h.at AS due FROM subscriptions AS s JOIN history AS h ON h.position = s.position + 1
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
ON CONFLICT (subscription, destination, event_id) DO NOTHING
"""
