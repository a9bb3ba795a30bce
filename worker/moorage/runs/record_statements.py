# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of looking at runs. A run's id tells when it started, so a window of time is a range of ids."""

from moorage.records.admission_statements import OF_KINDS

_COLUMNS = """
r.run_id, r.execution_id, r.body, r.scope, r.host, r.runner, r.plan_reference, r.config_revision, r.status, r.attempt,
    r.started_at, r.ended_at, r.next_attempt_at, r.created_by, r.parent_run, r.restarted_from, r.trace_id, r.span_id,
    r.parent_span, r.trace_state, r.stop_requested_at, r.stop_scope, r.stop_reason, r.result_size, r.result_blob, r.error,
    r.awaiting, r.bounds, r.metadata
""".strip()

# One run with its result.
SHOW = f"SELECT {_COLUMNS}, r.result FROM runs AS r WHERE r.run_id = :run_id"

# Whose it is, for who asks whether somebody may see it.
WHOSE = "SELECT body, created_by FROM runs WHERE run_id = :run_id"

# The same, with whether somebody holds its execution: before that a run is merely accepted.
JOB = f"""
SELECT {_COLUMNS}, EXISTS (
    SELECT 1 FROM executions AS e WHERE e.execution_id = r.execution_id AND (e.epoch > 0 AND e.owner IS NOT NULL)
) AS held FROM runs AS r WHERE r.run_id = :run_id
"""

_OF_BODIES = OF_KINDS.replace(":granted", ":seen_bodies").replace("{kind}", "r.body")
_SEEN = f"(:seen_bodies IS NULL OR r.created_by = :caller OR {_OF_BODIES})"
_FILTERS = f"{_SEEN} AND (:status IS NULL OR r.status = :status) AND (:body IS NULL OR r.body = :body)"
_WINDOW = "run_id >= :low AND run_id < :before ORDER BY run_id DESC LIMIT CAST(:examined AS INTEGER)"

# The runs of a window, newest first: at most so many are looked through for those that are wanted.
_OF_ALL = f"SELECT run_id FROM runs WHERE {_WINDOW}"
_OF_BODY = f"SELECT run_id FROM runs WHERE body = :body AND {_WINDOW}"
_OF_SCOPE = f"SELECT run_id FROM runs WHERE scope = :scope AND {_WINDOW}"

_LIST = f"""
SELECT {_COLUMNS} FROM ({{window}}) AS w CROSS JOIN runs AS r ON r.run_id = w.run_id
WHERE {_FILTERS} ORDER BY w.run_id DESC LIMIT CAST(:limit AS INTEGER)
"""
LIST = _LIST.replace("{window}", _OF_ALL)
LIST_OF_BODY = _LIST.replace("{window}", _OF_BODY)
LIST_OF_SCOPE = _LIST.replace("{window}", _OF_SCOPE)

# How many runs of the window were looked through, and the last of them.
_EXAMINED = "SELECT count(*) AS number, min(run_id) AS last FROM ({window})"
EXAMINED = _EXAMINED.replace("{window}", _OF_ALL)
EXAMINED_OF_BODY = _EXAMINED.replace("{window}", _OF_BODY)
EXAMINED_OF_SCOPE = _EXAMINED.replace("{window}", _OF_SCOPE)

# The ids of an export as one JSON array.
_IDS = f"""
SELECT json_group_array(run_id) AS ids FROM (
    SELECT w.run_id FROM ({{window}}) AS w CROSS JOIN runs AS r ON r.run_id = w.run_id
    WHERE {_FILTERS} ORDER BY w.run_id DESC LIMIT CAST(:limit AS INTEGER)
)
"""
IDS = _IDS.replace("{window}", _OF_ALL)
IDS_OF_BODY = _IDS.replace("{window}", _OF_BODY)

# Some runs by their ids, in the order of the array.
SOME = f"""
SELECT {_COLUMNS} FROM json_each(:ids) AS one CROSS JOIN runs AS r ON r.run_id = one.value ORDER BY one.key
"""

# What is known of the steps of a run: while it is in flight its journal, and once it has ended what was kept of that.
STEPS_OF_RUN = "SELECT status, ended_at, created_by, body, execution_id, steps FROM runs WHERE run_id = :run_id"
JOURNAL_OF_RUN = """
SELECT j.label, j.input_sha256, j.kind, j.position, j.state, j.attempt, j.started_at, j.ended_at, j.next_attempt_at,
    CASE WHEN j.state = 'done' THEN j.size END AS size, j.ref, j.failure
FROM runs AS r CROSS JOIN journal AS j ON j.execution_id = r.execution_id
WHERE r.run_id = :run_id AND r.ended_at IS NULL ORDER BY j.started_at, j.position, j.label, j.input_sha256
"""

# One recorded value, while the journal that holds it lives.
OUTPUT = """
SELECT j.state, j.size, j.blob, j.value FROM runs AS r CROSS JOIN journal AS j ON j.execution_id = r.execution_id
WHERE r.run_id = :run_id AND j.label = :label AND j.input_sha256 = :input_sha256
"""
IS_UNRETIRED = """
SELECT 1 FROM runs AS r CROSS JOIN executions AS e ON e.execution_id = r.execution_id WHERE r.run_id = :run_id
"""
