# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of waits for events, and of routing events to them.

A wait has the key of its entry in the journal. Its terms are rows as long as it is active: by its keys, or by its types
where it names no key. They follow from the wait's own row, so that nothing but that has to be known to remove them.
"""

from moorage.messages.inbox.model import KEY_TERM, TYPE_TERM

# The terms of a wait `w`, one a row.
_TERMS_OF = "json_each(CASE w.keys WHEN '[]' THEN w.types ELSE w.keys END) AS named"
_TERM = f"(CASE w.keys WHEN '[]' THEN '{TYPE_TERM}' ELSE '{KEY_TERM}' END || named.value)"

# The wait `w` of a row of a JSON array: execution, label, hash of the input.
_NAMED = "w.execution_id = one.value ->> 0 AND w.label = one.value ->> 1 AND w.input_sha256 = one.value ->> 2"
_THESE = "(execution_id, label, input_sha256) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:waits))"

# --- before a wait is stored ---

# The last event that was accepted.
HORIZON = "SELECT coalesce(max(seq), 0) AS seq FROM events"

# The last event that was accepted before an instant, by halving: events are in the order of their acceptance.
_MIDDLE = "((search.low + search.high + 1) / 2)"
_EARLY = f"""
coalesce((SELECT e.accepted_at < CAST(:since AS INTEGER) FROM events AS e WHERE e.seq <= {_MIDDLE}
    ORDER BY e.seq DESC LIMIT 1), 1)
""".strip()
BOUNDARY = f"""
WITH RECURSIVE search (low, high) AS (
    SELECT 0, coalesce((SELECT max(seq) FROM events), 0)
    UNION ALL
    SELECT iif({_EARLY}, {_MIDDLE}, search.low), iif({_EARLY}, search.high, {_MIDDLE} - 1)
    FROM search WHERE search.low < search.high
)
SELECT max(low) AS seq FROM search
"""

# The waits of an execution that stand already under these keys.
STANDING = """
SELECT w.label, w.input_sha256, w.state, w.after, w.timeout_at FROM json_each(:keys) AS one CROSS JOIN event_waits AS w
    ON w.execution_id = :execution AND w.label = one.value ->> 0 AND w.input_sha256 = one.value ->> 1
"""

# The active waits of an execution, as they were stored one after the other.
ACTIVE = """
SELECT w.label, w.input_sha256, w.after, w.keys, w.types, w.match
FROM journal AS j INDEXED BY journal_events CROSS JOIN event_waits AS w
    ON w.execution_id = j.execution_id AND w.label = j.label AND w.input_sha256 = j.input_sha256
WHERE j.execution_id = :execution AND j.kind = 'event' AND j.state = 'pending' AND w.state = 'active'
ORDER BY w.created_at, w.label, w.input_sha256
"""

# A page of the events with a term, oldest first, with their data where that is asked for, as much as one answer holds; `met`
# tells how many the page would have. One that the execution has taken is told as such.
CANDIDATES = """
SELECT seq, type, keys, data, taken, met FROM (
    SELECT e.seq, e.type, e.keys, CASE WHEN :with_data THEN e.data END AS data,
        EXISTS (SELECT 1 FROM event_waits AS w WHERE w.event = e.seq AND w.execution_id = :execution) AS taken,
        count(*) OVER () AS met,
        CASE WHEN :with_data THEN sum(coalesce(length(e.data), 0)) OVER (ORDER BY e.seq ROWS UNBOUNDED PRECEDING)
            - coalesce(length(e.data), 0) ELSE 0 END AS bytes
    FROM (
        SELECT t.seq FROM event_terms AS t WHERE t.term = :term AND t.seq > CAST(:after AS INTEGER)
        ORDER BY t.seq LIMIT CAST(:limit AS INTEGER)
    ) AS one CROSS JOIN events AS e ON e.seq = one.seq
) WHERE bytes <= CAST(:room AS INTEGER) ORDER BY seq
"""

# --- storing a wait ---

# No event with one of these terms was accepted past what was read.
NONE_NEWER = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:terms) AS one CROSS JOIN event_terms AS t ON t.term = one.value
        AND t.seq > CAST(:horizon AS INTEGER)
)
"""

