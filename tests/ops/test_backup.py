"""Backups on the host: what makes one, what each kind of damage is called, and who is fenced by a restore."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from moorage.api.app import build_app
from moorage.history.verify import verify as verify_chain
from moorage.kernel.instants import Instant
from moorage.messages.outbox.fan_out import OutboxFanOut
from moorage.store.directory import DirectoryBlobs, DirectoryFrontiers
from moorage.store.sqlite import connect
from ops.cli import assemble
from ops.failure import CommandFailed
from ops.local.state import StateFolder, StateUnusable
from ops.storage import contents, manifest
from ops.storage import restore as restoring
from ops.storage.account import prepare
from ops.storage.create import ROUNDS, BackupFailed, create
from ops.storage.fencing import Fenced, fence
from ops.storage.manifest import BackupInvalid, Manifest
from ops.storage.restore import RestoreFailed, restore
from ops.storage.verify import verify
from tests.unit.api.conftest import START, House, client_of, schema

__all__ = ["schema"]

pytestmark = pytest.mark.clause("store.backup")

NOW = Instant(START + 10_000)
OF_THE_INSTANT = {"at": 0, "updated_at": 0, "confirmed_at": 0, "wake_at": 0, "next_attempt_at": 0, "data": ""}
"""What two restores of one backup tell of themselves, and so differently."""


@dataclass
class HostSource:
    """The house as a source; `between` happens each time after the database was copied."""

    house: House
    bucket: Path
    between: list[Callable[[], None]] = field(default_factory=list)
    copies: int = 0

    def database(self, target: Path) -> None:
        with closing(sqlite3.connect(target)) as copy:
            self.house.connection.backup(copy)
        self.copies += 1
        if self.between:
            self.between.pop(0)()

    def object(self, key: str, target: Path) -> bool:
        try:
            shutil.copyfile(self.bucket / key, target)
        except FileNotFoundError:
            return False
        return True


@dataclass
class Scene:
    """A house with records in every state, two artifacts and a sealed history; what its holders hold."""

    source: HostSource
    claims: list[dict[str, Any]]
    digests: list[str]
    shredded: str


async def post(api: httpx.AsyncClient, path: str, **sent: Any) -> Any:
    answer = await api.post(path, **sent)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


async def _play(house: House) -> tuple[list[dict[str, Any]], list[str], str]:
    async with client_of(build_app(house.ports())) as api:
        assert (await api.put("/kinds/doc", json={"paths": {"n": "number"}, "claim": {"max_attempts": 1}})).status_code < 300
        for n in range(6):
            await post(api, "/records", json={"kind": "doc", "body": {"n": n}})
        claims = (await post(api, "/claims", json={"kind": "doc", "worker": "w", "limit": 3}))["claims"]
        done = claims.pop()
        await post(api, f"/claims/{done['record']['id']}/settle", json={"epoch": done["lease"]["epoch"]})
        digests = []
        for text in (b"one", b"two", b"three"):
            made = await post(api, "/artifacts", content=text, headers={"content-type": "text/plain"})
            digests.append((made["body"]["digest"], made["id"]))
        await post(api, "/seals")
        await post(api, "/records", json={"kind": "doc", "body": {"n": 9}})
    return claims, [digest for digest, _ in digests], digests[-1][1]


@pytest.fixture
def scene(schema: str, tmp_path: Path) -> Scene:
    bucket = tmp_path / "bucket"
    connection = connect(tmp_path / "live.sqlite")
    connection.executescript(schema)
    house = House(connection, blobs=DirectoryBlobs(bucket), frontiers=DirectoryFrontiers(bucket)).initialized()
    claims, digests, last = asyncio.run(_play(house))
    connection.execute(
        "INSERT INTO leases (key, epoch, owner, expires_at) VALUES ('k', 4, 'me', 9e15), ('free', 2, NULL, NULL)"
    )
    connection.execute(
        "INSERT INTO deliveries (delivery_id, subscription, destination, event_id, type, aggregate_id, position, generation,"
        " state, attempts, epoch, next_attempt_at, leased_until, occurred_at, created_at, body) VALUES"
        " ('sent', 's', 'd', 'e1', 't', 'a', 1, 1, 'pending', 1, 3, 9e12, 9e12, 1, 1, '{}'),"
        " ('waits', 's', 'd', 'e2', 't', 'a', 2, 1, 'pending', 1, 3, 9e12, NULL, 1, 1, '{}')"
    )
    return Scene(HostSource(house, bucket), claims, digests, last)


@pytest.fixture
def made(scene: Scene, tmp_path: Path) -> tuple[Path, Manifest]:
    folder = tmp_path / "backup"
    told, _ = create(scene.source, folder, NOW)
    return folder, told


def test_a_backup_holds_the_database_its_objects_and_a_manifest(scene: Scene, made: tuple[Path, Manifest]) -> None:
    folder, told = made
    last = scene.source.house.connection.execute("SELECT max(position), count(*) FROM history").fetchone()
    assert (told.position, told.rows["history"], told.rows["records"]) == (last[0], last[1], 10)
    assert told.objects == sorted(scene.digests)
    assert told.head is not None
    assert told.head.startswith(f"{last[0] - 1}:")
    assert manifest.read(folder) == told
    assert sorted(path.name for path in folder.iterdir()) == ["database.sqlite", "manifest.json", "objects", "recovery"]
    assert folder.stat().st_mode & 0o77 == 0
    assert verify(folder).faults == []


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("which", ["database", "object", "recovery"])
@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-1])])
def test_each_damaged_file_is_named(made: tuple[Path, Manifest], which: str, damage: Callable[[Path], None]) -> None:
    folder, told = made
    prefix = {"database": "database.sqlite", "object": "objects/", "recovery": "recovery/"}[which]
    path = next(one.path for one in told.files if one.path.startswith(prefix))
    damage(folder / path)
    faults = verify(folder).faults
    assert len(faults) == 1
    assert faults[0].startswith(path)
    done = CliRunner().invoke(assemble(["backup"]), ["backup", "verify", str(folder)])
    assert (done.exit_code, path in done.stderr) == (1, True)


def test_a_file_more_is_named(made: tuple[Path, Manifest]) -> None:
    (made[0] / "objects" / "more").write_text("x")
    assert verify(made[0]).faults == ["objects/more is not in the manifest"]


def test_without_a_manifest_it_is_no_restore_point(made: tuple[Path, Manifest], tmp_path: Path) -> None:
    (made[0] / "manifest.json").unlink()
    with pytest.raises(BackupInvalid, match="not completed"):
        verify(made[0])
    with pytest.raises(BackupInvalid, match="not completed"):
        restore(made[0], tmp_path / "state", NOW)
    assert not (tmp_path / "state").exists()


def rewritten(folder: Path, **members: Any) -> None:
    told = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**told, **members}))


@pytest.mark.parametrize(
    "members",
    [
        {"format": "moorage-backup-2"},
        {"files": [{"path": "../../etc/passwd", "size": 1, "sha256": "0" * 64}]},
        {"files": [{"path": "objects/../database.sqlite", "size": 1, "sha256": "0" * 64}]},
        {"files": []},
        {"files": [{"path": "database.sqlite"}]},
        {"files": 3},
        {"position": "9"},
        {"rows": None},
        {"head": "x"},
    ],
)
def test_a_manifest_that_is_none_is_refused(made: tuple[Path, Manifest], members: dict[str, Any]) -> None:
    rewritten(made[0], **members)
    with pytest.raises(BackupInvalid):
        verify(made[0])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_manifest_that_is_no_json_is_refused(made: tuple[Path, Manifest], content: bytes) -> None:
    (made[0] / "manifest.json").write_bytes(content)
    with pytest.raises(BackupInvalid):
        verify(made[0])


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ({"schema": 2}, "the backup has schema 2"),
        ({"record_format": 99}, "the backup has record format 99"),
        ({"position": 1}, "does not describe this database"),
        ({"rows": {}}, "does not describe this database"),
        ({"generation": 7}, "another recovery identity"),
        ({"head": f"3:{'0' * 64}"}, "history is broken at position 3"),
    ],
)
def test_a_manifest_of_another_database_is_refused(made: tuple[Path, Manifest], members: dict[str, Any], fault: str) -> None:
    rewritten(made[0], **members)
    assert any(fault in one for one in verify(made[0]).faults), verify(made[0]).faults


@pytest.mark.clause("history.seal")
def test_history_that_was_edited_is_no_restore_point(made: tuple[Path, Manifest]) -> None:
    folder, told = made
    with closing(sqlite3.connect(folder / "database.sqlite")) as database:
        database.execute("UPDATE history SET actor = 'other' WHERE position = 2")
        database.commit()
    described = manifest.described(folder, "database.sqlite")
    files = [described if one.path == described.path else one for one in told.files]
    rewritten(folder, files=[vars(one) for one in files])
    assert any("history is broken at position 2" in one for one in verify(folder).faults)


@pytest.mark.parametrize(
    "part", ["TRIGGER guard_audit_is_never_changed", "INDEX records_ready", "TRIGGER records_cease_ready", "TABLE scopes"]
)
def test_a_database_that_lost_a_part_of_its_schema_is_not_backed_up(scene: Scene, tmp_path: Path, part: str) -> None:
    scene.source.house.connection.execute(f"DROP {part}")
    with pytest.raises(BackupFailed, match=part.split()[1]):
        create(scene.source, tmp_path / "backup", NOW)
    assert not (tmp_path / "backup" / "manifest.json").exists()


def test_an_object_that_goes_away_meanwhile_makes_the_database_be_copied_again(scene: Scene, tmp_path: Path) -> None:
    async def shred() -> None:
        async with client_of(build_app(scene.source.house.ports())) as api:
            await post(api, f"/artifacts/{scene.shredded}/shred", json={"reason": "asked for"})
        (scene.source.bucket / "blobs" / scene.digests[-1]).unlink(missing_ok=True)

    scene.source.between = [lambda: asyncio.run(shred())]
    told, _ = create(scene.source, tmp_path / "backup", NOW)
    assert scene.source.copies == 2
    assert told.objects == sorted(scene.digests[:-1])
    assert verify(tmp_path / "backup").holds


def test_a_missing_object_fails_the_backup_by_name(scene: Scene, tmp_path: Path) -> None:
    (scene.source.bucket / "blobs" / scene.digests[0]).unlink()
    with pytest.raises(BackupFailed, match=f"blobs/{scene.digests[0]}"):
        create(scene.source, tmp_path / "backup", NOW)
    assert scene.source.copies == ROUNDS
    with pytest.raises(BackupInvalid):
        verify(tmp_path / "backup")


def test_a_damaged_object_fails_the_backup_by_name(scene: Scene, tmp_path: Path) -> None:
    (scene.source.bucket / "blobs" / scene.digests[0]).write_bytes(b"other")
    with pytest.raises(BackupFailed, match=f"blobs/{scene.digests[0]} is damaged"):
        create(scene.source, tmp_path / "backup", NOW)
    assert not (tmp_path / "backup" / "manifest.json").exists()


@pytest.mark.clause("store.recovery-identity")
@pytest.mark.parametrize("sql", ["DELETE FROM recovery", "UPDATE recovery SET confirmed_at = NULL"])
def test_unbound_storage_is_not_backed_up(scene: Scene, tmp_path: Path, sql: str) -> None:
    scene.source.house.connection.execute(sql)
    with pytest.raises(BackupFailed, match="bound to no recovery identity"):
        create(scene.source, tmp_path / "backup", NOW)


@pytest.mark.clause("store.recovery-identity")
def test_a_frontier_of_another_day_is_not_backed_up(scene: Scene, tmp_path: Path) -> None:
    [frontier] = (scene.source.bucket / "recovery").iterdir()
    frontier.write_bytes(b"{}")
    with pytest.raises(BackupFailed, match="not the object that the database is bound to"):
        create(scene.source, tmp_path / "backup", NOW)
    frontier.unlink()
    with pytest.raises(BackupFailed, match="is not in the bucket"):
        create(scene.source, tmp_path / "again", NOW)


def test_a_backup_goes_into_an_empty_folder_only(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "x").write_text("")
    with pytest.raises(BackupFailed, match="not empty"):
        create(scene.source, tmp_path / "backup", NOW)


def test_a_restore_takes_a_backup_that_holds_and_an_empty_folder(made: tuple[Path, Manifest], tmp_path: Path) -> None:
    (tmp_path / "used" / "d1").mkdir(parents=True)
    (tmp_path / "used" / "d1" / "x").write_text("")
    with pytest.raises(RestoreFailed, match="has storage already"):
        restore(made[0], tmp_path / "used", NOW)
    before = sorted(made[0].rglob("*"))
    for inside in (made[0], made[0] / "state", made[0] / "objects" / ".." / "x"):
        with pytest.raises(RestoreFailed, match="in the backup itself"):
            restore(made[0], inside, NOW)
    assert sorted(made[0].rglob("*")) == before
    flip(made[0] / "database.sqlite")
    with pytest.raises(RestoreFailed, match=r"no restore point: database\.sqlite"):
        restore(made[0], tmp_path / "state", NOW)
    assert not (tmp_path / "state" / "d1").exists()


@pytest.mark.parametrize("interrupted", ["_fence", "_put_objects"])
def test_what_an_interrupted_restore_left_is_opened_by_nobody(
    made: tuple[Path, Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    """Else a start would make and bind a fresh database in it, and everything would seem well."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    state = tmp_path / "state"
    with monkeypatch.context() as patched:
        patched.setattr(restoring, interrupted, stop)
        with pytest.raises(KeyboardInterrupt):
            restore(made[0], state, NOW)
    with pytest.raises(StateUnusable, match=r"restore into .* did not end"):
        StateFolder(state).open()
    with pytest.raises(CommandFailed):
        restore(made[0], state, NOW)


