-- Moorage, schema 1: what one deployment remembers.
--
-- The database is the only truth; Durable Objects hold hints and can be rebuilt from here at any instant.
-- Every operation is one batch of statements that commits whole or not at all. A batch begins with its preconditions:
-- an insert into `preconditions` that selects a row only when the condition is broken, and so breaks the named CHECK of
-- its column and with it the batch. The table is always empty.
--
-- Conventions. Instants are integer milliseconds since 1970 UTC, and end in _at, or are called not_before or deadline.
-- JSON columns hold RFC 8785 text. Ids are text, allocated by the caller before the batch. An epoch is the fencing number
-- of a lease: it only grows. Every statement in this file may be applied twice and has then been applied once; a later
-- schema is a later file, never an edit of this one.
--
-- moorage        two facts about the database itself: the schema and the format of its stored records
-- preconditions  see above
-- history        what happened: one entry a mutation, appended in the mutation's own batch; `position` orders all,
--                `revision` counts the entries of one subject from 1 without gaps. The index by subject leaves out
--                record.published, always a subject's first entry: the record's seq is its position. When a record is
--                removed, the entry record.removed keeps that position as `seq` in its data
-- seals          the hash chain over history, one row for each stretch that was sealed at once: `position` is its last entry,
--                `links` the links of all its entries, 64 hexadecimal digits each, `seal` binds the row to its instant
-- leases         who may write under a key, for everything that has no row of its own to be leased
-- idempotency    the Idempotency-Keys of the last day, with what they made
-- kinds          what programs may publish: declared paths and the slot that each occupies, claim policy, JSON Schema
-- kind_depths    how many records of a kind are ready, for each kind that limits it; triggers on records keep it right
-- rates          token buckets: what is left of each, and when that was counted
-- credentials    who may ask: SHA-256 of the bearer token, subject, grants; a public one may be shipped to browsers
-- public_origins the web pages that may use a public credential
-- sessions       workers that number their claims; claim_cursors keeps the last numbered claim of each consumer in one
-- senders        webhook senders; their signing secrets stand apart in sender_secrets, which only verification reads
-- destinations   where requests may be sent, with the destination's own window of deduplication
-- scopes         the tree of scopes
-- records        the records, by id, so that the id costs no index. `seq` is the position of the record's publication in
--                history, so that order of seq is order of commit; a kind's records by seq are the streams of
--                three indexes: records_ready for each priority of what is available, records_waiting_by_kind for what
--                waits, records_resting for the rest; no condition of the last two names the state, so that a record
--                which is settled leaves no index row to be written anew.
--                state: ready -> claimed -> consumed, or back to ready, or dead. `available` is 1 while the
--                record is ready and not waiting for not_before: claims look at nothing else. The lease stands in the row:
--                epoch, owner (the worker), claimed_by (the credential's subject), claim (the claim's id), expires_at.
--                s1..s16 are the values at the kind's declared paths, encoded so that one comparison has one meaning:
--                NULL missing, a number itself, everything else text behind a tag (s string, b boolean, n null, i instant,
--                a array, o object). What may be large stands last: SQLite reads a row from its start; `size` is
--                its bytes, so that a page can be bounded without reading it. Retention does not
--                look at a record before held_until, if it has one: a key may still ask for it, or it is still needed.
--                lane is the value whose claims are counted where the kind limits them, set by the claim. ready_until is
--                when a ready record becomes a dead letter. debounce_key names a waiting record that the same publisher may
--                still replace, and debounce_until is how long
-- record_parents lineage, child to parent; an edge goes with its child
-- interests      what workers look for, each until it expires; one a worker's name and subject
-- blob_references  what needs an object of the bucket: its digest and the holder's id. While the bytes are on their way in,
--                the holder is the upload and `uploading_until` says how long it counts. An object may be deleted only while
--                no row here counts
-- blob_deletions objects that are to be deleted. While a row is here no new reference to its digest can be made, so that
--                bytes are never deleted under one; `due_at` lies ahead while somebody is deleting
-- blob_sweep     one row: when the bucket is next compared with blob_references, and how far that has come
-- artifact_deadlines  artifacts that are shredded unless a record names them as a parent by then
-- awakeables     promises that the outside resolves; only the SHA-256 of the token is kept. `execution_id` is who minted it in
--                a run and is woken when it ends. A payload of more than a mebibyte is an object of the bucket,
--                of `payload_size` bytes, which holds `{"resolved": payload}` and is held by the awakeable's id
-- due_failures   due work that failed when the clock fired it, and when it is tried again