# Every one of these events is kept still.
ALL_KEPT = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:events) AS one WHERE NOT EXISTS (SELECT 1 FROM events AS e WHERE e.seq = one.value)
)
"""

# Stores waits, each an array of execution, label, hash, state, after, timeout, event, keys, types and pattern, whose entries
# wait for them. One that was canceled with its run is taken up again where it was left.
REGISTER = """
INSERT INTO event_waits (execution_id, label, input_sha256, state, after, timeout_at, event, created_at, ended_at, keys,
    types, match)
SELECT one.value ->> 0, one.value ->> 1, one.value ->> 2, one.value ->> 3, one.value ->> 4, one.value ->> 5,
    one.value ->> 6, :now, CASE one.value ->> 3 WHEN 'active' THEN NULL ELSE CAST(:now AS INTEGER) END,
    one.value ->> 7, one.value ->> 8, one.value ->> 9
FROM json_each(:waits) AS one CROSS JOIN journal AS j
    ON j.execution_id = one.value ->> 0 AND j.label = one.value ->> 1 AND j.input_sha256 = one.value ->> 2
WHERE j.kind = 'event' AND j.state = 'pending'
ON CONFLICT (execution_id, label, input_sha256) DO UPDATE SET
    state = excluded.state, event = excluded.event, ended_at = excluded.ended_at
WHERE event_waits.state = 'canceled'
"""

# The terms of those of these waits that are active.
ADD_TERMS = f"""
INSERT INTO event_wait_terms (term, execution_id, label, input_sha256)
SELECT {_TERM}, w.execution_id, w.label, w.input_sha256
FROM json_each(:waits) AS one CROSS JOIN event_waits AS w ON {_NAMED} CROSS JOIN {_TERMS_OF}
WHERE w.state = 'active'
ON CONFLICT (term, execution_id, label, input_sha256) DO NOTHING
"""

# Events that waits have taken as they were stored, for history: the run may be over before they are routed.
MATCHED = f"""
SELECT row_number() OVER (ORDER BY e.seq) AS ordinal, e.event_id AS subject, NULL AS kind, NULL AS content_sha256,
    json_object('execution', w.execution_id, 'label', w.label) AS data
FROM json_each(:waits) AS one CROSS JOIN event_waits AS w ON {_NAMED} CROSS JOIN events AS e ON e.seq = w.event
WHERE w.state = 'woken' AND e.seq = one.value ->> 6
"""

# --- the end of a wait ---

# Removes the terms of these waits, active or not.
REMOVE_TERMS = f"""
DELETE FROM event_wait_terms WHERE (term, execution_id, label, input_sha256) IN (
    SELECT {_TERM}, w.execution_id, w.label, w.input_sha256
    FROM json_each(:waits) AS one CROSS JOIN event_waits AS w ON {_NAMED} CROSS JOIN {_TERMS_OF}
)
"""

# Cancels those of these waits that are active.
CANCEL = f"UPDATE event_waits SET state = 'canceled', ended_at = :now WHERE {_THESE} AND state = 'active'"

# The same for all waits of some executions.
REMOVE_TERMS_OF = f"""
DELETE FROM event_wait_terms WHERE (term, execution_id, label, input_sha256) IN (
    SELECT {_TERM}, w.execution_id, w.label, w.input_sha256 FROM event_waits AS w CROSS JOIN {_TERMS_OF}
    WHERE w.execution_id IN ({{executions}}) AND w.state = 'active'
)
"""
CANCEL_OF = """
UPDATE event_waits SET state = 'canceled', ended_at = :now WHERE execution_id IN ({executions}) AND state = 'active'
"""

# Forgets the waits of executions that are no more.
FORGET = "DELETE FROM event_waits WHERE execution_id IN ({executions})"

# What a fresh execution took before it was one: events that the kept entries of an earlier one hold.
COPY = """
INSERT INTO event_waits (execution_id, label, input_sha256, state, after, timeout_at, event, created_at, ended_at, keys,
    types, match)
