"""The SQL of the substrate: holding an execution, letting go of it, and what is written under its lease."""

from moorage.awakeables.statements import HAS_ENDED
from moorage.guards.statements import is_protected, is_replayable, is_unsettled
from moorage.messages.inbox.wait_statements import IS_OVER
from moorage.runs.steps_statements import steps_of

_MINE = "execution_id = :execution AND epoch = :epoch AND owner IS NOT NULL AND expires_at > :now"

# --- the fence ---

# The execution is held under this epoch, and the lease has not run out (an expiry equal to now has passed).
HELD = f"SELECT 1 FROM executions WHERE {_MINE}"

# ... and its run has not ended.
HELD_AND_OPEN = """
SELECT 1 FROM executions AS e JOIN runs AS r ON r.run_id = e.run_id
WHERE e.execution_id = :execution AND e.epoch = :epoch AND e.owner IS NOT NULL AND e.expires_at > :now AND r.ended_at IS NULL
"""

# ... and no guard protects its scope: what succeeds is retired.
HELD_AND_UNPROTECTED = f"{HELD_AND_OPEN} AND NOT {is_protected('e.scope')}"

# ... and no callback of its own may be under way: what fails is known to have.
HELD_AND_RETURNED = f"""
{HELD_AND_OPEN} AND NOT EXISTS (SELECT 1 FROM guards AS g WHERE g.execution_id = e.execution_id)
"""

# What became of an execution whose fence did not hold, and of its latest run.
STANDING = """
SELECT e.epoch, e.owner, e.expires_at, r.run_id, r.status, r.ended_at, r.ended_epoch
FROM (SELECT 1) LEFT JOIN executions AS e ON e.execution_id = :execution
LEFT JOIN runs AS r ON r.run_id = coalesce(e.run_id,
    (SELECT max(run_id) FROM runs WHERE execution_id = :execution))
"""

# The run that an execution is at.
RUN_OF = "SELECT run_id FROM executions WHERE execution_id = :execution"

# No entry has any of these keys yet.
NONE_STANDS = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:keys) AS one CROSS JOIN journal AS j
        ON j.execution_id = :execution AND j.label = one.value ->> 0 AND j.input_sha256 = one.value ->> 1
)
"""

# Every one of these awakeables was minted by the execution.
ALL_ARE_MINE = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:awakeables) AS one LEFT JOIN awakeables AS a ON a.id = one.value
    WHERE a.execution_id IS NOT :execution
)
"""

# --- taking ---

_TAKES = """
UPDATE executions SET epoch = epoch + 1,
    attempt = CASE WHEN owner IS NULL THEN attempt ELSE attempt + 1 END,
    owner = :owner, expires_at = :expires_at, wake_at = :expires_at, wakes = 0, claimable = 0
""".strip()
_TAKEN = "RETURNING execution_id, epoch, attempt, expires_at"
_TO_BE_HAD = """
WHERE execution_id = :execution AND (owner IS NULL OR expires_at <= :now)
    AND EXISTS (SELECT 1 FROM json_each(:builds) AS b WHERE b.key = executions.body AND b.value = executions.build)
    AND EXISTS (SELECT 1 FROM runs AS r WHERE r.run_id = executions.run_id AND r.ended_at IS NULL)
""".strip()

# Takes an execution that nobody holds, or whose lease has run out, and that no guard protects, for a host that has the build
# it is bound to. Whoever takes over what another owner did not let go of makes another attempt.
TAKE = f"{_TAKES} {_TO_BE_HAD} AND NOT {is_protected('executions.scope')} {_TAKEN}"

# Takes one whose own guard gives way, because its key may be sent again.
TAKE_OVER = f"{_TAKES} {_TO_BE_HAD} AND {is_replayable('executions')} {_TAKEN}"

# Takes the first execution that waits for a host outside the Worker, of the builds that this host has.
_WAITS = """
SELECT c.execution_id FROM json_each(:builds) AS b CROSS JOIN executions AS c ON c.body = b.key AND c.claimable = 1
    WHERE c.build = b.value AND (c.owner IS NULL OR c.expires_at <= :now)
        AND EXISTS (SELECT 1 FROM runs AS r WHERE r.run_id = c.run_id AND r.ended_at IS NULL)
""".strip()
TAKE_NEXT = f"""
{_TAKES}
WHERE execution_id = (
    {_WAITS}
        AND NOT {is_protected("c.scope")}
    LIMIT 1
)
{_TAKEN}
"""

# The first one that waits so, and whose own guard gives way to a takeover.
NEXT_TO_TAKE_OVER = f"{_WAITS} AND {is_replayable('c')} LIMIT 1"