# --- fencing --------------------------------------------------------------------------------------------------------------


def fenced(made: tuple[Path, Manifest]) -> tuple[Path, Fenced]:
    async def work() -> Fenced:
        with contents.opened(made[0] / "database.sqlite") as snapshot:
            return await fence(snapshot, NOW, "0" * 64)

    return made[0] / "database.sqlite", asyncio.run(work())


async def settles(file: Path, bucket: Path, claim: dict[str, Any]) -> httpx.Response:
    house = House(connect(file), now=NOW, blobs=DirectoryBlobs(bucket), frontiers=DirectoryFrontiers(bucket))
    async with client_of(build_app(house.ports())) as api:
        return await api.post(f"/claims/{claim['record']['id']}/settle", json={"epoch": claim["lease"]["epoch"]})


@pytest.mark.clause("leases.fence")
def test_who_held_a_record_is_fenced_from_it(scene: Scene, made: tuple[Path, Manifest], tmp_path: Path) -> None:
    unfenced = tmp_path / "unfenced.sqlite"
    shutil.copyfile(made[0] / "database.sqlite", unfenced)
    held = scene.claims[0]
    # The counterpart: without fencing the old holder would go on.
    assert asyncio.run(settles(unfenced, scene.source.bucket, held)).status_code == 200
    file, who = fenced(made)
    assert (who.records, who.leases, who.guards) == (2, 1, 0)
    refused = asyncio.run(settles(file, scene.source.bucket, held))
    assert (refused.status_code, refused.json()["code"]) == (409, "LeaseFenced")