SELECT :fresh, w.label, w.input_sha256, w.state, w.after, w.timeout_at, w.event, w.created_at, w.ended_at, w.keys,
    w.types, w.match
FROM journal AS j INDEXED BY journal_events CROSS JOIN event_waits AS w
    ON w.execution_id = :execution AND w.label = j.label AND w.input_sha256 = j.input_sha256
WHERE j.execution_id = :fresh AND j.kind = 'event' AND j.state = 'done' AND w.state IN ('woken', 'timed_out')
"""

# --- timing out ---

# The first instant at which a wait is over, and the executions whose waits are, each with that instant: what holds one wait
# of an execution up holds up none that is over at another.
_TIMEOUT = "w.execution_id || '@' || w.timeout_at"
_NOT_ASIDE = f"""
NOT EXISTS (SELECT 1 FROM due_failures AS f WHERE f.work = 'event_wait_timed_out' AND f.item = {_TIMEOUT})
""".strip()
_TIMED = "event_waits AS w INDEXED BY event_waits_by_timeout"
EARLIEST_TIMEOUT = f"""
SELECT w.timeout_at AS due FROM {_TIMED} WHERE w.state = 'active' AND w.timeout_at IS NOT NULL AND {_NOT_ASIDE}
ORDER BY w.timeout_at LIMIT 1
"""
TIMEOUTS = f"""
SELECT DISTINCT item, due FROM (
    SELECT {_TIMEOUT} AS item, w.timeout_at AS due FROM {_TIMED}
    WHERE w.state = 'active' AND w.timeout_at <= :now AND {_NOT_ASIDE}
    ORDER BY w.timeout_at LIMIT CAST(:limit AS INTEGER)
) ORDER BY due
"""

# The waits of an execution that are over by now, the first of them; where :due is one instant, those that end then.
OVERDUE = """
SELECT w.execution_id, w.label, w.input_sha256, w.keys, w.types
FROM journal AS j INDEXED BY journal_events CROSS JOIN event_waits AS w
    ON w.execution_id = j.execution_id AND w.label = j.label AND w.input_sha256 = j.input_sha256
WHERE j.execution_id = :execution AND j.kind = 'event' AND j.state = 'pending'
    AND w.state = 'active' AND w.timeout_at <= :now AND (:due IS NULL OR w.timeout_at = CAST(:due AS INTEGER))
ORDER BY w.timeout_at LIMIT CAST(:limit AS INTEGER)
"""

# The first events with one of these terms that nobody has routed.
_UNROUTED_WITH = """
FROM events AS e INDEXED BY events_unrouted WHERE e.routed_at IS NULL AND EXISTS (
    SELECT 1 FROM json_each(:terms) AS one CROSS JOIN event_terms AS t ON t.term = one.value AND t.seq = e.seq
)
""".strip()
UNROUTED_WITH = f"SELECT e.seq {_UNROUTED_WITH} ORDER BY e.seq LIMIT CAST(:limit AS INTEGER)"
NONE_UNROUTED = f"SELECT 1 WHERE NOT EXISTS (SELECT 1 {_UNROUTED_WITH})"

# Times out those of these waits that are active and over.
TIME_OUT = f"""
UPDATE event_waits SET state = 'timed_out', ended_at = :now WHERE {_THESE} AND state = 'active' AND timeout_at <= :now
RETURNING execution_id
"""

# The execution, if that has just timed out a wait of it.
TIMED_OUT = "SELECT :execution WHERE changes() > 0"

# --- routing ---

# The first event that nobody has routed for a while, and those whose time has come.
UNROUTED_MS = 500
_NOT_SET_ASIDE = """
NOT EXISTS (SELECT 1 FROM due_failures AS f WHERE f.work = 'event_routed' AND f.item = CAST(e.seq AS TEXT))
""".strip()
_UNROUTED = f"""
SELECT CAST(e.seq AS TEXT) AS item, e.accepted_at + {UNROUTED_MS} AS due FROM events AS e INDEXED BY events_unrouted
WHERE e.routed_at IS NULL AND {_NOT_SET_ASIDE}
""".strip()
EARLIEST_UNROUTED = f"SELECT due FROM ({_UNROUTED} ORDER BY e.seq LIMIT 1)"
UNROUTED = f"{_UNROUTED} AND e.accepted_at + {UNROUTED_MS} <= :now AND CAST(:limit AS INTEGER) > 0 ORDER BY e.seq LIMIT 1"

_FIRST = f"""
FROM events AS e INDEXED BY events_unrouted WHERE e.routed_at IS NULL AND {_NOT_SET_ASIDE}
ORDER BY e.seq LIMIT CAST(:limit AS INTEGER)
""".strip()

# The first events that nobody has routed.
FIRST_UNROUTED = f"SELECT e.seq, e.type, e.keys {_FIRST}"

# An event that nobody has routed, with its data.
EVENT = "SELECT seq, type, keys, data FROM events WHERE seq = CAST(:seq AS INTEGER) AND routed_at IS NULL"

# The terms `t` of waits by which an event `e` may be for them: each of its keys, and its type.
_SHARED = f"""
json_each(json_insert(e.keys, '$[#]', NULL)) AS key CROSS JOIN event_wait_terms AS t
    ON t.term = coalesce('{KEY_TERM}' || key.value, '{TYPE_TERM}' || e.type)
