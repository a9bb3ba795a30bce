# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of stopping, rewinding and restarting runs, and of retiring executions.

A run in flight is the `run_id` of an execution. `targets` is a JSON object of executions and the runs that they had when
they were read; a statement looks again, so that a picture gone stale does nothing.
"""

from moorage.guards.statements import is_protected, is_unsettled
from moorage.runs.steps_statements import steps_of

# --- stopping ---

# The run that is to be stopped.
TARGET = "SELECT run_id, execution_id, body, scope FROM runs WHERE run_id = :run_id"

_SCOPE = "(SELECT scope FROM runs WHERE run_id = :run_id)"

# A page of the runs in flight under the run's scope and, in the order of their names, the scopes below it.
IN_FLIGHT = f"""
SELECT e.execution_id, e.run_id, e.body, e.scope FROM executions AS e CROSS JOIN runs AS r ON r.run_id = e.run_id
WHERE e.scope = {_SCOPE} AND :after = '' AND r.ended_at IS NULL
UNION ALL
SELECT * FROM (
    SELECT e.execution_id, e.run_id, e.body, e.scope FROM executions AS e CROSS JOIN runs AS r ON r.run_id = e.run_id
    WHERE e.scope > max({_SCOPE} || '/', :after) AND e.scope < {_SCOPE} || '0' AND r.ended_at IS NULL
    ORDER BY e.scope LIMIT CAST(:limit AS INTEGER)
)
"""

_AIMED = """
FROM json_each(:targets) AS one CROSS JOIN executions AS e ON e.execution_id = one.key AND e.run_id = one.value
    CROSS JOIN runs AS r ON r.run_id = e.run_id AND r.ended_at IS NULL
""".strip()
_UNHELD = f"{_AIMED} WHERE (e.owner IS NULL OR e.expires_at <= :now)"

# Notes the stop on the rows of runs in flight; a newer request overwrites an older one.
MARK = f"""
UPDATE runs SET stop_requested_at = :now, stop_scope = :stop_scope, stop_reason = :reason, stop_by = :actor
WHERE run_id IN (SELECT e.run_id {_AIMED})
RETURNING run_id
"""

# The entries of history of the stops that were noted, and of the runs that nobody executes: these end at once.
MARKED = f"""
SELECT row_number() OVER (ORDER BY e.run_id) AS ordinal, e.run_id AS subject, NULL AS kind, NULL AS content_sha256,
    :data AS data {_AIMED}
"""
STOPPED = f"""
SELECT row_number() OVER (ORDER BY e.run_id) AS ordinal, e.run_id AS subject, NULL AS kind, NULL AS content_sha256,
    json_object('attempt', r.attempt, 'execution_id', e.execution_id, 'status', 'canceled') AS data {_UNHELD}
"""

# Who waits for the runs that end at once, and who executes the others.
PARENTS = f"SELECT e.parent_execution {_UNHELD} AND e.parent_execution IS NOT NULL"
HELD = f"SELECT e.execution_id, e.host, e.runner, e.body {_AIMED} WHERE e.expires_at > :now"

# Ends the runs that nobody executes.
CANCEL = f"""
UPDATE runs SET status = 'canceled', ended_at = :now, next_attempt_at = NULL, awaiting = NULL,
    steps = {steps_of("runs.execution_id")}
WHERE run_id IN (SELECT e.run_id {_UNHELD})
"""

_CANCELED = """
run_id = :targets ->> execution_id AND (owner IS NULL OR expires_at <= :now)
    AND execution_id IN (SELECT key FROM json_each(:targets))
    AND EXISTS (SELECT 1 FROM runs AS r WHERE r.run_id = executions.run_id AND r.status = 'canceled' AND r.ended_at = :now)
""".strip()

# The executions of the runs that have just ended so, as far as they are kept.
CANCELED = f"SELECT execution_id FROM executions WHERE {_CANCELED}"

# Retires the executions of canceled runs that recorded nothing; the others wait for the next opening of their scope. So does
# what a guard protects, and what is to send an effect again under its key: canceling hides no effect that has begun.
RETIRE_EMPTY = f"""
DELETE FROM executions WHERE {_CANCELED}
    AND NOT EXISTS (SELECT 1 FROM journal AS j WHERE j.execution_id = executions.execution_id AND j.state = 'done')
    AND NOT {is_protected("executions.scope")} AND NOT {is_unsettled("executions.execution_id")}
"""
KEEP = f"UPDATE executions SET owner = NULL, expires_at = NULL, wake_at = NULL, claimable = 0 WHERE {_CANCELED}"

# --- retiring ---

RETIRE = "DELETE FROM executions WHERE execution_id IN (SELECT value FROM json_each(:executions))"

# Those among some executions that are no more.
GONE = """
SELECT value FROM json_each(:executions)
WHERE NOT EXISTS (SELECT 1 FROM executions AS e WHERE e.execution_id = value)
"""
COLLECT = f"DELETE FROM journal WHERE execution_id IN ({GONE})"

# --- rewinding ---

# A pending execution with the run that it is at.
PENDING = """
SELECT e.execution_id, e.run_id, e.scope, e.body, e.host, e.runner, e.build, e.plan_reference, e.requested_plan, e.epoch,
    e.owner, e.expires_at, e.parent_execution, e.subject, e.credential, e.config, e.retry, e.opened_at, e.input_size,
    e.input_blob, e.input, r.status, r.ended_at, r.next_attempt_at, r.parent_run, r.config_revision, r.metadata
