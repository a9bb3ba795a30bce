# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of consumers' inboxes. The primary key (consumer, event_id) is what lets one of two equal deliveries win."""

from moorage.kernel.limits import INBOX_RETENTION_SECONDS

# Records a consumer's outcome; fails where one is recorded already.
RECORD = """
INSERT INTO inbox (consumer, event_id, recorded_at, recorded_by, outcome)
VALUES (:consumer, :event_id, :now, :actor, :outcome)
"""

# What a consumer made of an event.
RECORDED = "SELECT consumer, event_id, recorded_at, outcome FROM inbox WHERE consumer = :consumer AND event_id = :event_id"

# The full ten minutes at or after the instant at which the oldest outcome is past its time, unless the sweep is set aside.
EARLIEST_OLD = f"""
SELECT (recorded_at + {int(INBOX_RETENTION_SECONDS) * 1000} + 599999) / 600000 * 600000 AS due FROM inbox
WHERE NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'inbox_retention' AND item = 'sweep')
ORDER BY recorded_at LIMIT 1
"""
OLD = f"SELECT 'sweep' AS item, due FROM ({EARLIEST_OLD}) WHERE due <= :now AND CAST(:limit AS INTEGER) > 0"

# What history is told of a sweep: how many outcomes it forgets.
FORGETTING = """
SELECT 1 AS ordinal, 'inbox:' AS subject, NULL AS kind, NULL AS content_sha256, json_object('forgotten', number) AS data
FROM (
    SELECT count(*) AS number FROM (SELECT 1 FROM inbox WHERE recorded_at <= :before LIMIT CAST(:limit AS INTEGER))
) WHERE number > 0
"""

# Forgets some outcomes that are past their time, the oldest first.
FORGET = """
DELETE FROM inbox WHERE (consumer, event_id) IN (
    SELECT consumer, event_id FROM inbox WHERE recorded_at <= :before ORDER BY recorded_at LIMIT CAST(:limit AS INTEGER)
)
"""
