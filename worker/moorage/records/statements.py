"""The SQL of records, but for what a pattern adds to a query or a claim (see records.patterns).

Every statement that changes a record names the state it expects, so that a stale picture changes nothing.
"""

from moorage.kernel.limits import PAGE_BYTES

# The columns that make a Record; the alias of the table is r. The plus changes nothing but this: in RETURNING, where the
# column is no column any more, some versions of SQLite would walk all of lineage for p.child without it.
RECORD_COLUMNS = """
r.id, r.seq, r.kind, r.body, r.metadata, r.state, r.available, r.created_at, r.created_by, r.body_sha256, r.priority,
r.attempts, r.not_before, r.ended_at, r.failure, r.ready_until,
(SELECT json_group_array(p.parent) FROM record_parents AS p WHERE p.child = +r.id) AS parents
"""

# The same for RETURNING, where the table has its own name.
RETURNED_COLUMNS = RECORD_COLUMNS.replace("r.", "records.")


def of_end(data: str) -> str:
    """What history is told of a record's end, for the record `r` that the statement reads anyway: `data`, and whether a
    schedule's trigger published it, since the next window of that may wait for its end."""
    return (
        f"CASE WHEN r.metadata ->> '$.trigger_id' IS NULL THEN {data} ELSE json_set({data}, '$.triggered', json('true')) END"
    )


# --- publish ---

# No history speaks of these ids but, perhaps, a publication, whose row would refuse the id: an id is never reused, also not
# after its record is gone.
IDS_ARE_UNUSED = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:ids) AS wish CROSS JOIN history
    ON history.subject = wish.value AND history.type <> 'record.published'
)
"""

# Every parent exists.
PARENTS_EXIST = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:parents) AS parent WHERE NOT EXISTS (SELECT 1 FROM records WHERE id = parent.value)
)
"""

# Stores records right after their :count history entries, whose positions become their seq: the draft at a place has the
# entry at that place. `body` is bound apart when it is large.
INSERT = """
INSERT INTO records (seq, id, kind, body, body_sha256, metadata, priority, state, available, not_before, created_at,
    created_by, attempts, epoch, held_until, ready_until, debounce_key, debounce_until,
    s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15, s16)
SELECT (SELECT max(position) FROM history) - CAST(:count AS INTEGER) + 1 + (draft.value ->> 'place'),
    draft.value ->> 'id', draft.value ->> 'kind', coalesce(:body, draft.value ->> 'body'), draft.value ->> 'body_sha256',
    draft.value ->> 'metadata', draft.value ->> 'priority', 'ready', draft.value ->> 'available',
    draft.value ->> 'not_before', :now, :actor, 0, 0, CAST(:held_until AS INTEGER),
    draft.value ->> 'ready_until', draft.value ->> 'debounce_key', draft.value ->> 'debounce_until',
    draft.value ->> '$.slots[0]', draft.value ->> '$.slots[1]', draft.value ->> '$.slots[2]',
    draft.value ->> '$.slots[3]', draft.value ->> '$.slots[4]', draft.value ->> '$.slots[5]',
    draft.value ->> '$.slots[6]', draft.value ->> '$.slots[7]', draft.value ->> '$.slots[8]',
    draft.value ->> '$.slots[9]', draft.value ->> '$.slots[10]', draft.value ->> '$.slots[11]',
    draft.value ->> '$.slots[12]', draft.value ->> '$.slots[13]', draft.value ->> '$.slots[14]',
    draft.value ->> '$.slots[15]'
FROM json_each(:drafts) AS draft WHERE true
RETURNING id, seq
"""

# Stores lineage, child to parent.
INSERT_PARENTS = """
INSERT INTO record_parents (child, parent)
SELECT pair.value ->> 0, pair.value ->> 1 FROM json_each(:pairs) AS pair WHERE true
"""

# --- read ---

# Reads records by id.
GET = f"SELECT {RECORD_COLUMNS} FROM records AS r WHERE r.id IN (SELECT value FROM json_each(:ids))"