def rows(file: Path, sql: str, *values: Any) -> list[dict[str, Any]]:
    with closing(connect(file)) as connection:
        return [dict(row) for row in connection.execute(sql, values)]


@pytest.mark.clause("outbox.deliver")
def test_what_was_being_sent_is_sent_again_and_its_sender_is_fenced(made: tuple[Path, Manifest]) -> None:
    file, _ = fenced(made)
    told = rows(file, "SELECT delivery_id, epoch, attempts, next_attempt_at, leased_until FROM deliveries ORDER BY position")
    assert [tuple(one.values()) for one in told] == [("sent", 4, 1, NOW, None), ("waits", 4, 1, 9 * 10**12, None)]


async def told_of(house: House, publishing: int) -> dict[str, tuple[str, str]]:
    """Publish, tell of everything, and answer what was told: each event's bytes and what it is about, by its id."""
    async with client_of(build_app(house.ports())) as api:
        for n in range(publishing):
            await post(api, "/records", json={"kind": "doc", "body": {"n": n}})
        while await OutboxFanOut("shop").look_further(house.database(), house.now, "all"):
            pass
    found = house.connection.execute("SELECT event_id, body, aggregate_id FROM deliveries WHERE subscription = 'all'")
    return {row["event_id"]: (row["body"], row["aggregate_id"]) for row in found}


