"""The Worker's entry: HTTP requests go to the application, cron ticks to the Clock.

The application is built at import, which is part of the deployed snapshot; what depends on bindings is built by the first
request and kept for the life of the isolate.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from workers import WorkerEntrypoint

from moorage.api.app import PORTS, build_app
from moorage.api.ports import Ports
from moorage.edge.bell import BellStubs
from moorage.edge.bridge import serve
from moorage.edge.isolate import ClockStub, the_isolate
from moorage.edge.live import LiveStubs
from moorage.edge.runners import RunnerStubs
from moorage.edge.spans import spans_of
from moorage.kernel.instants import Instant
from moorage.timers.due import Shard

_APP = build_app()


class Default(WorkerEntrypoint):
    """What Cloudflare calls."""

    async def fetch(self, request: Any) -> Any:
        """Answer an HTTP request."""
        return await serve(_APP, request, {PORTS: await self._ports()})

    async def scheduled(self, controller: Any, env: Any = None, ctx: Any = None) -> None:
        """A cron tick: whatever alarm was lost is made good."""
        await ClockStub(self.env, the_isolate(self.env)).tick()

    async def _ports(self) -> Ports:
        isolate = the_isolate(self.env)
        clock = ClockStub(self.env, isolate)

        if not isolate.asked_clock:
            # Whoever ran before may have died between a commit and telling the Clock of it.
            isolate.asked_clock = True
            self.ctx.waitUntil(clock.tick())

        def wake(due: Instant, shard: Shard) -> None:
            if not isolate.rings_before(due, shard):
                self.ctx.waitUntil(clock.wake(due, shard))

        def entered(types: Collection[str]) -> None:
            tell = lambda: wake(isolate.now(), "messages")  # noqa: E731
            isolate.listening.entered(types, isolate.ports.database, tell, self.ctx.waitUntil)

        bells = BellStubs(self.env, isolate.quiet, self.ctx.waitUntil)
        runners = RunnerStubs(self.env, lambda: isolate.offset or 0, bells.ring, self.ctx.waitUntil)
        lives = LiveStubs(self.env, lambda: isolate.offset or 0, isolate.unheard, self.ctx.waitUntil)
        ports = replace(isolate.ports, wake=wake, bells=bells, runners=runners, lives=lives, entered=entered)
        ports = replace(ports, later=self.ctx.waitUntil)
        if isolate.ports.settings.otlp is not None:
            ports = replace(ports, spans=spans_of(self.env, isolate.ports.settings.otlp, self.ctx.waitUntil))
        if not isolate.has_test_clock:
            return ports
        await clock.know_offset()
        return replace(ports, test_clock=clock)