# Walks lineage upwards or downwards, nearest generation first, each record once at its least depth. `walked` counts the
# steps: a record that is reached at several depths is several. The limit cuts the walk, so never a nearer generation; nor
# does the bound on bytes, which `bytes_met` may pass.
_RELATIVES = f"""
WITH RECURSIVE reached (id, depth) AS (
    SELECT {{there}}, 1 FROM record_parents WHERE {{here}} = :id
    UNION
    SELECT p.{{there}}, reached.depth + 1 FROM reached JOIN record_parents AS p ON p.{{here}} = reached.id
    WHERE reached.depth < :depth
    LIMIT CAST(:limit AS INTEGER)
), nearest AS (SELECT id, min(depth) AS depth FROM reached GROUP BY id
), sized AS MATERIALIZED (
    SELECT nearest.id, nearest.depth, sum(r.size) OVER (ORDER BY nearest.depth, r.seq ROWS UNBOUNDED PRECEDING) AS bytes
    FROM nearest CROSS JOIN records AS r ON r.id = nearest.id
)
SELECT sized.depth, (SELECT count(*) FROM reached) AS walked, (SELECT max(bytes) FROM sized) AS bytes_met, {RECORD_COLUMNS}
FROM sized CROSS JOIN records AS r ON r.id = sized.id WHERE sized.bytes <= {PAGE_BYTES:d} ORDER BY sized.depth, r.seq
"""
ANCESTORS = _RELATIVES.replace("{there}", "parent").replace("{here}", "child")
DESCENDANTS = _RELATIVES.replace("{there}", "child").replace("{here}", "parent")

# --- what one answer may hold ---

# The first of {chosen} (a SELECT of ids) whose bodies and metadata fit one answer, in the order {order} of the alias r.
WITHIN_BYTES = f"""
SELECT id FROM (
    SELECT r.id AS id, sum(r.size) OVER (ORDER BY {{order}} ROWS UNBOUNDED PRECEDING) AS bytes
    FROM ({{chosen}}) AS chosen CROSS JOIN records AS r ON r.id = chosen.id
) WHERE bytes <= {PAGE_BYTES:d}
"""

# --- claims ---

# Takes the candidates under a new epoch; one statement decides, so each record goes to exactly one claimer.
CLAIM = f"""
UPDATE records SET state = 'claimed', available = 0, not_before = NULL, epoch = epoch + 1, attempts = attempts + 1,
    owner = :worker, claimed_by = :actor, claim = :claim, expires_at = :expires_at
WHERE id IN ({{candidates}})
RETURNING {RETURNED_COLUMNS}, records.epoch, records.owner, records.expires_at
"""

# The claim took something.
TAKEN = "SELECT 1 FROM records WHERE state = 'claimed' AND expires_at = :expires_at AND claim = :claim"

_NOT_BEFORE_TEXT = "strftime('%Y-%m-%dT%H:%M:%fZ', r.not_before / 1000.0, 'unixepoch')"
_EXPIRES_TEXT = "strftime('%Y-%m-%dT%H:%M:%fZ', r.expires_at / 1000.0, 'unixepoch')"

# What a claim took, for its history entries.
CLAIMED = f"""
SELECT r.seq AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    json_object('attempt', r.attempts, 'claim', r.claim, 'epoch', r.epoch, 'expires_at', {_EXPIRES_TEXT},
        'owner', r.owner) AS data
FROM records AS r WHERE r.state = 'claimed' AND r.expires_at = :expires_at AND r.claim = :claim
"""

# What a claim took, for the reference of the key under which it was made: record, epoch, owner, expiry and attempt.
TAKEN_TO_REMEMBER = """
SELECT json_object('taken', json_group_array(json_array(r.id, r.epoch, r.owner, r.expires_at, r.attempts)))
FROM records AS r WHERE r.state = 'claimed' AND r.expires_at = :expires_at AND r.claim = :claim
"""

# What a claim took that was made before, as far as nobody claimed it since. A lease that is still held is as it is now, one
# that has ended as it was given.
OF_CLAIM = f"""
SELECT {RECORD_COLUMNS}, r.epoch, one.value ->> 2 AS taken_by, one.value ->> 4 AS attempt,
    CASE WHEN r.state = 'claimed' THEN r.expires_at ELSE one.value ->> 3 END AS expires_at
FROM json_each(:taken) AS one CROSS JOIN records AS r ON r.id = one.value ->> 0
WHERE r.epoch = one.value ->> 1 ORDER BY r.priority DESC, r.seq
"""