""".strip()
_HAS_TAKEN = "EXISTS (SELECT 1 FROM event_waits AS x WHERE x.event = e.seq AND x.execution_id = t.execution_id)"
_OF_TERM = "w.execution_id = t.execution_id AND w.label = t.label AND w.input_sha256 = t.input_sha256"
_WAIT = "w.execution_id, w.label, w.input_sha256, w.created_at, w.after, w.keys, w.types, w.match"

# The active waits that share a term with the first events that nobody has routed, event by event: once for each term they
# share. An execution that has taken the event has none.
FIRST_WAITS = f"""
SELECT e.seq, {_WAIT}
FROM events AS e INDEXED BY events_unrouted CROSS JOIN {_SHARED} AND NOT {_HAS_TAKEN}
CROSS JOIN event_waits AS w ON {_OF_TERM} AND w.after < e.seq
WHERE e.routed_at IS NULL AND e.seq <= (SELECT max(seq) FROM (SELECT e.seq {_FIRST})) AND {_NOT_SET_ASIDE}
ORDER BY e.seq LIMIT CAST(:most AS INTEGER)
"""

# How far a page of the waits that share a term with an event goes: to the first execution by which one of the terms has as
# many waits as are read of each; NULL where none has, and there is no further page.
UNTIL = f"""
SELECT min((
    SELECT t.execution_id FROM event_wait_terms AS t
    WHERE t.term = coalesce('{KEY_TERM}' || key.value, '{TYPE_TERM}' || e.type) AND t.execution_id > :after
    ORDER BY t.execution_id LIMIT 1 OFFSET CAST(:limit AS INTEGER) - 1
)) AS until
FROM events AS e CROSS JOIN json_each(json_insert(e.keys, '$[#]', NULL)) AS key WHERE e.seq = CAST(:seq AS INTEGER)
""".strip()

# The waits of that page that may be for the event, of executions that have not taken it; in each the first first.
WAITS = f"""
WITH page (until) AS ({UNTIL})
SELECT DISTINCT e.seq, {_WAIT} FROM page CROSS JOIN events AS e ON e.seq = CAST(:seq AS INTEGER)
CROSS JOIN {_SHARED} AND t.execution_id > :after AND t.execution_id <= coalesce(page.until, char(1114111))
    AND NOT {_HAS_TAKEN}