# The run goes on under the owner that has just taken its execution.
RUNNING = """
UPDATE runs SET status = 'running', next_attempt_at = NULL, awaiting = NULL,
    attempt = (SELECT attempt FROM executions WHERE execution_id = :execution)
WHERE run_id = (
    SELECT run_id FROM executions WHERE execution_id = :execution AND owner = :owner AND expires_at = :expires_at
) AND ended_at IS NULL
"""

# An execution with its run, for its host.
EXECUTION = """
SELECT e.execution_id, e.run_id, e.body, e.host, e.scope, e.build, e.plan_reference, e.pins, e.epoch, e.attempt, e.owner,
    e.expires_at, e.config, e.retry, e.input_size, e.input_blob, e.input, r.status, r.trace_id, r.span_id, r.parent_span,
    r.trace_state, r.stop_requested_at, r.stop_scope, r.stop_reason, r.metadata, r.started_at
FROM executions AS e JOIN runs AS r ON r.run_id = e.run_id WHERE e.execution_id = :execution
"""

# Extends the leases that are still held, by execution and epoch; never shortens one, and revives none.
RENEW = """
UPDATE executions SET expires_at = max(expires_at, CAST(:expires_at AS INTEGER)),
    wake_at = max(expires_at, CAST(:expires_at AS INTEGER))
WHERE execution_id IN (SELECT key FROM json_each(:fences)) AND epoch = :fences ->> execution_id
    AND owner IS NOT NULL AND expires_at > :now
RETURNING execution_id, epoch, owner, expires_at, attempt
"""

# The stops that were asked for, of executions that are held under these epochs.
STOPS = """
SELECT e.execution_id, r.stop_requested_at, r.stop_scope, r.stop_reason
FROM json_each(:fences) AS one CROSS JOIN executions AS e ON e.execution_id = one.key
CROSS JOIN runs AS r ON r.run_id = e.run_id
WHERE e.epoch = one.value AND r.stop_requested_at IS NOT NULL
"""

# --- under the lease ---

# Replaces the metadata of the run.
SET_METADATA = """
UPDATE runs SET metadata = :metadata WHERE run_id = (SELECT run_id FROM executions WHERE execution_id = :execution)
"""

# What an execution awaits. Its ref tells of which sort it is: no awakeable has a run's id. Without statistics the planner
# would rather walk the whole journal of the execution than use the index that is made for it.
_JOURNAL = "journal AS j INDEXED BY journal_awaited"
_AWAITED = "j.execution_id = :execution AND j.kind IN ('wait', 'child') AND j.state = 'pending'"

# Nothing that the execution awaits has ended.
NOTHING_ENDED = f"""
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM {_JOURNAL} CROSS JOIN awakeables AS a ON a.id = j.ref WHERE {_AWAITED} AND {HAS_ENDED}
) AND NOT EXISTS (
    SELECT 1 FROM {_JOURNAL} CROSS JOIN runs AS r ON r.run_id = j.ref WHERE {_AWAITED} AND r.ended_at IS NOT NULL
) AND NOT EXISTS (
    SELECT 1 FROM journal AS j INDEXED BY journal_events CROSS JOIN event_waits AS w
        ON w.execution_id = j.execution_id AND w.label = j.label AND w.input_sha256 = j.input_sha256
    WHERE j.execution_id = :execution AND j.kind = 'event' AND j.state = 'pending' AND {IS_OVER}
)
"""

# Lets go of an execution until an instant, the first deadline of what it awaits, or a wake. A stop that was asked for
# meanwhile is looked after soon.
SUSPEND = f"""
UPDATE executions SET owner = NULL, expires_at = NULL, claimable = 0, wake_at = (
    SELECT min(due) FROM (
        SELECT CAST(:until AS INTEGER) AS due WHERE :until IS NOT NULL
        UNION ALL
        SELECT a.deadline FROM {_JOURNAL} CROSS JOIN awakeables AS a ON a.id = j.ref WHERE {_AWAITED}
        UNION ALL
        SELECT CAST(:now AS INTEGER) + CAST(:repair AS INTEGER) FROM runs AS r
        WHERE r.run_id = executions.run_id AND r.stop_requested_at IS NOT NULL
    )
)
WHERE {_MINE}
RETURNING wake_at
"""
SUSPEND_RUN = """
UPDATE runs SET status = :status, next_attempt_at = :until, awaiting = :awaiting
WHERE run_id = (SELECT run_id FROM executions WHERE execution_id = :execution) AND ended_at IS NULL
"""

# --- closing ---

# Ends the run that the execution is at.
CLOSE_RUN = f"""
UPDATE runs SET status = :status, ended_at = :now, ended_epoch = :epoch, next_attempt_at = NULL, awaiting = NULL,
    result = :result, result_blob = :result_blob, result_size = :result_size, error = :error,
    steps = {steps_of(":execution")}
WHERE run_id = (SELECT run_id FROM executions WHERE execution_id = :execution) AND ended_at IS NULL
"""

