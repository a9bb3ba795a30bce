"""Bodies that count round trips to the database, as its adapter sends them."""

from pydantic import BaseModel

from moorage.bodies import Run, body, each

_sent = 0


class Count(BaseModel):
    """How many steps."""

    steps: int


@body("trial.count", effects=[each("work")])
async def count(run: Run, given: Count) -> int:
    """Round trips from the first step's end to the last one's. It is counted beside the journal, and never replayed."""
    _watch()
    await run.step("work", lambda: 0, input=-1)
    before = _sent
    for number in range(given.steps):
        await run.step("work", lambda n: n, input=number)
    return _sent - before


@body("trial.sent")
async def sent(run: Run) -> int:
    """Round trips that this isolate has made since somebody first asked, whoever made them."""
    _watch()
    return _sent


def _watch() -> None:
    # Only the edge has it, and this folder is looked at on the host as well.
    from moorage.edge.d1 import D1Database

    if hasattr(D1Database, "counted"):
        return
    real = D1Database._send

    async def send(self, statements, foreseen):  # type: ignore[no-untyped-def]
        global _sent
        _sent += 1
        return await real(self, statements, foreseen)

    D1Database._send = send  # type: ignore[method-assign]
    D1Database.counted = True  # type: ignore[attr-defined]