@pytest.mark.clause("outbox.deliver", "outbox.event-shape")
def test_no_event_of_a_restored_database_has_the_id_of_another(scene: Scene, tmp_path: Path) -> None:
    """Positions of history are given out again, and by two restores of one backup twice."""
    live = scene.source.house

    async def subscribe() -> None:
        async with client_of(build_app(live.ports())) as api:
            await api.put("/destinations/there", json={"url": "https://there.example/hook"})
            await api.put("/subscriptions/all", json={"types": ["*"], "destination": "there"})

    async def untold() -> str:
        async with client_of(build_app(live.ports())) as api:
            return str((await post(api, "/records", json={"kind": "doc", "body": {"n": 0}}))["id"])

    asyncio.run(subscribe())
    copied = asyncio.run(told_of(live, 3))
    record = asyncio.run(untold())
    create(scene.source, tmp_path / "backup", NOW)
    live.now = NOW
    timelines = [asyncio.run(told_of(live, 12))]
    for number in (1, 2):
        folder = tmp_path / f"backup-{number}"
        shutil.copytree(tmp_path / "backup", folder)
        with contents.opened(folder / "database.sqlite") as snapshot:
            asyncio.run(fence(snapshot, Instant(NOW + number), "0" * 64))
        file = folder / "database.sqlite"
        restored = House(connect(file), now=Instant(NOW + number), blobs=live.blobs, frontiers=live.frontiers)
        timelines.append(asyncio.run(told_of(restored, 12)))
        assert next(id_ for id_, (_, about) in timelines[-1].items() if about == record) == next(
            id_ for id_, (_, about) in timelines[0].items() if about == record
        ), "an entry of the copy is the same event, also where it is told later"
    positions = [{id_.rpartition("_")[0] for id_ in one} for one in timelines]
    assert len(positions[0] & positions[1] & positions[2]) >= len(copied) + 1 + 12, "positions were given out again"
    for one in timelines:
        assert copied.items() <= one.items()
        for other in timelines:
            shared = one.keys() & other.keys()
            assert one is other or len(shared) == len(copied) + 1
            assert {id_: one[id_] for id_ in shared} == {id_: other[id_] for id_ in shared}


