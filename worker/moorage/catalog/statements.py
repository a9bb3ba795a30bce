"""The SQL of the catalog. Declarations are upserted whole; credentials are inserted once and only ever revoked."""

from typing import Final

from moorage.kernel.limits import KIND_PATHS

# --- kinds ----------------------------------------------------------------------------------------------------------

_KIND_COLUMNS = """
name, revision, paths, schema, lease_seconds, max_attempts, retry, concurrency, depth_limit, ttl_seconds, rate,
retention_seconds, created_at, updated_at, created_by
""".strip()

# Reads one kind.
KIND = f"""
SELECT {_KIND_COLUMNS}
FROM kinds WHERE name = :name
"""

# Nobody declared the kind since it was found absent.
KIND_IS_ABSENT = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM kinds WHERE name = :name)"

# Stores a declaration; a kind keeps who made it and when, and its revision counts the declarations that changed it.
DECLARE_KIND = f"""
INSERT INTO kinds (
    name, revision, paths, schema, lease_seconds, max_attempts, retry, retry_delays, concurrency, depth_limit, ttl_seconds,
    rate, retention_seconds, created_at, updated_at, created_by
) VALUES (
    :name, 1, :paths, :schema, :lease_seconds, :max_attempts, :retry, :retry_delays, :concurrency, :depth_limit,
    :ttl_seconds, :rate, :retention_seconds, :now, :now, :created_by
)
ON CONFLICT (name) DO UPDATE SET
    revision = revision + 1, paths = excluded.paths, schema = excluded.schema, lease_seconds = excluded.lease_seconds,
    concurrency = excluded.concurrency, depth_limit = excluded.depth_limit, ttl_seconds = excluded.ttl_seconds,
    rate = excluded.rate,
    max_attempts = excluded.max_attempts, retry = excluded.retry, retry_delays = excluded.retry_delays,
    retention_seconds = excluded.retention_seconds, updated_at = excluded.updated_at
RETURNING {_KIND_COLUMNS}
"""

# A page of the kinds after a name that a caller may see: all, those named, and those under a prefix that ends in *.
KINDS = f"""
SELECT {_KIND_COLUMNS}
FROM kinds
WHERE name > :after AND (
    CAST(:everything AS INTEGER) = 1 OR EXISTS (
        SELECT 1 FROM json_each(:visible) AS pattern
        WHERE pattern.value = kinds.name OR (
            substr(pattern.value, -1) = '*'
            AND substr(kinds.name, 1, length(pattern.value) - 1) = substr(pattern.value, 1, length(pattern.value) - 1)
        )
    )
)
ORDER BY name LIMIT CAST(:limit AS INTEGER)
"""

# A kind's records, from the indexes of what is available, what waits and what rests; {columns} of each.
_OF_KIND = """
SELECT {columns} FROM records INDEXED BY records_ready WHERE kind = :name AND available = 1
UNION ALL
SELECT {columns} FROM records INDEXED BY records_waiting_by_kind
    WHERE kind = :name AND available = 0 AND not_before IS NOT NULL
UNION ALL
SELECT {columns} FROM records INDEXED BY records_resting WHERE kind = :name AND available = 0 AND not_before IS NULL
"""

# How much a kind holds, counted no further than one past what a new path may have to look at.
KIND_EXTENT = """
SELECT count(*) AS records, coalesce(sum(bytes), 0) AS bytes, coalesce(max(seq), 0) AS last
FROM ({of_kind} LIMIT CAST(:most AS INTEGER) + 1)
""".replace("{of_kind}", _OF_KIND.replace("{columns}", "seq, length(CAST(body AS BLOB)) AS bytes"))

# The bodies in which a new path is looked up. The last position comes with them, from the same state.
KIND_BODIES = f"{_OF_KIND.replace('{columns}', 'seq, id, body')} ORDER BY seq LIMIT CAST(:limit AS INTEGER)"

# No record of the kind was published after this position. Positions only grow and bodies never change, so what was
# computed from the bodies up to here is still right.
KIND_ENDS_AT = "SELECT 1 WHERE coalesce((SELECT max(seq) FROM ({of_kind})), 0) <= :last".replace(
    "{of_kind}", _OF_KIND.replace("{columns}", "seq")
)

# For each slot, the statement that fills it for records named by id, from pairs of id and encoded value. A slot that was
# free is NULL in every record, so a record without the path needs no pair.
BACKFILL: Final[tuple[str, ...]] = tuple(
    f"UPDATE records SET s{slot} = pair.value ->> 1 FROM json_each(:pairs) AS pair WHERE records.id = pair.value ->> 0"
    for slot in range(1, KIND_PATHS + 1)
)

# For each slot, the statement that counts the records of a kind that are claimed at this moment by their value there.
LANES: Final[tuple[str, ...]] = tuple(
    f"UPDATE records INDEXED BY records_leased SET lane = s{slot} WHERE kind = :name AND state = 'claimed'"
    for slot in range(1, KIND_PATHS + 1)
)

