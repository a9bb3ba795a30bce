-- Moorage, schema 4: time and messages. The conventions of 0001 hold.
--
-- timers         events that are accepted at an instant; a row goes when its timer has fired or was deleted. `revision` is that
--                of its last entry in history, whose subject is `timer:<id>`, so that it grows on over deletion and
--                making anew. `every_ms` rearms it when it fires
-- schedules      cadences: cron or `every_ms` from `anchor` on, in an IANA zone, what they start, and the start of the next
--                window. `current_window` is the one that was started last, `waiting` says that some wait for their turn
-- schedule_triggers  one row for each window of a schedule that came, by its start: what became of it and what it started. It is
--                why no window fires twice
-- kv             small values by namespace and key; `revision` is that of the last entry in history
-- events         what was accepted from outside, once for (source, delivery_id), and never changed. `seq` is the position of its
--                acceptance in history. `envelope` holds its attributes as they were sent, without the data. scope is written
--                once; routed_at, disposition and work are the second checkpoint, written together with what routing did
-- event_terms    by what an event is found: `k:` and a key, `t:` and its type
-- event_waits    what executions wait for, one for each wait of a body. `after` is the exclusive acceptance boundary, `event` the
--                seq of the event that woke it: an event wakes one wait of an execution at most
-- event_wait_terms  by what a wait is found, as long as it is active
-- correlations   which work a (source, external id) belongs to, for ever
-- inbox          what consumers made of events: one outcome for (consumer, event id)
-- sender_events  how the webhooks of a sender become events, where it says so, which `keys` tells; and its scheme, where that
--                is one that the column of `senders` has no word for
-- subscriptions  which entries of history are told to a destination. `position` is the last entry that was looked at; entries
--                past it are the outbox
-- completions    destinations that one run's end is told to
-- deliveries     one row for each event and subscription: the bytes that are sent, how often they were, and when they are next.
--                While one is being sent, `next_attempt_at` is the end of its lease
-- delivery_policies  how a destination wants its deliveries
-- couriers       how a destination has answered lately: its circuit, and until when nothing is sent to it. Its Courier was told
--                of something to do and has until `poke_at` to come
--
-- What the Clock has set aside (due_failures) is found by its class and time: each shard of the Clock looks for its own.

