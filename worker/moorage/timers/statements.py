"""The SQL of the Clock's own table, `due_failures`: the due items that failed when they were fired."""

# The failed items whose time to be tried again has come, first due first. `works` is a JSON array of the names of the
# classes at hand: a row of a class that no longer exists waits for an operator and wakes nobody. However many wait, it reads
# of each class no more than the first :limit and those of one instant with the last of them.
RETRIES = """
SELECT f.work, f.item, f.retry_at AS due FROM json_each(:works) AS w
CROSS JOIN due_failures AS f ON f.work = w.value AND f.retry_at <= min(:now, coalesce((
    SELECT g.retry_at FROM due_failures AS g WHERE g.work = w.value
    ORDER BY g.retry_at LIMIT 1 OFFSET CAST(:limit AS INTEGER)
), :now))
ORDER BY f.retry_at, f.work, f.item LIMIT CAST(:limit AS INTEGER)
"""

# When the next failed item is to be tried again: one index entry of each class.
NEXT_RETRY = """
SELECT min(due) AS due FROM (
    SELECT (SELECT f.retry_at FROM due_failures AS f WHERE f.work = w.value ORDER BY f.retry_at LIMIT 1) AS due
    FROM json_each(:works) AS w
)
"""

# How many items of these classes are set aside, counted up to :most.
COUNT_ASIDE = """
SELECT count(*) AS number FROM (
    SELECT 1 FROM json_each(:works) AS w CROSS JOIN due_failures AS f ON f.work = w.value LIMIT CAST(:most AS INTEGER)
)
"""

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

# What is known of an item that is set aside, for `Failing.of`; NULL for one that is not. To be filled in: its class, or
# classes, and the expression of its name.
FAILING = """
(SELECT json_object('attempts', f.attempts, 'error', f.error, 'retry_at', f.retry_at) FROM due_failures AS f
    WHERE f.work IN ({works}) AND f.item = {item} ORDER BY f.retry_at LIMIT 1)
""".strip()

# A set-aside item fired, or has nothing left to fire: its class may list it again.
CLEAR = "DELETE FROM due_failures WHERE work = :work AND item = :item"

# --- for operators ---

# A page of what is set aside, of all classes and of one.
FAILURES = """
SELECT work, item, attempts, retry_at, error FROM due_failures
WHERE (work, item) > (:work, :item) ORDER BY work, item LIMIT CAST(:limit AS INTEGER)
"""
FAILURES_OF_WORK = """
SELECT work, item, attempts, retry_at, error FROM due_failures
WHERE work = :work AND item > :item ORDER BY item LIMIT CAST(:limit AS INTEGER)
"""

# Lets items of these classes that are to be tried later be tried now: the first of them, and one.
RETRY_NOW = """
UPDATE due_failures SET retry_at = :now WHERE (work, item) IN (
    SELECT f.work, f.item FROM json_each(:works) AS w
    CROSS JOIN due_failures AS f ON f.work = w.value AND f.retry_at > :now
    ORDER BY f.retry_at LIMIT CAST(:most AS INTEGER)
)
RETURNING work
"""
RETRY_ITEM_NOW = """
UPDATE due_failures SET retry_at = :now WHERE work = :work AND item = :item AND retry_at > :now RETURNING work
"""
