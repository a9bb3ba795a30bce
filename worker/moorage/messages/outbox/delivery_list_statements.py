# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of deliveries as operators see them and act on them; how they are sent is the courier's."""

HEAD = (
    "delivery_id, subscription, destination, event_id, type, aggregate_id, position, generation, state, attempts, epoch, "
    "next_attempt_at, leased_until, occurred_at, created_at, first_attempt_at, ended_at, last_status, last_error"
)
COLUMNS = f"{HEAD}, body"

_WANTED = """
(:state IS NULL OR state = :state) AND (:subscription IS NULL OR subscription = :subscription)
AND (:destination IS NULL OR destination = :destination)
""".strip()

# A page of deliveries in the order in which they were made, or the other way round: of the next so many at most, those that
# are wanted, with the last that was examined, which is there also when it is not wanted.
_EXAMINED = """
WITH page AS (SELECT {head} FROM deliveries WHERE {where} ORDER BY delivery_id {order} LIMIT CAST(:examined AS INTEGER))
SELECT page.*, {wanted} AS hit, (SELECT count(*) FROM page) AS examined FROM page
WHERE hit OR delivery_id = (SELECT {last}(delivery_id) FROM page) ORDER BY delivery_id {order} LIMIT CAST(:limit AS INTEGER)
""".replace("{head}", HEAD).replace("{wanted}", f"({_WANTED})")


_FORWARD = _EXAMINED.replace("{order}", "ASC").replace("{last}", "max")
_BACK = _EXAMINED.replace("{order}", "DESC").replace("{last}", "min")

PAGE = _FORWARD.replace("{where}", "delivery_id > :after")
PAGE_BACK = _BACK.replace("{where}", "delivery_id < :after")

# The same among the dead, which have an index of their own.
DEAD = _FORWARD.replace("{where}", "state = 'dead' AND delivery_id > :after")
DEAD_BACK = _BACK.replace("{where}", "state = 'dead' AND delivery_id < :after")

# The same among those of one event, which are few.
OF_EVENT = _FORWARD.replace("{where}", "event_id = :event_id AND delivery_id > :after")
OF_EVENT_BACK = _BACK.replace("{where}", "event_id = :event_id AND delivery_id < :after")

# One delivery with its body.
SHOW = f"SELECT {COLUMNS} FROM deliveries WHERE delivery_id = :delivery"

# --- asking for them again, and giving them up ----------------------------------------------------------------------

EXISTS = "SELECT 1 FROM deliveries WHERE delivery_id = :delivery"

IS_OVER = "SELECT 1 FROM deliveries WHERE delivery_id = :delivery AND state <> 'pending'"

IS_NOT_DELIVERED = "SELECT 1 FROM deliveries WHERE delivery_id = :delivery AND state <> 'delivered'"

_ONE = "SELECT delivery_id FROM deliveries WHERE delivery_id = :delivery AND state <> 'pending'"

_WINDOW = "delivery_id > :after AND delivery_id >= :since"
_SOME = """
SELECT delivery_id FROM ({page}) WHERE state = :state AND (:subscription IS NULL OR subscription = :subscription)
AND (:destination IS NULL OR destination = :destination) ORDER BY delivery_id LIMIT CAST(:limit AS INTEGER)
"""
_LOOKED = f"""
SELECT delivery_id, state, subscription, destination FROM deliveries WHERE {_WINDOW}
ORDER BY delivery_id LIMIT CAST(:examined AS INTEGER)
"""
_LOOKED_DEAD = f"""
SELECT delivery_id, state, subscription, destination FROM deliveries WHERE state = 'dead' AND {_WINDOW}
ORDER BY delivery_id LIMIT CAST(:examined AS INTEGER)
"""

CHOSEN_ONE = _ONE
CHOSEN = _SOME.replace("{page}", _LOOKED)
CHOSEN_DEAD = _SOME.replace("{page}", _LOOKED_DEAD)

# The last one that was looked at, and how many were.
REACH = f"SELECT max(delivery_id) AS last, count(*) AS looked FROM ({_LOOKED})"
REACH_DEAD = f"SELECT max(delivery_id) AS last, count(*) AS looked FROM ({_LOOKED_DEAD})"

