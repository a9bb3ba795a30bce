# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of sending deliveries: who is next, under which lease, and what an attempt told of its destination."""

from moorage.kernel.limits import DELIVERY_TIMEOUT_SECONDS

_LONGEST_LEASE_MS = 2 * int(DELIVERY_TIMEOUT_SECONDS) * 1000
"""No lease is longer: what is being sent is due again within it."""

_FIRST = """
CASE WHEN {ordered} THEN
    (SELECT d.next_attempt_at FROM deliveries AS d WHERE d.destination = {name} AND d.state = 'pending'
        ORDER BY d.position LIMIT 1)
ELSE (SELECT min(d.next_attempt_at) FROM deliveries AS d WHERE d.destination = {name} AND d.state = 'pending') END
""".strip()
_FIRST_OF_EACH = _FIRST.replace("{ordered}", "p.ordered = 1").replace("{name}", "t.name")

# When a destination's Courier has something to do next: the first attempt that is due, or the first delivery's where order
# is kept, but not before what the destination asked for, and not before the Courier was given time to come.
_DUE = f"""
SELECT t.name AS destination, max(t.updated_at, coalesce(c.updated_at, 0)) AS changed_at, max(
    {_FIRST_OF_EACH},
    coalesce(c.blocked_until, 0), coalesce(c.poke_at, 0)
) AS due
FROM destinations AS t LEFT JOIN couriers AS c ON c.destination = t.name
    LEFT JOIN delivery_policies AS p ON p.destination = t.name
WHERE c.state IS NOT 'disabled'
"""

# A Courier is told of something that is due, of a destination as it was declared, answered or was enabled last.
_ITEM = "n.destination || '@' || max(n.due, n.changed_at)"
_NOT_ASIDE = f"NOT EXISTS (SELECT 1 FROM due_failures AS f WHERE f.work = 'delivery_due' AND f.item = {_ITEM})"

# The first instant at which a Courier has something to do. One row of the index for each destination: those are declared.
EARLIEST = f"""
SELECT n.due AS due FROM ({_DUE}) AS n WHERE n.due IS NOT NULL AND {_NOT_ASIDE} ORDER BY n.due LIMIT 1
"""

# The destinations whose Couriers have something to do.
DUE = f"""
SELECT {_ITEM} AS item, n.due AS due FROM ({_DUE}) AS n WHERE n.due <= :now AND {_NOT_ASIDE}
ORDER BY n.due, n.destination LIMIT CAST(:limit AS INTEGER)
"""

# Tells a Courier that has something to do, and gives it until `poke_at` to come; answers nothing when it has nothing to do.
POKE = f"""
INSERT INTO couriers (destination, state, failures, poke_at, updated_at)
SELECT n.destination, 'closed', 0, :poke_at, :now FROM ({_DUE} AND t.name = :destination) AS n
WHERE n.due <= :now AND {_ITEM} = :item
ON CONFLICT (destination) DO UPDATE SET poke_at = excluded.poke_at
RETURNING destination
"""

# A wait that the destination asked for ends at :since or later. While its circuit is closed, nothing else sets that instant.
ASKED_SINCE = """
SELECT 1 FROM couriers WHERE destination = :destination AND state = 'closed' AND blocked_until >= CAST(:since AS INTEGER)
"""

# --- leasing --------------------------------------------------------------------------------------------------------

# How many deliveries are under a lease. What is under one is due when it ends, so that it stands among what is due soon.
_UNDER_WAY = f"""
(SELECT count(*) FROM deliveries AS w WHERE w.destination = t.name AND w.state = 'pending'
    AND w.next_attempt_at > :now AND w.next_attempt_at <= CAST(:now AS INTEGER) + {_LONGEST_LEASE_MS}
    AND w.leased_until IS NOT NULL)
""".strip()

# How many deliveries may be leased now: none while the destination is blocked or disabled, one to find out whether it is
# back, else as many as the policy leaves room for.
_ROOM = f"""
SELECT max(0, min(CAST(:free AS INTEGER), CASE
    WHEN c.state = 'disabled' OR c.blocked_until > :now THEN 0
    WHEN c.state IN ('open', 'half_open') OR p.ordered = 1 THEN 1 - min(1, {_UNDER_WAY})
    ELSE coalesce(p.concurrency, CAST(:concurrency AS INTEGER)) - {_UNDER_WAY} END))
FROM destinations AS t LEFT JOIN couriers AS c ON c.destination = t.name
    LEFT JOIN delivery_policies AS p ON p.destination = t.name
WHERE t.name = :destination
"""

_ORDERED = "EXISTS (SELECT 1 FROM delivery_policies AS p WHERE p.destination = :destination AND p.ordered = 1)"

