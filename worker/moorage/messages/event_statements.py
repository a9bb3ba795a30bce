# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of events: accepted once, found by what they carry, never changed but for their checkpoint and their scope."""

from typing import Final

from moorage.messages.model import KEY_TERM, TYPE_TERM

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
SELECT e.seq AS ordinal, e.event_id AS subject, NULL AS kind, 'event.accepted' AS type, :history_actor AS actor,
    json_object('id', e.delivery_id, 'source', e.source, 'type', e.type) AS data, e.content_sha256 AS content_sha256
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