# The entries of history of those that are asked for again.
REDELIVERED = """
SELECT row_number() OVER (ORDER BY d.delivery_id) AS ordinal, d.delivery_id AS subject, NULL AS kind,
    NULL AS content_sha256, json_object('destination', d.destination, 'event_id', d.event_id, 'generation',
    d.generation + 1, 'reason', :reason, 'subscription', d.subscription) AS data
FROM ({again}) AS one CROSS JOIN deliveries AS d ON d.delivery_id = one.delivery_id
"""

# They are due at once, as a new generation with all its attempts before it; event and bytes are the same.
REDELIVER = f"""
UPDATE deliveries SET state = 'pending', generation = generation + 1, attempts = 0, epoch = epoch + 1,
    next_attempt_at = :now, leased_until = NULL, ended_at = NULL
WHERE delivery_id IN ({{again}}) RETURNING {HEAD}
"""

# What a key remembers of it.
TO_REMEMBER = "SELECT json_object('deliveries', json_group_array(delivery_id)) FROM ({again})"

# Those that a key remembers, as they are now; a JSON array of ids.
LISTED = f"SELECT {HEAD} FROM deliveries WHERE delivery_id IN (SELECT value FROM json_each(:ids)) ORDER BY delivery_id"

# The entry of history of one that is given up.
CANCELING = """
SELECT 0 AS ordinal, delivery_id AS subject, NULL AS kind, NULL AS content_sha256, json_object('destination', destination,
    'event_id', event_id, 'generation', generation, 'reason', :reason, 'subscription', subscription) AS data
FROM deliveries WHERE delivery_id = :delivery AND state IN ('pending', 'dead')
"""

# It is given up. Who is sending it at this moment can no longer write down how that went.
CANCEL = """
UPDATE deliveries SET state = 'canceled', epoch = epoch + 1, next_attempt_at = NULL, leased_until = NULL, ended_at = :now
WHERE delivery_id = :delivery AND state IN ('pending', 'dead')
"""

# --- summary --------------------------------------------------------------------------------------------------------

_PENDING = "SELECT attempts FROM deliveries WHERE destination = d.name AND state = 'pending' LIMIT CAST(:most AS INTEGER)"
_OLDEST = """
SELECT occurred_at FROM deliveries WHERE destination = d.name AND state = 'pending' ORDER BY position LIMIT 1
"""

# How deliveries to each destination stand, by its name. It counts so many at most of each kind, and takes the delay of
# publication from the newest deliveries.
SUMMARY = f"""
WITH newest AS (
    SELECT destination, first_attempt_at - occurred_at AS delay FROM (
        SELECT destination, first_attempt_at, occurred_at FROM deliveries ORDER BY delivery_id DESC
        LIMIT CAST(:most AS INTEGER)
    ) WHERE first_attempt_at IS NOT NULL
), delays AS (
    SELECT destination, CAST(avg(delay) AS INTEGER) AS mean, max(delay) AS longest FROM newest GROUP BY destination
), dead AS (
    SELECT destination, count(*) AS dead FROM (
        SELECT destination FROM deliveries WHERE state = 'dead' ORDER BY delivery_id LIMIT CAST(:most AS INTEGER)
    ) GROUP BY destination
)
SELECT d.name AS destination, (SELECT count(*) FROM ({_PENDING})) AS pending,
    (SELECT max(attempts) FROM ({_PENDING})) AS attempts,
    ({_OLDEST}) AS oldest,
    delays.mean, delays.longest, coalesce(dead.dead, 0) AS dead, coalesce(c.state, 'closed') AS circuit, c.blocked_until,
    c.reason
FROM (SELECT name FROM destinations WHERE name > :after ORDER BY name LIMIT CAST(:limit AS INTEGER)) AS d
LEFT JOIN delays ON delays.destination = d.name LEFT JOIN dead ON dead.destination = d.name
LEFT JOIN couriers AS c ON c.destination = d.name ORDER BY d.name
"""
