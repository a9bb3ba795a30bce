"""Watching a kind: server-sent events, or a long poll (clause history.watch)."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from moorage.api import shapes
from moorage.api.answers import Answer, EventStream
from moorage.api.fields import JsonObject, Shown, fails
from moorage.api.requests import ApiRequest
from moorage.api.routes.history import EntryShown, shown_entry
from moorage.api.routing import router
from moorage.api.shapes import RecordShown
from moorage.api.waiting import spend
from moorage.history.query import Entry
from moorage.kernel import canonical
from moorage.kernel.errors import DeploymentError, JsonInvalid, KindUnknown, MoorageError, PatternInvalid, RequestInvalid
from moorage.kernel.limits import WAIT_SECONDS, WATCH_SCAN, WATCH_SECONDS
from moorage.kernel.refusals import refused
from moorage.records.model import Record
from moorage.records.watch import Watched, newest, read_on
from moorage.timers.bell import Wish, Woken

api = router("watch")

HEARTBEAT_SECONDS = 15
"""The longest silence of an event stream."""

PAUSE_MS = 2
"""Each watch of a kind lets this much time pass between two readings for every watch that there is. So all of them together
ask the database at most 500 times a second, however much is committed; the first reading after a silence is at once."""

NOW = "now"

_POSITION = r"^(now|[0-9]{1,15})$"


class WatchedShown(EntryShown):
    """What happened, and the record to which it happened: as it is now, or null when it is gone."""

    record: RecordShown | None


class WatchShown(Shown):
    """Entries in the order of their commit. Ask for what follows with `after` = `next`."""

    items: list[WatchedShown]
    next: int


_TEXT: dict[str, Any] = {"type": "string"}
_EVENT: dict[str, Any] = {
    "type": "object",
    "description": "One event of the stream.",
    "properties": {"id": _TEXT, "event": _TEXT, "data": _TEXT},
    "required": ["data"],
}
_EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": _EVENT}}}}


@api.get(
    "/watch",
    response_model=WatchShown,
    responses=_EVENTS | fails(KindUnknown, PatternInvalid, JsonInvalid),
)
async def watch(
    request: ApiRequest,
    kind: Annotated[str, Query(description="The kind to watch.")],
    match: Annotated[str | None, Query(description="A pattern as JSON: only what happens to records that match.")] = None,
    after: Annotated[
        str, Query(pattern=_POSITION, description="Only entries past this position of history; `now` for new ones only.")
    ] = "0",
    wait_seconds: Annotated[
        float, Query(ge=0, le=int(WAIT_SECONDS), description="As JSON: how long to wait for a first entry.")
    ] = 0,
    max_seconds: Annotated[float, Query(gt=0, le=int(WATCH_SECONDS), description="As events: when the stream ends.")] = int(
        WATCH_SECONDS
    ),
) -> Response:
    """What happens to a kind's records, in the order of the commits, nothing lost and nothing twice.

    As `text/event-stream` each entry is an event: `id` is its position, `event` its type (`record.published`,
    `record.claimed`, …), `data` the entry with its record as JSON. The stream ends in order after `max_seconds`; a client
    connects again with `Last-Event-ID`, which supersedes `after`. An event `problem` says why a stream ends for good.

    Accepting `application/json` alone, it is a long poll: it answers as soon as there is an entry, or after `wait_seconds`.
    """
    watcher = _Watcher(request, kind, _pattern(match))
    position = _resumed(request) if "last-event-id" in request.headers else after
    start = watcher.position = await newest(request.db) if position == NOW else int(position)
    first = await watcher.read()
    if _wants_json(request):
        return await _long_poll(watcher, first, wait_seconds)
    return EventStream(_events(watcher, first, max_seconds, start, told=position != NOW))


class _Watcher:
    """One client's watch: where it stands, and what it last heard of the Bell."""

    def __init__(self, request: ApiRequest, kind: str, match: JsonObject) -> None:
        self._request = request
        self._kind = kind
        self._match = match
        self._woken = Woken("ring")
        self._read_at = 0.0
        self.position = 0

    @property
    def now(self) -> float:
        """Seconds on a steady scale."""
        return self._request.ports.ticks() / 1000

    async def read(self) -> Watched:
        """Read on from where the watch stands. Admits the caller anew, so that a revoked credential sees no more."""
        self._read_at = self.now
        ports, request = self._request.ports, self._request
        ports.bells.expect(self._kind)
        now = ports.now()
        caller = await ports.credentials.admit(request.db, now, request.headers.get("authorization"))
        watched = await read_on(request.db, ports.kinds, caller, now, self._kind, self._match, self.position)
        self.position = watched.position
        return watched

    async def wait(self, seconds: float) -> bool:
        """Wait until there may be something to read; False after `seconds`."""
        wish = Wish(
            seconds=max(0.0, seconds),
            position=self.position,
            age_seconds=self.now - self._read_at,
            seen=self._woken.seen,
            place=self._woken.place,
        )
        self._woken = await self._request.ports.bells.wait(self._kind, wish)
        spend(self._request, self._woken)
        if self._woken.reason == "timeout":
            return False
        pause = self._woken.watches * PAUSE_MS / 1000 - (self.now - self._read_at)
        if pause > 0:
            await asyncio.sleep(pause)
        return True


