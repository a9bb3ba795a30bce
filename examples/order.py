"""An order, from its reservation to its shipment, with a person's word in between where it is a large one.

moorage runs start order --scope order-17 --input '{"id":"17","shop":"https://shop.example.test","sku":"lamp",
    "quantity":1,"amount_cents":12000}'
"""

from typing import Literal

from pydantic import BaseModel, Field, HttpUrl

from moorage.bodies import Rejected, Run, TimedOut, body

APPROVE_FROM_CENTS = 10_000
"""Orders of so much and more wait for a person."""

APPROVAL_SECONDS = 2 * 86400


class Order(BaseModel):
    """What was ordered. `shop` is where stock, payments and shipments are asked for."""

    id: str
    shop: HttpUrl
    sku: str
    quantity: int = Field(ge=1)
    amount_cents: int = Field(ge=0)


class Made(BaseModel):
    """What the shop answers when it made something."""

    id: str


class Approval(BaseModel):
    """What a person says to a large order."""

    approved: bool
    by: str = ""


class Receipt(BaseModel):
    """How the order ended."""

    order: str
    outcome: Literal["shipped", "declined", "expired"]
    payment: str | None = None
    shipment: str | None = None


@body(
    "order",
    effects=["reserve", "approval", "ask", "charge", "ship", "release", "report"],
    config={"approve_from_cents": APPROVE_FROM_CENTS, "approval_seconds": APPROVAL_SECONDS},
)
async def order(run: Run, order: Order) -> Receipt:
    """Reserve, ask a person where the order is a large one, charge, ship, and publish how it ended."""
    reserved = await post(run, "reserve", order, "stock", {"sku": order.sku, "quantity": order.quantity})
    verdict = await approved(run, order)
    if verdict != "approved":
        # Nothing is undone by itself: what a run gives back is a step like any other.
        await post(run, "release", order, f"stock/{reserved.id}/release", {})
        return await reported(run, Receipt(order=order.id, outcome=verdict))
    payment = await post(run, "charge", order, "payments", {"amount_cents": order.amount_cents})
    shipment = await post(run, "ship", order, "shipments", {"reservation": reserved.id})
    return await reported(run, Receipt(order=order.id, outcome="shipped", payment=payment.id, shipment=shipment.id))


async def approved(run: Run, order: Order) -> Literal["approved", "declined", "expired"]:
    """What a person said. The run is suspended meanwhile, for days if need be, and costs nothing."""
    if order.amount_cents < APPROVE_FROM_CENTS:
        return "approved"
    approval = await run.awakeable("approval", ttl=APPROVAL_SECONDS, returns=Approval)
    await post(run, "ask", order, "approvals", {"order": order.id, "url": approval.url})
    try:
        return "approved" if (await approval).approved else "declined"
    except Rejected:
        return "declined"
    except TimedOut:
        return "expired"


async def reported(run: Run, receipt: Receipt) -> Receipt:
    """The receipt, published as a record for whoever works on."""
    await run.publish("report", [{"kind": "order.closed", "body": receipt.model_dump()}])
    return receipt


async def post(run: Run, label: str, order: Order, path: str, sent: dict[str, object]) -> Made:
    """Ask the shop to make something. The request carries the step's own Idempotency-Key, the same on every attempt."""
    answer = await run.fetch(label, f"{str(order.shop).rstrip('/')}/{path}", json=sent)
    return Made.model_validate(answer.json())
