"""The Bell: a Durable Object, one for each kind, where claims and watches wait (records.claim-wait, history.watch).

A request must never await what another request brings about; inside a Durable Object that is safe. So the waiting happens
here, and a request awaits its own call of the object, which always ends. What waits for what is `timers.bell`'s business.
"""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from typing import Any, Final

from workers import DurableObject

from moorage.api.assembly import look_for
from moorage.edge.convert import raw
from moorage.edge.storage import database
from moorage.timers import bell
from moorage.timers.bell import Heard, Look, Quiet, Ring, Wish, Woken, wish_of, woken_of

_log = logging.getLogger("moorage.bell")

_LOST_SECONDS: Final = 1.0


class Bell(DurableObject):
    """The Bell of one kind. Methods take and give JSON text, and never raise: a caller would see a traceback."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self._kind = ""
        self._bell = bell.Bell(uuid.uuid4().hex, time.monotonic, self._look)

    async def ring(self, ring: str) -> str:
        """Something of the kind was committed, as a `Ring` says; answers a `Heard`."""
        return json.dumps(asdict(self._bell.ring(Ring(**json.loads(ring)))))

    async def wait(self, kind: str, wish: str) -> str:
        """Wait as a `Wish` says; answers a `Woken`."""
        self._kind = kind
        return json.dumps(asdict(await self._bell.wait(wish_of(json.loads(wish)))))

    async def _look(self) -> Look:
        return await look_for(database(self.env), self._kind)


class BellStubs:
    """The Bells as one request, or the Clock, reaches them. Stubs live as long as the event they were made in."""

    def __init__(self, env: Any, quiet: Quiet, later: Callable[[Coroutine[Any, Any, None]], Any]) -> None:
        self._env = env
        self._quiet = quiet
        self._later = later

    def ring(self, rings: Mapping[str, Ring]) -> None:
        """Ring after the answer is given, where somebody may hear it."""
        wanted = {kind: ring for kind, ring in rings.items() if not self._quiet.covers(kind, ring)}
        if wanted:
            self._later(self.ring_now(wanted))

    async def ring_now(self, rings: Mapping[str, Ring]) -> None:
        """Ring. A failure is logged only: who waits looks again."""
        await asyncio.gather(*(self._ring(kind, ring) for kind, ring in rings.items()))

    def expect(self, kind: str) -> None:
        """Let this isolate ring for the kind from now on, whatever it heard."""
        self._quiet.expect(kind)

    async def wait(self, kind: str, wish: Wish) -> Woken:
        """Wait. Without an answer from the Bell it ends as a look would, a little later."""
        self._quiet.expect(kind)
        try:
            return woken_of(json.loads(await self._stub(kind).wait(kind, json.dumps(asdict(wish)))))
        except Exception as error:
            _log.warning("a bell was lost: %s", type(error).__name__)
            await asyncio.sleep(min(_LOST_SECONDS, wish.seconds))
            return Woken("scan", watches=1)

    async def _ring(self, kind: str, ring: Ring) -> None:
        try:
            heard = json.loads(await self._stub(kind).ring(json.dumps(asdict(ring))))
            self._quiet.learn(kind, Heard(**heard))
        except Exception as error:
            _log.warning("a bell could not be rung: %s", type(error).__name__)

    def _stub(self, kind: str) -> Any:
        namespace = raw(getattr(self._env, "BELL", None), "BELL")
        return namespace.get(namespace.idFromName(kind))
