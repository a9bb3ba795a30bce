"""What a test of bodies needs: a registry, a clock, a memory, a host, and an observer that remembers."""

from collections.abc import Callable
from typing import Any

from moorage.bodies import Body, Registry
from moorage.bodies.host import Host
from moorage.kernel.instants import Instant
from moorage.runs.observing import RunChange, StepChange
from tests.unit.bodies.clock import Clock
from tests.unit.bodies.memory import Memory
from tests.unit.bodies.rows import Row


class Told:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.changes: list[StepChange | RunChange] = []

    def hears(self, run_id: str) -> bool:
        return True

    def tell(self, change: StepChange | RunChange) -> None:
        self.changes.append(change)

    def steps(self, label: str) -> list[StepChange]:
        return [one for one in self.changes if isinstance(one, StepChange) and one.label == label]


class World:
    """A registry, a clock, a memory, and a host: what a test of bodies needs."""

    def __init__(self, *bodies: Body, **host: Any) -> None:
        self.registry = Registry(bodies)
        self.clock = Clock()
        self.memory = Memory(self.registry, self.clock)
        self.told = Told()
        self._named = host
        self.host = self.another_host()

    def another_host(self, now: Callable[[], Instant] | None = None) -> Host:
        return Host(
            self.registry,
            self.memory,
            take=self.memory.take,
            now=now or self.clock.now,
            sleep=self.clock.sleep,
            observer=self.told,
            **self._named,
        )

    @property
    def row(self) -> Row:
        return self.memory.rows["exe_1"]

    async def run(self, body: str, given: Any = None, **named: Any) -> str:
        """Open and drive once: how the host let go."""
        return await self.clock.drive(self.host.run(self.memory.open(body, given, **named)))

    async def again(self, name: str = "exe_1") -> str:
        """Take what is due and drive it once."""
        row = self.memory.rows[name]
        if row.status == "waiting" and row.next_attempt_at is not None:
            self.clock.advance_to(row.next_attempt_at)
        taken = await self.memory.take(name)
        assert taken is not None, row
        return await self.clock.drive(self.host.run(taken))

    async def to_the_end(self, body: str, given: Any = None) -> Row:
        """Open, and take again whenever its instant comes, until the run has ended or waits for something outside."""
        await self.run(body, given)
        for _ in range(200):
            if self.row.status != "waiting" and not (self.row.status == "suspended" and self.row.next_attempt_at):
                break
            if self.row.next_attempt_at is not None:
                self.clock.advance_to(self.row.next_attempt_at)
            await self.again()
        return self.row

    def entries(self, state: str | None = None) -> list[str]:
        return [one.key.label for one in self.row.entries.values() if state in (None, one.state)]