# Begins to count a kind's ready records; triggers keep the count from here on.
KEEP_DEPTH = """
INSERT INTO kind_depths (kind, ready)
SELECT :name,
    (SELECT count(*) FROM records INDEXED BY records_ready WHERE kind = :name AND available = 1)
    + (SELECT count(*) FROM records INDEXED BY records_waiting_by_kind
        WHERE kind = :name AND available = 0 AND not_before IS NOT NULL)
WHERE true ON CONFLICT (kind) DO NOTHING
"""

# Ends the counting.
FORGET_DEPTH = "DELETE FROM kind_depths WHERE kind = :name"

# --- credentials ----------------------------------------------------------------------------------------------------

# Finds who presents a token, by its hash alone. A revoked credential is as good as none.
ADMIT = """
SELECT id, subject, grants, expires_at, public, origins, rate FROM credentials
WHERE token_sha256 = :token_sha256 AND revoked_at IS NULL
"""

# Stores a credential; the token itself is never stored.
CREATE_CREDENTIAL = """
INSERT INTO credentials (id, token_sha256, subject, grants, created_at, created_by, expires_at, public, origins, rate)
VALUES (:id, :token_sha256, :subject, :grants, :now, :created_by, :expires_at, :public, :origins, :rate)
"""

# Reads one credential that was made by `creator`, or by anyone when that is NULL.
CREDENTIAL = """
SELECT id, subject, grants, created_at, created_by, expires_at, revoked_at, public, origins, rate FROM credentials
WHERE id = :id AND (CAST(:creator AS TEXT) IS NULL OR created_by = :creator)
"""

# Whether a credential has this token, for a replayed creation.
CREDENTIAL_HAS_TOKEN = "SELECT 1 FROM credentials WHERE id = :id AND token_sha256 = :token_sha256"  # noqa: S105

# A page of credentials in order of creation, with the same visibility as one of them.
CREDENTIALS = """
SELECT id, subject, grants, created_at, created_by, expires_at, revoked_at, public, origins, rate FROM credentials
WHERE id > :after AND (CAST(:creator AS TEXT) IS NULL OR created_by = :creator)
ORDER BY id LIMIT CAST(:limit AS INTEGER)
"""

# The credential was not revoked yet: of two revocations one writes history.
CREDENTIAL_IS_UNREVOKED = "SELECT 1 FROM credentials WHERE id = :id AND revoked_at IS NULL"

# Revokes for good.
REVOKE = "UPDATE credentials SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL"

# Lets pages of these origins ask whether they may publish.
ADMIT_ORIGINS = """
INSERT INTO public_origins (origin, credential)
SELECT DISTINCT origin.value, :credential FROM json_each(:origins) AS origin WHERE true
"""

# Some public credential that is alive may be used for this action by pages of this origin, or of every one.
ORIGIN_IS_ADMITTED = """
SELECT 1 FROM public_origins AS o CROSS JOIN credentials AS c ON c.id = o.credential
WHERE o.origin IN (:origin, '*') AND c.revoked_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > :now)
AND EXISTS (
    SELECT 1 FROM json_each(c.grants) AS given CROSS JOIN json_each(given.value, '$.actions') AS given_action
    WHERE given_action.value = :action
) LIMIT 1
"""

# Ends what a revoked credential admitted.
DISMISS_ORIGINS = """
DELETE FROM public_origins WHERE credential = :id AND origin IN (
    SELECT origin.value FROM credentials CROSS JOIN json_each(coalesce(credentials.origins, '["*"]')) AS origin
    WHERE credentials.id = :id
)
"""

# --- senders --------------------------------------------------------------------------------------------------------

# Stores a sender. Its secrets stand apart and are replaced with it.
DECLARE_SENDER = """
INSERT INTO senders (name, scheme, subject, tolerance_seconds, created_at, updated_at)
VALUES (:name, :scheme, :subject, :tolerance_seconds, :now, :now)
ON CONFLICT (name) DO UPDATE SET
    scheme = excluded.scheme, subject = excluded.subject, tolerance_seconds = excluded.tolerance_seconds,
    updated_at = max(excluded.updated_at, updated_at + 1)
RETURNING name, scheme, subject, tolerance_seconds, created_at, updated_at
"""

# Forgets a sender's secrets.
FORGET_SECRETS = "DELETE FROM sender_secrets WHERE sender = :name"

# Keeps a sender's secrets in their order.
KEEP_SECRETS = """
INSERT INTO sender_secrets (sender, ordinal, secret)
SELECT :name, secret.key, secret.value FROM json_each(:secrets) AS secret WHERE true
"""

# Forgets how a sender's webhooks become events.
FORGET_SENDER_EVENTS = "DELETE FROM sender_events WHERE sender = :name"

