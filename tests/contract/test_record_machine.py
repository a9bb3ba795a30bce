"""Random sequences of everything that can happen to records, against a model of a few lines."""

import asyncio
import random
import tempfile
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moorage.kernel.errors import (
    LeaseExpired,
    LeaseFenced,
    MoorageError,
    RecordEnded,
    RecordNotDead,
    SettlementConflict,
    Unauthenticated,
)
from moorage.kernel.instants import after
from moorage.records.model import ClaimRef, Draft
from tests.contract.adapters import SqliteStore, sqlite_store
from tests.contract.desk import KIND, POLICY, Desk, grant, ref

T = TypeVar("T")

DELAYS = (1, 2)
MAX_ATTEMPTS = POLICY["max_attempts"]
CREDENTIALS = ("ann", "ben")


@dataclass
class Known:
    """What the model knows of a record."""

    id: str
    order: int
    size: int
    priority: int
    state: str = "ready"
    not_before: int | None = None
    attempts: int = 0
    epoch: int = 0
    holder: str | None = None
    expires_at: int = 0
    expired: bool = False
    settled_with: int | None = None

    def end(self, now: int, delay: int | None) -> None:
        """The attempt ends: ready again after `delay` seconds, or dead when it is None or the last."""
        dead = delay is None or self.attempts >= MAX_ATTEMPTS
        self.state = "dead" if dead else "ready"
        self.not_before = now + delay * 1000 if delay and not dead else None


@dataclass
class Model:
    """All records, who may still write, and what each operation must answer."""

    records: dict[str, Known] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)

    def publish(self, name: str, size: int, priority: int, not_before: int | None) -> None:
        self.records[name] = Known(name, len(self.records), size, priority, not_before=not_before)

    def take(self, who: str, now: int, minimum: int, limit: int, seconds: int) -> list[str] | type[Exception]:
        if who in self.revoked:
            return Unauthenticated
        ready = [one for one in self.records.values() if one.state == "ready" and one.not_before is None]
        matching = sorted((one for one in ready if one.size >= minimum), key=lambda one: (-one.priority, one.order))
        for one in matching[:limit]:
            one.state, one.holder, one.expired = "claimed", who, False
            one.attempts, one.epoch, one.expires_at = one.attempts + 1, one.epoch + 1, now + seconds * 1000
        return [one.id for one in matching[:limit]]

    def fence(self, who: str, now: int, held: ClaimRef) -> type[Exception] | None:
        """What a write under this claim must raise."""
        one = self.records[held.record]
        if who in self.revoked:
            return Unauthenticated
        if one.epoch != held.epoch or one.holder != who:
            return LeaseFenced
        if one.state == "claimed":
            return LeaseExpired if one.expires_at <= now else None
        return LeaseExpired if one.expired else LeaseFenced

    def settle(self, who: str, now: int, held: ClaimRef, result: int) -> type[Exception] | None:
        one = self.records[held.record]
        refusal = self.fence(who, now, held)
        mine = one.state == "consumed" and one.holder == who and one.epoch == held.epoch
        if refusal is LeaseFenced and mine:
            return None if one.settled_with == result else SettlementConflict
        if refusal is None:
            one.state, one.settled_with = "consumed", result
        return refusal

    def fire(self, now: int) -> dict[str, int]:
        fired = {"lease_expired": 0, "record_due": 0}
        for one in self.records.values():
            if one.state == "claimed" and one.expires_at <= now:
                fired["lease_expired"] += 1
                one.end(now, 0)
                one.expired = True
            elif one.state == "ready" and one.not_before is not None and one.not_before <= now:
                fired["record_due"] += 1
                one.not_before = None
        return {name: count for name, count in fired.items() if count}


