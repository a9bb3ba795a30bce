"""Effects under guards, for hosts that are killed while they are in flight."""

from typing import Any

from pydantic import BaseModel

from moorage.bodies import Retry, Run, body


class Pay(BaseModel):
    """Where to, which path beneath it, and how long an answer is waited for."""

    destination: str
    path: str = "pay"
    timeout: float = 60


@body("guarded.pay", effects=["before", "pay"])
async def pay(run: Run, given: Pay) -> dict[str, Any]:
    """What was answered, or the receipt."""
    await run.step("before", lambda: 1)
    sent = await run.effect(
        "pay", given.destination, given.path, json={"amount": 91}, timeout=given.timeout, retry=Retry(attempts=3, base_ms=50)
    )
    return {"answer": None if sent.value is None else sent.value.json(), "receipt": sent.receipt}


@body("guarded.limits", effects=["send", "inside"])
async def limits(run: Run, given: str) -> str:
    """A callback that sets metadata, and asks for what `given` names."""

    async def send() -> str:
        run.metadata["seen"] = True
        if given == "step":
            await run.step("inside", lambda: 1)
        if given == "entity":
            await run.entity("customer", "7")
        return "sent"

    return str((await run.effect("send", None, send)).value)
