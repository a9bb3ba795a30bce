"""The play of records under faults: commits that fail or lose their answer, restarts and clock jumps.

A client that got no answer asks again, as the documentation says: under its key, with its turn, or as it stands. What it
gets then, and what is stored, is still what the model says.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from moorage.catalog.kinds import Kinds
from moorage.kernel.errors import IdempotencyConflict, MoorageError, StorageBindingUnavailable, Unauthenticated
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import IDEMPOTENCY_SECONDS
from moorage.records import sessions
from moorage.records.claim import Claims
from moorage.records.model import ClaimRef
from moorage.records.sessions import Turn
from moorage.store.directory import DirectoryBlobs
from moorage.store.ports import Database
from moorage.store.sqlite import connect
from moorage.store.transaction import Row, Scalar
from moorage.timers import clock
from tests.contract.adapters import SqliteStore, Store
from tests.contract.desk import WORKS, Desk, ref
from tests.contract.faults import Fault, FaultyDatabase, Plan
from tests.contract.record_model import CREDENTIALS, Judge, Play, Send

T = TypeVar("T")

FAULTS = (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.DUPLICATE)
How = Literal["key", "turn", "bare"]
HOW: tuple[How, ...] = ("key", "key", "turn", "bare")
ROUNDS = 20
COUNTED = ("lease_expired", "record_due")


@dataclass(frozen=True, slots=True)
class Trouble:
    """What one request meets: a fault each time it is sent, and what happens before it is sent again.

    `how` says what it is remembered by: a key, for a claim the turn of a session, or nothing.
    """

    faults: tuple[Fault, ...] = ()
    how: How = "key"
    wait: int = 0
    restart: bool = False

    @classmethod
    def some(cls, chance: random.Random) -> Self:
        """Trouble by chance, answers lost above all."""
        faults = chance.choices(FAULTS, weights=(1, 2, 1), k=chance.randrange(4))
        return cls(tuple(faults), chance.choice(HOW), chance.randrange(4), chance.random() < 0.3)


@dataclass(frozen=True, slots=True)
class Done:
    """A request that was done under a key, which a client may send again until the key is forgotten."""

    who: str | None
    name: str
    text: str
    send: Send[Any]
    until: Instant
    answer: Any


class FileStore(SqliteStore):
    """SQLite in a file, which a restart closes and opens again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.restart()

    def restart(self) -> None:
        self.connection.close()
        self.connection = connect(self.folder / "records.sqlite")
        # A restart is no loss of power: waiting for the disk would prove nothing here.
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.execute("PRAGMA journal_mode = MEMORY")
        self.blobs = DirectoryBlobs(self.folder)


