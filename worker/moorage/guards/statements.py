"""The SQL of guards.

What a guard protects stands in guard_rows, whose primary key lets no two guards have one row. A scope's row is
`scope:<scope>`, an entity lease's `lease:<key>`. What changes hands looks there first, within its own statement.
"""

_NAMES = (
    "token",
    "execution_id",
    "run_id",
    "scope",
    "attempt",
    "epoch",
    "holder",
    "label",
    "input_sha256",
    "idempotency_key",
    "destination",
    "publication",
    "window_seconds",
    "admitted_at",
    "since",
    "scopes",
    "lease_keys",
)
_BARE = ", ".join(_NAMES)
COLUMNS = ", ".join(f"g.{name}" for name in _NAMES)

# --- what changes hands ---

# The guard `g` may give way to a takeover without an operator: its holder is gone, and its key is still known where it was
# sent. That the owner's lease has lapsed is for the takeover itself to say.
REPLAYABLE = """
g.since + g.window_seconds * 1000 > :now
    AND EXISTS (SELECT 1 FROM holders AS h WHERE h.holder_id = g.holder AND h.exited_at IS NOT NULL)
""".strip()


def is_protected(scope: str) -> str:
    """The SQL of whether some guard protects the scope that the expression `scope` gives."""
    return f"EXISTS (SELECT 1 FROM guard_rows AS p WHERE p.row = 'scope:' || {scope})"


def is_replayable(execution: str) -> str:
    """The SQL of whether the guard on the scope of the execution (an alias or table) is its own and may give way."""
    return f"""
EXISTS (SELECT 1 FROM guard_rows AS p CROSS JOIN guards AS g ON g.token = p.token
        WHERE p.row = 'scope:' || {execution}.scope AND g.execution_id = {execution}.execution_id AND {REPLAYABLE})
""".strip()


def is_blocked(execution: str) -> str:
    """The SQL of whether a guard that does not give way protects the scope of the execution (an alias or table)."""
    return f"""
EXISTS (SELECT 1 FROM guard_rows AS p CROSS JOIN guards AS g ON g.token = p.token
        WHERE p.row = 'scope:' || {execution}.scope
        AND (g.execution_id = {execution}.execution_id AND {REPLAYABLE}) IS NOT TRUE)
""".strip()


# The guard that protects a scope.
OF_SCOPE = f"""
SELECT {COLUMNS} FROM guard_rows AS p CROSS JOIN guards AS g ON g.token = p.token WHERE p.row = 'scope:' || :scope
"""

# The guard that protects an execution's scope: its own, or one of an execution below it.
OF_EXECUTION = f"""
SELECT {COLUMNS} FROM executions AS e CROSS JOIN guard_rows AS p ON p.row = 'scope:' || e.scope
CROSS JOIN guards AS g ON g.token = p.token WHERE e.execution_id = :execution
"""

# The guard that protects a lease.
OF_LEASE = f"""
SELECT {COLUMNS} FROM guard_rows AS p CROSS JOIN guards AS g ON g.token = p.token WHERE p.row = 'lease:' || :key
"""

# No guard protects the scope of an execution.
IS_FREE = f"SELECT 1 FROM executions AS e WHERE e.execution_id = :execution AND NOT {is_protected('e.scope')}"

# --- admission ---

_ENTITY = "l.key GLOB 'entity:*'"

