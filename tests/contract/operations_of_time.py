"""Mutations of timers and schedules."""

from dataclasses import replace
from typing import Any

from moorage.idempotency.keys import Key
from moorage.kernel.errors import (
    ScheduleUnknown,
    TimerNotDue,
    TimerUnknown,
)
from moorage.kernel.instants import Instant
from moorage.runs.model import BodyInfo
from moorage.schedules import declare as schedules
from moorage.schedules import manual
from moorage.schedules.due import ScheduleQueue, Schedules
from moorage.schedules.model import BodyTarget, Declaration, RecordTarget
from moorage.schedules.retention import WindowRetention
from moorage.schedules.starting import Means
from moorage.store.ports import Database
from moorage.timers import fire
from moorage.timers import put as timer_put
from moorage.timers.fire import Timers
from moorage.timers.model import Template, Wish
from tests.contract.operations_world import KIND, NOW, Operation, World, nothing
from tests.contract.runs_desk import ORDER


async def set_timer(world: World, db: Database, _: Any = None, key: Key | None = None, every: int | None = None) -> Any:
    wish = Wish(Template("ping", data="[1]"), fire_at=NOW, every_ms=every)
    return await timer_put.put(db, world.caller, NOW, "timer", wish, key=key)


async def timed(world: World) -> None:
    """A timer that is due."""
    await set_timer(world, world.store.db())


async def timed_again(world: World) -> None:
    """A timer that is due and repeats."""
    await set_timer(world, world.store.db(), every=60_000)


class OneBody:
    """The one body that schedules of the Worker start here."""

    def get(self, name: str) -> BodyInfo | None:
        return ORDER if name == ORDER.name else None

    def check_input(self, name: str, value: Any) -> None:
        return None


HOURLY = Declaration("0 * * * *", None, "Europe/Paris", "enqueue", "all", 86_400_000, BodyTarget(ORDER.name, 1))
TICKING = replace(HOURLY, target=RecordTarget(KIND, {"weight": 1}), overlap="skip")
FIRST_WINDOW = Instant(NOW - NOW % 3_600_000 + 3_600_000)
DECLARED = f"s@{NOW}"
SECOND_WINDOW = Instant(FIRST_WINDOW + 3_600_000)
FORGOTTEN = Instant(NOW + 401 * 86_400_000)


def means_of(world: World) -> Means:
    """What starting takes."""
    return Means(world.kinds, OneBody(), world.store.blobs)


async def put_schedule(world: World, db: Database, _: Any, declaration: Declaration = HOURLY) -> Any:
    return await schedules.put(db, means_of(world), world.caller, NOW, "s", declaration)


async def scheduled(world: World) -> None:
    """A schedule that starts a body."""
    await put_schedule(world, world.store.db(), None)


async def fired(world: World) -> None:
    """A schedule of which a window came."""
    await scheduled(world)
    await Schedules(means_of(world)).fire(world.store.db(), FIRST_WINDOW, DECLARED)


async def ticking(world: World) -> None:
    """A schedule that publishes a record."""
    await world.declare()
    await put_schedule(world, world.store.db(), None, TICKING)


async def lined_up(world: World) -> None:
    """A schedule with a window that waits, and nothing before it any more."""
    await scheduled(world)
    for due in (FIRST_WINDOW, SECOND_WINDOW):
        await Schedules(means_of(world)).fire(world.store.db(), due, DECLARED)
    await world.store.sql("UPDATE runs SET status = 'canceled', ended_at = 1")


async def fire_schedule(world: World, db: Database, _: Any) -> Any:
    return await Schedules(means_of(world)).fire(db, FIRST_WINDOW, DECLARED)


async def punctual(world: World) -> None:
    """A schedule that catches up with nothing."""
    await put_schedule(world, world.store.db(), None, replace(HOURLY, catch_up="none"))


async def fire_late(world: World, db: Database, _: Any) -> Any:
    return await Schedules(means_of(world)).fire(db, Instant(FIRST_WINDOW + 1_800_000), DECLARED)


async def resume_queue(world: World, db: Database, _: Any) -> Any:
    return await ScheduleQueue(means_of(world)).fire(db, SECOND_WINDOW, DECLARED)


async def trigger_schedule(world: World, db: Database, _: Any) -> Any:
    return await manual.trigger(db, means_of(world), world.caller, NOW, "s", world.key("trigger"))


async def backfill_schedule(world: World, db: Database, _: Any) -> Any:
    first = Instant(FIRST_WINDOW - 5 * 3_600_000)
    return await manual.backfill(db, world.caller, NOW, "s", first, NOW, world.key("backfill"))


TIME = [
    Operation("timers.put", nothing, set_timer),
    Operation("timers.put by key", nothing, lambda w, db, _: set_timer(w, db, _, w.key("timer"))),
    Operation("timers.delete", timed, lambda w, db, _: timer_put.delete(db, w.caller, NOW, "timer", 1), TimerUnknown),
    Operation("timers.delete by key", timed, lambda w, db, _: timer_put.delete(db, w.caller, NOW, "timer", 1, w.key("t"))),
    Operation("timers.fire", timed, lambda w, db, _: fire.fire_timer(db, NOW, "timer", 1), TimerNotDue),
    Operation("timers.fire again and again", timed_again, lambda w, db, _: Timers().fire(db, NOW, "timer@1")),
    Operation("schedules.put", nothing, put_schedule),
    Operation("schedules.pause", scheduled, lambda w, db, _: schedules.set_paused(db, w.caller, NOW, "s", True)),
    Operation("schedules.delete", scheduled, lambda w, db, _: schedules.delete(db, w.caller, NOW, "s"), ScheduleUnknown),
    Operation("schedules.delete by key", scheduled, lambda w, db, _: schedules.delete(db, w.caller, NOW, "s", w.key("s"))),
    Operation("schedules.fire", scheduled, fire_schedule),
    Operation("schedules.fire a record", ticking, fire_schedule),
    Operation("schedules.pass over", punctual, fire_late),
    Operation("schedules.resume", lined_up, resume_queue),
    Operation("schedules.forget", fired, lambda w, db, _: WindowRetention().fire(db, FORGOTTEN, "sweep")),
    Operation("schedules.trigger by key", scheduled, trigger_schedule),
    Operation("schedules.backfill by key", scheduled, backfill_schedule),
]