# A held record, for the history entry of its renewal or release.
HELD = f"""
SELECT 1 AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    json_object('attempt', r.attempts, 'epoch', r.epoch, 'expires_at', {_EXPIRES_TEXT}, 'owner', r.owner) AS data
FROM records AS r WHERE r.id = :record AND r.state = 'claimed'
"""

EXISTS = "SELECT 1 FROM records WHERE id = :record"

# The epoch is the record's last one and its claim was the caller's; nobody ended it but the clock.
EPOCH_IS_MINE = """
SELECT 1 FROM records WHERE id = :record AND epoch = :epoch AND claimed_by = :actor
    AND (state = 'claimed' OR (state IN ('ready', 'dead') AND failure ->> 'code' = 'LeaseExpired'))
"""

# ... and the lease has not run out (an expiry equal to now has passed).
LEASE_IS_CURRENT = """
SELECT 1 FROM records WHERE id = :record AND epoch = :epoch AND state = 'claimed' AND expires_at > :now
"""

# Extends the lease, by the kind's own length when none is given; never shortens it.
RENEW = """
UPDATE records SET expires_at = max(expires_at, CAST(:now + coalesce(:milliseconds, k.lease_seconds * 1000) AS INTEGER))
FROM kinds AS k WHERE k.name = records.kind
    AND records.id = :record AND records.epoch = :epoch AND records.state = 'claimed'
RETURNING records.epoch, records.owner, records.expires_at, records.attempts
"""

# The lease that was just extended, for the reference of the key under which that happened.
RENEWED_TO_REMEMBER = """
SELECT json_object('record', r.id, 'lease', json_array(r.epoch, r.owner, r.expires_at, r.attempts))
FROM records AS r WHERE r.id = :record
"""

# Gives the record back unworked: the attempt is not counted, and the epoch is nobody's any more.
RELEASE = """
UPDATE records SET state = 'ready', available = 1, attempts = attempts - 1, owner = NULL, claimed_by = NULL, claim = NULL,
    expires_at = NULL
WHERE id = :record AND epoch = :epoch AND state = 'claimed'
RETURNING kind, ready_until
"""

# --- settle and fail ---

# Consumes the record; its receipt is what a replay answers. An earlier attempt's failure is history's alone from now on.
CONSUME = f"""
UPDATE records SET state = 'consumed', ended_at = :now, settlement_sha256 = :settlement_sha256, receipt = :receipt,
    failure = NULL, owner = NULL, claim = NULL, expires_at = NULL
WHERE id = :record AND epoch = :epoch AND state = 'claimed'
RETURNING {RETURNED_COLUMNS}
"""

# A record that is being settled, for its history entry.
SETTLING = f"""
SELECT 1 AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    {of_end("json_object('epoch', r.epoch, 'results', json(:results))")} AS data
FROM records AS r WHERE r.id = :record AND r.state = 'claimed'
"""

# The settlement that consumed a record, if this caller made it under this epoch.
SETTLED = f"""
SELECT {RECORD_COLUMNS}, r.settlement_sha256, r.receipt FROM records AS r
WHERE r.id = :record AND r.epoch = :epoch AND r.claimed_by = :actor AND r.state = 'consumed'
"""

