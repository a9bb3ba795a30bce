"""Fan-out: entries of history become deliveries, one for each subscription that they fit (clause outbox.atomic).

A subscription remembers up to which position it looked. Looking further inserts the deliveries and moves the position in
one transaction, which requires that the position was not moved meanwhile. So whatever dies between leaves no gap and tells
nothing twice, and two that look at once cannot both win.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moorage.catalog.access import names
from moorage.history.append import ENDS_OF_RUNS
from moorage.history.query import Entry
from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.kernel.limits import FAN_OUT_BATCH, WATCH_BYTES
from moorage.messages import filters
from moorage.messages.outbox import deliveries
from moorage.messages.outbox import outbox_statements as statements
from moorage.messages.outbox.deliveries import COMPLETIONS
from moorage.records.patterns import evaluate
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

_TRIES: Final = 5

NEVER_TOLD: Final = "delivery."


class Moved(Exception):
    """The subscription was changed, or looked further, since it was read."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one reading found: the subscription, the entries behind its position, and who asked for ends of runs in them."""

    row: Row
    entries: list[Entry]
    completions: dict[int, list[str]]


class OutboxFanOut:
    """The Clock's class of work that turns history into deliveries; an item is a subscription's name and when it was
    declared, paused or resumed last, `orders@1800000000000`, so that one that failed and is mended is tried at once.

    `project` is what the events name as their source. What it counts are entries that were looked at. It appends nothing to
    history: it would never come to an end.
    """

    name = "outbox_fan_out"
    shard: Final = "messages"
    earliest = statements.EARLIEST
    page = statements.BEHIND

    def __init__(self, project: str = "moorage") -> None:
        self._project = project

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Look further for one subscription."""
        name, _, _ = item.rpartition("@")
        return await self.look_further(db, now, name)

    async def look_further(self, db: Database, now: Instant, name: str) -> int:
        """Look at the next FAN_OUT_BATCH entries; 0 when the subscription is gone, paused or up to date."""
        for _ in range(_TRIES):
            seen = await _look(db, name)
            if seen is None:
                return 0
            try:
                return await self._tell(db, now, seen)
            except Moved:
                continue
        return 0

    async def _tell(self, db: Database, now: Instant, seen: _Seen) -> int:
        told, looked = await _fitting(db, seen)
        name, last = seen.row["name"], looked[-1].position
        tx = Transaction(now)
        told_columns = ("name", "position", "types", "kinds", "filter", "destination")
        tx.require(statements.UNCHANGED, Moved(), **{column: seen.row[column] for column in told_columns})
        deliveries.plan(tx, name, self._project, told)
        tx.run(statements.ADVANCE, name=name, to=last)
        await db.commit(tx)
        return len(looked)


def fits(entry: Entry, types: Sequence[str], kinds: Sequence[str]) -> bool:
    """Whether an entry is of one of the types, and of one of the kinds where there are any. A `*` ends a prefix.

    What happens to deliveries is told to nobody: telling that one was given up would make the next, without end.
    """
    if entry.type.startswith(NEVER_TOLD) or not any(names(pattern, entry.type) for pattern in types):
        return False
    return not kinds or (entry.kind is not None and any(names(pattern, entry.kind) for pattern in kinds))


async def _look(db: Database, name: str) -> _Seen | None:
    reading = Reading()
    window: dict[str, Any] = {"name": name, "limit": int(FAN_OUT_BATCH)}
    found = reading.ask(statements.SUBSCRIPTION, name=name)
    unseen = reading.ask(statements.UNSEEN, **window)
    asked = reading.ask(statements.COMPLETIONS_OF_UNSEEN, **window) if name == COMPLETIONS else None
    await db.read(reading)
    if not unseen.rows:
        return None
    completions: dict[int, list[str]] = {}
    for row in asked.rows if asked else ():
        completions.setdefault(row["position"], []).append(row["destination"])
    return _Seen(found.one(), [Entry.of(row) for row in unseen.rows], completions)


async def _fitting(db: Database, seen: _Seen) -> tuple[list[tuple[Entry, str]], list[Entry]]:
    """Which entries are told to whom, and the entries that were looked at: all, or fewer where bodies were too large."""
    if seen.row["name"] == COMPLETIONS:
        ended = (entry for entry in seen.entries if entry.type in ENDS_OF_RUNS)
        return [(entry, to) for entry in ended for to in seen.completions.get(entry.position, ())], seen.entries
    types, kinds = json.loads(seen.row["types"]), json.loads(seen.row["kinds"])
    meant = [entry for entry in seen.entries if fits(entry, types, kinds)]
    looked = seen.entries
    if seen.row["filter"] is not None and meant:
        meant, looked = await _filtered(db, seen, meant)
    return [(entry, seen.row["destination"]) for entry in meant], looked


async def _filtered(db: Database, seen: _Seen, meant: list[Entry]) -> tuple[list[Entry], list[Entry]]:
    pattern, of_bodies = filters.read(seen.row["filter"])
    if not of_bodies:
        return [entry for entry in meant if evaluate(pattern, entry.data)], seen.entries
    bodies, missed = await _bodies(db, [entry.subject for entry in meant])
    looked = seen.entries
    if missed is not None:
        end = next(entry.position for entry in meant if entry.subject == missed)
        looked = [entry for entry in looked if entry.position < end]
    last = looked[-1].position
    chosen = [e for e in meant if e.position <= last and e.subject in bodies and evaluate(pattern, bodies[e.subject])]
    return chosen, looked


async def _bodies(db: Database, subjects: Sequence[str]) -> tuple[Mapping[str, Any], str | None]:
    """The bodies of records, and the first that was left out because there were too many bytes.

    A record's body never changes; one that was removed has none and fits no filter.
    """
    reading = Reading()
    ids = canonical.dumps(list(dict.fromkeys(subjects)))
    found = reading.ask(statements.BODIES, ids=ids, characters=int(WATCH_BYTES))
    await db.read(reading)
    missed = next((row["id"] for row in found.rows if row["body"] is None), None)
    return {row["id"]: canonical.stored(row["body"]) for row in found.rows if row["body"] is not None}, missed
