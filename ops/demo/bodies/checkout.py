"""A checkout, whose payment must not be made twice."""

from moorage.bodies import Run, body


@body("checkout", effects=["charge"])
async def checkout(run: Run, order: dict[str, object]) -> dict[str, object]:
    """Charge an order under a guard: the destination promises nothing about a key that it sees twice."""
    sent = await run.effect("charge", "payments", "charges", json=order)
    if sent.value is None:
        return {"order": order["id"], "charge": sent.receipt, "known_from": "an operator"}
    return {"order": order["id"], "charge": sent.value.json()["id"], "known_from": "its answer"}