# The run that has just ended, for its history entry.
CLOSED = """
SELECT 0 AS ordinal, r.run_id AS subject, NULL AS kind, NULL AS content_sha256, json_object('attempt', r.attempt,
    'code', r.error ->> 'code', 'execution_id', r.execution_id, 'status', r.status, 'tag', r.error ->> 'tag') AS data
FROM executions AS e JOIN runs AS r ON r.run_id = e.run_id WHERE e.execution_id = :execution AND changes() = 1
"""

# The execution that waits for this one, if one does.
PARENT_OF = "SELECT parent_execution FROM executions WHERE execution_id = :child AND parent_execution IS NOT NULL"

# Retires an execution: always, or only if it has recorded nothing that a later run could replay and is not to send an effect
# again under its key; but none that a guard protects.
RETIRE = f"""
DELETE FROM executions WHERE execution_id = :execution AND (CAST(:always AS INTEGER) = 1 OR NOT EXISTS (
    SELECT 1 FROM journal WHERE execution_id = :execution AND state = 'done'
) AND NOT {is_unsettled(":execution")}) AND NOT {is_protected("executions.scope")}
"""

# The execution has been retired in this transaction.
RETIRED = "SELECT :execution AS value WHERE NOT EXISTS (SELECT 1 FROM executions WHERE execution_id = :execution)"

# The journal of a retired execution goes with it (clause runs.collection).
COLLECT = """
DELETE FROM journal WHERE execution_id = :execution
    AND NOT EXISTS (SELECT 1 FROM executions WHERE execution_id = :execution)
"""

# An execution that stays waits for the next opening of its scope.
LET_GO = """
UPDATE executions SET owner = NULL, expires_at = NULL, wake_at = NULL, claimable = 0,
    requested_plan = coalesce(:requested_plan, requested_plan)
WHERE execution_id = :execution
"""

# --- refusing to take ---

# Nobody holds the execution, its run has not ended, and it is still bound to the build that this host does not have.
MAY_BE_REFUSED = """
SELECT 1 FROM executions AS e JOIN runs AS r ON r.run_id = e.run_id
WHERE e.execution_id = :execution AND e.epoch = :epoch AND (e.owner IS NULL OR e.expires_at <= :now)
    AND r.run_id = :run AND r.ended_at IS NULL
"""

# --- values, cursors, who acts ---

# An object becomes the input of a child that this transaction has opened.
KEEP_INPUT = """
INSERT INTO blob_references (sha256, holder)
SELECT :sha256, execution_id FROM executions WHERE execution_id = :child
ON CONFLICT (sha256, holder) DO NOTHING
"""

# An execution's lease.
LEASE = "SELECT epoch, owner, expires_at FROM executions WHERE execution_id = :execution"

# The execution refers to an object: by its input, by a value, or by how an awakeable was resolved.
REFERS = """
SELECT 1 FROM blob_references WHERE sha256 = :sha256 AND holder = :execution AND uploading_until IS NULL
UNION ALL SELECT 1 FROM executions WHERE execution_id = :execution AND input_blob = :sha256
UNION ALL SELECT 1 FROM journal AS j INDEXED BY journal_awaited
    WHERE j.execution_id = :execution AND j.kind IN ('wait', 'child')
    AND j.state = 'done' AND j.blob = :sha256
"""

# A cursor of the execution's scope.
CURSOR = """
SELECT c.position, c.revision FROM executions AS e JOIN cursors AS c ON c.scope = e.scope AND c.name = :name
WHERE e.execution_id = :execution
"""

# The cursor stands where the host read it.
CURSOR_STANDS = """
SELECT 1 FROM executions AS e LEFT JOIN cursors AS c ON c.scope = e.scope AND c.name = :name
WHERE e.execution_id = :execution AND coalesce(c.revision, 0) = :expected
"""

# Moves a cursor to its next revision.
MOVE_CURSOR = """
INSERT INTO cursors (scope, name, position, revision, execution_id, updated_at)
SELECT scope, :name, :position, CAST(:expected AS INTEGER) + 1, execution_id, :now
FROM executions WHERE execution_id = :execution
ON CONFLICT (scope, name) DO UPDATE SET position = excluded.position, revision = excluded.revision,
    execution_id = excluded.execution_id, updated_at = excluded.updated_at
"""

# As whom an execution acts, with the grants that its credential has now, and in which run.
PRINCIPAL = """
SELECT e.subject, e.credential, e.run_id, e.scope, e.config, c.grants,
    r.trace_id, r.span_id, r.parent_span, r.trace_state, r.config_revision
FROM executions AS e JOIN runs AS r ON r.run_id = e.run_id LEFT JOIN credentials AS c ON c.id = e.credential
WHERE e.execution_id = :execution
"""

# A body that a host outside the Worker offers.
REMOTE_BODY = "SELECT name, pins, effects, description, input_schema, result_schema FROM remote_bodies WHERE name = :name"
