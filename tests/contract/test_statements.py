"""Every SQL constant of the product, on every adapter: it prepares against the schema, and it scans nothing that grows."""

import importlib
import pkgutil
import re
import sqlite3
from types import ModuleType

import httpx
import pytest

import moorage
from moorage.records.admission_statements import OF_KINDS
from moorage.store import schema
from moorage.store.transaction import positional
from tests.contract.adapters import Store
from tests.contract.remote import D1Store

FIXED = frozenset(
    "moorage preconditions kinds senders sender_secrets sender_events destinations scopes recovery subscriptions".split()
)
"""Tables that hold what people declare: a few rows each. Every other table grows with use."""

FILLINGS = {
    "candidates": "SELECT id FROM records WHERE kind = :kind AND available = 1 ORDER BY priority DESC, seq LIMIT 1",
    "order": "r.seq",
    "where": "r.s1 = 1",
    "of_kinds": f"AND {OF_KINDS.replace('{kind}', 'records.kind')}",
    "of_kinds_r": f"AND {OF_KINDS.replace('{kind}', 'r.kind')}",
    "told": "SELECT '{}'",
    "narrowed": "AND r.s1 = 1",
    "chosen": "SELECT id FROM records WHERE id = :record",
    "executions": "SELECT execution_id FROM executions WHERE execution_id = :execution_id",
    "tokens": "SELECT token FROM guards WHERE token = :token",
    "holders": "SELECT value FROM json_each(:holders)",
    "again": "SELECT delivery_id FROM deliveries WHERE delivery_id = :delivery",
    "selection": "SELECT 1 AS ordinal, id AS subject, kind, body_sha256 AS content_sha256, '{}' AS data FROM records"
    " WHERE id = :record",
}
"""What stands in the tests for the parts that records.patterns writes into a statement."""

_FIRST_DUE = "LIMIT 1 in the order of the partial index: reads one row, and those set aside before it"
_WAITING = "a partial index of the schedules of which windows wait for their turn: people declare schedules"
_UNROUTED = "the partial index of events that nobody has routed: those of the last moments"
_COUNTED = "an operator counts what is under way, when they look at the storage"
_ANY_PENDING = "whether anything waits to be delivered: the first row of the partial index of what does"
_NEWEST = "LIMIT in the order of an index: reads as many of the newest, and of the dead, as an operator's summary counts"
SCANS = {
    "awakeables.statements.EARLIEST_DEADLINE": _FIRST_DUE,
    "blobs.statements.EARLIEST_DELETION": _FIRST_DUE,
    "records.artifacts.statements.EARLIEST_DEADLINE": _FIRST_DUE,
    "records.interest_statements.EARLIEST_EXPIRED": _FIRST_DUE,
    "records.interest_statements.EXPIRED": _FIRST_DUE,
    "idempotency.due._EARLIEST": _FIRST_DUE,
    "idempotency.due._PAGE": _FIRST_DUE,
    "records.session_statements.EARLIEST_OVER": _FIRST_DUE,
    "records.session_statements.OVER": _FIRST_DUE,
    "records.statements.EARLIEST_EXPIRY": _FIRST_DUE,
    "messages.inbox.event_statements.EARLIEST_OLD": _FIRST_DUE,
    "messages.inbox.event_statements.SWEEPS": _FIRST_DUE,
    "messages.inbox.consumer_statements.EARLIEST_OLD": _FIRST_DUE,
    "messages.inbox.consumer_statements.OLD": _FIRST_DUE,
    "timers.timer_statements.EARLIEST": _FIRST_DUE,
    "messages.inbox.wait_statements.EARLIEST_UNROUTED": _UNROUTED,
    "messages.inbox.wait_statements.FIRST_UNROUTED": _UNROUTED,
    "messages.inbox.wait_statements.FIRST_WAITS": _UNROUTED,
    "messages.inbox.wait_statements.NONE_UNROUTED": _UNROUTED,
    "messages.inbox.wait_statements.UNROUTED": _UNROUTED,
    "messages.inbox.wait_statements.UNROUTED_WITH": _UNROUTED,
    "messages.outbox.outbox_statements.EARLIEST_REMOVAL": _FIRST_DUE,
    "messages.outbox.outbox_statements.REMOVALS": _FIRST_DUE,
    "messages.outbox.delivery_list_statements.SUMMARY": _NEWEST,
    "schedules.statements.EARLIEST_FORGOTTEN": _FIRST_DUE,
    "schedules.statements.FORGOTTEN": _FIRST_DUE,
    "schedules.statements.EARLIEST_READY": _WAITING,
    "schedules.statements.READY": _WAITING,
    "records.retention_statements.CANDIDATES": _ANY_PENDING,
    "records.retention_statements.REMOVING": _ANY_PENDING,
    "records.retention_statements.REMOVE": _ANY_PENDING,
    "records.retention_statements.PUT_OFF": _ANY_PENDING,
    "store.inspection._ROWS": _COUNTED,
    "store.inspection._TORN_GUARDS": _COUNTED,
}
"""Statements that may walk a growing table's index without a bound on its first column, each with the reason."""

_STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
_SCAN = re.compile(r"SCAN (?P<name>\w+)(?! VIRTUAL TABLE)")


def modules() -> list[ModuleType]:
    """Every module that runs on the host."""
    names = [found.name for found in pkgutil.walk_packages(moorage.__path__, "moorage.")]
    return [importlib.import_module(name) for name in names if not name.startswith("moorage.edge.")]


def statements() -> dict[str, str]:
    """The SQL constants by `room.module.NAME`, with their open parts filled; a part of a statement is none."""
    found: dict[str, str] = {}
    for module in modules():
        for name, value in vars(module).items():
            hidden = name.startswith("_") and module.__name__.endswith("statements")
            if isinstance(value, str) and not hidden and name.strip("_").isupper() and _STATEMENT.match(value):
                found[f"{module.__name__.removeprefix('moorage.')}.{name}"] = filled(value)
    return found


def filled(sql: str) -> str:
    """The statement with a filling for each open part; a part without one is a KeyError that names it."""
    return re.sub(r"\{([a-z_]+)\}", lambda part: filled(FILLINGS[part.group(1)]), sql)


async def plan(store: Store, sql: str) -> list[str]:
    """How the database would carry the statement out; preparing it is enough to ask."""
    text, names = positional(sql)
    return [row["detail"] for row in await store.sql(f"EXPLAIN QUERY PLAN {text}", *[None] * len(names))]


def scanned(sql: str, steps: list[str]) -> list[str]:
    """The growing tables that the plan walks from end to end."""
    aliases = {alias: table for table, alias in re.findall(r"\b(\w+) AS (\w+)\b", sql) if table in schema.TABLES}
    walked = [match["name"] for step in steps for match in _SCAN.finditer(step)]
    tables = [aliases.get(name, name) for name in walked]
    return [table for table in tables if table in schema.TABLES - FIXED]


def test_the_statements_are_found() -> None:
    found = statements()
    assert {"records.statements.CLAIM", "history.statements.APPEND", "leases.statements.ACQUIRE"} <= set(found)
    assert len(found) > 50


@pytest.mark.clause("store.ports", "store.schema")
async def test_every_statement_prepares_against_the_schema(store: Store) -> None:
    refused = {}
    for name, sql in statements().items():
        try:
            await plan(store, sql)
        except (sqlite3.Error, httpx.HTTPError) as error:
            refused[name] = str(error)
    assert refused == {}


@pytest.mark.edge
@pytest.mark.clause("store.schema")
async def test_no_statement_scans_what_grows(d1_store: D1Store) -> None:
    """Asked of the database that serves: another version of SQLite may plan otherwise."""
    found = {name: scanned(sql, await plan(d1_store, sql)) for name, sql in statements().items()}
    extra = {name: tables for name, tables in found.items() if tables and name not in SCANS}
    assert not extra, sorted(extra.items())
    assert [name for name in SCANS if not found.get(name)] == []


def test_a_scan_is_seen() -> None:
    assert scanned("SELECT * FROM records AS r", ["SCAN r"]) == ["records"]
    assert scanned("SELECT * FROM history", ["SCAN history USING INDEX x"]) == ["history"]
    assert scanned("SELECT * FROM kinds", ["SCAN kinds"]) == []
    assert scanned("SELECT * FROM json_each(:a) AS e", ["SCAN e VIRTUAL TABLE INDEX 1:"]) == []
    assert scanned("SELECT * FROM records AS r", ["SEARCH r USING INDEX records_by_id (id=?)"]) == []
