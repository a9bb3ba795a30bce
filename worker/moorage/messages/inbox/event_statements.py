# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of events: accepted once, found by what they carry, never changed but for their checkpoint and their scope."""

from typing import Final

from moorage.kernel.limits import EVENT_RETENTION_SECONDS
from moorage.messages.inbox.model import KEY_TERM, TYPE_TERM

# Everything before the last entry of history: an event past it was stored by this transaction, which has yet to tell of it.
_LAST = "coalesce((SELECT max(position) FROM history), 0)"

OUTLINE: Final = (
    "seq, event_id, source, delivery_id, type, keys, actor, causation, scope, content_sha256, accepted_at, routed_at,"
    " disposition, work, envelope"
)
"""The columns of an event but its data, which may be large."""

_OUTLINE_E = ", ".join(f"e.{name.strip()}" for name in OUTLINE.split(","))

# Accepts each draft of a JSON array whose source and delivery id were never accepted, in its order. An event's seq is the
# position that its entry of history is about to get. A large event comes alone, its data in a parameter of its own.
ACCEPT = f"""
INSERT INTO events (seq, event_id, source, delivery_id, type, keys, actor, causation, scope, content_sha256, accepted_at,
    envelope, data)
SELECT max({_LAST}, coalesce((SELECT max(seq) FROM events), 0)) + row_number() OVER (ORDER BY draft.key),
    draft.value ->> 'event_id', draft.value ->> 'source', draft.value ->> 'delivery_id', draft.value ->> 'type',
    draft.value ->> 'keys', :event_actor, draft.value ->> 'causation', draft.value ->> 'scope',
    draft.value ->> 'content_sha256', :now, draft.value ->> 'envelope', coalesce(:data, draft.value ->> 'data')
FROM json_each(:drafts) AS draft
WHERE NOT EXISTS (
    SELECT 1 FROM events AS e WHERE e.source = draft.value ->> 'source' AND e.delivery_id = draft.value ->> 'delivery_id'
)
"""

# By what the events are found that this transaction has stored.
ADD_TERMS = f"""
INSERT INTO event_terms (term, seq)
SELECT '{KEY_TERM}' || key.value, e.seq FROM events AS e, json_each(e.keys) AS key WHERE e.seq > {_LAST}
UNION ALL SELECT '{TYPE_TERM}' || e.type, e.seq FROM events AS e WHERE e.seq > {_LAST}
"""

# The event of each identity of a JSON array, in its order, whether it was stored just now or long ago. Its data comes along
# where it was stored long ago and is asked for.
ACCEPTED = f"""
SELECT {_OUTLINE_E}, e.seq > {_LAST} AS added, CASE WHEN e.seq <= {_LAST} AND :with_data THEN e.data END AS data
FROM json_each(:identities) AS draft
JOIN events AS e ON e.source = draft.value ->> 'source' AND e.delivery_id = draft.value ->> 'delivery_id'
ORDER BY draft.key
"""

# What history is told of the events that this transaction has stored, which gives each its position.
TELLING = f"""
SELECT e.seq AS ordinal, e.event_id AS subject, NULL AS kind, e.content_sha256 AS content_sha256,
    json_object('id', e.delivery_id, 'source', e.source, 'type', e.type) AS data
FROM events AS e WHERE e.seq > {_LAST}
"""

# The ids of the events that this transaction has stored, as the reference of a remembered key.
ADDED_IDS = f"SELECT json_object('added', json_group_array(e.event_id)) FROM events AS e WHERE e.seq > {_LAST}"

