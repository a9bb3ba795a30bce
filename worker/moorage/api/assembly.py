"""Where the rooms are put together: what falls due, and the services that one isolate keeps."""

import time
from collections.abc import Callable

from moorage.api.lateness import Lateness
from moorage.api.lives import HostLives, Lives
from moorage.api.ports import Bodies, NoBodies, Ports, Runners, Settings, TestClock, Wake
from moorage.api.runners import OWN, HostRunners, body_of
from moorage.awakeables.due import AwakeableDeadlines, AwakeableRetention
from moorage.blobs.due import AbandonedUploads, BlobDeletions, BlobSweep
from moorage.catalog.access import is_alive
from moorage.catalog.credentials import Credentials
from moorage.catalog.kinds import Kinds
from moorage.history.seals import HistorySeals
from moorage.idempotency.due import ExpiredKeys
from moorage.kernel.instants import Instant
from moorage.messages.inbox.consumers import InboxRetention
from moorage.messages.inbox.retention import EventRetention
from moorage.messages.inbox.routing import UnroutedEvents
from moorage.messages.inbox.waits import EventWaitTimeouts
from moorage.messages.outbox.courier import DeliveriesDue
from moorage.messages.outbox.delivery_retention import DeliveryRetention
from moorage.messages.outbox.fan_out import OutboxFanOut
from moorage.records import watch
from moorage.records.artifacts.shred import ArtifactOrphans
from moorage.records.due import RecordDelays, RecordLeases, StaleRecords
from moorage.records.interests import ExpiredInterests
from moorage.records.patterns import parse
from moorage.records.retention import Retention
from moorage.records.sessions import ExpiredSessions
from moorage.runs import looking
from moorage.runs.due import RunRetention, RunsDue
from moorage.runs.live import record
from moorage.runs.live.hub import Hub
from moorage.runs.placement import RUNNERS
from moorage.schedules.due import ScheduleQueue, Schedules
from moorage.schedules.retention import WindowRetention
from moorage.schedules.starting import Means
from moorage.store.ports import Blobs, Database, Frontiers
from moorage.timers.bell import Bells, HostBells, Look
from moorage.timers.due import DueWork
from moorage.timers.fire import Timers


def due_works(
    blobs: Blobs | None = None, project: str = "moorage", bodies: Bodies | None = None, runners: int = RUNNERS
) -> list[DueWork]:
    """Every class of due work, in the order in which they fire at equal instants; without a bucket, nothing that needs
    one. `project` is what domain events name as their source. Schedules start the Worker's `bodies`, whose executions are
    shared among so many `runners`."""
    means = Means(Kinds(), bodies or NoBodies(), blobs, runners)
    bucket: list[DueWork] = [] if blobs is None else [BlobDeletions(blobs), BlobSweep(blobs)]
    return [
        RecordLeases(),
        RecordDelays(),
        StaleRecords(),
        ExpiredSessions(),
        AwakeableDeadlines(),
        Timers(),
        UnroutedEvents(),
        EventWaitTimeouts(),
        Schedules(means),
        ScheduleQueue(means),
        RunsDue(),
        OutboxFanOut(project),
        DeliveriesDue(),
        Retention(),
        RunRetention(),
        EventRetention(),
        InboxRetention(),
        DeliveryRetention(),
        WindowRetention(),
        AwakeableRetention(),
        ExpiredKeys(),
        ExpiredInterests(),
        HistorySeals(),
        ArtifactOrphans(),
        AbandonedUploads(),
        *bucket,
    ]


async def look_for(db: Database, kind: str) -> Look:
    """What a Bell looks at for all who wait in it. Hosts of executions wait in Bells of the runtime's own names."""
    if kind.startswith(OWN):
        body = body_of(kind)
        # Whoever holds an execution looks for itself: that is one row, and nobody else waits there.
        ready = body is None or await looking.claimable(db, body)
        return Look(0, ready, db.cost.trips, db.cost.rows_read)
    position, ready = await watch.look(db, kind)
    return Look(position, ready, db.cost.trips, db.cost.rows_read)


def assemble(
    *,
    database: Callable[[], Database],
    blobs: Blobs | None,
    now: Callable[[], Instant],
    root_token: str | None,
    wake: Wake,
    settings: Settings,
    secret: Callable[[str], str | None] = lambda name: None,
    test_clock: TestClock | None = None,
    bells: Bells | None = None,
    runners: Runners | None = None,
    bodies: Bodies | None = None,
    lives: Lives | None = None,
    frontiers: Frontiers | None = None,
) -> Ports:
    """The Ports of one isolate, with fresh caches. Without `bells`, requests of this process wait for one another; without
    `runners`, nothing executes."""
    works = due_works(blobs, settings.project)
    return Ports(
        database=database,
        blobs=blobs,
        now=now,
        kinds=Kinds(),
        credentials=Credentials(root_token, check_pattern=lambda match, paths: parse(dict(match), paths)),
        wake=wake,
        settings=settings,
        secret=secret,
        test_clock=test_clock,
        bells=bells or HostBells(time.perf_counter, lambda kind: look_for(database(), kind)),
        runners=runners or HostRunners(),
        lives=lives or _lives(database, now),
        bodies=bodies or NoBodies(),
        frontiers=frontiers,
        works=works,
        lateness=Lateness(works, lambda: time.perf_counter() * 1000),
    )


def _lives(database: Callable[[], Database], now: Callable[[], Instant]) -> Lives:
    """Hubs in this process, for the host."""
    ticks: Callable[[], float] = lambda: time.perf_counter() * 1000  # noqa: E731
    hub = Hub(lambda run_id: record.load(database(), run_id), now(), ticks)
    return HostLives(hub, ticks, lambda credential: is_alive(database(), now(), credential))
