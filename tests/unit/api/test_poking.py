"""Pokes: after a commit, whoever hosts the executions that it woke is told."""

from collections.abc import Mapping, Sequence

import pytest

from moorage.api.ports import Poke
from moorage.api.ringing import RingingDatabase
from moorage.api.runners import HostRunners, body_bell, execution_bell, remote_rings
from moorage.kernel.errors import StorageBindingUnavailable
from moorage.kernel.instants import Instant
from moorage.store.ports import Cost
from moorage.store.transaction import Reading, Transaction
from moorage.timers.bell import Ring
from tests.unit.api.conftest import House

_ROWS = """
SELECT value AS execution_id, 'worker' AS host, 'r:00' AS runner, 'order' AS body FROM json_each(:ids)
"""


class Unanswered:
    """A database that commits nothing that anybody hears of."""

    def __init__(self) -> None:
        self.cost = Cost()

    async def read(self, reading: Reading) -> None:
        raise AssertionError

    async def commit(self, transaction: Transaction) -> None:
        raise StorageBindingUnavailable

    async def initialize(self, statements: list[str]) -> None:
        raise AssertionError


def silent(rings: Mapping[str, Ring]) -> None:
    assert not rings


async def test_a_commit_pokes_each_execution_that_it_woke_once(house: House) -> None:
    told: list[Sequence[Poke]] = []
    db = RingingDatabase(house.database(), silent, told.append)
    tx = Transaction(Instant(1))
    tx.poke(tx.run(_ROWS, ids='["exe_a","exe_b"]'))
    tx.poke(tx.run(_ROWS, ids='["exe_b"]'))
    await db.commit(tx)
    assert told == [[Poke("exe_a", "worker", "r:00", "order"), Poke("exe_b", "worker", "r:00", "order")]]


async def test_a_commit_that_woke_nobody_pokes_nobody(house: House) -> None:
    told: list[Sequence[Poke]] = []
    db = RingingDatabase(house.database(), silent, told.append)
    tx = Transaction(Instant(1))
    tx.poke(tx.run(_ROWS, ids="[]"))
    await db.commit(tx)
    assert told == []


async def test_a_commit_without_an_answer_leaves_the_poke_to_the_clock() -> None:
    told: list[Sequence[Poke]] = []
    tx = Transaction(Instant(1))
    tx.poke(tx.run(_ROWS, ids='["exe_a"]'))
    with pytest.raises(StorageBindingUnavailable):
        await RingingDatabase(Unanswered(), silent, told.append).commit(tx)
    assert told == []


def test_hosts_outside_the_worker_are_rung_in_bells_of_the_runtimes_own() -> None:
    rings = remote_rings([Poke("exe_a", "remote", "", "order"), Poke("exe_b", "remote", "", "order")])
    assert rings == {execution_bell("exe_a"): Ring(1), execution_bell("exe_b"): Ring(1), body_bell("order"): Ring(2)}
    assert remote_rings([Poke("exe_c", "worker", "r:00", "order")]) == {}


async def test_a_holder_looks_at_what_is_poked_in_the_worker() -> None:
    seen: list[str] = []

    class Holder:
        async def begin(self, execution: object) -> None:
            raise AssertionError

        async def look(self, execution_id: str) -> None:
            seen.append(execution_id)

    runners = HostRunners(Holder())
    runners.poke([Poke("exe_a", "worker", "r:00", "order"), Poke("exe_b", "remote", "", "order")])
    await runners.settle()
    assert seen == ["exe_a"]
