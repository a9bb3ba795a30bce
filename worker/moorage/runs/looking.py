"""Whether there is something to take for hosts outside the Worker."""

from typing import Final

from moorage.store.ports import Database
from moorage.store.transaction import Reading

# Whether some execution of a body may be taken by a host outside the Worker; one row of the index, however many there are.
_CLAIMABLE: Final = """
SELECT EXISTS (SELECT 1 FROM executions WHERE body = :body AND claimable = 1) AS ready
"""


async def claimable(db: Database, body: str) -> bool:
    """Whether an execution of the body waits for a host outside the Worker. One round trip."""
    reading = Reading()
    found = reading.ask(_CLAIMABLE, body=body)
    await db.read(reading)
    return bool(found.one()["ready"])