class Play:
    """One operation at a time, on the desk and on the model; they must agree."""

    def __init__(self, desk: Desk, callers: dict[str, Any]) -> None:
        self.desk = desk
        self.callers = callers
        self.model = Model()
        self.claims: list[tuple[str, ClaimRef]] = []
        self.published = 0

    @classmethod
    async def begin(cls, desk: Desk) -> "Play":
        await desk.declare()
        return cls(desk, {name: await desk.credential(name, grant("claim", "publish", "read")) for name in CREDENTIALS})

    def by(self, who: str) -> Desk:
        return self.desk.seen_by(self.callers[who])

    async def _expect(self, work: Coroutine[Any, Any, T], refusal: type[Exception] | None) -> T | None:
        answer, raised = None, None
        try:
            answer = await work
        except MoorageError as error:
            raised = type(error)
        assert raised is refusal
        return answer

    async def publish(self, sizes: list[tuple[int, int, int | None]]) -> None:
        now = self.desk.now
        drafts = []
        for size, priority, delay in sizes:
            self.published += 1
            when = None if delay is None else after(now, delay)
            drafts.append(Draft(KIND, {"size": size}, priority=priority, not_before=when, id=f"r{self.published}"))
            self.model.publish(f"r{self.published}", size, priority, when if delay else None)
        await self.desk.publish_all(drafts)

    async def claim(self, who: str, minimum: int, limit: int, seconds: int) -> None:
        expected = self.model.take(who, self.desk.now, minimum, limit, seconds)
        work = self.by(who).claim({"size": {"$gte": minimum}}, who, limit, seconds)
        if isinstance(expected, type):
            await self._expect(work, expected)
            return
        taken = await work
        assert [one.record.id for one in taken] == expected
        self.claims += [(who, ref(one)) for one in taken]

    def pick(self, number: int) -> tuple[str, ClaimRef]:
        """One of the claims that were ever made, counted from the last."""
        return self.claims[-1 - number % len(self.claims)]

    async def renew(self, who: str, held: ClaimRef, seconds: int) -> None:
        refusal = self.model.fence(who, self.desk.now, held)
        lease = await self._expect(self.by(who).renew(held, seconds), refusal)
        if lease is not None:
            one = self.model.records[held.record]
            one.expires_at = max(one.expires_at, self.desk.now + seconds * 1000)
            assert lease.expires_at == one.expires_at

    async def release(self, who: str, held: ClaimRef) -> None:
        refusal = self.model.fence(who, self.desk.now, held)
        await self._expect(self.by(who).release(held), refusal)
        if refusal is None:
            one = self.model.records[held.record]
            one.state, one.holder, one.attempts = "ready", None, one.attempts - 1

    async def settle(self, who: str, held: ClaimRef, result: int) -> None:
        refusal = self.model.settle(who, self.desk.now, held, result)
        done = await self._expect(self.by(who).settle(held, Draft(KIND, {"result": result})), refusal)
        if done is not None:
            [child] = done.results
            if child.id not in self.model.records:
                self.model.publish(child.id, -1, 0, None)

    async def fail(self, who: str, held: ClaimRef, delay: int | None, dead: bool) -> None:
        refusal = self.model.fence(who, self.desk.now, held)
        failed = await self._expect(self.by(who).fail(held, retry=delay, dead=dead), refusal)
        if failed is not None:
            one = self.model.records[held.record]
            own = DELAYS[min(one.attempts, len(DELAYS)) - 1] if delay is None else delay
            one.end(self.desk.now, None if dead else own)
            assert failed.state == one.state

    async def requeue(self, number: int) -> None:
        if not self.model.records:
            return
        one = list(self.model.records.values())[number % len(self.model.records)]
        refusal = None if one.state == "dead" else RecordNotDead
        await self._expect(self.desk.requeue(one.id), refusal)
        if refusal is None:
            one.state, one.attempts, one.not_before, one.expired = "ready", 0, None, False

    async def cancel(self, number: int) -> None:
        if not self.model.records:
            return
        one = list(self.model.records.values())[number % len(self.model.records)]
        refusal = RecordEnded if one.state in ("consumed", "dead") else None
        canceled = await self._expect(self.desk.cancel(one.id), refusal)
        if canceled is not None:
            one.state, one.not_before, one.expired = "dead", None, False
            assert canceled.state == "dead"

    async def fire(self) -> None:
        assert await self.desk.fire() == self.model.fire(self.desk.now)

    async def revoke(self, who: str) -> None:
        self.model.revoked.add(who)
        await self.desk.store.sql("UPDATE credentials SET revoked_at = CAST(? AS INTEGER) WHERE subject = ?", 1, who)

    async def agrees(self) -> None:
        """Every row is what the model says, and what history tells."""
        rows = await self.desk.store.sql("SELECT id, state, attempts, epoch, available, expires_at, not_before FROM records")
        stored = {
            row["id"]: (
                row["state"],
                row["attempts"],
                row["epoch"],
                row["expires_at"],
                row["not_before"] if row["state"] == "ready" and not row["available"] else None,
            )
            for row in rows
        }
        assert stored == {
            one.id: (
                one.state,
                one.attempts,
                one.epoch,
                one.expires_at if one.state == "claimed" else None,
                one.not_before if one.state == "ready" else None,
            )
            for one in self.model.records.values()
        }
        await self.desk.history_agrees()