CREATE TABLE IF NOT EXISTS moorage (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO moorage (key, value) VALUES ('schema', '1'), ('record_format', '1') ON CONFLICT (key) DO NOTHING;

CREATE TABLE IF NOT EXISTS preconditions (
    p0 INTEGER CONSTRAINT precondition_0 CHECK (p0 IS NULL),
    p1 INTEGER CONSTRAINT precondition_1 CHECK (p1 IS NULL),
    p2 INTEGER CONSTRAINT precondition_2 CHECK (p2 IS NULL),
    p3 INTEGER CONSTRAINT precondition_3 CHECK (p3 IS NULL),
    p4 INTEGER CONSTRAINT precondition_4 CHECK (p4 IS NULL),
    p5 INTEGER CONSTRAINT precondition_5 CHECK (p5 IS NULL),
    p6 INTEGER CONSTRAINT precondition_6 CHECK (p6 IS NULL),
    p7 INTEGER CONSTRAINT precondition_7 CHECK (p7 IS NULL),
    p8 INTEGER CONSTRAINT precondition_8 CHECK (p8 IS NULL),
    p9 INTEGER CONSTRAINT precondition_9 CHECK (p9 IS NULL),
    p10 INTEGER CONSTRAINT precondition_10 CHECK (p10 IS NULL),
    p11 INTEGER CONSTRAINT precondition_11 CHECK (p11 IS NULL),
    p12 INTEGER CONSTRAINT precondition_12 CHECK (p12 IS NULL),
    p13 INTEGER CONSTRAINT precondition_13 CHECK (p13 IS NULL),
    p14 INTEGER CONSTRAINT precondition_14 CHECK (p14 IS NULL),
    p15 INTEGER CONSTRAINT precondition_15 CHECK (p15 IS NULL)
) STRICT;

CREATE TABLE IF NOT EXISTS history (
    position INTEGER NOT NULL PRIMARY KEY,
    subject TEXT NOT NULL,
    revision INTEGER NOT NULL CHECK (revision > 0),
    type TEXT NOT NULL,
    kind TEXT,
    actor TEXT NOT NULL,
    at INTEGER NOT NULL,
    data TEXT NOT NULL,
    content_sha256 TEXT
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS history_by_subject ON history (subject, revision) WHERE type <> 'record.published';

CREATE TABLE IF NOT EXISTS seals (
    position INTEGER NOT NULL PRIMARY KEY,
    sealed_at INTEGER NOT NULL,
    seal TEXT NOT NULL,
    links TEXT NOT NULL CHECK (length(links) > 0 AND length(links) % 64 = 0)
) STRICT;

CREATE TABLE IF NOT EXISTS leases (
    key TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL CHECK (epoch > 0),
    owner TEXT,
    expires_at INTEGER,
    CHECK ((owner IS NULL) = (expires_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS idempotency (
    subject TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    reference TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (subject, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idempotency_by_expiry ON idempotency (expires_at);

CREATE TABLE IF NOT EXISTS kinds (
    name TEXT NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL CHECK (revision > 0),
    paths TEXT NOT NULL,
    schema TEXT,
    lease_seconds INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    retry TEXT NOT NULL,
    retry_delays TEXT NOT NULL,
    concurrency TEXT,
    depth_limit INTEGER,
    ttl_seconds INTEGER,
    rate TEXT,
    retention_seconds INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    created_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS kinds_retained ON kinds (name, retention_seconds) WHERE retention_seconds IS NOT NULL;

CREATE TABLE IF NOT EXISTS kind_depths (
    kind TEXT NOT NULL PRIMARY KEY,
    ready INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS rates (
    key TEXT NOT NULL PRIMARY KEY,
    tokens REAL NOT NULL,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS credentials (
    id TEXT NOT NULL PRIMARY KEY,
    token_sha256 TEXT NOT NULL,
    subject TEXT NOT NULL,
    grants TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    public INTEGER NOT NULL DEFAULT 0 CHECK (public IN (0, 1)),
    origins TEXT,
    rate TEXT
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS credentials_by_token ON credentials (token_sha256);

CREATE TABLE IF NOT EXISTS public_origins (
    origin TEXT NOT NULL,
    credential TEXT NOT NULL,
    PRIMARY KEY (origin, credential)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS sessions (
    id TEXT NOT NULL PRIMARY KEY,
    subject TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_by_expiry ON sessions (expires_at);

CREATE TABLE IF NOT EXISTS claim_cursors (
    session TEXT NOT NULL,
    consumer TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    digest TEXT NOT NULL,
    claim TEXT NOT NULL,
    taken TEXT NOT NULL,
    completed_at INTEGER NOT NULL,
    PRIMARY KEY (session, consumer)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS senders (
    name TEXT NOT NULL PRIMARY KEY,
    scheme TEXT NOT NULL CHECK (scheme IN ('standard', 'github', 'stripe', 'bearer')),
    subject TEXT NOT NULL,
    tolerance_seconds INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS sender_secrets (
    sender TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    secret TEXT NOT NULL,
    PRIMARY KEY (sender, ordinal)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS destinations (
    name TEXT NOT NULL PRIMARY KEY,
    url TEXT NOT NULL,
    methods TEXT NOT NULL,
    secret TEXT,
    dedup_window_seconds INTEGER,
    publication INTEGER NOT NULL CHECK (publication IN (0, 1)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS scopes (
    id TEXT NOT NULL PRIMARY KEY,
    parent TEXT,
    config TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS records (
    id TEXT NOT NULL PRIMARY KEY,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('ready', 'claimed', 'consumed', 'dead')),
    available INTEGER NOT NULL CHECK (available IN (0, 1)),
    not_before INTEGER,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT,
    claimed_by TEXT,
    claim TEXT,
    expires_at INTEGER,
    ended_at INTEGER,
    held_until INTEGER,
    ready_until INTEGER,
    lane ANY,
    debounce_key TEXT,
    debounce_until INTEGER,
    settlement_sha256 TEXT,
    size INTEGER GENERATED ALWAYS AS (length(CAST(body AS BLOB)) + length(CAST(metadata AS BLOB))) STORED,
    s1 ANY,
    s2 ANY,
    s3 ANY,
    s4 ANY,
    s5 ANY,
    s6 ANY,
    s7 ANY,
    s8 ANY,
    s9 ANY,
    s10 ANY,
    s11 ANY,
    s12 ANY,
    s13 ANY,
    s14 ANY,
    s15 ANY,
    s16 ANY,
    failure TEXT,
    receipt TEXT,
    metadata TEXT NOT NULL,
    body TEXT NOT NULL,
    CHECK (available = 0 OR state = 'ready'),
    CHECK (available = 1 OR state <> 'ready' OR not_before IS NOT NULL),
    CHECK (not_before IS NULL OR state = 'ready'),
    CHECK ((state = 'claimed') = (expires_at IS NOT NULL)),
    CHECK ((state = 'claimed') = (claim IS NOT NULL)),
    CHECK ((state IN ('consumed', 'dead')) = (ended_at IS NOT NULL)),
    CHECK ((state = 'consumed') = (receipt IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS records_ready ON records (kind, priority DESC, seq) WHERE available = 1;
CREATE INDEX IF NOT EXISTS records_resting ON records (kind, seq) WHERE available = 0 AND not_before IS NULL;
CREATE INDEX IF NOT EXISTS records_waiting ON records (not_before) WHERE available = 0 AND not_before IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_waiting_by_kind ON records (kind, seq) WHERE available = 0 AND not_before IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_leased ON records (expires_at, claim) WHERE state = 'claimed';
CREATE INDEX IF NOT EXISTS records_dead ON records (seq) WHERE state = 'dead';
CREATE INDEX IF NOT EXISTS records_dead_by_kind ON records (kind, seq) WHERE state = 'dead';
CREATE INDEX IF NOT EXISTS records_ended ON records (kind, ended_at) WHERE ended_at IS NOT NULL AND held_until IS NULL;
CREATE INDEX IF NOT EXISTS records_held ON records (kind, held_until) WHERE ended_at IS NOT NULL AND held_until IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s1 ON records (kind, s1, priority DESC, seq) WHERE available = 1 AND s1 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s2 ON records (kind, s2, priority DESC, seq) WHERE available = 1 AND s2 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s3 ON records (kind, s3, priority DESC, seq) WHERE available = 1 AND s3 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s4 ON records (kind, s4, priority DESC, seq) WHERE available = 1 AND s4 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s5 ON records (kind, s5, priority DESC, seq) WHERE available = 1 AND s5 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s6 ON records (kind, s6, priority DESC, seq) WHERE available = 1 AND s6 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s7 ON records (kind, s7, priority DESC, seq) WHERE available = 1 AND s7 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s8 ON records (kind, s8, priority DESC, seq) WHERE available = 1 AND s8 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s9 ON records (kind, s9, priority DESC, seq) WHERE available = 1 AND s9 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s10 ON records (kind, s10, priority DESC, seq) WHERE available = 1 AND s10 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s11 ON records (kind, s11, priority DESC, seq) WHERE available = 1 AND s11 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s12 ON records (kind, s12, priority DESC, seq) WHERE available = 1 AND s12 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s13 ON records (kind, s13, priority DESC, seq) WHERE available = 1 AND s13 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s14 ON records (kind, s14, priority DESC, seq) WHERE available = 1 AND s14 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s15 ON records (kind, s15, priority DESC, seq) WHERE available = 1 AND s15 IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_by_s16 ON records (kind, s16, priority DESC, seq) WHERE available = 1 AND s16 IS NOT NULL;

CREATE INDEX IF NOT EXISTS records_in_lanes ON records (kind, lane) WHERE state = 'claimed' AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_stale ON records (ready_until) WHERE state = 'ready' AND ready_until IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS records_debounced ON records (kind, created_by, debounce_key)
    WHERE available = 0 AND state = 'ready' AND attempts = 0 AND debounce_key IS NOT NULL;
CREATE TRIGGER IF NOT EXISTS records_become_ready AFTER INSERT ON records WHEN new.state = 'ready' BEGIN
    UPDATE kind_depths SET ready = ready + 1 WHERE kind = new.kind;
END;
CREATE TRIGGER IF NOT EXISTS records_change_readiness AFTER UPDATE OF state ON records
WHEN (old.state = 'ready') <> (new.state = 'ready') BEGIN
    UPDATE kind_depths SET ready = ready + (new.state = 'ready') - (old.state = 'ready') WHERE kind = new.kind;
END;
CREATE TRIGGER IF NOT EXISTS records_cease_ready AFTER DELETE ON records WHEN old.state = 'ready' BEGIN
    UPDATE kind_depths SET ready = ready - 1 WHERE kind = old.kind;
END;

CREATE TABLE IF NOT EXISTS record_parents (
    child TEXT NOT NULL,
    parent TEXT NOT NULL,
    PRIMARY KEY (child, parent)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS record_parents_by_parent ON record_parents (parent, child);

CREATE TABLE IF NOT EXISTS interests (
    worker TEXT NOT NULL,
    subject TEXT NOT NULL,
    kind TEXT NOT NULL,
    match TEXT NOT NULL,
    credential TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (worker, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS interests_by_kind ON interests (kind, worker, subject);
CREATE INDEX IF NOT EXISTS interests_by_expiry ON interests (expires_at);

CREATE TABLE IF NOT EXISTS blob_references (
    sha256 TEXT NOT NULL,
    holder TEXT NOT NULL,
    uploading_until INTEGER,
    PRIMARY KEY (sha256, holder)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS blob_references_by_holder ON blob_references (holder);
CREATE INDEX IF NOT EXISTS blob_references_uploading ON blob_references (uploading_until)
    WHERE uploading_until IS NOT NULL;

CREATE TABLE IF NOT EXISTS blob_deletions (
    sha256 TEXT NOT NULL PRIMARY KEY,
    due_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS blob_deletions_by_due ON blob_deletions (due_at);

CREATE TABLE IF NOT EXISTS blob_sweep (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    started_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    after TEXT NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS artifact_deadlines (
    record TEXT NOT NULL PRIMARY KEY,
    attach_by INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS artifact_deadlines_by_due ON artifact_deadlines (attach_by);

CREATE TABLE IF NOT EXISTS awakeables (
    id TEXT NOT NULL PRIMARY KEY,
    token_sha256 TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'resolved', 'rejected', 'timed_out')),
    subject TEXT,
    label TEXT,
    metadata TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    deadline INTEGER NOT NULL,
    payload TEXT,
    payload_sha256 TEXT,
    failure TEXT,
    ended_at INTEGER,
    ended_by TEXT,
    execution_id TEXT,
    payload_blob TEXT,
    payload_size INTEGER,
    CHECK ((payload_blob IS NULL) = (payload_size IS NULL)),
    CHECK ((state = 'resolved') = (payload IS NOT NULL OR payload_blob IS NOT NULL)),
    CHECK ((state = 'rejected') = (failure IS NOT NULL)),
    CHECK ((state = 'pending') = (ended_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS awakeables_by_token ON awakeables (token_sha256);
CREATE INDEX IF NOT EXISTS awakeables_pending ON awakeables (deadline) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS awakeables_by_execution ON awakeables (execution_id) WHERE execution_id IS NOT NULL;

CREATE TABLE IF NOT EXISTS due_failures (
    work TEXT NOT NULL,
    item TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    retry_at INTEGER NOT NULL,
    error TEXT NOT NULL,
    PRIMARY KEY (work, item)
) STRICT, WITHOUT ROWID;