# No identity of a JSON array names a cause that is not there; one that was accepted before is not asked any more.
CAUSES_EXIST = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:identities) AS draft
    WHERE draft.value ->> 'causation' IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM events AS c WHERE c.event_id = draft.value ->> 'causation')
    AND NOT EXISTS (
        SELECT 1 FROM events AS e
        WHERE e.source = draft.value ->> 'source' AND e.delivery_id = draft.value ->> 'delivery_id'
    )
)
"""

# No identity of a JSON array names a scope that is not declared; one that was accepted before is not asked any more.
SCOPES_EXIST = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:identities) AS draft
    WHERE draft.value ->> 'scope' IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM scopes AS s WHERE s.id = draft.value ->> 'scope')
    AND NOT EXISTS (
        SELECT 1 FROM events AS e
        WHERE e.source = draft.value ->> 'source' AND e.delivery_id = draft.value ->> 'delivery_id'
    )
)
"""

# No event was accepted under this identity.
IDENTITY_IS_UNUSED = """
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM events WHERE source = :source AND delivery_id = :delivery_id)
"""

# --- reading ---

# One event.
EVENT = f"SELECT {OUTLINE}, data FROM events WHERE event_id = :event_id"

# From where a page takes its events, by the order of their acceptance: the narrowest way to what is asked for.
_PAST = "seq > CAST(:after AS INTEGER) AND seq < CAST(:before AS INTEGER)"
_BY_TERM = f"SELECT seq FROM event_terms WHERE term = :term AND {_PAST}"
_BY_WORK = f"SELECT seq FROM events WHERE work = :work AND {_PAST}"
_BY_SCOPE = f"SELECT seq FROM events WHERE scope = :scope AND {_PAST}"
_BY_ROUTING = f"SELECT seq FROM events WHERE routed_at IS NULL AND {_PAST}"
_BY_SEQ = f"SELECT seq FROM events WHERE {_PAST}"

# Of a bounded number of these, those that are asked for.
_CANDIDATES = """
WITH candidates (seq) AS (SELECT seq FROM ({stream}) ORDER BY seq {order} LIMIT CAST(:examined AS INTEGER)),
wanted (seq, size) AS (
    SELECT e.seq, length(CAST(e.envelope AS BLOB)) + coalesce(length(CAST(e.data AS BLOB)), 0)
    FROM candidates AS c CROSS JOIN events AS e ON e.seq = c.seq
    WHERE (:type IS NULL OR e.type = :type) AND (:source IS NULL OR e.source = :source)
        AND (:scope IS NULL OR e.scope = :scope) AND (:work IS NULL OR e.work = :work)
        AND (NOT :unrouted OR e.routed_at IS NULL)
        AND (:key IS NULL OR EXISTS (SELECT 1 FROM json_each(e.keys) AS k WHERE k.value = :key))
    ORDER BY e.seq {order} LIMIT CAST(:limit AS INTEGER) + 1
)
""".strip()

# A page of events with their data, as many as fit into :bytes, one at least.
_PAGE = f"""
{_CANDIDATES},
fitting (seq, place, upto) AS (
    SELECT seq, row_number() OVER (ORDER BY seq {{order}}), sum(size) OVER (ORDER BY seq {{order}}) FROM wanted
)
SELECT {_OUTLINE_E}, e.data FROM fitting AS f CROSS JOIN events AS e ON e.seq = f.seq
WHERE f.place <= CAST(:limit AS INTEGER) AND (f.place = 1 OR f.upto <= CAST(:bytes AS INTEGER)) ORDER BY f.place
""".strip()

# How many events were looked at for that page, the last of them, and how many were asked for, one past the page at most.
_LOOKED = f"""
{_CANDIDATES}
SELECT (SELECT count(*) FROM candidates) AS examined, (SELECT {{last}}(seq) FROM candidates) AS last,
    (SELECT count(*) FROM wanted) AS wanted
""".strip()


def _pages(stream: str) -> tuple[str, str, str, str]:
    """The page and how far was looked for it, oldest first; and both newest first."""

    def filled(template: str, order: str, last: str) -> str:
        return template.replace("{stream}", stream).replace("{order}", order).replace("{last}", last)

    return (
        filled(_PAGE, "ASC", "max"),
        filled(_LOOKED, "ASC", "max"),
        filled(_PAGE, "DESC", "min"),
        filled(_LOOKED, "DESC", "min"),
    )


