"""A Database that rings after every commit, for whatever the commit told history, and pokes the hosts of executions for
which it made work, the Couriers for which there is something to send, and the schedules whose next window may have its turn
(clause records.claim-wait).

So no operation needs to think of those who wait, and none can forget them: what was appended to history is what is rung, and
is heard by whoever tells those who subscribed; what was woken in the transaction is what is poked, and whose end was told
there is seen by those who watch it.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from moorage.api.ports import Ended, Poke, Ports
from moorage.api.routing_events import ACCEPTED
from moorage.history.append import ENDS_OF_RECORDS, ENDS_OF_RUNS
from moorage.kernel.errors import StorageBindingUnavailable
from moorage.kernel.instants import Instant
from moorage.messages.inbox.wait_statements import UNROUTED_MS
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Reading, Told, Transaction
from moorage.timers.bell import Ring

RINGS: Final = 50
"""Kinds for which one commit rings. Who waits for further ones finds them by looking again."""

_READY: Final = frozenset(
    {
        "record.published",
        "record.released",
        "record.failed",
        "record.lease_expired",
        "record.due",
        "record.requeued",
    }
)
"""Entries after which a record may be claimable: may, since it may also be delayed or dead."""

_BESIDE: Final = frozenset({"record.renewed", "record.claimed"})
"""Entries after which no claim has more room than before."""


class RingingDatabase:
    """Passes everything on to `behind`; rings once for each kind that a commit changed, pokes once for each execution."""

    def __init__(
        self,
        behind: Database,
        ring: Callable[[Mapping[str, Ring]], None],
        poke: Callable[[Sequence[Poke]], None],
        ended: Callable[[Sequence[Ended]], None] = lambda runs: None,
        entered: Callable[[Collection[str]], None] = lambda types: None,
        summon: Callable[[Sequence[str]], None] = lambda destinations: None,
        turn: Callable[[], None] = lambda: None,
    ) -> None:
        self._behind = behind
        self._ring = ring
        self._poke = poke
        self._ended = ended
        self._entered = entered
        self._summon = summon
        self._turn = turn
        self.cost = behind.cost

    async def read(self, reading: Reading) -> None:
        await self._behind.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        try:
            await self._behind.commit(transaction)
        except StorageBindingUnavailable:
            # It may have been applied all the same.
            self._tell(transaction, answered=False)
            raise
        self._tell(transaction, answered=True)

    async def initialize(self, statements: list[str]) -> None:
        await self._behind.initialize(statements)

    def _tell(self, transaction: Transaction, answered: bool) -> None:
        rings: dict[str, Ring] = {}
        for told in transaction.told:
            for kind, number in _kinds(told, answered).items():
                rings[kind] = rings.get(kind, Ring()) + _ring(told.type, number)
        if rings:
            self._ring(dict(list(rings.items())[:RINGS]))
        if transaction.entered:
            self._entered(transaction.entered)
        if answered and (pokes := _pokes(transaction)):
            self._poke(pokes)
        if answered and (ended := _ends(transaction)):
            self._ended(ended)
        if answered and _may_be_waited_for(transaction):
            self._turn()
        if answered and transaction.summoned:
            self._summon([row["destination"] for couriers in transaction.summoned for row in couriers.rows])


def ringing(ports: Ports) -> RingingDatabase:
    """A database of its own for one request. What its commits accepted is routed beside the request; the Clock is told to do
    it if that is lost."""

    def entered(types: Collection[str]) -> None:
        ports.entered(types)
        if ACCEPTED in types:
            ports.wake(Instant(ports.now() + UNROUTED_MS), "messages")
            ports.routing.entered(types, lambda: ringing(ports), ports.now, ports.later)

    def turn() -> None:
        ports.wake(ports.now(), "time")

    return RingingDatabase(ports.database(), ports.bells.ring, ports.runners.poke, ports.ended, entered, turn=turn)


def _kinds(told: Told, answered: bool) -> Mapping[str, int]:
    if not isinstance(told.kinds, Answer):
        return told.kinds
    counted: dict[str, int] = {}
    for row in told.kinds.rows if answered else ():
        kind = row["kind"]
        if kind is not None:
            counted[kind] = counted.get(kind, 0) + 1
    return counted


def _pokes(transaction: Transaction) -> list[Poke]:
    """The executions to poke, each once. Without an answer nobody knows them: the Clock finds what was committed."""
    rows = {row["execution_id"]: row for answer in transaction.poked for row in answer.rows}
    return [Poke(id_, row["host"], row["runner"], row["body"]) for id_, row in rows.items()]


def _ends(transaction: Transaction) -> list[Ended]:
    """The runs that the transaction ended, whatever ended them."""
    told = (one.kinds for one in transaction.told if one.type in ENDS_OF_RUNS)
    rows = [row for kinds in told if isinstance(kinds, Answer) for row in kinds.rows if row["run"] is not None]
    return [Ended(row["subject"], runner, bool(scheduled)) for row in rows for runner, scheduled in [json.loads(row["run"])]]


def _may_be_waited_for(transaction: Transaction) -> bool:
    """Whether a record has ended that a schedule's trigger published: its next window may have waited for that."""
    told = (one.kinds for one in transaction.told if one.type in ENDS_OF_RECORDS)
    return any(row["triggered"] for kinds in told if isinstance(kinds, Answer) for row in kinds.rows)


def _ring(type_: str, number: int) -> Ring:
    if type_ in _READY:
        return Ring(ready=number)
    return Ring() if type_ in _BESIDE else Ring(freed=number)