def test_what_was_held_can_be_claimed_again_and_history_says_so(scene: Scene, made: tuple[Path, Manifest]) -> None:
    before = {one["record"]["id"]: one["lease"] for one in scene.claims}
    file, who = fenced(made)
    told = rows(file, "SELECT id, state, available, attempts, epoch, owner, claim, claimed_by, expires_at FROM records")
    for one in (row for row in told if row["id"] in before):
        assert (one["state"], one["available"], one["attempts"]) == ("ready", 1, before[one["id"]]["attempt"])
        assert one["epoch"] == before[one["id"]]["epoch"] + 1
        assert [one[name] for name in ("owner", "claim", "claimed_by", "expires_at")] == [None] * 4
    entries = rows(file, "SELECT subject, type, actor, data FROM history WHERE position > ?", made[1].position)
    assert [one["type"] for one in entries] == ["storage.restored", "record.fenced", "record.fenced"]
    assert {one["subject"] for one in entries[1:]} == before.keys()
    assert {one["actor"] for one in entries} == {"moorage:restore"}
    assert json.loads(entries[0]["data"])["generation"] == who.identity.generation == 2
    assert rows(file, "SELECT * FROM leases ORDER BY key") == [
        {"key": "free", "epoch": 3, "owner": None, "expires_at": None},
        {"key": "k", "epoch": 5, "owner": None, "expires_at": None},
    ]