class RecordMachine(RuleBasedStateMachine):
    """Hypothesis chooses what happens next."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.opened: AbstractAsyncContextManager[SqliteStore] = sqlite_store(Path(self.folder.name))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize()
    def open(self) -> None:
        self.play = self.run(Play.begin(Desk(self.run(self.opened.__aenter__()))))
        self.publish([(size, 0, None) for size in (0, 1, 2, 3)] * 2)
        for who in CREDENTIALS:
            self.claim(who, 1, 2, 3)

    def teardown(self) -> None:
        self.run(self.opened.__aexit__(None, None, None))
        self.loop.close()
        self.folder.cleanup()

    sizes = st.tuples(st.integers(0, 3), st.integers(-1, 1), st.none() | st.integers(0, 3))
    who = st.sampled_from(CREDENTIALS)
    number = st.integers(0, 50)

    @rule(sizes=st.lists(sizes, min_size=1, max_size=3))
    def publish(self, sizes: list[tuple[int, int, int | None]]) -> None:
        self.run(self.play.publish(sizes))

    @rule(who=who, minimum=st.integers(0, 3), limit=st.integers(1, 3), seconds=st.integers(1, 4))
    def claim(self, who: str, minimum: int, limit: int, seconds: int) -> None:
        self.run(self.play.claim(who, minimum, limit, seconds))

    @precondition(lambda self: self.play.claims)
    @rule(number=number, seconds=st.integers(1, 4))
    def renew(self, number: int, seconds: int) -> None:
        self.run(self.play.renew(*self.play.pick(number), seconds))

    @precondition(lambda self: self.play.claims)
    @rule(number=number)
    def release(self, number: int) -> None:
        self.run(self.play.release(*self.play.pick(number)))

    @precondition(lambda self: self.play.claims)
    @rule(number=number, result=st.integers(0, 1))
    def settle(self, number: int, result: int) -> None:
        self.run(self.play.settle(*self.play.pick(number), result))

    @precondition(lambda self: self.play.claims)
    @rule(number=number, delay=st.none() | st.integers(0, 3), dead=st.booleans())
    def fail(self, number: int, delay: int | None, dead: bool) -> None:
        self.run(self.play.fail(*self.play.pick(number), delay, dead))

    @precondition(lambda self: self.play.claims)
    @rule(number=number, who=who)
    def write_with_a_foreign_claim(self, number: int, who: str) -> None:
        self.run(self.play.renew(who, self.play.pick(number)[1], 1))

    @rule(number=number)
    def requeue(self, number: int) -> None:
        self.run(self.play.requeue(number))

    @rule(number=number)
    def cancel(self, number: int) -> None:
        self.run(self.play.cancel(number))

    @rule(seconds=st.integers(1, 3))
    def pass_time(self, seconds: int) -> None:
        self.play.desk.pass_time(seconds)

    @rule()
    def fire(self) -> None:
        self.run(self.play.fire())

    @precondition(lambda self: len(self.play.claims) > 9)
    @rule()
    def revoke(self) -> None:
        self.run(self.play.revoke("ben"))

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "play"):
            self.run(self.play.agrees())


RecordMachine.TestCase.settings = settings(
    max_examples=50,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.clause("records.claim", "records.settle", "records.fail", "records.recover", "leases.fence", "history.append")
class TestRecordMachine(RecordMachine.TestCase):  # type: ignore[valid-type,misc]
    """The machine as a test."""


async def one_step(play: Play, chance: random.Random) -> None:
    """One thing that happens, by chance."""
    choice = chance.randrange(10)
    if choice == 0 or not play.model.records:
        sizes = [(chance.randrange(4), chance.randrange(3) - 1, chance.choice([None, 0, 1, 2])) for _ in range(3)]
        await play.publish(sizes)
    elif choice in (1, 2) or not play.claims:
        await play.claim(chance.choice(CREDENTIALS), chance.randrange(3), chance.randrange(1, 4), chance.randrange(1, 5))
    elif choice == 3:
        play.desk.pass_time(chance.randrange(1, 3))
    elif choice == 4:
        await play.fire()
    elif choice == 5:
        await play.requeue(chance.randrange(50))
    else:
        who, held = chance.choice(play.claims[-6:])
        match choice:
            case 6:
                await play.renew(who, held, chance.randrange(1, 5))
            case 7:
                await play.release(who, held)
            case 8:
                await play.settle(who, held, chance.randrange(2))
            case _:
                await play.fail(who, held, chance.choice([None, 0, 2]), chance.random() < 0.3)


@pytest.mark.clause("records.claim", "records.settle", "records.fail", "records.recover", "leases.fence", "history.append")
async def test_a_random_walk_agrees_with_the_model(store: Any) -> None:
    play = await Play.begin(Desk(store))
    chance = random.Random(7)
    for number in range(120):
        await one_step(play, chance)
        if number % 10 == 9:
            await play.agrees()
    await play.revoke("ben")
    for _ in range(10):
        await one_step(play, chance)
    await play.agrees()
