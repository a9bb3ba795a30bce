"""The SQL of opening an execution.

A fresh scope is plain insertions. For a scope that a client named the transaction itself finds out what is there: nothing
(the execution is made), a pending execution under the same pins that nobody holds (it is joined), or one that refuses.
`run_id` of the execution is the opening that has it, so `executions.run_id = :run_id` says afterwards that it was admitted.
"""

from moorage.guards.statements import COLUMNS, is_blocked
from moorage.runs.steps_statements import steps_of

# A pending execution of the scope that an opening under these pins may join: nobody holds it, and no guard protects it but
# one that gives way.
_JOINABLE = f"""
FROM executions WHERE scope = :scope AND plan_reference = :plan_reference AND (owner IS NULL OR expires_at <= :now)
    AND NOT {is_blocked("executions")}
""".strip()

_EXECUTION = """
INSERT INTO executions (execution_id, scope, body, host, runner, build, plan_reference, pins, run_id, attempt, epoch,
    owner, expires_at, wake_at, claimable, parent_execution, subject, credential, config, retry, opened_at, input_sha256,
    input_size, input_blob, input)
SELECT :execution_id, :scope, :body, :host, :runner, :build, :plan_reference, :pins, :run_id, 1, :epoch,
    :owner, :expires_at, :wake_at, :claimable, :parent_execution, :subject, :credential, :config, :retry, :now,
    :input_sha256, :input_size, :input_blob, :input WHERE true
""".strip()

_TOLD = "RETURNING execution_id, host, runner, body"

# Opens an execution under a scope that nobody else can have.
OPEN = f"{_EXECUTION} {_TOLD}"

# Opens an execution under a named scope, or joins the pending one, which keeps its schedule unless the opening brings
# one. It gives no row when the pending one refuses.
OPEN_OR_JOIN = f"""
{_EXECUTION}
ON CONFLICT (scope) DO UPDATE SET run_id = excluded.run_id, attempt = 1, wakes = 0, epoch = epoch + CAST(:takes AS INTEGER),
    owner = CASE WHEN :takes = 1 THEN excluded.owner END,
    expires_at = CASE WHEN :takes = 1 THEN excluded.expires_at END,
    wake_at = CASE WHEN :takes = 1 THEN excluded.wake_at ELSE CAST(:joined_wake_at AS INTEGER) END,
    claimable = CASE WHEN :takes = 0 AND host = 'remote' THEN 1 ELSE 0 END,
    subject = excluded.subject, credential = excluded.credential, retry = coalesce(excluded.retry, executions.retry)
WHERE executions.plan_reference = excluded.plan_reference AND (executions.owner IS NULL OR executions.expires_at <= :now)
    AND NOT {is_blocked("executions")}
{_TOLD}
"""

# Before a join: entries of the step that the earlier run failed at are tried anew, from their first attempt.
RETRY_FAILED = f"""
UPDATE journal SET state = 'pending', attempt = 0, failure = NULL, ended_at = NULL, next_attempt_at = NULL
WHERE execution_id = (SELECT execution_id {_JOINABLE}) AND state = 'failed' AND label = (
    SELECT error ->> 'step' FROM runs WHERE run_id = (SELECT run_id {_JOINABLE})
)
"""  # noqa: S608

# Before a join: a parent that waits for the earlier run waits for this one.
PASS_ON = f"""
UPDATE journal SET ref = :run_id
WHERE execution_id = (SELECT parent_execution {_JOINABLE}) AND kind = 'child' AND state IN ('pending', 'waiting')
    AND ref = (SELECT run_id {_JOINABLE})
"""  # noqa: S608

# Before a join: the earlier run has not ended, and goes no further.
SUPERSEDE = f"""
UPDATE runs SET status = 'partial_failure', ended_at = :now, next_attempt_at = NULL, awaiting = NULL,
    steps = {steps_of("runs.execution_id")},
    error = json_object('message', 'run ' || :run_id || ' took its execution up', 'tag', 'Transient')
WHERE run_id = (SELECT run_id {_JOINABLE}) AND ended_at IS NULL
RETURNING run_id
"""  # noqa: S608

# The entry of history of the run that SUPERSEDE ended.
SUPERSEDED = f"""
SELECT 0 AS ordinal, run_id AS subject, NULL AS kind, NULL AS content_sha256,
    json_object('status', 'partial_failure', 'superseded_by', :run_id) AS data
FROM runs WHERE run_id = (SELECT run_id {_JOINABLE}) AND changes() = 1
"""  # noqa: S608

_RUN_COLUMNS = """
run_id, execution_id, body, scope, host, runner, plan_reference, config_revision, status, attempt, started_at,
    ended_at, created_by, parent_run, restarted_from, trace_id, span_id, parent_span, trace_state, input_sha256,
    input_size, metadata
""".strip()
_RUN_VALUES = """
:parent_run, :restarted_from, :trace_id, :span_id, :parent_span, :trace_state, :input_sha256, :input_size, :metadata
""".strip()

