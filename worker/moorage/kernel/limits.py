"""Every bound of the product, one named constant each, served at `GET /limits` (clause kernel.limits).

A bound is inclusive: a value equal to the limit is accepted, one past it is refused.
"""

from typing import Self


class Limit(int):
    """An integer bound with its unit and its meaning."""

    unit: str
    meaning: str

    def __new__(cls, value: int, unit: str, meaning: str) -> Self:
        limit = super().__new__(cls, value)
        limit.unit = unit
        limit.meaning = meaning
        return limit


# JSON and requests
JSON_DEPTH = Limit(64, "levels", "nesting of arrays and objects in any JSON that is taken in")
JSON_VALUES = Limit(200_000, "values", "commas and opening brackets, outside strings, of any JSON that is taken in")
REQUEST_BYTES = Limit(16 * 1024 * 1024, "bytes", "a request body")
TEXT_CHARACTERS = Limit(1024, "characters", "a label, reason, message or subject")
ID_CHARACTERS = Limit(200, "characters", "an id, worker name, idempotency key or other name supplied by a client")
METADATA_BYTES = Limit(16384, "bytes", "canonical JSON of client metadata, a run's included")
CONFIG_BYTES = Limit(65536, "bytes", "canonical JSON of a scope's config or a kind's schema")

# Lists
PAGE_DEFAULT = Limit(50, "items", "a page of a list when the request names no limit")
PAGE_ITEMS = Limit(500, "items", "a page of a list")
PAGE_BYTES = Limit(8 * 1024 * 1024, "bytes", "bodies and metadata of a page of records; the rest is on the next page")
QUERY_EXAMINED = Limit(2000, "records", "examined for one page of a query; a page may be short and still have a next cursor")
QUERY_STREAMS = Limit(16, "priorities", "of a kind's ready records, merged for a page; with more a page walks history")
CURSOR_CHARACTERS = Limit(1024, "characters", "a list cursor")

# Kinds and records
KIND_PATHS = Limit(16, "paths", "declared paths of a kind")
PATH_BYTES = Limit(256, "bytes", "a declared path")
PATH_SEGMENTS = Limit(16, "segments", "a declared path")
SCHEMA_STEPS = Limit(60_000, "steps", "work that JSON Schemas may make of one request's bodies, roughly values looked at")
SCHEMA_EXPANSION = Limit(1000, "subschemas", "what a kind's JSON Schema comes to when each $ref is written out in its place")
SCHEMA_DEPTH = Limit(100, "levels", "nesting of keywords while a kind's JSON Schema is applied to a body")
PATH_VALUE_BYTES = Limit(4096, "bytes", "a body's value at a declared path, as canonical JSON")
KIND_BACKFILL = Limit(2000, "records", "records that a kind may hold when a path is added to it")
KIND_BACKFILL_BYTES = Limit(8 * 1024 * 1024, "bytes", "bodies that a kind may hold when a path is added to it")
RETENTION_SECONDS = Limit(10 * 366 * 86400, "seconds", "how long a kind may keep its terminal records")
RECORD_BODY_BYTES = Limit(1024 * 1024, "bytes", "canonical JSON of a record's body")
RECORD_PARENTS = Limit(100, "records", "parents of one record")
RECORD_PRIORITY = Limit(1_000_000, "units", "a record's priority, either side of zero")
PUBLISH_BATCH = Limit(500, "records", "records published in one request")
PUBLISH_BATCH_BYTES = Limit(
    1_500_000, "bytes", "bodies and metadata as canonical JSON, and parents, of several records together"
)
LINEAGE_DEPTH = Limit(32, "generations", "a lineage query")
LINEAGE_RECORDS = Limit(1000, "records", "a lineage answer")
RETENTION_BATCH = Limit(100, "records", "terminal records that one transaction removes by a kind's retention")
RETENTION_CHILDREN = Limit(1000, "records", "children of a terminal record past which retention keeps it")
RETENTION_COUNT = Limit(10_000, "records", "how far a retention preview counts")
NOT_BEFORE_SECONDS = Limit(10 * 366 * 86400, "seconds", "how far ahead a record's not_before may lie")

# Patterns
PATTERN_OPERATORS = Limit(64, "operators", "a pattern")
PATTERN_DEPTH = Limit(8, "levels", "boolean nesting of a pattern")
PATTERN_VALUES = Limit(500, "values", "operands of a pattern in all")
PATTERN_BYTES = Limit(262_144, "bytes", "operands of a pattern in all, as canonical JSON")

