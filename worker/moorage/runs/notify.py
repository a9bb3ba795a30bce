"""Who may have a run's end told to a destination (clause completion.subscribe)."""

from typing import Final

from moorage.catalog.access import Caller
from moorage.kernel.errors import Forbidden, RunUnknown, StorageBindingUnavailable
from moorage.kernel.instants import Instant
from moorage.messages.outbox import completions
from moorage.messages.outbox.completions import Completion
from moorage.runs import authority
from moorage.runs import record_statements as statements
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction

_TRIES: Final = 3
"""A run ends once, so that looking again finds it ended."""


async def ask(db: Database, caller: Caller, now: Instant, run_id: str, destination: str, project: str) -> Completion:
    """Have a run's end told to a destination, once, whether it has ended already or not; to ask again changes nothing.

    It takes a grant to execute the run's body. Raises RunUnknown, also for a run that the caller may not see, Forbidden,
    DestinationUnknown, RequestInvalid past COMPLETIONS.
    """
    body = await _body_of(db, caller, run_id)
    if not authority.holds(caller, "execute", body):
        raise Forbidden(f"the credential does not grant execute on body {body!r}")
    for _ in range(_TRIES):
        tx = Transaction(now)
        caller.guard(tx)
        try:
            return await completions.ask(db, tx, caller.subject, run_id, destination, project)
        except completions.Ended:
            continue
    raise StorageBindingUnavailable("the run's end could not be read; try again")


async def listed(db: Database, caller: Caller, run_id: str) -> list[Completion]:
    """To whom a run's end is told. Raises RunUnknown, also for a run that the caller may not see."""
    await _body_of(db, caller, run_id)
    return await completions.of_run(db, run_id)


async def _body_of(db: Database, caller: Caller, run_id: str) -> str:
    reading = Reading()
    found = reading.ask(statements.WHOSE, run_id=run_id)
    await db.read(reading)
    row = found.first()
    if row is None or not (row["created_by"] == caller.subject or authority.sees(caller, row["body"])):
        raise RunUnknown()
    body: str = row["body"]
    return body
