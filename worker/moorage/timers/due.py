"""What a room hands to the Clock: one class of due work (clause timers.alarm).

The rooms lie below this one and import nothing from it. They fit the protocol by shape, which is why it speaks in text
and numbers only. For example, a room whose rows `jobs(id, state, deadline)` end at their deadline:

    class JobDeadlines:
        name = "job_timed_out"
        shard: Final = "runs"
        earliest = '''
        SELECT deadline AS due FROM jobs WHERE state = 'open'
        AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'job_timed_out' AND item = jobs.id)
        ORDER BY deadline LIMIT 1
        '''
        page = '''
        SELECT id AS item, deadline AS due FROM jobs WHERE state = 'open' AND deadline <= :now
        AND NOT EXISTS (SELECT 1 FROM due_failures WHERE work = 'job_timed_out' AND item = jobs.id)
        ORDER BY deadline, id LIMIT CAST(:limit AS INTEGER)
        '''

        async def fire(self, db, now, item):
            tx = Transaction(now)
            changed = tx.run("UPDATE jobs SET state = 'over' WHERE id = :id AND state = 'open' AND deadline <= :now "
                             "RETURNING id", id=item)
            await db.commit(tx)
            return len(changed.rows)

`ORDER BY ... LIMIT 1` rather than `min(...)`: with the other condition beside it, `min` would walk the whole index.

A class whose firings may be put together, as of a sweep that comes round every day, says `coalesces = True`: a driven
clock that passes many of its instants fires it once, at the end. A class whose items know nothing of each other says
`parallel = True`: those of one instant are then sent to the database a few at a time, each in its own transaction, which is
what makes a burst short where the database is far.
"""

from typing import Final, Literal, Protocol, get_args

from moorage.kernel.instants import Instant
from moorage.store.ports import Database

Shard = Literal["records", "runs", "time", "messages", "upkeep"]
"""The Clock is one Durable Object for each: what is slow or in great number in one holds up none of the others."""

SHARDS: Final[tuple[Shard, ...]] = get_args(Shard)

Due = tuple[Instant, Shard]
"""An instant at which something falls due, and the shard of it."""


class DueWork(Protocol):
    """One class of work that falls due at instants stored in the database.

    A failed item is set aside in `due_failures` and belongs to the Clock from then on: neither statement may give an
    item that has a row there under this `name`, whatever that row's retry_at. Both read a handful of index entries,
    however much work is waiting.

    An item names its occasion. Where a thing can become due anew for another reason while its failure stands, as the next
    lease of a record or a timer that is set anew, what tells the two apart is part of the item, `rec_1@1800000000000`: the
    new occasion comes at its own instant, and the old one is found to be over when it is tried again.
    """

    @property
    def name(self) -> str:
        """What happens when an item fires: `lease_expired`. It keys `due_failures`, so it never changes."""

    @property
    def shard(self) -> Shard:
        """Which Clock fires it. Classes that belong together keep their order within one."""

    @property
    def earliest(self) -> str:
        """SQL: at most one row with the column `due`, the instant of the earliest item, due already or not.

        It may name `:now`.
        """

    @property
    def page(self) -> str:
        """SQL: the items due at `:now` (an item due exactly then is due), at most `:limit`, as columns `item` (text, at
        most 300 characters, no secret) and `due`, ordered by `due`.

        A class that works in bulk gives one row for the whole bulk.
        """

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Fire one item in one transaction of its own; the answer is how many things happened, 0 when none did.

        Every change is guarded by the row still being due at `now`: an item that is over, not due yet or gone changes
        nothing and answers 0, so that a picture gone stale does no harm and firing twice is firing once. What it raises
        is recorded and retried later, and stops no other item.
        """