# Claims and leases
CLAIM_BATCH = Limit(100, "records", "records claimed in one request")
LEASE_SECONDS = Limit(12 * 3600, "seconds", "a lease")
ATTEMPTS = Limit(100, "attempts", "a kind's max_attempts")
RETRY_SECONDS = Limit(365 * 86400, "seconds", "a retry delay")
RETRY_FACTOR = Limit(100, "times", "how much longer a retry delay may be than the one before")
SETTLE_RESULTS = Limit(100, "records", "results of one settlement")
INTEREST_TTL_SECONDS = Limit(24 * 3600, "seconds", "how long a worker's interest lasts unless it is renewed")
DRY_RUN_INTERESTS = Limit(1000, "interests", "live interests of the kind that a dry run asks")
SESSION_SECONDS = Limit(7 * 86400, "seconds", "a session, unless it is renewed")
SESSION_CONSUMERS = Limit(100, "consumers", "consumers that number their claims in one session")
LANE_CLAIMS = Limit(1000, "records", "claimed records that may share a value, of a kind that limits it")
DEPTH = Limit(100_000_000, "records", "a kind's depth_limit")
TTL_SECONDS = Limit(10 * 366 * 86400, "seconds", "a kind's ttl_seconds")
RATE = Limit(1_000_000, "tokens", "a rate's per_second and its burst")
RATE_PERIOD_SECONDS = Limit(86400, "seconds", "from one token of a rate to the next: the least per_second is 1 by this")
RETRY_AFTER_SECONDS = Limit(365 * 86400, "seconds", "the wait that an answer's retry_after and Retry-After tell of")
DEBOUNCE_SECONDS = Limit(86400, "seconds", "how long a record may be held back for later ones with its debounce key")
PUBLIC_ORIGINS = Limit(20, "origins", "web origins of one public credential")
REQUEUE_BATCH = Limit(500, "records", "dead letters requeued in one request")

# Artifacts
ARTIFACT_BYTES = Limit(5 * 1024**3 - 5 * 1024**2, "bytes", "an artifact; the platform's plan may bound a request further")
ARTIFACT_MEMORY_BYTES = Limit(1024 * 1024, "bytes", "an upload without a declared digest that is held in memory")
ARTIFACT_UPLOAD_SECONDS = Limit(3600, "seconds", "an upload, from its first byte to its record")
ARTIFACT_ATTACH_SECONDS = Limit(366 * 86400, "seconds", "the time in which an artifact may have to be attached")
MEDIA_TYPE_CHARACTERS = Limit(255, "characters", "an artifact's media type")
BLOB_GRACE_SECONDS = Limit(3600, "seconds", "how old bytes that nothing refers to are before the daily sweep deletes them")

WAIT_SECONDS = Limit(25, "seconds", "how long one request may wait: for a match, or for a run's end")

# Watches
WATCH_SECONDS = Limit(300, "seconds", "an event stream, after which the client connects again")
WATCH_ENTRIES = Limit(100, "entries", "entries that a watch is given at a time")
WATCH_SCAN = Limit(500, "entries", "entries of any kind that a watch looks through at a time")
WATCH_BYTES = Limit(1024 * 1024, "bytes", "bodies that a watch is given at a time, past the first entry's")

# Awakeables
AWAKE_TTL_SECONDS = Limit(366 * 86400, "seconds", "an awakeable's time to live")
AWAKE_RETENTION_SECONDS = Limit(30 * 86400, "seconds", "how long an awakeable of no run is kept once it has ended")
AWAKE_PAYLOAD_BYTES = Limit(8 * 1024 * 1024, "bytes", "an awakeable's payload, as sent and as canonical JSON")
SENDER_SECRETS = Limit(5, "secrets", "signing secrets of one webhook sender, for rotation")
DEDUP_WINDOW_SECONDS = Limit(366 * 86400, "seconds", "a destination's own window of deduplication")
SENDER_TOLERANCE_SECONDS = Limit(3600, "seconds", "how far a webhook's timestamp may lie from now")