CREATE TABLE IF NOT EXISTS timers (
    id TEXT NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL CHECK (revision > 0),
    fire_at INTEGER NOT NULL,
    every_ms INTEGER CHECK (every_ms > 0),
    source TEXT NOT NULL,
    type TEXT NOT NULL,
    delivery_id TEXT NOT NULL,
    subject TEXT,
    keys TEXT NOT NULL DEFAULT '[]',
    created_by TEXT NOT NULL,
    credential TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    data TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS timers_due ON timers (fire_at);

CREATE TABLE IF NOT EXISTS schedules (
    name TEXT NOT NULL PRIMARY KEY,
    cron TEXT,
    every_ms INTEGER CHECK (every_ms > 0),
    timezone TEXT NOT NULL,
    overlap TEXT NOT NULL CHECK (overlap IN ('skip', 'coalesce', 'enqueue')),
    catch_up TEXT NOT NULL CHECK (catch_up IN ('all', 'last', 'none')),
    catch_up_ms INTEGER NOT NULL CHECK (catch_up_ms >= 0),
    paused INTEGER NOT NULL CHECK (paused IN (0, 1)),
    anchor INTEGER NOT NULL,
    next_at INTEGER,
    waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting IN (0, 1)),
    current_window INTEGER,
    created_by TEXT NOT NULL,
    credential TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    target TEXT NOT NULL,
    CHECK ((cron IS NULL) <> (every_ms IS NULL)),
    CHECK (paused = 0 OR next_at IS NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS schedules_waiting ON schedules (name) WHERE waiting = 1;

CREATE TABLE IF NOT EXISTS schedule_triggers (
    schedule TEXT NOT NULL,
    window_start INTEGER NOT NULL,
    window_end INTEGER NOT NULL,
    trigger_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'started', 'skipped', 'coalesced', 'failed')),
    run_id TEXT,
    record TEXT,
    backfill INTEGER NOT NULL DEFAULT 0 CHECK (backfill IN (0, 1)),
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    error TEXT,
    PRIMARY KEY (schedule, window_start)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS schedule_triggers_queued ON schedule_triggers (schedule, window_start) WHERE state = 'queued';
CREATE INDEX IF NOT EXISTS schedule_triggers_over ON schedule_triggers (created_at) WHERE state <> 'queued';

CREATE TABLE IF NOT EXISTS kv (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL CHECK (revision > 0),
    updated_at INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS events (
    seq INTEGER NOT NULL PRIMARY KEY,
    event_id TEXT NOT NULL,
    source TEXT NOT NULL,
    delivery_id TEXT NOT NULL,
    type TEXT NOT NULL,
    keys TEXT NOT NULL,
    actor TEXT NOT NULL,
    causation TEXT,
    scope TEXT,
    content_sha256 TEXT NOT NULL,
    accepted_at INTEGER NOT NULL,
    routed_at INTEGER,
    disposition TEXT CHECK (disposition IN ('woke', 'correlated', 'unmatched')),
    work TEXT,
    envelope TEXT NOT NULL,
    data TEXT,
    CHECK ((routed_at IS NULL) = (disposition IS NULL))
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS events_by_delivery ON events (source, delivery_id);
CREATE UNIQUE INDEX IF NOT EXISTS events_by_id ON events (event_id);
CREATE INDEX IF NOT EXISTS events_unrouted ON events (seq) WHERE routed_at IS NULL;
CREATE INDEX IF NOT EXISTS events_by_work ON events (work, seq) WHERE work IS NOT NULL;
CREATE INDEX IF NOT EXISTS events_by_scope ON events (scope, seq) WHERE scope IS NOT NULL;

CREATE TABLE IF NOT EXISTS event_terms (
    term TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (term, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS event_waits (
    execution_id TEXT NOT NULL,
    label TEXT NOT NULL,
    input_sha256 TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('active', 'woken', 'timed_out', 'canceled')),
    after INTEGER NOT NULL,
    timeout_at INTEGER,
    event INTEGER,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    keys TEXT NOT NULL,
    types TEXT NOT NULL,
    match TEXT,
    PRIMARY KEY (execution_id, label, input_sha256),
    CHECK ((state = 'active') = (ended_at IS NULL)),
    CHECK ((state = 'woken') = (event IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS event_waits_by_timeout ON event_waits (timeout_at)
    WHERE state = 'active' AND timeout_at IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS event_waits_by_event ON event_waits (event, execution_id) WHERE event IS NOT NULL;

CREATE TABLE IF NOT EXISTS event_wait_terms (
    term TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    label TEXT NOT NULL,
    input_sha256 TEXT NOT NULL,
    PRIMARY KEY (term, execution_id, label, input_sha256)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS journal_events ON journal (execution_id, state, epoch) WHERE kind = 'event';

CREATE TABLE IF NOT EXISTS correlations (
    source TEXT NOT NULL,
    external_id TEXT NOT NULL,
    work TEXT NOT NULL,
    attached_at INTEGER NOT NULL,
    attached_by TEXT NOT NULL,
    PRIMARY KEY (source, external_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS correlations_by_work ON correlations (work);

CREATE TABLE IF NOT EXISTS inbox (
    consumer TEXT NOT NULL,
    event_id TEXT NOT NULL,
    recorded_at INTEGER NOT NULL,
    recorded_by TEXT NOT NULL,
    outcome TEXT NOT NULL,
    PRIMARY KEY (consumer, event_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS inbox_by_age ON inbox (recorded_at);

CREATE TABLE IF NOT EXISTS sender_events (
    sender TEXT NOT NULL PRIMARY KEY,
    scheme TEXT CHECK (scheme IN ('slack')),
    type TEXT,
    id TEXT,
    keys TEXT,
    scope TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS subscriptions (
    name TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('active', 'paused', 'disabled')),
    destination TEXT,
    position INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    reason TEXT,
    types TEXT NOT NULL,
    kinds TEXT NOT NULL,
    filter TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS completions (
    run_id TEXT NOT NULL,
    destination TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    PRIMARY KEY (run_id, destination)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS deliveries (
    delivery_id TEXT NOT NULL PRIMARY KEY,
    subscription TEXT NOT NULL,
    destination TEXT NOT NULL,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    generation INTEGER NOT NULL CHECK (generation > 0),
    state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'dead', 'canceled')),
    attempts INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    next_attempt_at INTEGER,
    leased_until INTEGER,
    occurred_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    first_attempt_at INTEGER,
    ended_at INTEGER,
    last_status INTEGER,
    last_error TEXT,
    body TEXT NOT NULL,
    CHECK ((state = 'pending') = (next_attempt_at IS NOT NULL)),
    CHECK ((state = 'pending') = (ended_at IS NULL)),
    CHECK (leased_until IS NULL OR state = 'pending')
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS deliveries_by_event ON deliveries (event_id, subscription, destination);
CREATE INDEX IF NOT EXISTS deliveries_due ON deliveries (destination, next_attempt_at, position) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS deliveries_in_order ON deliveries (destination, position) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS deliveries_dead ON deliveries (delivery_id) WHERE state = 'dead';
CREATE INDEX IF NOT EXISTS deliveries_ended ON deliveries (ended_at) WHERE state IN ('delivered', 'canceled');

CREATE TABLE IF NOT EXISTS delivery_policies (
    destination TEXT NOT NULL PRIMARY KEY,
    concurrency INTEGER NOT NULL CHECK (concurrency > 0),
    ordered INTEGER NOT NULL CHECK (ordered IN (0, 1)),
    max_attempts INTEGER NOT NULL CHECK (max_attempts > 0),
    timeout_seconds INTEGER NOT NULL CHECK (timeout_seconds > 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS couriers (
    destination TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('closed', 'open', 'half_open', 'disabled')),
    failures INTEGER NOT NULL,
    opened INTEGER NOT NULL DEFAULT 0,
    blocked_until INTEGER,
    poke_at INTEGER,
    reason TEXT,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS due_failures_by_time ON due_failures (work, retry_at);

UPDATE moorage SET value = '4' WHERE key IN ('schema', 'record_format') AND value = '3';
