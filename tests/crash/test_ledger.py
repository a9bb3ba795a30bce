"""The ledger by which crashes are judged finds each fault: a database broken on purpose has that fault by name."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ops.setup import paths
from tests.crash.ledger import NOTHING, faults

WHOLE = """
INSERT INTO history (position, subject, revision, type, kind, actor, at, data, content_sha256) VALUES
    (1, 'kind:k', 1, 'kind.declared', NULL, 'root', 1, '{}', NULL),
    (2, 'r1', 1, 'record.published', 'k', 'root', 1, '{}', 'h'),
    (3, 'r1', 2, 'record.claimed', 'k', 'root', 1, '{}', NULL),
    (4, 'r1', 3, 'record.settled', 'k', 'root', 1, '{}', NULL),
    (5, 'r2', 1, 'record.published', 'k', 'root', 1, '{}', 'h'),
    (6, 'r3', 1, 'record.published', 'k', 'root', 1, '{}', 'h'),
    (7, 'a1', 1, 'awakeable.minted', NULL, 'root', 1, '{}', NULL);
INSERT INTO records (seq, id, kind, body, body_sha256, metadata, priority, state, available, created_at, created_by,
    attempts, epoch, ended_at, receipt) VALUES
    (2, 'r1', 'k', '{"operation":"single-1"}', 'h', '{}', 0, 'consumed', 0, 1, 'root', 1, 1, 1, '{"results":["r2","r3"]}'),
    (5, 'r2', 'k', '{"operation":"r1"}', 'h', '{}', 0, 'ready', 1, 1, 'root', 0, 0, NULL, NULL),
    (6, 'r3', 'k', '{"operation":"r1"}', 'h', '{}', 0, 'ready', 1, 1, 'root', 0, 0, NULL, NULL);
INSERT INTO record_parents (child, parent) VALUES ('r2', 'r1'), ('r3', 'r1');
INSERT INTO awakeables (id, token_sha256, state, metadata, created_at, created_by, deadline) VALUES
    ('a1', 't', 'pending', '{}', 1, 'root', 9);
INSERT INTO idempotency (subject, key, digest, reference, expires_at) VALUES ('root', 'k', 'd', '{"records":["r1"]}', 9);
"""

BREAKS = {
    "a precondition was left behind": "INSERT INTO preconditions DEFAULT VALUES",
    "a subject's revisions have gaps": "UPDATE history SET revision = 4 WHERE position = 4",
    "a revision stands before an earlier one": """
        UPDATE history SET revision = 13 WHERE position = 3;
        UPDATE history SET revision = 2 WHERE position = 4;
        UPDATE history SET revision = 3 WHERE position = 3""",
    "positions have gaps": "DELETE FROM history WHERE position = 1",
    "a record has no publication at its seq": "UPDATE history SET content_sha256 = 'other' WHERE position = 2",
    "a publication has no record": "DELETE FROM records WHERE id = 'r3'",
    "a record's state is not what its last entry says": "UPDATE history SET type = 'record.released' WHERE position = 4",
    "an epoch is not the number of claims": "UPDATE records SET epoch = 2 WHERE id = 'r1'",
    "a record was settled twice": "UPDATE history SET type = 'record.settled' WHERE position = 3",
    "a result of a receipt is missing or is nobody's child": "DELETE FROM record_parents WHERE child = 'r2'",
    "lineage names a record that does not exist": "INSERT INTO record_parents (child, parent) VALUES ('r1', 'r0')",
    "an awakeable's state is not what its last entry says": """
        UPDATE history SET type = 'awakeable.resolved' WHERE position = 7""",
    "an awakeable has no history": "DELETE FROM history WHERE position = 7",
    "an idempotency key names a record that does not exist": 'UPDATE idempotency SET reference = \'{"records":["r0"]}\'',
    "a batch or a settlement is in part": "UPDATE records SET body = '{\"operation\":\"batch-1\"}' WHERE id = 'r1'",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "database"
    with closing(sqlite3.connect(made)) as connection:
        for migration in sorted((paths.ROOT / "d1_schema").glob("*.sql")):
            connection.executescript(migration.read_text())
        connection.executescript(WHOLE)
    return made


def test_a_whole_database_has_no_fault(file: Path) -> None:
    assert faults(file) == {}
    assert BREAKS.keys() == {*NOTHING, "a batch or a settlement is in part"}


@pytest.mark.parametrize("fault", BREAKS)
def test_each_fault_is_found_by_its_name(file: Path, fault: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(BREAKS[fault])
        connection.commit()
    assert fault in faults(file)
