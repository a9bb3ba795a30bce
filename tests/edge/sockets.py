"""A small WebSocket client (RFC 6455) that hides nothing: the answer before the upgrade, every frame, and when it reads."""

import asyncio
import base64
import json
import os
import socket as network
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from ops.local.edge import LocalEdge

SECONDS: Final = 60.0
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10


@dataclass
class Refused(Exception):
    """The server did not upgrade: its status, its headers and the beginning of its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __str__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"

    def problem(self) -> dict[str, Any]:
        """The body as the problem that it must be."""
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass
class Socket:
    """An upgraded connection. `closed` is the code with which the server closed it, once it has."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    headers: Mapping[str, str] = field(default_factory=dict)
    closed: int | None = None
    reason: str = ""

    async def receive(self, seconds: float = SECONDS) -> dict[str, Any] | None:
        """The next text frame as JSON; None once the server closed. A ping is answered on the way."""
        async with asyncio.timeout(seconds):
            while True:
                opcode, payload = await self._frame()
                if opcode == _TEXT:
                    found: dict[str, Any] = json.loads(payload)
                    return found
                if opcode == _PING:
                    await self._send(_PONG, payload)
                elif opcode == _CLOSE:
                    self.closed = struct.unpack("!H", payload[:2])[0] if payload else 1005
                    self.reason = payload[2:].decode()
                    await self._send(_CLOSE, payload[:2])
                    return None

    async def messages(self, seconds: float = SECONDS) -> AsyncIterator[dict[str, Any]]:
        """Every message until the server closes; silences are left out."""
        while (message := await self.receive(seconds)) is not None:
            if message["type"] != "ping":
                yield message

    async def send(self, text: str) -> None:
        """Send a text frame."""
        await self._send(_TEXT, text.encode())

    async def ping(self, payload: bytes) -> bytes:
        """Ping, and answer what the pong says; messages on the way are dropped."""
        await self._send(_PING, payload)
        while True:
            opcode, answer = await self._frame()
            if opcode == _PONG:
                return answer

    async def close(self) -> None:
        """Close in order."""
        await self._send(_CLOSE, struct.pack("!H", 1000))
        while await self.receive() is not None:
            pass

    async def _frame(self) -> tuple[int, bytes]:
        """One message's opcode and payload, put together from its fragments."""
        opcode, whole, last = 0, b"", False
        while not last:
            first, second = await self.reader.readexactly(2)
            last, size = bool(first & 0x80), second & 0x7F
            assert not second & 0x80, "a server masks nothing"
            if size == 126:
                size = struct.unpack("!H", await self.reader.readexactly(2))[0]
            elif size == 127:
                size = struct.unpack("!Q", await self.reader.readexactly(8))[0]
            opcode = first & 0x0F or opcode
            whole += await self.reader.readexactly(size)
        return opcode, whole

    async def _send(self, opcode: int, payload: bytes) -> None:
        size = struct.pack("!B", 0x80 | len(payload)) if len(payload) < 126 else struct.pack("!BH", 0xFE, len(payload))
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
        self.writer.write(bytes([0x80 | opcode]) + size + mask + masked)
        await self.writer.drain()


@asynccontextmanager
async def socket(
    edge: LocalEdge, path: str, headers: Mapping[str, str], receive_bytes: int | None = None
) -> AsyncIterator[Socket]:
    """A socket at a path. With `receive_bytes` the client's side holds no more than about that unread. Raises Refused."""
    place = urlsplit(edge.url)
    raw = network.socket()
    raw.setblocking(False)
    if receive_bytes is not None:
        # Before it connects: the other side then holds little ready, too, since what it holds goes by the segments' size.
        raw.setsockopt(network.SOL_SOCKET, network.SO_RCVBUF, receive_bytes)
        raw.setsockopt(network.IPPROTO_TCP, network.TCP_MAXSEG, 536)
    await asyncio.get_running_loop().sock_connect(raw, (place.hostname, place.port))
    reader, writer = await asyncio.open_connection(sock=raw, limit=receive_bytes or 2**16)
    try:
        asked = {
            "Host": place.netloc,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            **headers,
        }
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in asked.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        status, found = await asyncio.wait_for(_head(reader), SECONDS)
        if status != 101:
            size = int(found.get("content-length", "0"))
            raise Refused(status, found, await reader.readexactly(size))
        yield Socket(reader, writer, found)
    finally:
        writer.close()


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return int(lines[0].split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}
