"""The SQL of hosts outside the Worker."""

from moorage.guards.statements import is_blocked
from moorage.runs.statements import NOTHING_ENDED

# The body and the owner of an execution at an epoch; without an owner once it was let go of, or has been retired.
OWNER = """
SELECT body, owner FROM executions WHERE execution_id = :execution AND epoch = :epoch AND host = 'remote'
UNION ALL
SELECT body, NULL FROM runs WHERE execution_id = :execution AND ended_epoch = :epoch AND host = 'remote'
LIMIT 1
"""

# What an execution is bound to, if a host may take it now.
DUE = """
SELECT body, build FROM executions
WHERE execution_id = :execution AND host = 'remote' AND ((owner IS NULL AND claimable = 1) OR expires_at <= :now)
"""

# Whether an execution waits for a host that has one of these builds, and no guard keeps it from them.
WAITS = f"""
SELECT EXISTS (
    SELECT 1 FROM json_each(:builds) AS b CROSS JOIN executions AS c ON c.body = b.key AND c.claimable = 1
    WHERE c.build = b.value AND NOT {is_blocked("c")}
) AS waits
"""  # noqa: S608  put together from constants

# How an execution stands, whether something has ended that it awaits, and whether a guard keeps it from changing hands.
STANDING = f"""
SELECT e.run_id, e.body, e.scope, e.epoch, e.attempt, e.owner, e.expires_at, e.wake_at, e.claimable, r.status,
    r.stop_requested_at, r.stop_scope, r.stop_reason, NOT EXISTS ({NOTHING_ENDED.strip()}) AS ended,
    {is_blocked("e")} AS blocked
FROM executions AS e CROSS JOIN runs AS r ON r.run_id = e.run_id
WHERE e.execution_id = :execution AND e.host = 'remote'
"""  # noqa: S608  put together from constants
