"""Where the rooms are put together: what falls due, and the services that one isolate keeps."""

from collections.abc import Callable

from moorage.api.ports import Ports, Settings, TestClock, Wake
from moorage.awakeables.due import AwakeableDeadlines
from moorage.catalog.credentials import Credentials
from moorage.catalog.kinds import Kinds
from moorage.idempotency.due import ExpiredKeys
from moorage.kernel.instants import Instant
from moorage.records.due import RecordDelays, RecordLeases
from moorage.records.patterns import parse
from moorage.store.ports import Blobs, Database
from moorage.timers.due import DueWork


def due_works() -> list[DueWork]:
    """Every class of due work, in the order in which they fire at equal instants."""
    return [RecordLeases(), RecordDelays(), AwakeableDeadlines(), ExpiredKeys()]


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
) -> Ports:
    """The Ports of one isolate, with fresh caches."""
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
    )
