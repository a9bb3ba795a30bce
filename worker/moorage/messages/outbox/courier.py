"""The Courier: sends the deliveries of one destination, and the Clock's work of telling it (clause outbox.deliver).

There is one for each destination, so that a destination which is down or slow holds up no other. It holds no truth: what it
sends it has leased, and when it is gone the lease runs out. A look leases what is due and may be sent; each attempt is
recorded as it ends, and makes room for the next. When nothing more is due it rests, and is told of the next thing.

A destination that asked for time is then sent one delivery after the other, and one more at once for every STEADY that it
takes: its refusals cost attempts, and a burst after each wait would spend them all. Only memory counts what it has taken: a
Courier that begins anew soon after such a wait, as after a crash or a deploy, begins with one.

Nothing here touches the platform: `edge.courier` puts it into a Durable Object.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from moorage.catalog.destinations import Destination
from moorage.kernel.errors import MoorageError
from moorage.kernel.instants import Instant, after
from moorage.messages.outbox import courier_statements as statements
from moorage.messages.outbox.leasing import begin, lease, record, target_of
from moorage.messages.outbox.sending import Leased, Outcome, Sender
from moorage.store.ports import Database
from moorage.store.transaction import Transaction

_log = logging.getLogger("moorage.courier")

COMING_SECONDS: Final = 30
"""How long a Courier that was told of something has to come, before it is told again."""

STEADY: Final = 8
"""How many deliveries a destination that asked for time takes before one more is sent at once."""

Wake = Callable[[Instant], None]
"""Told when there is something to do again."""


class DeliveriesDue:
    """A destination with something to send that its Courier was not told of lately; an item is the destination's name, and
    since when it is so.

    What it counts are Couriers that are told. A driven clock that passes many attempts tells of them once, at the end: no
    Courier could send before the clock has arrived.
    """

    name = "delivery_due"
    shard: Final = "messages"
    coalesces = True
    earliest = statements.EARLIEST
    page = statements.DUE

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Have the Courier told after the commit; 0 when there is nothing to do any more."""
        destination, _, _ = item.rpartition("@")
        tx = Transaction(now)
        told = tx.run(statements.POKE, destination=destination, item=item, poke_at=after(now, COMING_SECONDS))
        tx.summon(told)
        await db.commit(tx)
        return len(told.rows)


async def _always() -> None:
    """Anything may be done."""


class Courier:
    """Sends to one destination. `database` gives a fresh Database for each transaction, `random` a number from 0 to 1, and
    `wake` is told when there is something to do again. `admit` raises where nothing with an effect may be done."""

    def __init__(
        self,
        destination: str,
        database: Callable[[], Database],
        now: Callable[[], Instant],
        sender: Sender,
        random: Callable[[], float],
        wake: Wake,
        admit: Callable[[], Awaitable[None]] = _always,
    ) -> None:
        self._destination = destination
        self._database = database
        self._now = now
        self._sender = sender
        self._random = random
        self._wake = wake
        self._admit = admit
        self._known: Destination | None = None
        self._taken: int | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._told = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether it is at work."""
        return self._work is not None and not self._work.done()

    def tell(self) -> "asyncio.Task[None]":
        """There is something to do: begin, or look once more before resting."""
        self._told.set()
        if self._work is None or self._work.done():
            self._work = asyncio.ensure_future(self._run())
        return self._work

    async def settled(self) -> None:
        """Wait until it rests."""
        while self._work is not None and not self._work.done():
            await asyncio.wait([self._work])

    async def _run(self) -> None:
        """Look and send until nothing is due; what fails is left to the Clock."""
        try:
            while self._told.is_set() or self._sending:
                due = await self._look()
                if self._sending:
                    await self._told.wait()
                elif due is not None and not self._told.is_set():
                    self._wake(due)
        except MoorageError as error:
            _log.warning("deliveries to %s could not be leased: %s", self._destination, error.code)
        except Exception:
            _log.exception("deliveries to %s failed", self._destination)
        finally:
            if self._sending:
                await asyncio.wait(self._sending)

    async def _look(self) -> Instant | None:
        """Lease what may be sent and begin to send it; answers when there is something to do again."""
        self._told.clear()
        await self._admit()
        if self._known is None:
            self._known, asked = await begin(self._database(), self._now(), self._destination)
            if asked:
                self._taken = 0
        if self._known is None:
            return None
        policy = self._known.delivery
        most = policy.concurrency if self._taken is None else min(policy.concurrency, 1 + self._taken // STEADY)
        free = max(0, most - len(self._sending))
        look = await lease(self._database(), self._now(), self._known, free)
        self._known = look.destination
        for leased in look.leased:
            self._begin(look.destination, leased)
        if look.spent:
            self._told.set()
        return look.due

    def _begin(self, known: Destination, leased: Leased) -> None:
        task = asyncio.ensure_future(self._send(known, leased))
        self._sending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._sending.discard(task)
        self._told.set()

    async def _send(self, known: Destination, leased: Leased) -> None:
        """Send one delivery and record what became of it. What cannot be recorded is sent again when its lease is over."""
        outcome = await self._sender.send(target_of(known), leased, self._now())
        self._pace(outcome)
        try:
            await record(self._database(), self._now(), known, leased, outcome, self._random)
        except MoorageError as error:
            _log.warning("a delivery to %s could not be recorded: %s", self._destination, error.code)

    def _pace(self, outcome: Outcome) -> None:
        """Count what the destination has taken since it asked for time, if it ever did."""
        if outcome.fate == "wait":
            self._taken = 0
        elif outcome.fate == "delivered" and self._taken is not None:
            self._taken += 1
