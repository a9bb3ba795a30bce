-- Moorage, schema 3: guards of outside effects, and the recovery identity. The conventions of 0001 hold.
--
-- holders        who executes: each draws its own id as it starts and is written here before its first guard. `exited_at` is
--                written by the holder's own orderly stop and by nothing else: a holder that merely fell silent may still
--                have a request under way
-- guards         one row for each outside effect that may be in flight. A row is removed by its holder when the callback
--                returned, by a takeover that may send the same key again, or by an operator, and by nothing else; no time
--                removes it. `label` and `input_sha256` are the journal entry, `idempotency_key` is what the request carries.
--                The destination deduplicates until since + window_seconds; NULL: it promises nothing.
--                `since` is the instant from which the window counts: of this admission, or of an earlier one of the key
--                whose request may have arrived. `scopes` and `lease_keys` are what guard_rows protects, as JSON lists
-- guard_replays  keys whose guard was removed so that they are sent again: since when a request with them may have arrived,
--                and the window that was promised then. It counts from there, however often the key is sent. Until it was sent
--                again and its holder has heard what became of it (`settled`), nothing but the key tells of the effect:
--                the execution is not given up
-- guard_rows     what guards protect: a scope as `scope:<scope>`, an entity lease as `lease:<key>`. Its primary key is why
--                no second callback is admitted on a row that is protected already. Every guard protects named rows: there
--                is none over everything
-- guard_audit    what operators released, with the whole guard and the evidence: append only, held by triggers
-- recovery       the one row that binds this database to a project, a schema and an object of the bucket. It is written by
--                an explicit initialization or a restore, never by a start. `generation` grows with each, and stands in the
--                object too, of which `object_sha256` is the digest. The row is written first and counts from
--                `confirmed_at` on, when the object was: what an interrupted initialization left can be told from a
--                restore without its bucket

CREATE TABLE IF NOT EXISTS holders (
    holder_id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('worker', 'remote')),
    name TEXT NOT NULL,
    subject TEXT NOT NULL,
    registered_at INTEGER NOT NULL,
    exited_at INTEGER,
    exit_reason TEXT,
    CHECK ((exited_at IS NULL) = (exit_reason IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS guards (
    token TEXT NOT NULL PRIMARY KEY,
    execution_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    holder TEXT NOT NULL,
    label TEXT NOT NULL,
    input_sha256 TEXT NOT NULL,
    idempotency_key TEXT NOT NULL CHECK (idempotency_key <> ''),
    destination TEXT,
    publication INTEGER NOT NULL CHECK (publication IN (0, 1)),
    window_seconds INTEGER CHECK (window_seconds > 0),
    admitted_at INTEGER NOT NULL,
    since INTEGER NOT NULL,
    scopes TEXT NOT NULL,
    lease_keys TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS guards_by_execution ON guards (execution_id);
CREATE INDEX IF NOT EXISTS guards_by_holder ON guards (holder);

CREATE TABLE IF NOT EXISTS guard_rows (
    row TEXT NOT NULL PRIMARY KEY CHECK (row GLOB 'scope:?*' OR row GLOB 'lease:?*'),
    token TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS guard_rows_by_token ON guard_rows (token);

CREATE TABLE IF NOT EXISTS guard_replays (
    idempotency_key TEXT NOT NULL PRIMARY KEY,
    execution_id TEXT NOT NULL,
    label TEXT NOT NULL,
    since INTEGER NOT NULL,
    window_seconds INTEGER,
    settled INTEGER NOT NULL CHECK (settled IN (0, 1))
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS guard_replays_by_execution ON guard_replays (execution_id);

-- The entity leases of executions, by execution: their keys begin with `entity:`.
CREATE INDEX IF NOT EXISTS leases_of_entities ON leases (owner) WHERE key GLOB 'entity:*';

CREATE TABLE IF NOT EXISTS guard_audit (
    id TEXT NOT NULL PRIMARY KEY,
    token TEXT NOT NULL,
    guard TEXT NOT NULL,
    evidence TEXT NOT NULL,
    operator TEXT NOT NULL,
    actor TEXT NOT NULL,
    released_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS guard_audit_by_token ON guard_audit (token);
CREATE TRIGGER IF NOT EXISTS guard_audit_is_never_changed BEFORE UPDATE ON guard_audit BEGIN
    SELECT RAISE(ABORT, 'guard_audit is append only');
END;
CREATE TRIGGER IF NOT EXISTS guard_audit_is_never_removed BEFORE DELETE ON guard_audit BEGIN
    SELECT RAISE(ABORT, 'guard_audit is append only');
END;

CREATE TABLE IF NOT EXISTS recovery (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    identity TEXT NOT NULL,
    project TEXT NOT NULL,
    schema INTEGER NOT NULL,
    generation INTEGER NOT NULL CHECK (generation > 0),
    object_key TEXT NOT NULL,
    object_sha256 TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    confirmed_at INTEGER
) STRICT, WITHOUT ROWID;

UPDATE moorage SET value = '3' WHERE key IN ('schema', 'record_format') AND value = '2';