# Credentials and idempotency
GRANT_KINDS = Limit(100, "kinds", "kinds named by one grant")
URL_CHARACTERS = Limit(2048, "characters", "a destination's URL")
GRANTS = Limit(100, "grants", "grants of one credential")
CREDENTIAL_CACHE_SECONDS = Limit(5, "seconds", "how long a revoked credential may still read; writes stop at once")
KIND_CACHE_SECONDS = Limit(5, "seconds", "how long a read may use an earlier declaration of a kind")
IDEMPOTENCY_SECONDS = Limit(24 * 3600, "seconds", "how long an Idempotency-Key is remembered")

# Runs
JOURNAL_INLINE_BYTES = Limit(
    1024 * 1024, "bytes", "a recorded value or payload that stays in its row; a larger one is a blob"
)
JOURNAL_VALUE_BYTES = Limit(8 * 1024 * 1024, "bytes", "a step's value, a run's input or its result, as canonical JSON")
JOURNAL_REPLAY_BYTES = Limit(4 * 1024 * 1024, "bytes", "recorded values loaded at once when an execution is opened")
JOURNAL_ENTRIES = Limit(10_000, "entries", "what one execution may record")
CURSOR_POSITION_BYTES = Limit(65_536, "bytes", "canonical JSON of a cursor's position")
APPLY_OPERATIONS = Limit(500, "operations", "operations of a host in one transaction")
SCOPE_CHARACTERS = Limit(1000, "characters", "the scope of a run, a child's child's included")
OWNER_LEASE_SECONDS = Limit(30, "seconds", "an owner's lease on an execution")
OWNER_RENEW_SECONDS = Limit(10, "seconds", "between renewals of an owner's lease")
STOP_POLL_MS = Limit(500, "milliseconds", "between looks for a stop while a run is running")
SHORT_WAIT_SECONDS = Limit(1, "seconds", "a wait that a running body sits out; a longer one suspends the run")
RETRY_ATTEMPTS = Limit(100, "attempts", "a step's schedule")
RETRY_DELAY_MS = Limit(7 * 86_400_000, "milliseconds", "a computed delay between two attempts of a step")
RETRY_JITTER_MS = Limit(30_000, "milliseconds", "what chance adds to a delay between two attempts of a step")
UPSTREAM_WAIT_SECONDS = Limit(86400, "seconds", "the wait that a Retry-After may ask of a step; a longer one is cut")
RUN_ERROR_BYTES = Limit(2048, "bytes", "a recorded error, with credentials masked")
RUNS_DEFAULT = Limit(5, "runs", "a description of runs when the request names no limit")
RUNS_ITEMS = Limit(500, "runs", "a description of runs")
EXPORT_DEFAULT = Limit(500, "runs", "an export of runs when the request names no limit")
EXPORT_ITEMS = Limit(5000, "runs", "an export of runs")
RUN_STEPS_BYTES = Limit(1_000_000, "bytes", "what is kept of the steps of a run that has ended")
RUN_RETENTION_SECONDS = Limit(
    30 * 86400, "seconds", "how long a run that has ended is kept, and what it could be resumed from"
)
RUN_BRANCHES = Limit(1000, "branches", "a gather or a first")
STREAM_INTERVAL_MS = Limit(100, "milliseconds", "between two messages of a run's live view")
STREAM_RING = Limit(256, "messages", "that a run's live view keeps for who is slow")
BODY_NAME_CHARACTERS = Limit(100, "characters", "a body's name")

# Time
EVERY_SECONDS = Limit(366 * 86400, "seconds", "the interval of a timer or schedule that repeats; the least is 1")
SCHEDULE_PREVIEW = Limit(100, "windows", "next windows of a schedule in one answer")
SCHEDULE_BACKFILL = Limit(1000, "windows", "windows that one backfill starts")
SCHEDULE_QUEUE = Limit(1000, "windows", "windows of one schedule that wait for their turn; further ones are skipped")
CATCH_UP_WINDOWS = Limit(1000, "windows", "windows that were missed and are caught up with, the latest ones")
TRIGGER_RETENTION_SECONDS = Limit(400 * 86400, "seconds", "how long a schedule remembers what became of a window")
CLOCK_RETRY_BATCH = Limit(1000, "items", "that failed and are tried again at once by one request")
CATCH_UP_SECONDS = Limit(30 * 86400, "seconds", "how far back windows that were missed are caught up")