async def _long_poll(watcher: _Watcher, watched: Watched, seconds: float) -> Answer:
    deadline = watcher.now + seconds
    while not watched.entries and watcher.now < deadline:
        if watched.more or await watcher.wait(deadline - watcher.now):
            watched = await watcher.read()
    items = [_shown(entry, record) for entry, record in watched.entries]
    return Answer({"items": items, "next": watched.position})


async def _events(watcher: _Watcher, watched: Watched, seconds: float, start: int, told: bool) -> AsyncIterator[bytes]:
    """The stream from `start`, a piece for each reading. Whoever takes a piece only when it can pass it on slows down
    nothing else. `told` is whether the client knows `start`.

    An `id` line without an event moves the client's Last-Event-ID: to where a stream of what is new begins, and on where
    nothing matched for long.
    """
    spoke, deadline, position = watcher.now, watcher.now + seconds, start
    yield b"retry: 1000\n\n" if told else f"retry: 1000\nid: {start}\n\n".encode()
    while True:
        if watched.entries:
            yield b"".join(_event(entry, record) for entry, record in watched.entries)
            spoke, position = watcher.now, watched.entries[-1][0].position
        elif watcher.now >= spoke + HEARTBEAT_SECONDS:
            moved = watched.position - position >= WATCH_SCAN
            yield f": nothing new\nid: {watched.position}\n\n".encode() if moved else b": nothing new\n\n"
            spoke, position = watcher.now, watched.position if moved else position
        if watcher.now >= deadline:
            return
        if not watched.more and not await watcher.wait(min(spoke + HEARTBEAT_SECONDS, deadline) - watcher.now):
            watched = replace(watched, entries=[])
            continue
        try:
            watched = await watcher.read()
        except DeploymentError:
            return
        except MoorageError as error:
            yield f"event: problem\ndata: {json.dumps(error.problem())}\n\n".encode()
            return


def _event(entry: Entry, record: Record | None) -> bytes:
    # ASCII, because some clients take other characters than line feeds for the end of a line.
    data = json.dumps(_shown(entry, record), separators=(",", ":"))
    return f"id: {entry.position}\nevent: {entry.type}\ndata: {data}\n\n".encode()


def _shown(entry: Entry, record: Record | None) -> dict[str, Any]:
    return {**shown_entry(entry), "record": None if record is None else shapes.record(record)}


def _pattern(text: str | None) -> JsonObject:
    """The pattern of a query parameter. Raises JsonInvalid, RequestInvalid when it is no object."""
    match = canonical.loads(text.encode()) if text else {}
    if not isinstance(match, dict):
        raise _invalid("/query/match", "must be a JSON object")
    return match


def _resumed(request: ApiRequest) -> str:
    told = request.headers["last-event-id"]
    if not (told.isascii() and told.isdigit() and len(told) <= 15):
        raise _invalid("/header/last-event-id", "must be the id of an event of this stream")
    return told


def _invalid(pointer: str, message: str) -> RequestInvalid:
    return refused(pointer, message, f"{pointer}: {message}")


def _wants_json(request: ApiRequest) -> bool:
    accepted = ",".join(request.headers.getlist("accept")).lower()
    return "application/json" in accepted and "text/event-stream" not in accepted
