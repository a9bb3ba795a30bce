"""What schema this executable supports, and the check that the database has it (clause store.schema).

`d1_schema/` is the one source of the schema; the names here are compared with it by a test.
"""

from moorage.kernel.errors import ExecutionSchemaIncompatible
from moorage.store.ports import Database
from moorage.store.transaction import Reading

SCHEMA = 4
"""The number of the newest file in `d1_schema/`."""

RECORD_FORMAT = 4
"""Raised whenever a stored field is added, so that an older executable refuses what it would drop."""

TABLES = frozenset(
    {
        "moorage",
        "preconditions",
        "history",
        "seals",
        "leases",
        "idempotency",
        "kinds",
        "kind_depths",
        "rates",
        "public_origins",
        "sessions",
        "claim_cursors",
        "credentials",
        "senders",
        "sender_secrets",
        "destinations",
        "scopes",
        "records",
        "record_parents",
        "interests",
        "blob_references",
        "blob_deletions",
        "blob_sweep",
        "artifact_deadlines",
        "awakeables",
        "due_failures",
        "executions",
        "runs",
        "journal",
        "cursors",
        "remote_bodies",
        "holders",
        "guards",
        "guard_rows",
        "guard_replays",
        "guard_audit",
        "recovery",
        "timers",
        "schedules",
        "schedule_triggers",
        "kv",
        "events",
        "event_terms",
        "event_waits",
        "event_wait_terms",
        "correlations",
        "inbox",
        "sender_events",
        "subscriptions",
        "completions",
        "deliveries",
        "delivery_policies",
        "couriers",
    }
)

# Lists the tables that exist, so that a missing one is named and never silently made anew.
_PRESENT = "SELECT name FROM sqlite_schema WHERE type = 'table'"

# Reads the two facts about the database; asked only once the table is known to exist.
_FACTS = "SELECT key, value FROM moorage WHERE key IN ('schema', 'record_format')"


async def check(db: Database) -> dict[str, int]:
    """The database's schema and record format.

    Raises ExecutionSchemaIncompatible, before anything is admitted or changed, when a table is missing or when schema or
    record format is another than this executable's (clauses store.schema, store.record-format).
    """
    tables = Reading()
    present = tables.ask(_PRESENT)
    await db.read(tables)
    missing = sorted(TABLES - {row["name"] for row in present.rows})
    if missing:
        raise ExecutionSchemaIncompatible(f"the database lacks the tables {', '.join(missing)}; apply d1_schema/ to it")
    facts = Reading()
    rows = facts.ask(_FACTS)
    await db.read(facts)
    found = {row["key"]: row["value"] for row in rows.rows}
    for name, supported in (("schema", SCHEMA), ("record_format", RECORD_FORMAT)):
        if found.get(name) != str(supported):
            raise ExecutionSchemaIncompatible(
                f"the database has {name} {found.get(name, 'unknown')}, this executable supports {supported}"
            )
    return {"schema": SCHEMA, "record_format": RECORD_FORMAT}
