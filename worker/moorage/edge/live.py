"""Live views on the platform: a run's Runner keeps its hub and serves whoever watches (clause runs.stream).

The entry admits a request, then asks the Runner for the answer and hands on what comes: a stream, or a socket. Both last
WATCH_SECONDS at most, so that nobody keeps an object awake for days by watching a run that sleeps.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict
from typing import Any, Final

import js
from pyodide.ffi import JsException, create_proxy, to_js

from moorage.api.lives import Feed, Socket, Watching
from moorage.catalog.access import is_alive
from moorage.edge.convert import message_of, options, raw
from moorage.kernel.errors import MoorageError, RunUnknown, StorageBindingUnavailable
from moorage.kernel.instants import Instant
from moorage.runs.live.ends import Ends
from moorage.runs.live.hub import Hub
from moorage.runs.live.model import Version
from moorage.runs.live.record import load
from moorage.runs.live.watching import events, follow, heartbeat
from moorage.store.ports import Database

ROOM_BYTES: Final = 256 * 1024
"""What may wait to be sent on a socket. Past that nothing is sent until its reader has caught up, and then the latest."""

UNHEARD_SECONDS: Final = 1.0
"""How long an isolate leaves out hints after it heard that nobody watches a run. Whoever begins to meanwhile reads the
record, and again a second later."""

_ROOM_LOOK_SECONDS: Final = 0.05
_STUCK_SECONDS: Final = 60.0
"""A reader that takes nothing for so long, though there is something, has gone. The platform does not tell when one goes."""

_MOMENT_SECONDS: Final = 0.5
_UNHEARD: Final = 1000
_WATCH: Final = "moorage-watch"
_CLOSING: Final[Mapping[str, tuple[int, str]]] = {
    "ended": (1000, "the run has ended"),
    "expired": (1001, "watch again"),
    "revoked": (1008, "the credential may see this run no more"),
}
_TOO_SLOW: Final = (1013, "nothing was read for too long; watch again")
_READ_ONLY: Final = (1008, "a socket only reads")

_log = logging.getLogger("moorage.live")


class Live:
    """The live views of one Runner. `hub` is what its host of bodies tells; `database` gives a fresh Database."""

    def __init__(self, database: Callable[[], Database]) -> None:
        self.hub = Hub(lambda run_id: load(database(), run_id), int(time.time() * 1000), _ticks)
        self.ends = Ends()
        self._database = database
        self._tasks: set[asyncio.Task[None]] = set()

    def changed(self, run_id: str) -> bool:
        """The record of a run has changed, which perhaps ended it; answers whether somebody watches."""
        self.ends.tell(run_id)
        return self.hub.changed(run_id)

    async def fetch(self, request: Any) -> Any:
        """Answer the entry's request to watch a run, with a stream, a socket, or the JSON of an error. Never raises."""
        source = getattr(request, "js_object", request)
        try:
            told = json.loads(source.headers.get(_WATCH))
            after = None if told["after"] is None else Version(*told["after"])
            subscription = await self.hub.subscribe(told["run_id"], after)
        except Exception as error:
            found = error if isinstance(error, MoorageError) else StorageBindingUnavailable(type(error).__name__)
            return js.Response.new(json.dumps(found.problem()), status=found.status)
        allowed, seconds = self._allowed(told["credential"], told["offset"]), told["seconds"]
        if source.headers.get("upgrade") == "websocket":
            pair = js.WebSocketPair.new().object_values()
            self._keep(_Pushing(pair[1]).push(follow(subscription, _ticks, allowed, seconds)))
            return js.Response.new(None, status=101, webSocket=pair[0])
        pipe = js.TransformStream.new()
        self._keep(_pour(events(subscription, _ticks, allowed, seconds), pipe.writable.getWriter()))
        return js.Response.new(pipe.readable)

    def _allowed(self, credential: str | None, offset: int) -> Callable[[], Awaitable[bool]]:
        async def allowed() -> bool:
            return credential is None or await is_alive(
                self._database(), Instant(int(time.time() * 1000) + offset), credential
            )

        return allowed

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        """See work through; nobody else would hold it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _pour(pieces: Any, writer: Any) -> None:
    """Pass pieces on as the reader takes them. A slow reader is waited for, and then gets what is new."""
    try:
        async for piece in pieces:
            async with asyncio.timeout(_STUCK_SECONDS):
                await writer.ready
                await writer.write(to_js(piece))
        async with asyncio.timeout(_STUCK_SECONDS):
            await writer.close()
    except (JsException, TimeoutError):
        _log.debug("a reader left")
    except Exception as error:
        _log.warning("a live view broke off: %s", type(error).__name__)
        await _abort(writer)
    finally:
        await pieces.aclose()


async def _abort(writer: Any) -> None:
    try:
        await writer.abort("the view broke off")
    except JsException:
        _log.debug("a reader left")


class _Pushing:
    """A socket that is sent messages. What the client sends closes it."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._gone = asyncio.Event()
        self._closing: tuple[int, str] | None = None
        self._listeners = {
            "message": create_proxy(lambda event: self._leave(_READ_ONLY)),
            "close": create_proxy(lambda event: self._leave(None)),
            "error": create_proxy(lambda event: self._leave(None)),
        }

        for name, listener in self._listeners.items():
            socket.addEventListener(name, listener)
        socket.accept()

    async def push(self, items: Any) -> None:
        """Send until there is no more, or until the client is gone."""
        pushing = asyncio.ensure_future(self._push(items))
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait((pushing, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            pushing.cancel()
            await asyncio.wait((pushing, gone))
            self._close()
            for name, listener in self._listeners.items():
                self._socket.removeEventListener(name, listener)
                listener.destroy()

    async def _push(self, items: Any) -> None:
        version = Version(0, 0)
        try:
            async for item in items:
                if isinstance(item, str):
                    self._closing = _CLOSING[item]
                    return
                async with asyncio.timeout(_STUCK_SECONDS):
                    await self._room()
                version = version if item is None else item.version
                self._socket.send(heartbeat(version) if item is None else item.text)
        except TimeoutError:
            self._closing = _TOO_SLOW
        except JsException:
            _log.debug("a reader left")
        except Exception as error:
            _log.warning("a live view broke off: %s", type(error).__name__)
            self._closing = (1011, "the view broke off")
        finally:
            await items.aclose()

    async def _room(self) -> None:
        """Wait until the reader has caught up. The platform has no event for this."""
        while self._socket.bufferedAmount > ROOM_BYTES:  # noqa: ASYNC110
            await asyncio.sleep(_ROOM_LOOK_SECONDS)

    def _leave(self, closing: tuple[int, str] | None) -> None:
        self._closing = self._closing or closing
        self._gone.set()

    def _close(self) -> None:
        try:
            self._socket.close(*(self._closing or (1000, "")))
        except JsException:
            _log.debug("a reader left")


class LiveStubs:
    """The Runners as a request reaches them to watch. `offset` is the product's clock's, from real time, in milliseconds."""

    def __init__(
        self,
        env: Any,
        offset: Callable[[], int],
        unheard: dict[str, float],
        later: Callable[[Coroutine[Any, Any, None]], Any],
    ) -> None:
        self._env = env
        self._offset = offset
        self._unheard = unheard
        self._later = later

    async def events(self, watching: Watching) -> Feed:
        """Watch by server-sent events."""
        return _Handed((await self._ask(watching, {})).body)

    async def socket(self, watching: Watching) -> Socket:
        """Watch by a socket."""
        return _Handed((await self._ask(watching, {"upgrade": "websocket"})).webSocket)

    async def ended(self, run_id: str, runner: str, seconds: float, *, again: bool) -> bool:
        """Wait in the Runner. Where it cannot be reached, or is lost meanwhile, a moment passes instead."""
        try:
            told = json.dumps({"run_id": run_id, "seconds": seconds, "again": again})
            return bool(await self._stub(runner).until_ended(told))
        except Exception as error:
            _log.warning("a runner could not be asked: %s", type(error).__name__)
            await asyncio.sleep(min(seconds, _MOMENT_SECONDS))
            return False

    def changed(self, run_id: str, runner: str) -> None:
        """Hint after the answer is given, where somebody may watch."""
        if time.monotonic() >= self._unheard.get(run_id, 0.0):
            self._later(self._hint(run_id, runner))

    async def _ask(self, watching: Watching, headers: Mapping[str, str]) -> Any:
        told = json.dumps({**asdict(watching), "offset": self._offset()})
        try:
            asked = options({"headers": options({**headers, _WATCH: told})})
            response = await self._stub(watching.runner).fetch("https://runner/live", asked)
            if response.status in (200, 101):
                return response
            problem = json.loads(await response.text())
        except (JsException, ValueError) as error:
            told = message_of(error) if isinstance(error, JsException) else "no answer"
            raise StorageBindingUnavailable(f"the runner could not be asked: {told}") from None
        if problem["code"] == RunUnknown.__name__:
            raise RunUnknown
        raise StorageBindingUnavailable(f"the runner could not serve: {problem['code']}")

    async def _hint(self, run_id: str, runner: str) -> None:
        try:
            if not await self._stub(runner).changed(run_id):
                if len(self._unheard) >= _UNHEARD:
                    self._unheard.clear()
                self._unheard[run_id] = time.monotonic() + UNHEARD_SECONDS
        except Exception as error:
            _log.warning("a runner could not be told: %s", type(error).__name__)

    def _stub(self, runner: str) -> Any:
        namespace = raw(getattr(self._env, "RUNNER", None), "RUNNER")
        return namespace.get(namespace.idFromName(runner))


class _Handed:
    """A stream or a socket of the platform, to be handed on as it is."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def native(self) -> Any:
        """The stream or the socket."""
        return self._native

    def __aiter__(self) -> Any:
        raise NotImplementedError("the platform hands its streams on")


def _ticks() -> float:
    return time.monotonic() * 1000