BY_TERM, LOOKED_BY_TERM, NEWEST_BY_TERM, NEWEST_LOOKED_BY_TERM = _pages(_BY_TERM)
BY_WORK, LOOKED_BY_WORK, NEWEST_BY_WORK, NEWEST_LOOKED_BY_WORK = _pages(_BY_WORK)
BY_SCOPE, LOOKED_BY_SCOPE, NEWEST_BY_SCOPE, NEWEST_LOOKED_BY_SCOPE = _pages(_BY_SCOPE)
BY_ROUTING, LOOKED_BY_ROUTING, NEWEST_BY_ROUTING, NEWEST_LOOKED_BY_ROUTING = _pages(_BY_ROUTING)
BY_SEQ, LOOKED_BY_SEQ, NEWEST_BY_SEQ, NEWEST_LOOKED_BY_SEQ = _pages(_BY_SEQ)

# --- the scope, which is written once ---

EXISTS = "SELECT 1 FROM events WHERE event_id = :event_id"
SCOPE_EXISTS = "SELECT 1 FROM scopes WHERE id = :scope"
HAS_NO_OTHER_SCOPE = "SELECT 1 FROM events WHERE event_id = :event_id AND (scope IS NULL OR scope = :scope)"

# What history is told, if the event has no scope yet.
SCOPING = """
SELECT 0 AS ordinal, event_id AS subject, NULL AS kind, NULL AS content_sha256, json_object('scope', :scope) AS data
FROM events WHERE event_id = :event_id AND scope IS NULL
"""
SET_SCOPE = "UPDATE events SET scope = :scope WHERE event_id = :event_id AND scope IS NULL"

# --- retention ---

# Whether an event `e` is still needed: it has woken a wait, and the journal has not recorded that yet.
_IS_AWAITED = """
EXISTS (
    SELECT 1 FROM event_waits AS w CROSS JOIN journal AS j
        ON j.execution_id = w.execution_id AND j.label = w.label AND j.input_sha256 = w.input_sha256
    WHERE w.event = e.seq AND j.state = 'pending'
)
""".strip()

# The full ten minutes at or after the instant at which the first event has been kept for long enough.
EARLIEST_OLD = f"""
SELECT (e.accepted_at + {int(EVENT_RETENTION_SECONDS) * 1000} + 599999) / 600000 * 600000 AS due FROM events AS e
WHERE e.routed_at IS NOT NULL AND NOT {_IS_AWAITED}
    AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'event_retention' AND item = 'sweep')
ORDER BY e.seq LIMIT 1
"""
SWEEPS = f"SELECT 'sweep' AS item, due FROM ({EARLIEST_OLD}) WHERE due <= :now AND CAST(:limit AS INTEGER) > 0"

# The first events up to one that need be kept no longer.
_OLD = f"""
SELECT e.seq FROM events AS e
WHERE e.seq <= CAST(:through AS INTEGER) AND e.routed_at IS NOT NULL AND NOT {_IS_AWAITED}
ORDER BY e.seq LIMIT CAST(:limit AS INTEGER)
""".strip()
REMOVING_OLD = f"""
SELECT seq AS ordinal, event_id AS subject, NULL AS kind, NULL AS content_sha256, '{{}}' AS data
FROM events WHERE seq IN ({_OLD})
"""
REMOVE_OLD_KEYS = f"""
DELETE FROM event_terms WHERE (term, seq) IN (
    SELECT '{KEY_TERM}' || key.value, x.seq FROM events AS x CROSS JOIN json_each(x.keys) AS key WHERE x.seq IN ({_OLD})
)
"""
REMOVE_OLD_TYPES = f"""
DELETE FROM event_terms WHERE (term, seq) IN (
    SELECT '{TYPE_TERM}' || x.type, x.seq FROM events AS x WHERE x.seq IN ({_OLD})
)
"""
REMOVE_OLD = f"DELETE FROM events WHERE seq IN ({_OLD})"
