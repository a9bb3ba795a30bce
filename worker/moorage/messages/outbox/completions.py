"""Completions: that one run's end is told to destinations which an operator declared (clause completion.subscribe).

Who asks is told once for each destination, whether the run has ended already or not. What is told is the entry of history of
the run's end, as to any subscription; the result is read at the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moorage.history.append import Event, append
from moorage.history.query import Entry
from moorage.kernel import canonical
from moorage.kernel.errors import DestinationUnknown, RunUnknown
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import COMPLETIONS as MOST
from moorage.kernel.refusals import refused
from moorage.messages.outbox import deliveries
from moorage.messages.outbox import outbox_statements as statements
from moorage.messages.outbox.deliveries import COMPLETIONS
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction


class Ended(Exception):
    """The run has ended since it was looked at. It never leaves this module."""


@dataclass(frozen=True, slots=True)
class Completion:
    """That a run's end is told to a destination, since when, and who asked."""

    destination: str
    created_at: Instant
    created_by: str

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {"destination": self.destination, "created_at": render(self.created_at), "created_by": self.created_by}


def check(destinations: Sequence[str]) -> None:
    """Raise RequestInvalid for more than COMPLETIONS destinations, or one that is named twice."""
    if len(destinations) > MOST:
        raise refused("/notify", f"must name at most {MOST} destinations")
    if len(set(destinations)) < len(destinations):
        raise refused("/notify", "must not name a destination twice")


def plan(tx: Transaction, by: str, run_id: str, destinations: Sequence[str]) -> None:
    """Ask, in the transaction that opens a run, that its end be told; of a run that is refused nobody is told.

    The transaction raises DestinationUnknown.
    """
    listed = canonical.dumps(list(destinations))
    tx.require(statements.DESTINATIONS_EXIST, DestinationUnknown(), destinations=listed)
    tx.run(statements.ASK, run_id=run_id, destinations=listed, by=by, ended=0)
    tx.run(statements.LISTEN, by=by)


async def ask(db: Database, tx: Transaction, by: str, run_id: str, destination: str, project: str) -> Completion:
    """Ask that a run's end be told to a destination, and tell it at once if it has ended; to ask again changes nothing.

    `tx` is made anew by the caller for each call and has the caller's own preconditions in it. Raises RunUnknown,
    DestinationUnknown, RequestInvalid past COMPLETIONS, and Ended when it has to be called again.
    """
    reading = Reading()
    end = reading.ask(statements.END_OF_RUN, run_id=run_id)
    asked = reading.ask(statements.COMPLETIONS_OF, run_id=run_id)
    await db.read(reading)
    row = end.first()
    tx.require(statements.RUN_EXISTS, RunUnknown(), run_id=run_id)
    listed = canonical.dumps([destination])
    tx.require(statements.DESTINATIONS_EXIST, DestinationUnknown(), destinations=listed)
    room = refused("/destination", f"would be one of more than {MOST} that the run's end is told to")
    tx.require(statements.COMPLETION_HAS_ROOM, room, run_id=run_id, destination=destination, most=int(MOST))
    if row is None:
        tx.require(statements.HAS_NOT_ENDED, Ended(), run_id=run_id)
    else:
        deliveries.plan(tx, COMPLETIONS, project, [(Entry.of(row), destination)], once_for=run_id)
    tx.run(statements.ASK, run_id=run_id, destinations=listed, by=by, ended=1)
    if all(one["destination"] != destination for one in asked.rows):
        append(tx, by, Event(run_id, "run.notify_requested", {"destination": destination}))
    tx.run(statements.LISTEN, by=by)
    stored = tx.run(statements.COMPLETIONS_OF, run_id=run_id)
    await db.commit(tx)
    return next(_completion(one) for one in stored.rows if one["destination"] == destination)


async def of_run(db: Database, run_id: str) -> list[Completion]:
    """To whom a run's end is told, by name."""
    reading = Reading()
    rows = reading.ask(statements.COMPLETIONS_OF, run_id=run_id)
    await db.read(reading)
    return [_completion(row) for row in rows.rows]


def _completion(row: Row) -> Completion:
    return Completion(row["destination"], Instant(row["created_at"]), row["created_by"])
