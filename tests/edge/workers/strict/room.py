"""A Durable Object that is called over RPC, over HTTP, by its alarm and by a WebSocket."""

from typing import Any

import js
from workers import DurableObject, Response


class Room(DurableObject):  # type: ignore[misc]
    """Defined outside the entry module, which only imports it: the local edge has to follow the import."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.rings = 0

    async def echo(self, *values: Any) -> dict[str, Any]:
        return {"values": list(values), "types": [type(value).__name__ for value in values]}

    async def blob(self) -> bytes:
        return b"\x00\xff"

    def nothing(self) -> None:
        """A plain method, without async, is called as well."""

    async def fail(self) -> None:
        raise LookupError("the room is empty")

    async def ring(self) -> int:
        self.rings += 1
        return self.rings

    async def arm(self) -> None:
        await self.ctx.storage.setAlarm(js.Date.now())

    async def alarm(self, _info: Any) -> None:
        await self.env.DB.prepare("INSERT OR REPLACE INTO notes VALUES ('alarm', 'rang')").run()

    async def fetch(self, request: Any) -> Any:
        if (request.headers.get("upgrade") or "").lower() != "websocket":
            return Response(f"{type(request).__name__} {request.method} {await request.text()}")
        client, server = js.WebSocketPair.new().object_values()
        self.ctx.acceptWebSocket(server)
        return js.Response.new(None, status=101, webSocket=client)

    async def webSocketMessage(self, socket: Any, message: Any) -> None:  # noqa: N802
        socket.send(f"{type(message).__name__} {message}")

    async def webSocketClose(self, socket: Any, code: int, *_rest: Any) -> None:  # noqa: N802
        await self.env.DB.prepare("INSERT OR REPLACE INTO notes VALUES ('socket', ?)").bind(str(int(code))).run()
