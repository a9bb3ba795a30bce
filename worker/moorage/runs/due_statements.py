# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of due executions, and of runs whose record is old."""

from moorage.guards.statements import is_protected
from moorage.kernel.limits import RUN_RETENTION_SECONDS
from moorage.runs.steps_statements import steps_of

# What the Clock looks at is an execution at an instant: one that was set aside and is due at another is another item.
_ITEM = "e.execution_id || '@' || e.wake_at"
_NOT_ASIDE = f"NOT EXISTS (SELECT 1 FROM due_failures AS f WHERE f.work = 'run_due' AND f.item = {_ITEM})"

# The first instant at which an execution is to be looked at.
EARLIEST_WAKE = f"""
SELECT e.wake_at AS due FROM executions AS e WHERE e.wake_at IS NOT NULL AND {_NOT_ASIDE} ORDER BY e.wake_at LIMIT 1
"""

# The executions whose instant has come.
WAKES = f"""
SELECT {_ITEM} AS item, e.wake_at AS due FROM executions AS e WHERE e.wake_at <= :now AND {_NOT_ASIDE}
ORDER BY e.wake_at, e.execution_id LIMIT CAST(:limit AS INTEGER)
"""

_IS_DUE = "wake_at = CAST(:due AS INTEGER) AND wake_at <= :now"
_LAPSED = f"e.execution_id = :execution AND e.host = 'remote' AND e.{_IS_DUE} AND e.expires_at <= :now"

# The run of a host outside the Worker that let its lease run out; its history entry, and who waits for it.
REAPING = f"""
SELECT 0 AS ordinal, r.run_id AS subject, NULL AS kind, NULL AS content_sha256, json_object('attempt', r.attempt,
    'execution_id', e.execution_id, 'owner', e.owner, 'status', 'partial_failure') AS data
FROM executions AS e CROSS JOIN runs AS r ON r.run_id = e.run_id AND r.ended_at IS NULL WHERE {_LAPSED}
"""
REAPED_PARENT = f"SELECT e.parent_execution FROM executions AS e WHERE {_LAPSED} AND e.parent_execution IS NOT NULL"

REAPED = f"SELECT e.execution_id FROM executions AS e WHERE {_LAPSED}"

# It ends as a partial failure.
REAP = f"""
UPDATE runs SET status = 'partial_failure', ended_at = :now, next_attempt_at = NULL, awaiting = NULL, error = :error,
    steps = {steps_of("runs.execution_id")}
WHERE run_id = (SELECT e.run_id FROM executions AS e WHERE {_LAPSED}) AND ended_at IS NULL
RETURNING run_id
"""

# Its execution waits for the next opening of its scope, with what was recorded.
LET_GO = f"""
UPDATE executions SET owner = NULL, expires_at = NULL, wake_at = NULL, claimable = 0
WHERE execution_id = :execution AND host = 'remote' AND {_IS_DUE} AND expires_at <= :now
"""

# One whose run has ended has nothing to be looked after; whoever opens its scope next will.
REST = f"""
UPDATE executions SET wake_at = NULL, claimable = 0 WHERE execution_id = :execution AND {_IS_DUE}
    AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.run_id = executions.run_id AND r.ended_at IS NULL)
RETURNING execution_id
"""

# Any other is offered to hosts outside the Worker from now on, or its Runner is looked for again, later each time.
LOOK_AGAIN = f"""
UPDATE executions SET wakes = wakes + 1, claimable = CASE WHEN host = 'remote' THEN 1 ELSE 0 END,
    wake_at = CASE WHEN host = 'worker'
        THEN CAST(:now AS INTEGER) + min(CAST(:longest AS INTEGER), CAST(:first AS INTEGER) << min(wakes, 10)) END
WHERE execution_id = :execution AND {_IS_DUE} AND (owner IS NULL OR expires_at <= :now)
RETURNING execution_id, host, runner, body
"""

# The full ten minutes at or after the first instant at which a run has been over for long enough.
EARLIEST_ENDED = f"""
SELECT (ended_at + {int(RUN_RETENTION_SECONDS) * 1000} + 599999) / 600000 * 600000 AS due FROM runs
WHERE ended_at IS NOT NULL AND NOT {is_protected("runs.scope")}
    AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'run_retention' AND item = 'sweep')
ORDER BY ended_at LIMIT 1
"""
ENDED = f"SELECT 'sweep' AS item, due FROM ({EARLIEST_ENDED}) WHERE due <= :now AND CAST(:limit AS INTEGER) > 0"

# The runs that have been over for longest. Those of a scope that a guard protects are kept with it.
OLD_RUNS = f"""
SELECT run_id, execution_id FROM runs WHERE ended_at <= :before AND NOT {is_protected("runs.scope")}
ORDER BY ended_at LIMIT CAST(:limit AS INTEGER)
"""

# Executions whose last run is among them: nobody has opened their scope since.
_LAST = "run_id IN (SELECT value FROM json_each(:runs))"
_FREE = f"NOT {is_protected('executions.scope')}"
RETIRING = f"""
SELECT row_number() OVER (ORDER BY execution_id) AS ordinal, execution_id AS subject, NULL AS kind, NULL AS content_sha256,
    json_object('reason', 'retention', 'run_id', run_id, 'scope', scope) AS data
FROM executions WHERE execution_id IN (SELECT r.execution_id FROM runs AS r WHERE r.{_LAST}) AND {_LAST} AND {_FREE}
"""
RETIRE_OLD = f"""
DELETE FROM executions WHERE execution_id IN (SELECT r.execution_id FROM runs AS r WHERE r.{_LAST}) AND {_LAST} AND {_FREE}
"""

# A parent that has not been taken since its child ended, for as long as that: the child's end is nowhere else.
ORPHAN_WAITS = """
UPDATE journal SET state = 'failed', ended_at = :now,
    failure = json_object('code', 'RunUnknown', 'message', 'the record of the child was removed', 'tag', 'Unknown')
WHERE kind = 'child' AND state IN ('pending', 'waiting') AND (execution_id, ref) IN (
    SELECT p.execution_id, c.run_id FROM json_each(:runs) AS one CROSS JOIN runs AS c ON c.run_id = one.value
        CROSS JOIN runs AS p ON p.run_id = c.parent_run
)
"""

# The runs that go, as holders of their results.
LISTED_RUNS = """
SELECT r.run_id AS value FROM json_each(:runs) AS one CROSS JOIN runs AS r ON r.run_id = one.value
WHERE r.ended_at <= :before
"""
REMOVE = "DELETE FROM runs WHERE run_id IN (SELECT value FROM json_each(:runs)) AND ended_at <= :before"

# Executions of which no run is on record any more.
FORGOTTEN = """
SELECT value FROM json_each(:executions)
WHERE NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.execution_id = value)
    AND NOT EXISTS (SELECT 1 FROM executions AS e WHERE e.execution_id = value)
"""
