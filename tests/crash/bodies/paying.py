"""Payments under guards, one after the other, with a recorded step before each."""

from collections.abc import Sequence

from pydantic import BaseModel

from moorage.bodies import Response, Retry, Run, Sent, body, each


class Order(BaseModel):
    """What to pay: the destination of each payment, and whether it makes something public."""

    tag: str
    payments: Sequence[tuple[str, bool]]
    customer: str | None = None
    """An entity that is held meanwhile, if there is one."""

    timeout: float = 1.5


PATIENT = Retry(attempts=12, base_ms=50, clamp_ms=400, jitter_ms=50)


async def _pay(run: Run, order: Order) -> list[str]:
    receipts = []
    for number, (destination, public) in enumerate(order.payments):
        await run.step("note", lambda n: n, input=number)
        send = run.publication if public else run.effect
        told = {"tag": order.tag, "number": number}
        sent = await send("pay", destination, "/pay", json=told, timeout=order.timeout, retry=PATIENT)
        receipts.append(_receipt(sent))
    return receipts


def _receipt(sent: Sent[Response]) -> str:
    if sent.value is None:
        return str(sent.receipt)
    return str(sent.value.json()["receipt"])


@body("paying.order", effects=[each("note"), each("pay")])
async def order(run: Run, given: Order) -> list[str]:
    """The receipts of all payments."""
    if given.customer is None:
        return await _pay(run, given)
    async with run.entity("customer", given.customer):
        return await _pay(run, given)
