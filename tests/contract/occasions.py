"""What the Clock fires: an item, which for many classes is a name and the occasion for which it is due."""

from collections.abc import Callable

from moorage.kernel.instants import LATEST, Instant
from moorage.store.ports import Database
from moorage.store.transaction import Reading
from moorage.timers.due import DueWork


async def item_of(db: Database, work: DueWork, name: str) -> str:
    """The item of that name that the class lists, now or as time passes; one of no occasion where it lists none."""
    reading = Reading()
    found = reading.ask(work.page, now=LATEST, limit=1000)
    await db.read(reading)
    listed = [str(row["item"]) for row in found.rows]
    return next((item for item in listed if item.rpartition("@")[0] == name), f"{name}@0")


async def fire(work: DueWork, database: Callable[[], Database], now: Instant, name: str) -> int:
    """Fire that item at `now`."""
    return await work.fire(database(), now, await item_of(database(), work, name))