# The deliveries that are sent now: those due longest, or where order is kept the first one, once it is due.
_NEXT = f"""
SELECT a.delivery_id FROM (
    SELECT d.delivery_id FROM deliveries AS d
    WHERE d.destination = :destination AND d.state = 'pending' AND d.next_attempt_at <= :now AND NOT {_ORDERED}
    ORDER BY d.next_attempt_at, d.position LIMIT ({_ROOM})
) AS a
UNION ALL
SELECT b.delivery_id FROM (
    SELECT d.delivery_id, d.next_attempt_at FROM deliveries AS d
    WHERE d.destination = :destination AND d.state = 'pending' ORDER BY d.position LIMIT 1
) AS b WHERE b.next_attempt_at <= :now AND {_ORDERED} AND ({_ROOM}) > 0
"""

_MOST_ATTEMPTS = """
(SELECT coalesce(max(p.max_attempts), CAST(:max_attempts AS INTEGER)) FROM delivery_policies AS p
    WHERE p.destination = :destination)
""".strip()

_SPENT = f"SELECT s.delivery_id FROM deliveries AS s WHERE s.delivery_id IN ({_NEXT}) AND s.attempts >= {_MOST_ATTEMPTS}"

# What was sent as often as it may be, the last time without anybody learning what became of it.
SPENT_ENTRIES = f"""
SELECT row_number() OVER (ORDER BY d.position, d.delivery_id) AS ordinal, d.delivery_id AS subject,
    NULL AS kind, NULL AS content_sha256,
    json_object('attempts', d.attempts, 'destination', d.destination, 'event_id', d.event_id, 'generation', d.generation,
        'subscription', d.subscription) AS data
FROM deliveries AS d WHERE d.delivery_id IN ({_SPENT})
"""
END_SPENT = f"""
UPDATE deliveries SET state = 'dead', ended_at = :now, next_attempt_at = NULL, leased_until = NULL,
    last_error = coalesce(last_error, 'the last attempt ended without an outcome')
WHERE delivery_id IN ({_SPENT})
"""

# The headers by which what happened to a run carries the run's trace on, as long as the run is on record.
_TRACE = """
(SELECT json_object('traceparent', '00-' || r.trace_id || '-' || r.span_id || '-01', 'tracestate', r.trace_state)
    FROM runs AS r WHERE r.run_id = deliveries.aggregate_id)
""".strip()

# When a lease ends that begins now: by the policy as it stands, whatever who leases remembers of it.
_UNTIL = """
(CAST(:now AS INTEGER) + 1000 * (CAST(:margin AS INTEGER) + coalesce(
    (SELECT p.timeout_seconds FROM delivery_policies AS p WHERE p.destination = :destination), CAST(:timeout AS INTEGER))))
""".strip()

# Leases what is sent now: an attempt begins, and is due again when nothing is heard of it until then.
LEASE = f"""
UPDATE deliveries SET epoch = epoch + 1, attempts = attempts + 1, leased_until = {_UNTIL}, next_attempt_at = {_UNTIL},
    first_attempt_at = coalesce(first_attempt_at, :now)
WHERE delivery_id IN ({_NEXT}) AND attempts < {_MOST_ATTEMPTS}
RETURNING delivery_id, event_id, generation, attempts, epoch, position, body, {_TRACE} AS trace
"""

# An open circuit whose time is over lets one attempt through, and is blocked for as long as that is under way.
PROBE = f"""
UPDATE couriers SET state = 'half_open', blocked_until = {_UNTIL}, updated_at = :now
WHERE destination = :destination AND state IN ('open', 'half_open') AND blocked_until <= :now
    AND EXISTS (SELECT 1 FROM deliveries AS d WHERE d.destination = :destination AND d.state = 'pending'
        AND d.next_attempt_at = {_UNTIL} AND d.leased_until = {_UNTIL})
"""

# Once all that is due is under way, or may not be sent, the Clock may tell the Courier of the next thing at once, beside
# what is slow to be answered. Where it could not lease all, it looks again as an answer comes, and so it does where order
# is kept, unless the first is to be tried later. If it was lost, or somebody else's leases are in the way, it is told again
# later.
REST = f"""
UPDATE couriers SET poke_at = NULL WHERE destination = :destination AND poke_at IS NOT NULL AND (
    blocked_until > :now
    OR NOT EXISTS (SELECT 1 FROM deliveries AS d WHERE d.destination = :destination AND d.state = 'pending'
        AND d.next_attempt_at <= :now)
    OR {_ORDERED} AND (SELECT d.next_attempt_at > :now AND d.leased_until IS NULL FROM deliveries AS d
        WHERE d.destination = :destination AND d.state = 'pending' ORDER BY d.position LIMIT 1)
)
"""

# When there is something to do again.
NEXT_DUE = f"SELECT n.due AS due FROM ({_DUE} AND t.name = :destination) AS n WHERE n.due IS NOT NULL"

# --- what became of an attempt --------------------------------------------------------------------------------------

_LEASED = "delivery_id = :delivery AND epoch = :epoch AND state = 'pending' AND leased_until IS NOT NULL"

# The delivery has ended, unless somebody else has leased or ended it meanwhile.
END = f"""
UPDATE deliveries SET state = :state, ended_at = :now, next_attempt_at = NULL, leased_until = NULL, last_status = :status,
    last_error = :error
WHERE {_LEASED}
RETURNING delivery_id
"""