CROSS JOIN event_waits AS w ON {_OF_TERM} AND w.after < e.seq
ORDER BY w.execution_id, w.created_at, w.label, w.input_sha256
"""

# The data of some events, in their order, as much as one answer holds; of the first in any case.
DATA = """
SELECT seq, data FROM (
    SELECT e.seq, e.data, sum(coalesce(length(e.data), 0)) OVER (ORDER BY e.seq) - coalesce(length(e.data), 0) AS bytes
    FROM json_each(:events) AS one CROSS JOIN events AS e ON e.seq = one.value
) WHERE bytes <= CAST(:room AS INTEGER) ORDER BY seq
"""

# Every one of these events is unrouted, and every one of these waits is active.
ALL_UNROUTED = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:events) AS one LEFT JOIN events AS e ON e.seq = one.value
    WHERE e.seq IS NULL OR e.routed_at IS NOT NULL
)
"""
ALL_ACTIVE = f"""
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:waits) AS one LEFT JOIN event_waits AS w ON {_NAMED} WHERE w.state IS NOT 'active'
)
"""

# Wakes these waits, each with the event that stands behind it.
WAKE = f"""
UPDATE event_waits AS w SET state = 'woken', event = one.value ->> 3, ended_at = :now
FROM json_each(:waits) AS one WHERE {_NAMED}
"""
WOKEN = "SELECT DISTINCT value ->> 0 FROM json_each(:waits)"

# The second checkpoint: those of these events that are unrouted are routed, each belongs to the work that its first attached
# key is of, and what became of it is said.
_WORK = """
(SELECT c.work FROM json_each(events.keys) AS key CROSS JOIN correlations AS c
    ON c.source = events.source AND c.external_id = key.value ORDER BY key.key LIMIT 1)
""".strip()
ROUTE = f"""
UPDATE events SET routed_at = :now, work = coalesce(work, {_WORK}),
    disposition = CASE WHEN EXISTS (SELECT 1 FROM event_waits AS w WHERE w.event = events.seq) OR EXISTS (
            SELECT 1 FROM history AS h WHERE h.subject = events.event_id AND h.type = 'event.matched'
                AND h.type <> 'record.published'
        ) THEN 'woke'
        WHEN work IS NOT NULL OR {_WORK} IS NOT NULL THEN 'correlated' ELSE 'unmatched' END
WHERE seq IN (SELECT value FROM json_each(:events)) AND routed_at IS NULL
"""

# Those of these events of which history does not tell that they are routed: they were routed just now. The first executions
# that one woke are named: so many at most, so that an entry stays small where an event wakes many.
_TOLD = 10
ROUTED = f"""
SELECT e.seq AS ordinal, e.event_id AS subject, NULL AS kind, NULL AS content_sha256, json_object(
    'disposition', e.disposition, 'executions', json((SELECT json_group_array(execution_id) FROM (
        SELECT w.execution_id FROM event_waits AS w WHERE w.event = e.seq ORDER BY w.execution_id LIMIT {_TOLD}))),
    'waits', (SELECT count(*) FROM event_waits AS w WHERE w.event = e.seq), 'work', e.work) AS data
FROM json_each(:events) AS one CROSS JOIN events AS e ON e.seq = one.value
WHERE e.routed_at IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM history AS h WHERE h.subject = e.event_id AND h.type = 'event.routed' AND h.type <> 'record.published'
)
"""

# --- what a journal records of a wait that is over ---

# The wait `w` of an entry `j` of the journal, and whether it is over; its event `e`.
IS_OVER = "w.state IN ('woken', 'timed_out')"
OVER_AT = "w.ended_at"
_INSTANT = """
strftime('%Y-%m-%dT%H:%M:%S', {at} / 1000, 'unixepoch') || printf('.%03dZ', {at} % 1000)
""".strip()

# As canonical JSON: the members of every object stand in their order.
OUTCOME = f"""
CASE w.state WHEN 'timed_out' THEN '{{"timed_out":"' || {_INSTANT.replace("{at}", "w.timeout_at")} || '"}}'
    ELSE '{{"event":{{"accepted_at":"' || {_INSTANT.replace("{at}", "e.accepted_at")} || '","attributes":' || e.envelope
        || coalesce(',"data":' || e.data, '') || ',"event_id":' || json_quote(e.event_id)
        || ',"id":' || json_quote(e.delivery_id) || ',"keys":' || e.keys || ',"source":' || json_quote(e.source)
        || ',"type":' || json_quote(e.type) || '}}}}' END
""".strip()