# Protects the scope of an execution, every scope above it and every entity lease that it holds, if its owner is exactly this
# one and its attempt under way, its entry is claimed and has not ended, its holder is registered and has not exited, the
# destination is declared, and each lease that the host shows is its own still. It protects nothing otherwise, and breaks the
# batch where another guard has one of the rows.
PROTECT = f"""
INSERT INTO guard_rows (row, token)
WITH RECURSIVE admitted AS MATERIALIZED (
    SELECT e.execution_id, e.scope FROM executions AS e
    CROSS JOIN runs AS r ON r.run_id = e.run_id AND r.ended_at IS NULL AND r.attempt = e.attempt
    CROSS JOIN journal AS j ON j.execution_id = e.execution_id AND j.label = :label AND j.input_sha256 = :input_sha256
        AND j.state = 'pending' AND j.epoch = e.epoch
    CROSS JOIN holders AS h ON h.holder_id = :holder AND h.exited_at IS NULL
        AND (h.kind = 'worker' OR instr(e.owner, h.subject || '/') = 1)
    WHERE e.execution_id = :execution AND e.epoch = :epoch AND e.owner IS NOT NULL AND e.expires_at > :now
        AND (:destination IS NULL OR EXISTS (SELECT 1 FROM destinations WHERE name = :destination))
        AND NOT EXISTS (SELECT 1 FROM json_each(:leases) AS one WHERE NOT EXISTS (
            SELECT 1 FROM leases AS l WHERE l.key = one.value ->> 0 AND l.epoch = one.value ->> 1
                AND l.owner = e.execution_id AND l.expires_at > :now))
), above (scope) AS (
    SELECT scope FROM admitted
    UNION ALL
    SELECT rtrim(rtrim(scope, replace(scope, '/', '')), '/') FROM above WHERE instr(scope, '/') > 0
)
SELECT 'scope:' || scope, :token FROM above
UNION ALL
SELECT 'lease:' || l.key, :token FROM admitted AS a
CROSS JOIN leases AS l INDEXED BY leases_of_entities ON l.owner = a.execution_id AND {_ENTITY} AND l.expires_at > :now
"""

_PROTECTED = "SELECT row FROM guard_rows INDEXED BY guard_rows_by_token WHERE token = :token"
_TARGET = """
(SELECT d.url FROM destinations AS d WHERE d.name = destination) AS url,
    (SELECT d.methods FROM destinations AS d WHERE d.name = destination) AS methods,
    (SELECT d.secret FROM destinations AS d WHERE d.name = destination) AS secret
""".strip()

# The guard over the rows that PROTECT has just protected, with what its destination promises now.
ADMIT = f"""
INSERT INTO guards ({_BARE})
SELECT :token, e.execution_id, e.run_id, e.scope, e.attempt, e.epoch, :holder, :label, :input_sha256, :idempotency_key,
    :destination, max(CAST(:publication AS INTEGER), coalesce(d.publication, 0)), d.dedup_window_seconds, :now,
    coalesce((SELECT r.since FROM guard_replays AS r WHERE r.idempotency_key = :idempotency_key), CAST(:now AS INTEGER)),
    (SELECT json_group_array(substr(row, 7)) FROM ({_PROTECTED} AND row GLOB 'scope:*' ORDER BY row)),
    (SELECT json_group_array(substr(row, 7)) FROM ({_PROTECTED} AND row GLOB 'lease:*' ORDER BY row))
FROM executions AS e LEFT JOIN destinations AS d ON d.name = :destination
WHERE e.execution_id = :execution AND EXISTS ({_PROTECTED})
RETURNING {_BARE}, {_TARGET}
"""

# The guard stands, or its entry has ended or is not this owner's, so that there is nothing to guard.
IS_ADMITTED = """
SELECT 1 FROM guards WHERE token = :token
UNION ALL
SELECT 1 FROM journal AS j JOIN executions AS e ON e.execution_id = j.execution_id
WHERE j.execution_id = :execution AND j.label = :label AND j.input_sha256 = :input_sha256
    AND (j.state <> 'pending' OR j.epoch <> e.epoch)
"""

# The guards on the rows that an execution's would protect.
IN_THE_WAY = f"""
WITH RECURSIVE above (scope) AS (
    SELECT scope FROM executions WHERE execution_id = :execution
    UNION ALL
    SELECT rtrim(rtrim(scope, replace(scope, '/', '')), '/') FROM above WHERE instr(scope, '/') > 0
), wanted (row) AS (
    SELECT 'scope:' || scope FROM above
    UNION ALL
    SELECT 'lease:' || l.key FROM leases AS l INDEXED BY leases_of_entities
    WHERE l.owner = :execution AND {_ENTITY} AND l.expires_at > :now
)
SELECT DISTINCT {COLUMNS}, {_TARGET.replace("= destination", "= g.destination")}
FROM wanted AS w CROSS JOIN guard_rows AS p ON p.row = w.row CROSS JOIN guards AS g ON g.token = p.token
"""

