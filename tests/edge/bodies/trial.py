"""What tests start: steps in a row and side by side, waits of every kind, requests to a party that the test drives."""

import asyncio
from typing import Any

from pydantic import BaseModel

from moorage.bodies import Retry, Run, body, each


class Row(BaseModel):
    """Steps, and the bytes of what each records."""

    steps: int = 1
    size: int = 1


class Wait(BaseModel):
    """Where to hand a token, and how many steps come before."""

    party: str
    name: str = ""
    steps: int = 0


class Ask(BaseModel):
    """What to ask of the party."""

    url: str
    attempts: int = 1
    delay: float = 0.1
    timeout: float = 60


class Sleep(BaseModel):
    """How long, whatever that is."""

    seconds: Any


@body("trial.row", effects=[each("work")])
async def row(run: Run, given: Row) -> int:
    """Steps in a row."""
    done = 0
    for number in range(given.steps):
        done += len(await run.step("work", lambda _: "x" * given.size, input=number))
    return done


@body("trial.fan", effects=[each("work")])
async def fan(run: Run, given: Row) -> int:
    """Steps side by side."""
    done = await run.gather(*(run.step("work", lambda n: n, input=number) for number in range(given.steps)))
    return sum(done)


@body("trial.sleep", effects=["before", "after"])
async def sleep(run: Run, given: Sleep) -> str:
    """A step, a wait, a step."""
    await run.step("before", lambda: 1)
    await run.sleep(given.seconds)
    await run.step("after", lambda: 2)
    return "slept"


@body("trial.wait", effects=[each("work"), "token", "hand"])
async def wait(run: Run, given: Wait) -> Any:
    """Hand a token to the party, and wait for what comes."""
    for number in range(given.steps):
        await run.step("work", lambda n: n, input=number)
    handle = await run.awakeable("token", ttl=86400)
    told = {"token": handle.token, "run": run.id, "name": given.name}
    await run.fetch("hand", f"{given.party}/hand", json=told)
    return await handle


@body("trial.ask", effects=["ask"])
async def ask(run: Run, given: Ask) -> Any:
    """One request, with a schedule."""
    schedule = Retry(attempts=given.attempts, base_ms=round(given.delay * 1000), jitter_ms=0)
    answer = await run.fetch("ask", given.url, retry=schedule, timeout=given.timeout)
    return answer.json()


@body("trial.parent", effects=[each("child")])
async def parent(run: Run, given: Row) -> list[Any]:
    """Children side by side."""
    return list(await run.gather(*(run.child("child", row, {"steps": 1, "size": n + 1}) for n in range(given.steps))))


@body("trial.crash", effects=["first", "second"])
async def crash(run: Run, given: Wait) -> Any:
    """A request that is answered, and one that hangs."""
    first = await run.fetch("first", f"{given.party}/count/first")
    await run.fetch("second", f"{given.party}/hang/second", timeout=60)
    return first.json()


class Order(BaseModel):
    """An order that is paid with an event, and how long that takes: steps before, in seconds, and at most."""

    order: str
    before: float = 0
    timeout: float | None = 60


@body("trial.order", effects=["begin", "paid"])
async def order(run: Run, given: Order) -> Any:
    """A step, and then a wait for the payment."""
    await run.step("begin", lambda: asyncio.sleep(given.before))
    paid = await run.wait_event(
        "paid", types=["payment.received"], match={"order": given.order}, keys=[given.order], timeout=given.timeout
    ).outcome()
    return "timed out" if paid.event is None else {"amount": paid.event.data["amount"], "event": paid.event.event_id}