# Keeps how a sender's webhooks become events, and a scheme younger than the table of senders; what stood was forgotten.
KEEP_SENDER_EVENTS = """
INSERT INTO sender_events (sender, scheme, type, id, keys, scope) VALUES (:name, :scheme, :type, :id, :keys, :scope)
"""

_SENDER_COLUMNS = """
name, coalesce((SELECT e.scheme FROM sender_events AS e WHERE e.sender = name), senders.scheme) AS scheme, subject,
    tolerance_seconds, created_at, updated_at, (SELECT count(*) FROM sender_secrets WHERE sender = name) AS secrets,
    (SELECT json_object('id', e.id, 'type', e.type, 'keys', json(e.keys), 'scope', e.scope) FROM sender_events AS e
        WHERE e.sender = name AND e.keys IS NOT NULL) AS event
""".strip()

# Reads one sender with the number of its secrets, and how its webhooks become events.
SENDER = f"""
SELECT {_SENDER_COLUMNS}
FROM senders WHERE name = :name
"""

# Reads the secrets of one sender; asked by verification alone.
SECRETS = "SELECT secret FROM sender_secrets WHERE sender = :name ORDER BY ordinal"

# A page of senders after a name.
SENDERS = f"""
SELECT {_SENDER_COLUMNS}
FROM senders WHERE name > :after ORDER BY name LIMIT CAST(:limit AS INTEGER)
"""

# The sender is as it was when the signature was verified; updated_at grows with every declaration.
SENDER_IS_UNCHANGED = "SELECT 1 FROM senders WHERE name = :sender AND updated_at = :updated_at"

# The sender exists.
SENDER_EXISTS = "SELECT 1 FROM senders WHERE name = :name"

# Removes a sender.
DELETE_SENDER = "DELETE FROM senders WHERE name = :name"

# --- destinations ---------------------------------------------------------------------------------------------------

# Stores a destination; `secret` is a reference, never a secret.
DECLARE_DESTINATION = """
INSERT INTO destinations (name, url, methods, secret, dedup_window_seconds, publication, created_at, updated_at)
VALUES (:name, :url, :methods, :secret, :dedup_window_seconds, :publication, :now, :now)
ON CONFLICT (name) DO UPDATE SET
    url = excluded.url, methods = excluded.methods, secret = excluded.secret,
    dedup_window_seconds = excluded.dedup_window_seconds, publication = excluded.publication,
    updated_at = excluded.updated_at
RETURNING created_at
"""

# How deliveries are made to it.
DECLARE_POLICY = """
INSERT INTO delivery_policies (destination, concurrency, ordered, max_attempts, timeout_seconds)
VALUES (:name, :concurrency, :ordered, :max_attempts, :timeout_seconds)
ON CONFLICT (destination) DO UPDATE SET
    concurrency = excluded.concurrency, ordered = excluded.ordered, max_attempts = excluded.max_attempts,
    timeout_seconds = excluded.timeout_seconds
"""

# One that was declared before there were policies has none.
_DESTINATIONS = """
SELECT d.name, d.url, d.methods, d.secret, d.dedup_window_seconds, d.publication, d.created_at, d.updated_at,
    p.concurrency, p.ordered, p.max_attempts, p.timeout_seconds
FROM destinations AS d LEFT JOIN delivery_policies AS p ON p.destination = d.name
""".strip()

# Reads one destination.
DESTINATION = f"{_DESTINATIONS} WHERE d.name = :name"

# A page of destinations after a name.
DESTINATIONS = f"{_DESTINATIONS} WHERE d.name > :after ORDER BY d.name LIMIT CAST(:limit AS INTEGER)"

# --- scopes ---------------------------------------------------------------------------------------------------------

# The scope exists.
SCOPE_EXISTS = "SELECT 1 FROM scopes WHERE id = :parent"

# The scope is not among its own ancestors once `parent` is its parent. UNION drops what was seen, so that it ends.
SCOPE_MAKES_NO_CYCLE = """
SELECT 1 WHERE :id NOT IN (
    WITH RECURSIVE ancestor (id) AS (
        SELECT :parent UNION SELECT scopes.parent FROM scopes JOIN ancestor ON scopes.id = ancestor.id
        WHERE scopes.parent IS NOT NULL
    )
    SELECT id FROM ancestor
)
"""

# Stores a scope.
DECLARE_SCOPE = """
INSERT INTO scopes (id, parent, config, created_at, updated_at) VALUES (:id, :parent, :config, :now, :now)
ON CONFLICT (id) DO UPDATE SET parent = excluded.parent, config = excluded.config, updated_at = excluded.updated_at
RETURNING id, parent, config, created_at, updated_at
"""

# Reads one scope.
SCOPE = "SELECT id, parent, config, created_at, updated_at FROM scopes WHERE id = :id"

# A page of scopes after an id.
SCOPES = """
SELECT id, parent, config, created_at, updated_at FROM scopes
WHERE id > :after ORDER BY id LIMIT CAST(:limit AS INTEGER)
"""