# Ends an attempt that failed or ran out: dead after the last allowed attempt or at once when asked, else ready again
# after the delay that is given, or the kind's own for this attempt.
_END_ATTEMPT = """
UPDATE records SET
    state = CASE WHEN :dead_letter OR attempts >= k.max_attempts THEN 'dead' ELSE 'ready' END,
    available = CASE WHEN :dead_letter OR attempts >= k.max_attempts THEN 0
        WHEN coalesce(:delay, json_extract(k.retry_delays, '$[' || min(attempts - 1, k.max_attempts - 1) || ']'), 0) > 0
        THEN 0 ELSE 1 END,
    not_before = CASE WHEN :dead_letter OR attempts >= k.max_attempts THEN NULL
        WHEN coalesce(:delay, json_extract(k.retry_delays, '$[' || min(attempts - 1, k.max_attempts - 1) || ']'), 0) > 0
        THEN CAST(:now + coalesce(:delay, json_extract(k.retry_delays, '$[' || min(attempts - 1, k.max_attempts - 1) || ']'))
            AS INTEGER) END,
    ended_at = CASE WHEN :dead_letter OR attempts >= k.max_attempts THEN :now END,
    failure = :failure, owner = NULL, claim = NULL, expires_at = NULL
FROM kinds AS k WHERE k.name = records.kind AND {which}
RETURNING {columns}
"""
FAIL = _END_ATTEMPT.replace("{columns}", RETURNED_COLUMNS).replace(
    "{which}", "records.id = :record AND records.epoch = :epoch AND records.state = 'claimed'"
)
EXPIRE = _END_ATTEMPT.replace("{columns}", "records.id").replace(
    "{which}",
    "records.id = :record AND records.state = 'claimed' AND records.expires_at = CAST(:due AS INTEGER)"
    " AND records.expires_at <= :now",
)

# The attempt that just ended, for its history entry.
ENDED_ATTEMPT = f"""
SELECT 1 AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    json_object('attempt', r.attempts, 'epoch', r.epoch, 'failure', json(r.failure),
        'not_before', {_NOT_BEFORE_TEXT}) AS data
FROM records AS r WHERE r.id = :record
"""

# An attempt whose lease runs out now, before it is ended.
RUNNING_OUT = """
SELECT 1 AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    json_object('attempt', r.attempts, 'epoch', r.epoch, 'owner', r.owner) AS data
FROM records AS r WHERE r.id = :record AND r.state = 'claimed'
    AND r.expires_at = CAST(:due AS INTEGER) AND r.expires_at <= :now
"""

# An attempt whose lease runs out now and that was the last allowed one, before it is ended. It looks before the change:
# afterwards it could not tell this death from one that happened earlier in the same millisecond.
RUNNING_OUT_OF_ATTEMPTS = f"""
SELECT 1 AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    {of_end("json_object('attempts', r.attempts, 'failure', json(:failure))")} AS data
FROM records AS r JOIN kinds AS k ON k.name = r.kind
WHERE r.id = :record AND r.state = 'claimed' AND r.expires_at = CAST(:due AS INTEGER) AND r.expires_at <= :now
    AND r.attempts >= k.max_attempts
"""

# The record, if the attempt that a fenced transaction has just ended was its last.
DIED_NOW = f"""
SELECT 1 AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    {of_end("json_object('attempts', r.attempts, 'failure', json(r.failure))")} AS data
FROM records AS r WHERE r.id = :record AND r.state = 'dead' AND r.ended_at = :now
"""

# --- dead letters ---

_ATTEMPTS = """
(SELECT json_group_array(json_object('at', h.at, 'type', h.type, 'data', json(h.data))) FROM history AS h
    WHERE h.subject = r.id AND h.type <> 'record.published' AND h.type IN ('record.claimed', 'record.released')
        AND h.revision >
        coalesce((SELECT max(q.revision) FROM history AS q
            WHERE q.subject = r.id AND q.type <> 'record.published' AND q.type = 'record.requeued'), 0)
) AS attempts_made
"""

# A page of dead letters, of one kind or of every kind, by seq. `met` counts those that were found, also when the bodies of
# the first of them fill the answer.
_DEAD_PAGE = f"""
WITH met AS MATERIALIZED (
    SELECT r.id, r.seq FROM records AS r WHERE {{which}} AND r.state = 'dead' AND r.seq > :after {{narrow}}
    ORDER BY r.seq LIMIT CAST(:limit AS INTEGER)
)
SELECT {RECORD_COLUMNS}, (SELECT count(*) FROM met) AS met, {_ATTEMPTS} FROM records AS r
WHERE r.id IN ({WITHIN_BYTES.replace("{order}", "r.seq").replace("{chosen}", "SELECT id FROM met")}) ORDER BY r.seq
"""
DEAD_OF_KIND = _DEAD_PAGE.replace("{which}", "r.kind = :kind").replace("{narrow}", "{narrowed}")
DEAD = _DEAD_PAGE.replace("{which}", "true").replace("{narrow}", "")