# Why nothing was admitted: the owner's lease, the holder, the destination, the entry, and the leases that are not held.
WHY_NOT = """
SELECT e.epoch, e.owner, e.expires_at,
    EXISTS (SELECT 1 FROM runs AS r WHERE r.run_id = e.run_id AND r.ended_at IS NULL AND r.attempt = e.attempt) AS active,
    EXISTS (SELECT 1 FROM journal AS j WHERE j.execution_id = :execution AND j.label = :label
        AND j.input_sha256 = :input_sha256) AS entry,
    EXISTS (SELECT 1 FROM holders AS h WHERE h.holder_id = :holder AND h.exited_at IS NULL
        AND (h.kind = 'worker' OR instr(e.owner, h.subject || '/') = 1)) AS holder,
    :destination IS NULL OR EXISTS (SELECT 1 FROM destinations WHERE name = :destination) AS destination,
    (SELECT one.value ->> 0 FROM json_each(:leases) AS one WHERE NOT EXISTS (
        SELECT 1 FROM leases AS l WHERE l.key = one.value ->> 0 AND l.epoch = one.value ->> 1
            AND l.owner = :execution AND l.expires_at > :now) LIMIT 1) AS lease
FROM executions AS e WHERE e.execution_id = :execution
"""

# --- removal: by the tokens that a selection gives ---

_REMOVED = """
SELECT 0 AS ordinal, g.token AS subject, NULL AS kind, NULL AS content_sha256,
    json_object({more}'destination', g.destination, 'execution_id', g.execution_id, 'holder', g.holder,
        'idempotency_key', g.idempotency_key, 'label', g.label, 'run_id', g.run_id) AS data
FROM guards AS g WHERE g.token IN ({tokens})
"""

# What is removed, for its entry of history; by hand, with who vouched for what.
REMOVED = _REMOVED.replace("{more}", "")
_VOUCHED = "'evidence', :evidence, 'operator', :operator, "
RECONCILED = _REMOVED.replace("{more}", _VOUCHED).replace("{tokens}", "SELECT :token")

# The keys of guards that are removed so that these are sent again: a request may have arrived since then.
NOTE_REPLAY = """
INSERT INTO guard_replays (idempotency_key, execution_id, since)
SELECT idempotency_key, execution_id, since FROM guards WHERE token IN ({tokens})
ON CONFLICT (idempotency_key) DO NOTHING
"""
FREE_ROWS = "DELETE FROM guard_rows WHERE token IN ({tokens})"
REMOVE = "DELETE FROM guards WHERE token IN ({tokens})"

# The guard of a callback that has returned, if it is its holder's, under the lease that admitted it.
MINE = """
SELECT m.token FROM guards AS m
WHERE m.token = :token AND m.holder = :holder AND m.execution_id = :execution AND m.epoch = :epoch
"""

# No guard has the token any more.
IS_RELEASED = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM guards WHERE token = :token)"

# The guards of an execution that this transaction has taken, or has let a run join: they are from before.
OF_TAKEN = """
SELECT t.token FROM executions AS e CROSS JOIN guards AS t INDEXED BY guards_by_execution
    ON t.execution_id = e.execution_id AND t.epoch < e.epoch
WHERE e.execution_id = :execution AND e.owner = :owner AND e.expires_at = :expires_at
"""
OF_JOINED = """
SELECT t.token FROM executions AS e CROSS JOIN guards AS t INDEXED BY guards_by_execution
    ON t.execution_id = e.execution_id AND t.epoch < e.epoch
WHERE e.scope = :scope AND e.run_id = :run_id
"""

# Executions whose scopes a guard protects, and which were due or said to wait for it: they could not be taken.
WAITING = """
SELECT e.execution_id FROM guard_rows AS p INDEXED BY guard_rows_by_token
CROSS JOIN executions AS e ON e.scope = substr(p.row, 7) CROSS JOIN runs AS r ON r.run_id = e.run_id AND r.ended_at IS NULL
WHERE p.token = :token AND p.row GLOB 'scope:*' AND e.execution_id <> :execution
    AND (e.owner IS NULL OR e.expires_at <= :now)
    AND (e.wake_at <= CAST(:now AS INTEGER) + CAST(:repair AS INTEGER) OR instr(r.awaiting, :token) > 0)
"""