FROM executions AS e CROSS JOIN runs AS r ON r.run_id = e.run_id WHERE e.execution_id = :execution
"""

# What a rewind requires, each by itself.
IS_PENDING = "SELECT 1 FROM executions WHERE execution_id = :execution"
IS_UNHELD = "SELECT 1 FROM executions WHERE execution_id = :execution AND (owner IS NULL OR expires_at <= :now)"
IS_NOT_WAITING = """
SELECT 1 FROM executions AS e CROSS JOIN runs AS r ON r.run_id = e.run_id
WHERE e.execution_id = :execution AND r.status <> 'waiting'
"""
IS_ASKED_FOR_OTHERWISE = """
SELECT 1 FROM executions WHERE execution_id = :execution AND requested_plan IS NOT NULL AND requested_plan <> plan_reference
"""

_LEFT = """
run_id = (SELECT e.run_id FROM executions AS e WHERE e.execution_id = :execution) AND ended_at IS NULL
""".strip()

# The run that the execution was at goes no further.
LEAVE = f"""
UPDATE runs SET status = 'partial_failure', ended_at = :now, next_attempt_at = NULL, awaiting = NULL, error = :error,
    steps = {steps_of("runs.execution_id")}
WHERE {_LEFT}
"""
LEFT = f"""
SELECT 0 AS ordinal, run_id AS subject, NULL AS kind, NULL AS content_sha256,
    json_object('attempt', attempt, 'execution_id', execution_id, 'status', 'partial_failure') AS data
FROM runs WHERE {_LEFT}
"""
PARENT = """
SELECT parent_execution FROM executions WHERE execution_id = :execution AND parent_execution IS NOT NULL
"""

# The run that records a rewind: it started when the execution was opened. Its stop reached that run alone; the word `rewind`
# in the place of how far is what tells it from a run that was stopped.
RECORD_REWIND = f"""
INSERT INTO runs (run_id, execution_id, body, scope, host, runner, plan_reference, status, attempt, started_at, ended_at,
    created_by, trace_id, span_id, parent_span, trace_state, stop_requested_at, stop_scope, stop_reason, stop_by,
    input_sha256, input_size, steps)
SELECT :run_id, e.execution_id, e.body, e.scope, e.host, e.runner, e.plan_reference, 'canceled', e.attempt, e.opened_at,
    :now, :actor, r.trace_id, :span_id, r.span_id, r.trace_state, :now, 'rewind', :reason, :actor, e.input_sha256,
    e.input_size, {steps_of("e.execution_id")}
FROM executions AS e CROSS JOIN runs AS r ON r.run_id = e.run_id WHERE e.execution_id = :execution
"""

# --- restarting ---

# The pending execution of a run, if it has one.
EXECUTION_OF = """
SELECT r.body, r.created_by, r.execution_id FROM runs AS r WHERE r.run_id = :run_id
"""

# What the journal holds, without its values.
ENTRIES = """
SELECT label, input_sha256, position, state, started_at FROM journal WHERE execution_id = :execution
"""

_KEPT = """
SELECT one.value ->> 0, one.value ->> 1 FROM json_each(:kept) AS one
""".strip()

# The kept prefix as the journal of the new execution.
COPY = f"""
INSERT INTO journal (execution_id, label, input_sha256, position, kind, state, attempt, epoch, ref, next_attempt_at,
    started_at, ended_at, size, blob, failure, value)
SELECT :fresh, label, input_sha256, position, kind, state, attempt, 0, ref, NULL, started_at, ended_at, size, blob, NULL,
    value
FROM journal WHERE execution_id = :execution AND state = 'done' AND (label, input_sha256) IN ({_KEPT})
"""

# The awakeables that kept entries name are the new execution's, with their tokens.
COPY_AWAKEABLES = """
UPDATE awakeables SET execution_id = :fresh WHERE execution_id = :execution
    AND id IN (SELECT ref FROM journal WHERE execution_id = :fresh AND kind = 'awakeable')
"""

# Objects that the kept entries and the input need are the new execution's as well, before the old one releases them.
COPY_REFERENCES = """
INSERT INTO blob_references (sha256, holder)
SELECT b.sha256, :fresh FROM blob_references AS b WHERE b.holder = :execution AND b.uploading_until IS NULL
    AND (b.sha256 IN (SELECT blob FROM journal WHERE execution_id = :fresh AND blob IS NOT NULL) OR b.sha256 = :input_blob)
ON CONFLICT (sha256, holder) DO NOTHING
"""

# A parent that waits for the earlier run waits for the new one.
RELINK = """
UPDATE journal SET ref = :run_id
WHERE execution_id = :parent AND kind = 'child' AND state IN ('pending', 'waiting') AND ref = :earlier
"""
