"""Bodies of the sample."""

from pydantic import BaseModel, Field

from moorage.bodies import Run, body, each

from .prices import PRICE


class Order(BaseModel):
    """What is ordered."""

    sku: str
    count: int = Field(ge=1)


class Receipt(BaseModel):
    """What it cost."""

    total: int


@body(
    "order", effects=["reserve", each("charge")], depends={"prompt": "v3"}, config={"model": "x", "url": "https://a.test/"}
)
async def order(run: Run, given: Order) -> Receipt:
    """Take an order.

    And charge for it.
    """
    return Receipt(total=await run.step("reserve", lambda: given.count * PRICE))


@body("plain")
async def plain(run: Run) -> None:
    """Does nothing."""
