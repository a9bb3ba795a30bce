"""What must be true of a database at any instant, read from its file once nobody has it open."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.crash.burst import BATCH, RESULTS

NOTHING = {
    "a precondition was left behind": "SELECT * FROM preconditions",
    "a subject's revisions have gaps": """
        SELECT subject FROM history GROUP BY subject HAVING min(revision) <> 1 OR max(revision) <> count(*)""",
    "a revision stands before an earlier one": """
        SELECT one.position FROM history one JOIN history other
        ON other.subject = one.subject AND other.revision = one.revision + 1 WHERE other.position <= one.position""",
    "positions have gaps": """
        SELECT * FROM (SELECT count(*) AS entries, max(position) AS last FROM history) WHERE entries <> last""",
    "a record has no publication at its seq": """
        SELECT id FROM records LEFT JOIN history ON position = seq
        WHERE subject IS NOT id OR type IS NOT 'record.published' OR revision IS NOT 1
        OR content_sha256 IS NOT body_sha256""",
    "a publication has no record": """
        SELECT subject FROM history WHERE type = 'record.published' AND subject NOT IN (SELECT id FROM records)""",
    "a record's state is not what its last entry says": """
        SELECT id, state, type FROM records JOIN history ON subject = id
        WHERE revision = (SELECT max(revision) FROM history WHERE subject = id)
        AND state <> CASE type WHEN 'record.settled' THEN 'consumed' WHEN 'record.dead_lettered' THEN 'dead'
            WHEN 'record.claimed' THEN 'claimed' WHEN 'record.renewed' THEN 'claimed' ELSE 'ready' END""",
    "an epoch is not the number of claims": """
        SELECT id FROM records
        WHERE epoch <> (SELECT count(*) FROM history WHERE subject = id AND type = 'record.claimed')""",
    "a record was settled twice": """
        SELECT subject FROM history WHERE type = 'record.settled' GROUP BY subject HAVING count(*) > 1""",
    "a result of a receipt is missing or is nobody's child": """
        SELECT records.id FROM records, json_each(receipt, '$.results') AS result
        WHERE NOT EXISTS (SELECT 1 FROM record_parents WHERE child = result.value AND parent = records.id)
        OR NOT EXISTS (SELECT 1 FROM records AS other WHERE other.id = result.value)""",
    "lineage names a record that does not exist": """
        SELECT * FROM record_parents
        WHERE child NOT IN (SELECT id FROM records) OR parent NOT IN (SELECT id FROM records)""",
    "an awakeable's state is not what its last entry says": """
        SELECT id, state, type FROM awakeables JOIN history ON history.subject = id
        WHERE revision = (SELECT max(revision) FROM history AS other WHERE other.subject = id)
        AND state <> CASE type WHEN 'awakeable.minted' THEN 'pending' ELSE substr(type, 11) END""",
    "an awakeable has no history": "SELECT id FROM awakeables WHERE id NOT IN (SELECT subject FROM history)",
    "an idempotency key names a record that does not exist": """
        SELECT reference FROM idempotency, json_each(reference, '$.records') AS made
        WHERE made.value NOT IN (SELECT id FROM records)""",
}
"""What each query finds is a fault, and this is its name."""


@contextmanager
def opened(file: Path) -> Iterator[sqlite3.Connection]:
    """The database, to be read. SQLite first recovers what a crash left in the write-ahead log, as workerd would."""
    with closing(sqlite3.connect(file)) as connection:
        yield connection


def faults(file: Path) -> dict[str, list[Any]]:
    """Everything that is wrong with the database in this file."""
    with opened(file) as connection:
        found = {name: connection.execute(query).fetchmany(5) for name, query in NOTHING.items()}
        found["the file is damaged"] = [row for row in connection.execute("PRAGMA integrity_check") if row != ("ok",)]
        found["a batch or a settlement is in part"] = list(_in_part(connection))
    return {name: rows for name, rows in found.items() if rows}


def _in_part(connection: sqlite3.Connection) -> Iterator[tuple[str, int]]:
    """Operations whose records are not as many as the operation makes: fewer is half a write, more is a write done twice."""
    made: Counter[str] = Counter()
    for (body,) in connection.execute("SELECT body FROM records"):
        made[json.loads(body).get("operation", "")] += 1
    del made[""]
    for operation, count in made.items():
        expected = {"single": 1, "batch": BATCH}.get(operation.partition("-")[0], RESULTS)
        if count != expected:
            yield operation, count