# One dead letter.
DEAD_LETTER = f"SELECT {RECORD_COLUMNS}, {_ATTEMPTS} FROM records AS r WHERE r.id = :record AND r.state = 'dead'"

IS_DEAD = "SELECT 1 FROM records WHERE id = :record AND state = 'dead'"

# Dead letters of a kind that a pattern chooses, oldest first, as many as one answer holds: the same choice for history and
# for the change.
CHOSEN_DEAD = WITHIN_BYTES.replace("{order}", "r.seq").replace(
    "{chosen}",
    """
    SELECT r.id FROM records AS r WHERE r.kind = :kind AND r.state = 'dead' AND ({where})
    ORDER BY r.seq LIMIT CAST(:limit AS INTEGER)
    """,
)

# The ids of what is about to be requeued, for the reference of the key under which that happens.
CHOSEN_TO_REMEMBER = "SELECT json_object('records', json_group_array(id)) FROM ({chosen})"

# What is about to be requeued, for its history entries.
REQUEUED = """
SELECT r.seq AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256,
    json_object('attempts', r.attempts, 'failure', json(r.failure), 'reason', :reason) AS data
FROM records AS r WHERE r.id IN ({chosen})
"""

# Makes dead letters ready again, with all their attempts and a whole time to live before them.
REQUEUE = f"""
UPDATE records SET state = 'ready', available = 1, attempts = 0, not_before = NULL, ended_at = NULL, failure = NULL,
    ready_until = (SELECT CAST(:now + k.ttl_seconds * 1000 AS INTEGER) FROM kinds AS k WHERE k.name = records.kind)
WHERE id IN ({{chosen}})
RETURNING {RETURNED_COLUMNS}
"""

# One dead letter's id, as a choice of REQUEUED and REQUEUE.
CHOSEN_ONE = "SELECT id FROM records WHERE id = :record AND state = 'dead'"

# --- due work: a record and the instant of which it is due, by which one lease or delay is told from the next ---

_EXPIRED_ITEM = "r.id || '@' || r.expires_at"
_EXPIRED_NOT_ASIDE = f"NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'lease_expired' AND item = {_EXPIRED_ITEM})"

# The lease that runs out first, and the leases that have run out.
EARLIEST_EXPIRY = f"""
SELECT r.expires_at AS due FROM records AS r WHERE r.state = 'claimed'
    AND {_EXPIRED_NOT_ASIDE}
ORDER BY r.expires_at LIMIT 1
"""
EXPIRED = f"""
SELECT {_EXPIRED_ITEM} AS item, r.expires_at AS due FROM records AS r
WHERE r.state = 'claimed' AND r.expires_at <= :now
    AND {_EXPIRED_NOT_ASIDE}
ORDER BY r.expires_at LIMIT CAST(:limit AS INTEGER)
"""

_DELAYED_ITEM = "r.id || '@' || r.not_before"
_DELAYED_NOT_ASIDE = f"NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'record_due' AND item = {_DELAYED_ITEM})"

# The record whose not_before comes first, and the records whose not_before has come.
EARLIEST_DELAY = f"""
SELECT r.not_before AS due FROM records AS r WHERE r.available = 0 AND r.not_before IS NOT NULL
    AND {_DELAYED_NOT_ASIDE}
ORDER BY r.not_before LIMIT 1
"""
DELAYED = f"""
SELECT {_DELAYED_ITEM} AS item, r.not_before AS due FROM records AS r
WHERE r.available = 0 AND r.not_before <= :now
    AND {_DELAYED_NOT_ASIDE}
ORDER BY r.not_before LIMIT CAST(:limit AS INTEGER)
"""

# Makes a record claimable whose not_before has come.
BECOME_DUE = """
UPDATE records SET available = 1
WHERE id = :record AND state = 'ready' AND available = 0 AND not_before = CAST(:due AS INTEGER) AND not_before <= :now
RETURNING id
"""

# The record that becomes due now, for its history entry.
BECOMING_DUE = """
SELECT 1 AS ordinal, r.id AS subject, r.kind, r.body_sha256 AS content_sha256, '{}' AS data
FROM records AS r WHERE r.id = :record AND r.state = 'ready' AND r.available = 0
    AND r.not_before = CAST(:due AS INTEGER) AND r.not_before <= :now
"""