# The delivery is tried again at `next`, unless somebody else has leased or ended it meanwhile.
AGAIN = f"""
UPDATE deliveries SET next_attempt_at = :next, leased_until = NULL, last_status = :status, last_error = :error
WHERE {_LEASED}
RETURNING delivery_id
"""

# The entry of history for a delivery that is given up.
DEAD_ENTRY = f"""
SELECT 1 AS ordinal, delivery_id AS subject, NULL AS kind, NULL AS content_sha256,
    json_object('attempts', attempts, 'destination', destination, 'event_id', event_id, 'generation', generation,
        'status', CAST(:status AS INTEGER), 'subscription', subscription) AS data
FROM deliveries WHERE {_LEASED}
"""

# The entry of history for a destination that is gone, once.
DISABLED_ENTRY = f"""
SELECT 1 AS ordinal, 'destination:' || destination AS subject, NULL AS kind, NULL AS content_sha256,
    json_object('event_id', event_id, 'reason', CAST(:error AS TEXT)) AS data
FROM deliveries WHERE {_LEASED}
    AND NOT EXISTS (SELECT 1 FROM couriers AS c WHERE c.destination = deliveries.destination AND c.state = 'disabled')
"""

# An answer was a success: the circuit closes. A wait that the destination asked for stands.
SUCCEEDED = f"""
UPDATE couriers SET blocked_until = CASE state WHEN 'half_open' THEN NULL ELSE blocked_until END,
    state = 'closed', failures = 0, opened = 0, reason = NULL, updated_at = :now
WHERE destination = :destination AND (state = 'half_open' OR state = 'closed' AND failures > 0)
    AND EXISTS (SELECT 1 FROM deliveries WHERE {_LEASED})
"""

_OPENS = "(state = 'half_open' OR state = 'closed' AND failures + 1 >= CAST(:threshold AS INTEGER))"

# An attempt failed: `threshold` of them in a row open the circuit for `first` ms, and a probe that fails opens it for twice
# as long as the last time, up to `longest`.
FAILED = f"""
INSERT INTO couriers (destination, state, failures, reason, updated_at)
SELECT destination, 'closed', 1, :reason, :now FROM deliveries WHERE {_LEASED}
ON CONFLICT (destination) DO UPDATE SET
    failures = failures + 1,
    opened = opened + {_OPENS},
    blocked_until = CASE WHEN {_OPENS} THEN max(
        CASE state WHEN 'half_open' THEN 0 ELSE coalesce(blocked_until, 0) END, CAST(:now AS INTEGER)
            + min(CAST(:longest AS INTEGER), CAST(:first AS INTEGER) << min(opened, 10))
    ) ELSE blocked_until END,
    state = CASE WHEN {_OPENS} THEN 'open' ELSE state END,
    reason = CASE state WHEN 'disabled' THEN reason ELSE excluded.reason END,
    updated_at = :now
"""

# The destination asked to be left alone until `until`; the longest of several stands. A probe that was told so is followed
# by another probe.
BLOCKED = f"""
INSERT INTO couriers (destination, state, failures, blocked_until, reason, updated_at)
SELECT destination, 'closed', 0, :until, :reason, :now FROM deliveries WHERE {_LEASED}
ON CONFLICT (destination) DO UPDATE SET
    blocked_until = max(CASE state WHEN 'half_open' THEN 0 ELSE coalesce(blocked_until, 0) END, CAST(:until AS INTEGER)),
    state = CASE state WHEN 'half_open' THEN 'open' ELSE state END,
    reason = CASE state WHEN 'disabled' THEN reason ELSE excluded.reason END,
    updated_at = :now
"""

# The destination said that it is gone: nothing is sent until an operator enables it.
GONE = f"""
INSERT INTO couriers (destination, state, failures, reason, updated_at)
SELECT destination, 'disabled', 0, :reason, :now FROM deliveries WHERE {_LEASED}
ON CONFLICT (destination) DO UPDATE SET state = 'disabled', blocked_until = NULL, reason = :reason, updated_at = :now
"""

# --- for operators --------------------------------------------------------------------------------------------------

DECLARED = "SELECT 1 FROM destinations WHERE name = :destination"

# The destination is sent to again, from now on.
ENABLE = """
INSERT INTO couriers (destination, state, failures, updated_at) VALUES (:destination, 'closed', 0, :now)
ON CONFLICT (destination) DO UPDATE SET
    state = 'closed', failures = 0, opened = 0, blocked_until = NULL, poke_at = NULL, reason = NULL, updated_at = :now
RETURNING destination, state, failures, blocked_until, reason, updated_at
"""

# How a destination has answered lately; one that was never sent to is closed.
COURIER = """
SELECT t.name AS destination, coalesce(c.state, 'closed') AS state, coalesce(c.failures, 0) AS failures, c.blocked_until,
    c.reason, coalesce(c.updated_at, t.updated_at) AS updated_at
FROM destinations AS t LEFT JOIN couriers AS c ON c.destination = t.name WHERE t.name = :destination
"""
