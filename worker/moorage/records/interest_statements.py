# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of interests. An expired interest is as good as none, whether it has been swept or not."""

INTEREST_COLUMNS = "i.worker, i.subject, i.kind, i.match, i.created_at, i.expires_at"

# What is about to be declared, for its history entry; a renewal that changes nothing else has none.
DECLARING = """
SELECT 1 AS ordinal, 'interest:' || :worker AS subject, :kind AS kind, NULL AS content_sha256,
    json_object('match', json(:match)) AS data
WHERE NOT EXISTS (
    SELECT 1 FROM interests AS i WHERE i.worker = :worker AND i.subject = :actor AND i.kind = :kind AND i.match = :match
        AND i.expires_at > :now
)
"""

# Declares an interest or renews it; it keeps its creation while it stays what it was.
DECLARE = """
INSERT INTO interests (worker, subject, kind, match, credential, created_at, expires_at)
VALUES (:worker, :actor, :kind, :match, :credential, :now, :expires_at)
ON CONFLICT (worker, subject) DO UPDATE SET
    created_at = CASE WHEN kind = excluded.kind AND match = excluded.match AND expires_at > :now
        THEN created_at ELSE excluded.created_at END,
    kind = excluded.kind, match = excluded.match, credential = excluded.credential, expires_at = excluded.expires_at
RETURNING worker, subject, kind, match, created_at, expires_at
"""

# The interest is there and has not expired.
IS_LIVE = "SELECT 1 FROM interests AS i WHERE i.worker = :worker AND i.subject = :actor AND i.expires_at > :now"

# What is about to be withdrawn, for its history entry.
WITHDRAWING = """
SELECT 1 AS ordinal, 'interest:' || i.worker AS subject, i.kind, NULL AS content_sha256, '{}' AS data
FROM interests AS i WHERE i.worker = :worker AND i.subject = :actor
"""

WITHDRAW = "DELETE FROM interests WHERE worker = :worker AND subject = :actor"

# A page of live interests by worker and subject: the caller's own, and those of kinds that it may read whole.
PAGE = f"""
SELECT {INTEREST_COLUMNS} FROM interests AS i
WHERE (i.worker, i.subject) > (:worker, :subject) AND i.expires_at > :now AND (:kind IS NULL OR i.kind = :kind) AND (
    CAST(:everything AS INTEGER) = 1 OR i.subject = :actor OR EXISTS (
        SELECT 1 FROM json_each(:visible) AS pattern
        WHERE pattern.value = i.kind OR (
            substr(pattern.value, -1) = '*'
            AND substr(i.kind, 1, length(pattern.value) - 1) = substr(pattern.value, 1, length(pattern.value) - 1)
        )
    )
)
ORDER BY i.worker, i.subject LIMIT CAST(:limit AS INTEGER)
"""

# The live interests in a kind with the grants under which each was declared; one whose credential is dead is none.
OF_KIND = f"""
SELECT {INTEREST_COLUMNS}, i.credential, c.grants FROM interests AS i LEFT JOIN credentials AS c ON c.id = i.credential
WHERE i.kind = :kind AND i.expires_at > :now AND (
    i.credential IS NULL OR (c.revoked_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > :now) AND c.id IS NOT NULL)
)
ORDER BY i.worker, i.subject LIMIT CAST(:limit AS INTEGER)
"""

# The full ten minutes at or after the earliest expiry, unless the sweep is set aside.
EARLIEST_EXPIRED = """
SELECT (i.expires_at + 599999) / 600000 * 600000 AS due FROM interests AS i
WHERE NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'interest_expired' AND item = 'sweep')
ORDER BY i.expires_at LIMIT 1
"""

# The sweep as one item, once that instant has come.
EXPIRED = f"SELECT 'sweep' AS item, due FROM ({EARLIEST_EXPIRED}) WHERE due <= :now"

# Forgets some expired interests and no live one, the longest expired first.
FORGET = """
DELETE FROM interests WHERE (worker, subject) IN (
    SELECT worker, subject FROM interests WHERE expires_at <= :now ORDER BY expires_at LIMIT CAST(:limit AS INTEGER)
)
"""
