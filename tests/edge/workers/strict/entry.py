"""One path for each thing that tests/edge asks of the local edge."""

import asyncio
import json
import os
import random
import secrets
import sys
import time
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asgi
import at_import  # type: ignore[import-not-found]
import js
from fastapi import Depends, FastAPI
from pyodide.ffi import create_proxy, run_sync, to_js
from room import Room as Room  # type: ignore[import-not-found]
from workers import Response, WorkerEntrypoint, wait_until

app = FastAPI()


def shouted(word: str) -> str:
    """A dependency that is not async."""
    return word.upper()


@app.get("/app/{word}")
def plain_endpoint(word: str = Depends(shouted)) -> dict[str, str]:
    """An endpoint that is not async."""
    return {"said": word}


def _refused(path: Path, text: str) -> bool:
    try:
        path.write_text(text)
    except PermissionError:
        return True
    return False


class Default(WorkerEntrypoint):  # type: ignore[misc]
    """Takes requests and cron ticks."""

    async def fetch(self, request: Any) -> Any:
        path = urlsplit(request.url).path
        if path.startswith("/app/"):
            return await asgi.fetch(app, request, self.env, self.ctx)
        if path.startswith("/keep/"):
            await self._note(path.removeprefix("/keep/"), "kept")
            return Response('"kept"')
        name = path.strip("/").replace("-", "_") or "health"
        answer = await getattr(self, f"at_{name}")(request)
        return Response(json.dumps(answer), headers={"content-type": "application/json"})

    async def scheduled(self, controller: Any, _env: Any, _ctx: Any) -> None:
        if controller.cron != "30 3 1 1 *":
            raise ValueError(f"nobody asked for {controller.cron}")
        await self._note("cron", controller.cron)

    async def _note(self, place: str, said: str) -> None:
        await self.env.DB.prepare("INSERT OR REPLACE INTO notes VALUES (?, ?)").bind(place, said).run()

    async def at_health(self, _request: Any) -> Any:
        return "ok"

    async def at_notes(self, _request: Any) -> Any:
        rows = (await self.env.DB.prepare("SELECT place, said FROM notes").all()).results
        return {row["place"]: row["said"] for row in rows}

    async def at_import_time(self, _request: Any) -> Any:
        kept = await at_import.DATABASE.prepare("SELECT 7 AS seven").first("seven")
        async with at_import.LOCK:
            number = at_import.Kept(number=1).number
        return {
            "clock": at_import.CLOCK,
            "monotonic": at_import.MONOTONIC,
            "now": time.time(),
            "kept_choice": at_import.CHOICE("aaa"),
            "kept_database": kept,
            "kept_model": number,
        }

    async def at_random(self, _request: Any) -> Any:
        return [random.random(), secrets.token_hex(8), str(uuid.uuid4()), os.urandom(8).hex()]

    async def at_environment(self, _request: Any) -> Any:
        names = sorted(str(name) for name in js.Object.keys(self.env._env))
        return {"names": names, "greeting": self.env.GREETING, "depth": self.env.SETTINGS.depth}

    async def at_files(self, _request: Any) -> Any:
        here = Path(__file__)
        return {
            "entry": __file__,
            "package": asgi.__file__,
            "code_is_read_only": _refused(here, "spoiled"),
            "new_code_is_refused": _refused(here.with_name("new.py"), "x = 1"),
            "code_was_read_only_at_import": at_import.CODE_IS_READ_ONLY,
            "file_of_import_is_gone": not at_import.SCRATCH.exists(),
            "tmp_is_writable": not _refused(Path("/tmp/scratch"), "x"),
            "python": list(sys.version_info[:2]),
        }

    async def at_modules(self, _request: Any) -> Any:
        root = Path(__file__).parent
        return sorted(file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())

    async def at_durable_object(self, _request: Any) -> Any:
        room = self.env.ROOM.getByName("one")
        mixed = {"list": [1, 2.5, None, True, {"deep": "é"}], "none": None, "text": "x"}
        echoed = await room.echo(mixed, None, 3, "four")
        blob = await room.blob()
        try:
            await room.fail()
        except Exception as error:  # the test looks at what arrives
            failure = f"{type(error).__name__}: {error}"
        else:
            failure = "none"
        answer = await room.fetch("http://room/", method="POST", body="over http")
        return {
            "echoed": echoed,
            "blob": bytes(blob).hex(),
            "nothing": await room.nothing(),
            "failure": failure,
            "fetched": await answer.text(),
            "rings": [await room.ring(), await room.ring()],
        }

    async def at_arm(self, _request: Any) -> Any:
        await self.env.ROOM.getByName("one").arm()

    async def at_socket(self, _request: Any) -> Any:
        headers = to_js({"headers": {"upgrade": "websocket"}}, dict_converter=js.Object.fromEntries)
        opened = await self.env.ROOM.getByName("sockets")._binding.fetch("http://room/", headers)
        socket = opened.webSocket
        heard = asyncio.get_running_loop().create_future()
        socket.onmessage = lambda event: heard.set_result(event.data)
        socket.accept()
        socket.send("knock")
        answer = await heard
        socket.close(4000, "done")
        return answer

    async def at_wait_until(self, _request: Any) -> Any:
        async def later(place: str) -> None:
            await asyncio.sleep(0.05)
            await self._note(place, "ran")

        self.ctx.waitUntil(later("context"))
        wait_until(later("module"))
        self.ctx.waitUntil(asyncio.create_task(later("task")))

    async def at_run_sync(self, _request: Any) -> Any:
        return run_sync(asyncio.sleep(0.001, "waited"))

    async def at_raise(self, _request: Any) -> Any:
        secret = {"reason": "a\nb"}
        raise KeyError("first line\nsecond line") from ValueError(secret["reason"])

    async def at_sys_exit(self, _request: Any) -> Any:
        sys.exit(3)

    async def at_sys_exit_in_task(self, _request: Any) -> Any:
        async def leave() -> None:
            sys.exit(3)

        await asyncio.create_task(leave())

    async def at_abort(self, _request: Any) -> Any:
        os.abort()

    async def at_nested_json(self, request: Any) -> Any:
        return len(json.loads(await request.text()))

    async def at_recursion(self, _request: Any) -> Any:
        def deeper(n: int) -> int:
            return deeper(n + 1) + 1

        return deeper(0)

    async def at_javascript_recursion(self, _request: Any) -> Any:
        # Python calls JavaScript, which calls Python: the stack that overflows is JavaScript's.
        again: Any = create_proxy(lambda: js.Reflect.apply(again, None, []))
        return again()

    async def at_slow(self, _request: Any) -> Any:
        await asyncio.sleep(1.0)
        return "slow"

    async def at_count(self, _request: Any) -> Any:
        at_import.COUNTER[0] += 1
        return at_import.COUNTER[0]

    async def at_outside(self, request: Any) -> Any:
        answer = await js.fetch(await request.text())
        return await answer.text()
