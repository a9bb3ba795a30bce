"""The reference model of the records room in a few lines, and the play that sets it beside the room, request by request."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from moorage.idempotency.keys import Key
from moorage.kernel.errors import (
    LeaseExpired,
    LeaseFenced,
    MoorageError,
    RecordEnded,
    RecordExists,
    RecordNotDead,
    SettlementConflict,
    Unauthenticated,
)
from moorage.kernel.instants import after
from moorage.records.claim import Claims
from moorage.records.model import ClaimRef, Draft
from tests.contract.desk import KIND, POLICY, Desk, grant, ref

T = TypeVar("T")

Send = Callable[[Desk, Key | None], Coroutine[Any, Any, T]]
"""One request, from a desk and under a key."""

Judge = Callable[[], type[Exception] | None]
"""What the model does on a request that is carried out: the refusal, or None and the model is changed."""

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
    async def begin(cls, desk: Desk) -> Self:
        await desk.declare()
        return cls(desk, {name: await desk.credential(name, grant("claim", "publish", "read")) for name in CREDENTIALS})

    def by(self, who: str | None) -> Desk:
        """The desk as a credential sees it; None is the root."""
        return self.desk if who is None else self.desk.seen_by(self.callers[who])

    async def ask(self, who: str | None, name: str, send: Send[T], judge: Judge) -> T | None:
        """One request: what `judge` says while it changes the model is what the room must raise."""
        return await self.expect(send(self.by(who), None), judge())

    async def expect(self, work: Coroutine[Any, Any, T], refusal: type[Exception] | None) -> T | None:
        answer, raised = None, None
        try:
            answer = await work
        except MoorageError as error:
            raised = type(error)
        assert raised is refusal
        return answer

    async def publish(self, sizes: list[tuple[int, int, int | None]]) -> None:
        drafts = []
        for size, priority, delay in sizes:
            self.published += 1
            when = None if delay is None else after(self.desk.now, delay)
            drafts.append(Draft(KIND, {"size": size}, priority=priority, not_before=when, id=f"r{self.published}"))

        def judge() -> type[Exception] | None:
            if drafts[0].id in self.model.records:
                return RecordExists
            for one in drafts:
                late = one.not_before is not None and one.not_before > self.desk.now
                self.model.publish(str(one.id), one.body["size"], one.priority, one.not_before if late else None)
            return None

        await self.ask(None, "publish", lambda desk, key: desk.publish_all(drafts, key), judge)

    async def claim(self, who: str, minimum: int, limit: int, seconds: int) -> None:
        expected: list[str] = []

        def judge() -> type[Exception] | None:
            taken = self.model.take(who, self.desk.now, minimum, limit, seconds)
            if isinstance(taken, type):
                return taken
            expected.extend(taken)
            return None

        taken = await self.ask(who, "claim", self.claiming(who, {"size": {"$gte": minimum}}, limit, seconds), judge)
        if taken is not None:
            assert [(one.record.id, one.lease.expires_at) for one in taken] == [
                (one, self.model.records[one].expires_at) for one in expected
            ]
            self.claims += [(who, ref(one)) for one in taken]

    def claiming(self, who: str, match: dict[str, Any], limit: int, seconds: int) -> Send[Claims]:
        return lambda desk, key: desk.claim(match, who, limit, seconds, key=key)

    def pick(self, number: int) -> tuple[str, ClaimRef]:
        """One of the claims that were ever made, counted from the last."""
        return self.claims[-1 - number % len(self.claims)]

    async def renew(self, who: str, held: ClaimRef, seconds: int) -> None:
        one = self.model.records[held.record]

        def judge() -> type[Exception] | None:
            refusal = self.model.fence(who, self.desk.now, held)
            if refusal is None:
                one.expires_at = max(one.expires_at, self.desk.now + seconds * 1000)
            return refusal

        lease = await self.ask(who, "renew", lambda desk, key: desk.renew(held, seconds, key), judge)
        if lease is not None:
            assert lease.expires_at == one.expires_at

    async def release(self, who: str, held: ClaimRef) -> None:
        def judge() -> type[Exception] | None:
            refusal = self.model.fence(who, self.desk.now, held)
            if refusal is None:
                one = self.model.records[held.record]
                one.state, one.holder, one.attempts = "ready", None, one.attempts - 1
            return refusal

        await self.ask(who, "release", lambda desk, key: desk.release(held, key), judge)

    async def settle(self, who: str, held: ClaimRef, result: int) -> None:
        done = await self.ask(
            who,
            "settle",
            lambda desk, key: desk.settle(held, Draft(KIND, {"result": result}), key=key),
            lambda: self.model.settle(who, self.desk.now, held, result),
        )
        if done is not None:
            [child] = done.results
            if child.id not in self.model.records:
                self.model.publish(child.id, -1, 0, None)

    async def fail(self, who: str, held: ClaimRef, delay: int | None, dead: bool) -> None:
        one = self.model.records[held.record]

        def judge() -> type[Exception] | None:
            refusal = self.model.fence(who, self.desk.now, held)
            if refusal is None:
                own = DELAYS[min(one.attempts, len(DELAYS)) - 1] if delay is None else delay
                one.end(self.desk.now, None if dead else own)
            return refusal

        failed = await self.ask(who, "fail", lambda desk, key: desk.fail(held, retry=delay, dead=dead, key=key), judge)
        if failed is not None:
            assert failed.state == one.state

    async def requeue(self, number: int) -> None:
        if not self.model.records:
            return
        one = list(self.model.records.values())[number % len(self.model.records)]

        def judge() -> type[Exception] | None:
            if one.state != "dead":
                return RecordNotDead
            one.state, one.attempts, one.not_before, one.expired = "ready", 0, None, False
            return None

        await self.ask(None, "requeue", lambda desk, key: desk.requeue(one.id, key=key), judge)

    async def cancel(self, number: int) -> None:
        if not self.model.records:
            return
        one = list(self.model.records.values())[number % len(self.model.records)]

        def judge() -> type[Exception] | None:
            if one.state in ("consumed", "dead"):
                return RecordEnded
            one.state, one.not_before, one.expired = "dead", None, False
            return None

        canceled = await self.ask(None, "cancel", lambda desk, key: desk.cancel(one.id, key=key), judge)
        if canceled is not None:
            assert canceled.state == "dead"

    async def fire(self) -> None:
        assert await self.desk.fire() == self.model.fire(self.desk.now)

    async def revoke(self, who: str) -> None:
        self.model.revoked.add(who)
        await self.desk.store.sql("UPDATE credentials SET revoked_at = CAST(? AS INTEGER) WHERE subject = ?", 1, who)

    async def agrees(self) -> None:
        """Every row is what the model says, and what history tells."""
        await self.rows_agree()
        await self.desk.history_agrees()

    async def rows_agree(self) -> None:
        """Every row is what the model says."""
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
