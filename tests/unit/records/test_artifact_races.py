"""Uploads, shreds, deletions and sweeps of equal bytes in whatever order: no live artifact ever lacks its bytes."""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from moorage.blobs import statements
from moorage.blobs.due import AbandonedUploads, BlobDeletions, BlobSweep
from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.kernel.errors import ArtifactShredded, BlobBusy, BlobMissing
from moorage.kernel.instants import Instant
from moorage.records.artifacts import content, shred
from moorage.records.artifacts.model import Upload
from moorage.records.artifacts.upload import Uploading
from moorage.store.directory import DirectoryBlobs
from moorage.store.ports import ByteStream, Cost, Database, HeldBytes, StoredBlob
from moorage.store.transaction import Reading, Transaction
from moorage.timers import clock
from moorage.timers.due import DueWork
from tests.contract.adapters import SqliteStore, sqlite_store

Result = TypeVar("Result")

# Every object is older than the sweep's grace by this clock.
NOW = Instant(4_000_000_000_000)
ROOT = Caller("root")
BYTES = b"equal bytes"
DIGEST = hashlib.sha256(BYTES).hexdigest()


class Chance:
    """Lets others go first, a number of times that the seed decides, before and after each call of a port."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    async def between(self, call: Callable[[], Awaitable[Result]], longest: int = 6) -> Result:
        await self.pause(longest)
        answer = await call()
        await self.pause(longest)
        return answer

    async def pause(self, longest: int) -> None:
        for _ in range(self._random.randrange(longest)):
            await asyncio.sleep(0)

    def choose(self, among: Sequence[str]) -> str:
        return self._random.choice(among)


class Unsteady(DirectoryBlobs):
    """A bucket whose requests take their time."""

    def __init__(self, root: Path, chance: Chance) -> None:
        super().__init__(root)
        self._chance = chance

    async def put_stream(self, content: ByteStream, sha256: str) -> None:
        stored = super().put_stream
        await self._chance.between(lambda: stored(content, sha256))

    async def adopt(self, name: str, sha256: str) -> None:
        adopted = super().adopt
        await self._chance.between(lambda: adopted(name, sha256))

    async def delete(self, sha256: str) -> None:
        deleted = super().delete
        await self._chance.between(lambda: deleted(sha256), longest=60)

    async def page(self, after: str, limit: int) -> Sequence[StoredBlob]:
        listed = super().page
        return await self._chance.between(lambda: listed(after, limit))


class UnsteadyDatabase:
    """A database whose round trips take their time."""

    def __init__(self, db: Database, chance: Chance) -> None:
        self._db = db
        self._chance = chance
        self.cost: Cost = db.cost

    async def read(self, reading: Reading) -> None:
        await self._chance.between(lambda: self._db.read(reading))

    async def commit(self, transaction: Transaction) -> None:
        await self._chance.between(lambda: self._db.commit(transaction))

    async def initialize(self, statements: list[str]) -> None:
        await self._db.initialize(statements)


class Harbour:
    """One store, and what happens to equal bytes in it."""

    def __init__(self, store: SqliteStore, folder: Path, chance: Chance) -> None:
        self._store = store
        self._chance = chance
        self._kinds = Kinds()
        self.blobs = Unsteady(folder, chance)
        self.live: set[str] = set()

    def db(self) -> Database:
        return UnsteadyDatabase(self._store.db(), self._chance)

    async def upload(self, known: bool = True) -> str:
        uploading = Uploading(self.db(), self.blobs, self._kinds, ROOT, lambda: NOW)
        upload = Upload(len(BYTES), digest=DIGEST if known else None)
        made = await uploading.run(upload, HeldBytes(BYTES), lambda _: None)
        self.live.add(made.record.id)
        return made.record.id

    async def upload_and_shred(self) -> None:
        await self.shred(await self.upload(known=False))

    async def shred(self, record: str) -> None:
        self.live.discard(record)
        await shred.shred(self.db(), self.blobs, self._kinds, ROOT, NOW, record, "chance")

    async def sweep(self) -> None:
        await self._store.sql("UPDATE blob_sweep SET due_at = ?, after = ''", str(NOW))
        works: list[DueWork] = [AbandonedUploads(), BlobDeletions(self.blobs), BlobSweep(self.blobs)]
        await clock.drain(self.db, NOW, works)

    async def read(self, record: str) -> bytes:
        found = await content.show(self.db(), self._kinds, ROOT, NOW, record)
        return b"".join([piece async for piece in await content.read(self.db(), self.blobs, found)])

    async def happen(self, times: int) -> None:
        """One after the other, what chance chooses."""
        for _ in range(times):
            what = self._chance.choose(["upload", "shred", "shred", "sweep"])
            with suppress(BlobBusy):
                if what == "upload":
                    await self.upload()
                elif what == "shred":
                    await self.upload_and_shred()
                else:
                    await self.sweep()
            await self.look()

    async def look(self) -> None:
        """Whatever is alive has its bytes; what is shredded just now may say so."""
        for record in sorted(self.live):
            try:
                assert await self.read(record) == BYTES
            except ArtifactShredded:
                assert record not in self.live


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with sqlite_store(tmp_path / "unused") as fresh:
        yield fresh


async def play(store: SqliteStore, bucket: Path, seed: int) -> None:
    """A few rounds of chance; after each, whatever is alive is read."""
    chance = Chance(seed)
    harbour = Harbour(store, bucket, chance)
    await harbour.upload_and_shred()
    for _ in range(3):
        await asyncio.gather(*(harbour.happen(3) for _ in range(4)))
        await harbour.look()
        for record in list(harbour.live)[1:]:
            await harbour.shred(record)
    for record in list(harbour.live):
        await harbour.shred(record)
    await harbour.sweep()
    assert [one async for one in harbour.blobs.list()] == []


@pytest.mark.clause("artifacts.shred", "blobs.order", "blobs.sweep")
@pytest.mark.parametrize("seed", range(20))
async def test_no_live_artifact_lacks_its_bytes(store: SqliteStore, tmp_path: Path, seed: int) -> None:
    await play(store, tmp_path / "bucket", seed)


@pytest.mark.clause("store.negative-controls")
@pytest.mark.parametrize("rule", ["IS_NOT_BEING_DELETED", "PLAN_DELETION"])
async def test_the_game_finds_a_house_without_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    broken = {
        "IS_NOT_BEING_DELETED": "SELECT 1",
        "PLAN_DELETION": "INSERT INTO blob_deletions (sha256, due_at) VALUES (:sha256, :now) ON CONFLICT DO NOTHING",
    }
    monkeypatch.setattr(statements, rule, broken[rule])
    with pytest.raises(BlobMissing):
        await play_all(tmp_path, range(40))


async def play_all(folder: Path, seeds: Iterable[int]) -> None:
    """The game with one seed after the other, each in a house of its own."""
    for seed in seeds:
        async with sqlite_store(folder / "unused") as store:
            await play(store, folder / f"bucket{seed}", seed)