# Executions whose scopes a guard protects, and whose runs have not ended.
PROTECTED = """
SELECT e.execution_id FROM guard_rows AS p INDEXED BY guard_rows_by_token
CROSS JOIN executions AS e ON e.scope = substr(p.row, 7) CROSS JOIN runs AS r ON r.run_id = e.run_id AND r.ended_at IS NULL
WHERE p.token = :token AND p.row GLOB 'scope:*'
"""

# --- operators ---

# Beside a guard: whether its holder has exited, and how long the owner's lease lasts; what it takes for a release by hand.
_SEEN = f"""
SELECT {COLUMNS}, h.name AS holder_name, h.exited_at AS holder_exited_at, e.expires_at AS lease_expires_at
FROM guards AS g
    LEFT JOIN holders AS h ON h.holder_id = g.holder
    LEFT JOIN executions AS e ON e.execution_id = g.execution_id
""".strip()

# One guard.
SHOW = f"{_SEEN} WHERE g.token = :token"

_CLASS = """
CASE WHEN g.since + g.window_seconds * 1000 > :now THEN 'replay-safe'
    WHEN g.publication = 1 THEN 'receipt-required' ELSE 'unknown' END
""".strip()

# A page of guards, the oldest first: a token begins with the instant of its admission.
PAGE = f"""
{_SEEN} WHERE g.token > :after
    AND (:scope IS NULL OR EXISTS (SELECT 1 FROM guard_rows AS p WHERE p.row = 'scope:' || :scope AND p.token = g.token))
    AND (:execution IS NULL OR g.execution_id = :execution)
    AND (:destination IS NULL OR g.destination = :destination)
    AND (:class IS NULL OR {_CLASS} = :class)
ORDER BY g.token LIMIT CAST(:limit AS INTEGER)
"""

# How many guards are open, by class, and since when the oldest of each.
COUNT = f"""
SELECT {_CLASS} AS class, count(*) AS open, min(g.admitted_at) AS oldest FROM guards AS g WHERE g.token > 'grd_' GROUP BY 1
"""

# The guard is there.
IS_OPEN = "SELECT 1 FROM guards WHERE token = :token"

# Its callback is not under way: the owner's lease has lapsed or was given up, or the holder has exited.
IS_NOT_LIVE = """
SELECT 1 FROM guards AS g WHERE g.token = :token AND (
    NOT EXISTS (SELECT 1 FROM executions AS e WHERE e.execution_id = g.execution_id AND e.expires_at > :now)
    OR EXISTS (SELECT 1 FROM holders AS h WHERE h.holder_id = g.holder AND h.exited_at IS NOT NULL)
)
"""

# The effect happened, as its receipt says: its entry holds that.
RECORD_RECEIPT = """
UPDATE journal SET state = 'done', value = :value, size = :size, blob = NULL, failure = NULL, next_attempt_at = NULL,
    ended_at = max(started_at, CAST(:now AS INTEGER))
WHERE execution_id = :execution AND label = :label AND input_sha256 = :input_sha256
    AND state IN ('pending', 'waiting', 'failed')
"""

# Who released what, for good.
AUDIT = """
INSERT INTO guard_audit (id, token, guard, evidence, operator, actor, released_at)
VALUES (:id, :token, :guard, :evidence, :operator, :actor, :now)
"""

# The record of a guard's release, and a page of all, the oldest first.
AUDITED = "SELECT id FROM guard_audit INDEXED BY guard_audit_by_token WHERE token = :token"
AUDITS = """
SELECT id, token, guard, evidence, operator, actor, released_at FROM guard_audit WHERE id > :after
    AND (:token IS NULL OR token = :token)
ORDER BY id LIMIT CAST(:limit AS INTEGER)
"""

# What is known of replayed keys goes with the last record of their execution.
FORGET_REPLAYS = "DELETE FROM guard_replays WHERE execution_id IN ({executions})"