class FaultyStore:
    """The store `inner`; the next Database it gives meets `faults`, commit by commit."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.name = inner.name
        self.blobs = inner.blobs
        self.frontiers = inner.frontiers
        self.faults: tuple[Fault, ...] = ()

    def db(self) -> Database:
        faults, self.faults = self.faults, ()
        return FaultyDatabase(self.inner.db(), Plan(commits=faults)) if faults else self.inner.db()

    async def sql(self, sql: str, *values: Scalar) -> list[Row]:
        return await self.inner.sql(sql, *values)

    async def sql_batch(self, statements: Sequence[str]) -> list[list[Row]]:
        return await self.inner.sql_batch(statements)

    async def damage_blob(self, sha256: str, content: bytes) -> None:
        await self.inner.damage_blob(sha256, content)


class FaultyPlay(Play):
    """A play whose requests meet trouble by chance; `seed` says which.

    `lost` counts, by request, the answers that were lost after the commit.
    """

    def __init__(self, desk: Desk, callers: dict[str, Any]) -> None:
        super().__init__(desk, callers)
        self.seed(0)
        self.done: list[Done] = []
        self.asked = 0
        self.sessions: dict[str, str] = {}
        self.lost: Counter[str] = Counter()

    @classmethod
    async def on(cls, store: Store) -> Self:
        """A play on this store, with a session open for each credential."""
        play = await cls.begin(Desk(FaultyStore(store)))
        await play.open_sessions()
        return play

    @property
    def store(self) -> FaultyStore:
        assert isinstance(self.desk.store, FaultyStore)
        return self.desk.store

    def seed(self, seed: int) -> None:
        """Let another row of troubles begin."""
        self.chance = random.Random(seed)
        self.trouble = Trouble.some(self.chance)

    def next_trouble(self) -> Trouble:
        """What this request meets; `trouble` is the next one's from now on."""
        trouble, self.trouble = self.trouble, Trouble.some(self.chance)
        return trouble

    async def open_sessions(self) -> None:
        for who in CREDENTIALS:
            if who not in self.model.revoked:
                session = await sessions.open_session(self.desk.db(), self.callers[who], self.desk.now)
                self.sessions[who] = session.id

    def pick(self, number: int) -> tuple[str, ClaimRef]:
        """As often as not a claim that may still be written under."""
        live = [one for one in self.claims if self.model.fence(one[0], self.desk.now, one[1]) is None]
        return live[-1 - number % len(live)] if live and number % 2 else super().pick(number)

    async def requeue(self, number: int) -> None:
        """As often as not of a dead letter."""
        dead = [place for place, one in enumerate(self.model.records.values()) if one.state == "dead"]
        await super().requeue(dead[number % len(dead)] if dead and number % 2 else number)

    async def claim(self, who: str, minimum: int, limit: int, seconds: int) -> None:
        """With leases that often outlast the trouble."""
        await super().claim(who, minimum, limit, seconds * 5)

    def claiming(self, who: str, match: dict[str, Any], limit: int, seconds: int) -> Send[Claims]:
        if self.trouble.how != "turn":
            return super().claiming(who, match, limit, seconds)
        turn = Turn(self.sessions[who], who, self.asked + 1, "claim")
        return lambda desk, key: desk.claim(match, who, limit, seconds, turn=turn)

    async def ask(self, who: str | None, name: str, send: Send[T], judge: Judge) -> T | None:
        """Send a request until it is answered. One that is remembered is carried out once however often it is sent."""
        trouble = self.next_trouble()
        self.asked += 1
        text, until = f"{name}-{self.asked}", after(self.desk.now, IDEMPOTENCY_SECONDS)
        keyed = trouble.how == "key"
        remembered = keyed or (trouble.how == "turn" and name == "claim")
        carried_out = False
        for fault in (*trouble.faults, Fault.NONE):
            if fault is Fault.DUPLICATE and name == "claim" and not remembered:
                fault = Fault.NONE
            try:
                answer, raised = await self._send(who, name, text if keyed else None, send, fault)
            except StorageBindingUnavailable:
                assert fault in (Fault.FAIL_BEFORE, Fault.FAIL_AFTER)
                if fault is Fault.FAIL_AFTER:
                    assert not (remembered and carried_out)
                    assert judge() is None
                    carried_out = True
                    self.lost[name] += 1
                if name == "claim" and not remembered:
                    # Whoever claims without a key never learns what it holds: the Clock gives it back.
                    return None
                await self._meanwhile(trouble)
                continue
            assert raised is (None if remembered and carried_out else judge())
            if keyed and raised is None:
                self.done.append(Done(who, name, text, send, until, answer))
            return answer
        raise AssertionError("the last sending meets no fault")

    async def _send(
        self, who: str | None, name: str, text: str | None, send: Send[T], fault: Fault
    ) -> tuple[T | None, type[Exception] | None]:
        desk = self.by(who)
        key = None if text is None else desk.key(text, name)
        self.store.faults = (fault,)
        try:
            return await send(desk, key), None
        except StorageBindingUnavailable:
            raise
        except MoorageError as error:
            return None, type(error)

    async def _meanwhile(self, trouble: Trouble) -> None:
        self.desk.pass_time(trouble.wait)
        if trouble.restart:
            self.restart()

    def restart(self) -> None:
        """The runtime starts again on what is stored; where the store is a file, on the file opened anew."""
        if isinstance(self.store.inner, FileStore):
            self.store.inner.restart()
        self.store.blobs = self.store.inner.blobs
        self.desk.kinds = Kinds()

    async def fire(self) -> None:
        """The alarm, which comes again when it was told to, until nothing is set aside."""
        trouble = self.next_trouble()
        lost = sum(fault is not Fault.DUPLICATE for fault in trouble.faults)
        expected: Counter[str] = Counter()
        fired: Counter[str] = Counter()
        self.store.faults = trouble.faults
        again, rounds = True, 0
        while again:
            rounds += 1
            expected.update(self.model.fire(self.desk.now))
            drained = await clock.drain(self.store.db, self.desk.now, WORKS)
            fired.update(drained.fired)
            aside = await self.store.sql("SELECT 1 FROM due_failures")
            again = bool(aside) or drained.interrupted is not None
            if again:
                assert lost
                self.lost["fire"] += Fault.FAIL_AFTER in trouble.faults
                assert drained.next_due is not None
                self.desk.now = max(self.desk.now, drained.next_due)
                await self._meanwhile(trouble)
        self._counted(expected, fired, lost)

    def _counted(self, expected: Counter[str], fired: Counter[str], lost: int) -> None:
        """Each item fired once; of those whose answer was lost the Clock cannot tell."""
        missing = {name: expected[name] - fired[name] for name in COUNTED}
        assert all(count >= 0 for count in missing.values()), missing
        assert sum(missing.values()) <= lost, missing

    async def jump(self, seconds: int, in_time: bool) -> None:
        """The clock jumps ahead; what fell due on the way fires at the end, or `in_time` each at its own instant."""
        start = self.desk.now
        self.desk.pass_time(seconds)
        run = clock.advance(self.store.db, start, self.desk.now, WORKS) if in_time else None
        drained = await (run or clock.drain(self.store.db, self.desk.now, WORKS))
        assert not drained.failed
        assert drained.interrupted is None
        self._counted(Counter(self.model.fire(self.desk.now)), Counter(drained.fired), 0)
        await self.open_sessions()

    async def repeat(self, number: int, changed: bool) -> None:
        """A request of some time ago arrives again: it changes nothing, and with other content it is a conflict."""
        self.done = [one for one in self.done if self.desk.now < one.until]
        if not self.done:
            return
        one = self.done[-1 - number % len(self.done)]
        # A settlement that this claim had made before is answered by its receipt, and binds no other key.
        changed = changed and one.name != "settle"
        answer, raised = await self._send(one.who, "other" if changed else one.name, one.text, one.send, Fault.NONE)
        if one.who in self.model.revoked:
            assert raised is Unauthenticated
            return
        assert raised is (IdempotencyConflict if changed else None)
        if isinstance(answer, Claims):
            assert {ref(held) for held in answer} <= {ref(held) for held in one.answer}
