-- Moorage, schema 2: durable runs. The conventions of 0001 hold.
--
-- executions     what is bound to a scope until it is retired: its pins, its input and its one owner. `build` is the digest of
--                the pins without the input, `plan_reference` of all. `epoch`, `owner` and
--                `expires_at` are the owner's lease: every write of a host is fenced by them. A row is removed when the
--                execution is retired, and with it its journal; what happened stays in `runs` and in history.
--                `wake_at` is when the Clock must look at it if nobody did before; NULL: not until something ends.
--                `wakes` counts how often it did since a host took it.
--                `claimable` is 1 while a remote host may take it. `requested_plan` is another plan that an open asked for.
--                `config` is the configuration of the scope as it was when the execution was opened, `retry` the schedule of
--                steps that name none
-- runs           the record: one row for each opening of an execution, from its opening on. Its id tells when it started.
--                `steps` is written when the run ends: what its journal looked like, without the values. `ended_epoch` is
--                the epoch of the owner that ended it. A run in flight is the `run_id` of an execution, which finds those of a
--                scope; an index over runs in flight would cost each of them two rows
-- journal        what an execution recorded, one row for each (label, hash of input). `position` is the branch and the place
--                in it where the body asked. state: pending (claimed, the effect may be under way), waiting (until
--                next_attempt_at), done, failed, canceled. `ref` is the awakeable or the run that an entry waits for.
--                A value of more than a mebibyte is an object of the bucket, held by the execution's id, or, when it resolved
--                an awakeable, by that one's. `journal_waits` finds who awaits an awakeable, `journal_awaited` what an
--                execution awaits
-- cursors        positions committed by runs, by scope and name
-- awakeables     one that no run minted is removed when it has been over for long enough, which `awakeables_ended` finds; the
--                others go with the last run of their execution
-- remote_bodies  bodies that hosts outside the Worker offer

CREATE TABLE IF NOT EXISTS executions (
    execution_id TEXT NOT NULL PRIMARY KEY,
    scope TEXT NOT NULL,
    body TEXT NOT NULL,
    host TEXT NOT NULL CHECK (host IN ('worker', 'remote')),
    runner TEXT NOT NULL,
    build TEXT NOT NULL,
    plan_reference TEXT NOT NULL,
    pins TEXT NOT NULL,
    run_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT,
    expires_at INTEGER,
    wake_at INTEGER,
    wakes INTEGER NOT NULL DEFAULT 0,
    claimable INTEGER NOT NULL DEFAULT 0 CHECK (claimable IN (0, 1)),
    parent_execution TEXT,
    subject TEXT NOT NULL,
    credential TEXT,
    requested_plan TEXT,
    config TEXT NOT NULL DEFAULT '{}',
    retry TEXT,
    opened_at INTEGER NOT NULL,
    input_sha256 TEXT NOT NULL,
    input_size INTEGER NOT NULL,
    input_blob TEXT,
    input TEXT,
    CHECK ((owner IS NULL) = (expires_at IS NULL)),
    CHECK ((input IS NULL) <> (input_blob IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS executions_by_scope ON executions (scope);
CREATE INDEX IF NOT EXISTS executions_due ON executions (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS executions_claimable ON executions (body, execution_id) WHERE claimable = 1;

CREATE TABLE IF NOT EXISTS runs (
    run_id TEXT NOT NULL PRIMARY KEY,
    execution_id TEXT NOT NULL,
    body TEXT NOT NULL,
    scope TEXT NOT NULL,
    host TEXT NOT NULL CHECK (host IN ('worker', 'remote')),
    runner TEXT NOT NULL,
    plan_reference TEXT,
    config_revision TEXT,
    status TEXT NOT NULL CHECK (
        status IN ('running', 'waiting', 'suspended', 'success', 'failed', 'partial_failure', 'canceled')
    ),
    attempt INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    ended_epoch INTEGER,
    next_attempt_at INTEGER,
    created_by TEXT NOT NULL,
    parent_run TEXT,
    restarted_from TEXT,
    trace_id TEXT NOT NULL,
    span_id TEXT NOT NULL,
    parent_span TEXT,
    trace_state TEXT,
    stop_requested_at INTEGER,
    stop_scope TEXT,
    stop_reason TEXT,
    stop_by TEXT,
    input_sha256 TEXT,
    input_size INTEGER,
    result_size INTEGER,
    result_blob TEXT,
    error TEXT,
    awaiting TEXT,
    bounds TEXT,
    metadata TEXT NOT NULL DEFAULT '{}',
    result TEXT,
    steps TEXT,
    CHECK ((status IN ('success', 'failed', 'partial_failure', 'canceled')) = (ended_at IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_by_body ON runs (body, run_id);
CREATE INDEX IF NOT EXISTS runs_by_execution ON runs (execution_id, run_id);
CREATE INDEX IF NOT EXISTS runs_by_scope ON runs (scope, run_id);
CREATE INDEX IF NOT EXISTS runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE IF NOT EXISTS journal (
    execution_id TEXT NOT NULL,
    label TEXT NOT NULL,
    input_sha256 TEXT NOT NULL,
    position TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'waiting', 'done', 'failed', 'canceled')),
    attempt INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    ref TEXT,
    next_attempt_at INTEGER,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    size INTEGER NOT NULL DEFAULT 0,
    blob TEXT,
    failure TEXT,
    value TEXT,
    PRIMARY KEY (execution_id, label, input_sha256),
    CHECK (state <> 'waiting' OR next_attempt_at IS NOT NULL),
    CHECK (state <> 'done' OR (value IS NULL) <> (blob IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS journal_waits ON journal (ref) WHERE kind = 'wait';
CREATE INDEX IF NOT EXISTS journal_awaited ON journal (execution_id, state, epoch) WHERE kind IN ('wait', 'child');

CREATE TABLE IF NOT EXISTS cursors (
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    position TEXT NOT NULL,
    revision INTEGER NOT NULL CHECK (revision > 0),
    execution_id TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS remote_bodies (
    name TEXT NOT NULL PRIMARY KEY,
    build TEXT NOT NULL,
    pins TEXT NOT NULL,
    effects TEXT NOT NULL,
    input_schema TEXT,
    result_schema TEXT,
    description TEXT NOT NULL,
    registered_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS awakeables_ended ON awakeables (ended_at)
    WHERE ended_at IS NOT NULL AND execution_id IS NULL;

UPDATE moorage SET value = '2' WHERE key IN ('schema', 'record_format') AND value = '1';
