"""The storage of the local edge: bound by the start that makes it and by no other, and read by wrangler as an account's."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from moorage.kernel.instants import Instant
from ops.local.edge import LocalEdge
from ops.setup import paths
from ops.storage.create import create
from ops.storage.sources import Wrangler
from ops.storage.verify import verify
from tests.edge.client import client, declare, fresh, good
from tests.edge.edges import EdgeFactory

pytestmark = pytest.mark.edge

HELLO = {"body": "hello", "input": {"name": "world"}}


@pytest.fixture
def own(edge_factory: EdgeFactory, tmp_path: Path) -> Iterator[LocalEdge]:
    edge = edge_factory(state=tmp_path / "live", start=False)
    yield edge
    edge.stop()


def sql(edge: LocalEdge, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(edge.d1_path(), isolation_level=None)) as database:
        return database.execute(statement).fetchall()


def stands(edge: LocalEdge) -> tuple[str, int]:
    """How the storage stands, and what a run is answered."""
    with client(edge) as api:
        return good(api.get("/storage"))["state"], api.post("/runs", json=HELLO).status_code


@pytest.mark.clause("store.recovery-identity")
def test_only_the_start_that_makes_the_storage_binds_it(own: LocalEdge, capsys: pytest.CaptureFixture[str]) -> None:
    own.start()
    assert stands(own) == ("bound", 202)
    own.stop()
    # A database without its row beside the bucket: half of a restore. A start changes nothing of it.
    sql(own, "DELETE FROM recovery")
    own.start()
    assert stands(own) == ("row_missing", 503)
    with client(own) as api:
        kind = declare(api, fresh("kind"))
        good(api.post("/records", json={"kind": kind, "body": {}}))
    assert sql(own, "SELECT count(*) FROM recovery") == [(0,)]
    own.stop()
    # The same, found by a start that was to bind it: it serves, and says what is wrong.
    (own.config.state / "to-be-set-up").write_text("")
    own.start()
    assert stands(own) == ("row_missing", 503)
    assert "--give-up rcv_" in capsys.readouterr().err
    own.stop()


@pytest.mark.clause("store.recovery-identity")
def test_a_start_that_was_interrupted_before_it_bound_the_storage_is_made_good_by_the_next(own: LocalEdge) -> None:
    own.start()
    own.stop()
    sql(own, "UPDATE recovery SET confirmed_at = NULL")
    (own.config.state / "to-be-set-up").write_text("")
    own.start()
    assert stands(own) == ("bound", 202)
    assert not (own.config.state / "to-be-set-up").exists()


@pytest.mark.clause("store.backup")
def test_wrangler_reads_what_a_backup_needs(own: LocalEdge, tmp_path: Path) -> None:
    own.start()
    with client(own) as api:
        kind = declare(api, fresh("kind"))
        made = good(api.post("/records", json={"kind": kind, "body": {"text": 'it\'s; -- "é"\n\U0001f600'}}))
        good(api.post("/artifacts", content=b"\x00bytes", headers={"content-type": "application/octet-stream"}))
        good(api.post("/seals"))
    own.stop()
    # wrangler looks for local storage beside its configuration.
    config = tmp_path / "led" / "wrangler.toml"
    (config.parent / ".wrangler" / "state").mkdir(parents=True)
    (config.parent / ".wrangler" / "state" / "v3").symlink_to(own.config.state)
    shutil.copyfile(paths.ROOT / "wrangler.toml", config)
    source = Wrangler(config, ("--local",))
    told, _ = create(source, tmp_path / "backup", Instant(1_796_000_000_000))
    assert len(told.objects) == 1
    assert verify(tmp_path / "backup").faults == []
    with closing(sqlite3.connect(tmp_path / "backup" / "database.sqlite")) as copy:
        assert copy.execute("SELECT body FROM records WHERE id = ?", [made["id"]]).fetchall() == sql(
            own,
            f"SELECT body FROM records WHERE id = '{made['id']}'",  # noqa: S608
        )