@pytest.mark.clause("history.seal")
def test_the_chain_goes_on_over_a_restore(made: tuple[Path, Manifest]) -> None:
    file, _ = fenced(made)

    async def work() -> list[str]:
        with contents.opened(file) as snapshot:
            assert (await verify_chain(snapshot)).unsealed == 4
            return await contents.faults(snapshot, made[1].head)

    assert asyncio.run(work()) == []


@pytest.mark.clause("store.recovery-identity")
def test_a_restore_binds_the_next_generation(scene: Scene, made: tuple[Path, Manifest]) -> None:
    file, who = fenced(made)
    [row] = rows(file, "SELECT generation, object_sha256, confirmed_at FROM recovery")
    assert (row["generation"], row["object_sha256"], row["confirmed_at"]) == (2, who.identity.object_sha256, NOW)
    # The bucket that it came from is of the generation before.
    house = House(connect(file), blobs=None, frontiers=DirectoryFrontiers(scene.source.bucket))

    async def check() -> Any:
        async with client_of(build_app(house.ports())) as api:
            return (await api.get("/storage")).json()

    assert asyncio.run(check())["state"] == "object_differs"


def test_executions_and_guards_after_a_restore(scene: Scene, tmp_path: Path) -> None:
    live = scene.source.house.connection
    columns = (
        "execution_id, scope, body, host, runner, build, plan_reference, pins, run_id, attempt, epoch, owner, expires_at,"
        " wake_at, subject, opened_at, input_sha256, input_size, input"
    )
    for name, host, owner, wake in (("a", "worker", "r", 5), ("b", "remote", "h", 6), ("c", "worker", None, None)):
        live.execute(
            f"INSERT INTO executions ({columns}) VALUES (?, ?, 'b', ?, 'r', '', '', '{{}}', ?, 2, 7, ?, ?, ?, 'me', 1,"  # noqa: S608
            " '', 4, 'null')",
            [f"exe_{name}", name, host, f"run_{name}", owner, None if owner is None else 9e15, wake],
        )
    live.execute(
        "INSERT INTO guards (token, execution_id, run_id, scope, attempt, epoch, holder, label, input_sha256,"
        " idempotency_key, publication, admitted_at, since, scopes, lease_keys)"
        " VALUES ('grd_1', 'exe_a', 'run_a', 'a', 2, 7, 'hld_1', 'pay', '', 'key', 0, 1, 1, '[\"a\"]', '[]')"
    )
    live.execute("INSERT INTO guard_rows (row, token) VALUES ('scope:a', 'grd_1')")
    guards = [dict(row) for row in live.execute("SELECT * FROM guards")]
    told = create(scene.source, tmp_path / "backup", NOW)[0]
    file, who = fenced((tmp_path / "backup", told))
    assert (who.executions, who.guards) == (2, 1)
    found = rows(
        file, "SELECT execution_id, epoch, attempt, owner, expires_at, wake_at FROM executions ORDER BY execution_id"
    )
    assert found == [
        {"execution_id": "exe_a", "epoch": 8, "attempt": 3, "owner": None, "expires_at": None, "wake_at": NOW},
        {"execution_id": "exe_b", "epoch": 8, "attempt": 3, "owner": None, "expires_at": None, "wake_at": NOW},
        {"execution_id": "exe_c", "epoch": 8, "attempt": 2, "owner": None, "expires_at": None, "wake_at": None},
    ]
    assert rows(file, "SELECT * FROM guards") == guards
    assert rows(file, "SELECT * FROM guard_rows") == [{"row": "scope:a", "token": "grd_1"}]
    fenced_executions = rows(file, "SELECT subject FROM history WHERE type = 'execution.fenced' ORDER BY subject")
    assert [one["subject"] for one in fenced_executions] == ["exe_a", "exe_b"]