# The row of a run whose scope is fresh.
RECORD = f"""
INSERT INTO runs ({_RUN_COLUMNS})
VALUES (:run_id, :execution_id, :body, :scope, :host, :runner, :plan_reference, :config_revision, 'running', 1, :now,
    NULL, :subject, {_RUN_VALUES})
RETURNING run_id, execution_id, status, error
"""  # noqa: S608

# The row of a run of a named scope: running when the execution is its own, else failed at once, and why. Who may see this
# run may not see one of another body: that is not named.
RECORD_OR_REFUSAL = f"""
INSERT INTO runs ({_RUN_COLUMNS}, error)
SELECT :run_id, CASE WHEN e.run_id = :run_id THEN e.execution_id ELSE :execution_id END, :body, :scope, :host, e.runner,
    :plan_reference, :config_revision, CASE WHEN e.run_id = :run_id THEN 'running' ELSE 'failed' END,
    1, :now,
    CASE WHEN e.run_id = :run_id THEN NULL ELSE CAST(:now AS INTEGER) END, :subject, {_RUN_VALUES},
    CASE WHEN e.run_id = :run_id THEN NULL
        WHEN e.expires_at > :now THEN json_object('code', 'ExecutionBusy',
            'message', CASE e.body WHEN :body THEN 'run ' || e.run_id ELSE 'a run of another body' END
            || ' holds the scope''s execution under a live lease', 'tag', 'Transient')
        WHEN e.plan_reference = :plan_reference THEN json_object('code', 'ExecutionGuardBlocked',
            'message', 'a guard protects the scope''s execution: an effect may be in flight', 'tag', 'Transient')
        ELSE json_object('code', 'ExecutionPinMismatch', 'message', 'the scope''s execution '
            || CASE e.body WHEN :body THEN e.execution_id || ' is pending under plan ' || e.plan_reference
                ELSE 'is pending with another body' END
            || '; this run asked for ' || :plan_reference, 'tag', 'Incompatible')
    END
FROM executions AS e WHERE e.scope = :scope
RETURNING run_id, execution_id, status, error
"""  # noqa: S608

# A refused open that asked for another plan is what permits a rewind.
NOTE_PLAN = """
UPDATE executions SET requested_plan = :plan_reference
WHERE scope = :scope AND run_id <> :run_id AND plan_reference <> :plan_reference
"""

# The entry of history of a run's opening in a named scope.
OPENED = """
SELECT 0 AS ordinal, run_id AS subject, NULL AS kind, NULL AS content_sha256, json_object('body', body,
    'code', error ->> 'code', 'execution_id', execution_id, 'scope', scope, 'status', status) AS data
FROM runs WHERE run_id = :run_id
"""

# What is pending under the scope, after the opening: the run's own, or what refused it.
PENDING = """
SELECT execution_id, run_id, host, runner, body, plan_reference, pins, epoch, owner, expires_at, input_sha256, opened_at,
    config
FROM executions WHERE scope = :scope
"""

# An execution of this scope is pending, so that it can be opened again.
IS_PENDING = "SELECT 1 FROM executions WHERE scope = :scope"

# The guard in the way of an opening that was refused.
GUARD = f"""
SELECT {COLUMNS} FROM guard_rows AS p CROSS JOIN guards AS g ON g.token = p.token
WHERE p.row = 'scope:' || :scope AND NOT EXISTS (SELECT 1 FROM executions AS e WHERE e.scope = :scope AND e.run_id = :run_id)
"""  # noqa: S608

# The joined execution that nobody holds yet, for whom to poke.
UNHELD = (
    "SELECT execution_id, host, runner, body FROM executions WHERE scope = :scope AND run_id = :run_id AND owner IS NULL"
)

# An upload becomes the input of the execution that this transaction opened; where it opened none the upload lapses.
KEEP_INPUT = """
UPDATE blob_references SET holder = :execution_id, uploading_until = NULL
WHERE sha256 = :sha256 AND holder = :upload AND uploading_until IS NOT NULL
    AND EXISTS (SELECT 1 FROM executions WHERE execution_id = :execution_id)
"""

# A refused open is not remembered under its key: asking again may find the scope free.
FORGET_REFUSED = """
DELETE FROM idempotency WHERE subject = :key_subject AND key = :key_text
    AND EXISTS (SELECT 1 FROM runs WHERE run_id = :run_id AND status = 'failed')
"""

# What an opening made, for whoever asks again under its key.
OPENED_RUN = "SELECT run_id, execution_id, status, host, runner FROM runs WHERE run_id = :run_id"
