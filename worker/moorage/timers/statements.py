"""The SQL of the Clock's own table, `due_failures`: the due items that failed when they were fired."""

# The failed items whose time to be tried again has come, first due first. `works` is a JSON array of the names of the
# classes at hand: a row of a class that no longer exists waits for an operator and wakes nobody.
RETRIES = """
SELECT work, item, retry_at AS due FROM due_failures
WHERE retry_at <= :now AND work IN (SELECT value FROM json_each(:works))
ORDER BY retry_at, work, item LIMIT CAST(:limit AS INTEGER)
"""

# When the next failed item is to be tried again.
NEXT_RETRY = "SELECT min(retry_at) AS due FROM due_failures WHERE work IN (SELECT value FROM json_each(:works))"

# Sets an item aside, or further aside: the delay starts at :first ms and doubles with each failure up to :cap ms.
SET_ASIDE = """
INSERT INTO due_failures (work, item, attempts, retry_at, error)
VALUES (:work, :item, 1, CAST(:now AS INTEGER) + CAST(:first AS INTEGER), :error)
ON CONFLICT (work, item) DO UPDATE SET
    attempts = attempts + 1,
    retry_at = CAST(:now AS INTEGER) + min(CAST(:cap AS INTEGER), CAST(:first AS INTEGER) << min(attempts, 30)),
    error = excluded.error
RETURNING attempts, retry_at
"""

# A set-aside item fired, or has nothing left to fire: its class may list it again.
CLEAR = "DELETE FROM due_failures WHERE work = :work AND item = :item"