def test_a_backup_is_prepared_for_an_account(made: tuple[Path, Manifest], tmp_path: Path) -> None:
    target = tmp_path / "fenced"
    done = CliRunner().invoke(assemble(["backup"]), ["backup", "prepare", str(made[0]), "--to", str(target)])
    assert done.exit_code == 0, done.output
    commands = done.stdout.splitlines()
    assert len(commands) == len(made[1].objects) + 2
    assert commands[-1] == f"./moorage wrangler d1 execute moorage --remote --file {target}/restore.sql"
    assert commands[-2].startswith(
        f"./moorage wrangler r2 object put moorage-blobs/recovery/{made[1].identity}.json --remote"
    )
    imported = tmp_path / "imported.sqlite"
    with closing(sqlite3.connect(imported)) as database:
        database.executescript((target / "restore.sql").read_text())
    with pytest.raises(CommandFailed, match="is not empty"):
        prepare(made[0], target, NOW)
    expected, _ = fenced(made)
    for table in made[1].rows:
        old, new = (rows(file, f"SELECT * FROM {table}") for file in (expected, imported))  # noqa: S608
        assert [{**row, **OF_THE_INSTANT} for row in old] == [{**row, **OF_THE_INSTANT} for row in new], table

    async def check() -> list[str]:
        with contents.opened(imported) as snapshot:
            return await contents.faults(snapshot, made[1].head)

    assert asyncio.run(check()) == []
    [row] = rows(imported, "SELECT object_sha256 FROM recovery")
    assert manifest.described(target, "recovery.json").sha256 == row["object_sha256"]
    # The backup's own database was fenced above, and is no longer what its manifest describes.
    with pytest.raises(CommandFailed, match="no restore point"):
        prepare(made[0], tmp_path / "other", NOW)


def test_rows_that_an_import_does_not_take_are_counted(scene: Scene, tmp_path: Path) -> None:
    body = json.dumps({"text": "x" * 120_000})
    scene.source.house.connection.execute("UPDATE records SET body = ? WHERE state = 'consumed'", [body])
    create(scene.source, tmp_path / "backup", NOW)
    done = CliRunner().invoke(
        assemble(["backup"]), ["backup", "prepare", str(tmp_path / "backup"), "--to", str(tmp_path / "f")]
    )
    assert done.exit_code == 1
    assert "1 rows make longer statements" in done.stderr


def test_what_an_account_s_backup_would_run_is_shown() -> None:
    shown = CliRunner().invoke(assemble(["backup"]), ["backup", "create", "--to", "x", "--account", "--dry-run"])
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        "wrangler d1 export moorage --remote --output database.sql --skip-confirmation",
        "wrangler r2 object get moorage-blobs/blobs/<sha256> --remote --file objects/<sha256>",
        "wrangler r2 object get moorage-blobs/recovery/<identity>.json --remote --file recovery/<identity>.json",
    ]
    local = CliRunner().invoke(assemble(["backup"]), ["backup", "create", "--to", "x", "--dry-run"])
    assert local.exit_code == 2
