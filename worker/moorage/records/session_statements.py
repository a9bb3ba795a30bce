"""The SQL of sessions, and of the one claim that each consumer in one is answered again (clause records.claim-replay)."""

from moorage.records.statements import RECORD_COLUMNS

# Opens a session.
OPEN = """
INSERT INTO sessions (id, subject, created_at, expires_at) VALUES (:session, :actor, :now, :expires_at)
RETURNING id, created_at, expires_at
"""

# Extends one that has not ended; never shortens it.
RENEW = """
UPDATE sessions SET expires_at = max(expires_at, CAST(:expires_at AS INTEGER))
WHERE id = :session AND subject = :actor AND expires_at > :now
RETURNING id, created_at, expires_at
"""

# Ends one at once.
CLOSE = "UPDATE sessions SET expires_at = min(expires_at, CAST(:now AS INTEGER)) WHERE id = :session AND subject = :actor"

# The session is known and the caller's.
EXISTS = "SELECT 1 FROM sessions WHERE id = :session AND subject = :actor"

# ... and has not ended: an end equal to now has passed.
IS_LIVE = "SELECT 1 FROM sessions WHERE id = :session AND subject = :actor AND expires_at > :now"

# A live session, for the history entry of its renewal, or of its end before it ends.
LIVE = """
SELECT 1 AS ordinal, id AS subject, NULL AS kind, NULL AS content_sha256,
    json_object('expires_at', strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000.0, 'unixepoch')) AS data
FROM sessions WHERE id = :session AND subject = :actor AND expires_at > :now
"""

# Reads one of the caller's sessions, and how far each of its consumers has come.
SESSION = "SELECT id, created_at, expires_at FROM sessions WHERE id = :session AND subject = :actor"
CURSORS = """
SELECT consumer, sequence, completed_at FROM claim_cursors
WHERE session = :session AND EXISTS (SELECT 1 FROM sessions WHERE id = :session AND subject = :actor)
ORDER BY consumer
"""

# No claim with this number or a later one was completed.
IS_NEXT = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM claim_cursors WHERE session = :session AND consumer = :consumer AND sequence >= :sequence
)
"""

# The consumer has a place in its session, or there is one left.
HAS_PLACE = """
SELECT 1 WHERE EXISTS (SELECT 1 FROM claim_cursors WHERE session = :session AND consumer = :consumer)
    OR (SELECT count(*) FROM claim_cursors WHERE session = :session) < :most
"""

# Completes a numbered claim, an empty one too: what it took is what its replay answers. The one before is forgotten.
COMPLETE = """
INSERT INTO claim_cursors (session, consumer, sequence, digest, claim, taken, completed_at)
SELECT :session, :consumer, :sequence, :digest, :claim, (
    SELECT json_group_array(id) FROM records WHERE state = 'claimed' AND expires_at = :expires_at AND claim = :claim
), :now
WHERE true ON CONFLICT (session, consumer) DO UPDATE SET
    sequence = excluded.sequence, digest = excluded.digest, claim = excluded.claim, taken = excluded.taken,
    completed_at = excluded.completed_at
"""

# The last completed claim of a consumer, and what it still holds.
COMPLETED = "SELECT sequence, digest FROM claim_cursors WHERE session = :session AND consumer = :consumer"
STILL_HELD = f"""
SELECT {RECORD_COLUMNS}, r.epoch, r.owner, r.expires_at
FROM claim_cursors AS cursor CROSS JOIN json_each(cursor.taken) AS one CROSS JOIN records AS r ON r.id = one.value
WHERE cursor.session = :session AND cursor.consumer = :consumer AND r.state = 'claimed' AND r.claim = cursor.claim
"""  # noqa: S608 - columns are constants

# The full ten minutes after the end of the session that ended first, and a day, unless the sweep is set aside.
EARLIEST_OVER = """
SELECT (expires_at + 86999999) / 600000 * 600000 AS due FROM sessions
WHERE NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'session_expired' AND item = 'sweep')
ORDER BY expires_at LIMIT 1
"""

# The sweep as one item, once that instant has come.
OVER = f"SELECT 'sweep' AS item, due FROM ({EARLIEST_OVER}) WHERE due <= :now"  # noqa: S608 - both parts are constants

_LONG_OVER = """
SELECT id FROM sessions WHERE expires_at <= :now - 86400000 ORDER BY expires_at LIMIT CAST(:limit AS INTEGER)
"""

# Forgets sessions that ended a day ago, those that ended first, and before them what their consumers did.
FORGET_CURSORS = f"DELETE FROM claim_cursors WHERE session IN ({_LONG_OVER})"  # noqa: S608 - as above
FORGET = f"DELETE FROM sessions WHERE id IN ({_LONG_OVER})"  # noqa: S608 - as above