# Messages
EVENT_DATA_BYTES = Limit(1024 * 1024, "bytes", "an event's data, as sent and as canonical JSON")
EVENT_ATTRIBUTES = Limit(50, "attributes", "context attributes of one event")
EVENT_ATTRIBUTE_CHARACTERS = Limit(1024, "characters", "a context attribute of an event, its source and id included")
EVENT_BATCH = Limit(100, "events", "events accepted in one request")
EVENT_BATCH_BYTES = Limit(1_500_000, "bytes", "events accepted in one request, as canonical JSON together")
EVENT_KEYS = Limit(16, "keys", "keys by which one event is found")
EVENT_RETENTION_SECONDS = Limit(
    7 * 86400, "seconds", "how long an event is kept, and a second delivery of it recognized, after its acceptance"
)
EVENT_WAIT_KEYS = Limit(16, "keys", "keys, and types, of one wait for an event")
EVENT_WAIT_MATCH_BYTES = Limit(16_384, "bytes", "canonical JSON of the pattern of a wait for an event")
EVENT_WAIT_SECONDS = Limit(10 * 366 * 86400, "seconds", "how long a wait for an event may last, when it names a timeout")
EVENT_LOOK_BACK_SECONDS = Limit(7 * 86400, "seconds", "how long before a wait an event may have come that wakes it")
EVENT_LOOK_BACK_DEFAULT = Limit(86400, "seconds", "the look-back of a wait that names none")
CORRELATIONS = Limit(16, "keys", "keys attached to a work in one request")
INBOX_RETENTION_SECONDS = Limit(30 * 86400, "seconds", "how long a consumer's outcome for an event is kept")
INBOX_OUTCOME_BYTES = Limit(65_536, "bytes", "canonical JSON of a consumer's outcome for an event")
KV_VALUE_BYTES = Limit(65_536, "bytes", "canonical JSON of a value in a namespace")
KV_CHANGES = Limit(50, "changes", "keys changed in one request")
SUBSCRIPTIONS = Limit(100, "subscriptions", "of one deployment")
SUBSCRIPTION_TYPES = Limit(50, "types", "types, and kinds, of one subscription")
COMPLETIONS = Limit(10, "destinations", "that one run's end is told to")
FAN_OUT_BATCH = Limit(200, "entries", "history that one transaction turns into deliveries")
DELIVERY_CONCURRENCY = Limit(32, "requests", "under way at once to one destination")
DELIVERY_ATTEMPTS = Limit(100, "attempts", "a destination's max_attempts")
DELIVERY_TIMEOUT_SECONDS = Limit(60, "seconds", "how long a destination may take to answer a delivery")
DELIVERY_DELAY_SECONDS = Limit(14_400, "seconds", "between two attempts of a delivery")
DELIVERY_RETRY_AFTER_SECONDS = Limit(86_400, "seconds", "the wait that a destination's Retry-After may ask; more is cut")
DELIVERY_RETENTION_SECONDS = Limit(7 * 86400, "seconds", "how long a delivery is kept once it was delivered or canceled")
REDELIVER_BATCH = Limit(500, "deliveries", "delivered again by one request")
DELIVERIES_COUNTED = Limit(1000, "deliveries", "how far a summary of a destination counts, each kind by itself")

# Seals
SEAL_BATCH = Limit(500, "entries", "history that one transaction seals")
SEAL_CALL = Limit(10_000, "entries", "history that one request seals")
VERIFY_BATCH = Limit(500, "entries", "history verified, or given with its links, in one request")
VERIFY_CONTENT_BYTES = Limit(16 * 1024 * 1024, "bytes", "record bodies compared with their digests in one request")

# The clock
DRAIN_BATCH = Limit(100, "items", "due items fired before the clock looks again")

# The storage platform (platform limits that every adapter enforces)
SQL_PARAMETERS = Limit(100, "parameters", "bound values of one statement")
SQL_BYTES = Limit(100_000, "bytes", "text of one statement")
SQL_VALUE_BYTES = Limit(2_000_000, "bytes", "one bound or stored value")


def published() -> dict[str, dict[str, int | str]]:
    """What `GET /limits` answers: every limit by its lower-case name, with unit and meaning."""
    return {
        name.lower(): {"value": int(value), "unit": value.unit, "meaning": value.meaning}
        for name, value in globals().items()
        if isinstance(value, Limit)
    }