# --- holders ---

# Registers a holder once.
REGISTER = """
INSERT INTO holders (holder_id, kind, name, subject, registered_at) VALUES (:holder, :kind, :name, :subject, :now)
ON CONFLICT (holder_id) DO NOTHING
"""

# The holder that was registered just now, for history.
REGISTERED = """
SELECT 0 AS ordinal, holder_id AS subject, NULL AS kind, NULL AS content_sha256,
    json_object('kind', kind, 'name', name) AS data
FROM holders WHERE holder_id = :holder AND changes() = 1
"""

# One holder, and a page of them, the oldest first.
_HOLDER = "holder_id, kind, name, subject, registered_at, exited_at, exit_reason"
HOLDER = f"SELECT {_HOLDER} FROM holders WHERE holder_id = :holder"
HOLDERS = f"""
SELECT {_HOLDER} FROM holders WHERE holder_id > :after
ORDER BY holder_id LIMIT CAST(:limit AS INTEGER)
"""

# A holder says that it has stopped.
EXIT = """
UPDATE holders SET exited_at = :now, exit_reason = :reason
WHERE holder_id = :holder AND kind = :kind AND subject = :subject AND exited_at IS NULL
"""
EXITED = """
SELECT 0 AS ordinal, holder_id AS subject, NULL AS kind, NULL AS content_sha256, json_object('reason', exit_reason) AS data
FROM holders WHERE holder_id = :holder AND changes() = 1
"""

# Executions with an open run whose guards now give way to a takeover.
GIVING_WAY = f"""
SELECT e.execution_id FROM guards AS g INDEXED BY guards_by_holder CROSS JOIN executions AS e
    ON e.execution_id = g.execution_id
CROSS JOIN runs AS r ON r.run_id = e.run_id AND r.ended_at IS NULL
WHERE g.holder = :holder AND {REPLAYABLE}
"""

# --- entities ---

# Takes an entity's lease for an execution, or extends it: a free or lapsed one with a larger epoch, unless a guard protects
# it; its own, which has not lapsed, with the same.
HOLD_ENTITY = """
INSERT INTO leases (key, epoch, owner, expires_at) VALUES (:key, 1, :execution, :expires_at)
ON CONFLICT (key) DO UPDATE SET
    epoch = CASE WHEN leases.owner = :execution AND leases.expires_at > :now THEN leases.epoch ELSE leases.epoch + 1 END,
    owner = excluded.owner, expires_at = max(coalesce(leases.expires_at, 0), excluded.expires_at)
WHERE (leases.owner = :execution AND leases.expires_at > :now)
    OR ((leases.expires_at IS NULL OR leases.expires_at <= :now)
        AND NOT EXISTS (SELECT 1 FROM guard_rows AS p WHERE p.row = 'lease:' || leases.key))
RETURNING key, epoch, expires_at
"""

# The execution holds the entity.
HAS_ENTITY = "SELECT 1 FROM leases WHERE key = :key AND owner = :execution AND expires_at > :now"

# Gives an entity's lease up, unless a guard protects it; its epoch stays.
LET_ENTITY = """
UPDATE leases SET owner = NULL, expires_at = NULL WHERE key = :key AND owner = :execution
    AND NOT EXISTS (SELECT 1 FROM guard_rows AS p WHERE p.row = 'lease:' || leases.key)
"""
HAS_LET_ENTITY = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM leases WHERE key = :key AND owner = :execution)"

# Extends the entity leases of executions that are held under these epochs; revives none.
RENEW_ENTITIES = """
UPDATE leases INDEXED BY leases_of_entities SET expires_at = max(expires_at, CAST(:expires_at AS INTEGER))
WHERE key GLOB 'entity:*' AND expires_at > :now AND owner IN (
    SELECT e.execution_id FROM json_each(:fences) AS one CROSS JOIN executions AS e ON e.execution_id = one.key
    WHERE e.epoch = one.value AND e.owner IS NOT NULL AND e.expires_at > :now
)
"""

# An entity's lease.
ENTITY = "SELECT epoch, owner, expires_at FROM leases WHERE key = :key"
