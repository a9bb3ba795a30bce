"""Telling the Clock that history has grown, where anybody subscribes to it."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from moorage.api.app import build_app
from moorage.api.listening import LISTENING_SECONDS, Listening
from moorage.api.ringing import RingingDatabase
from moorage.history.append import UNKNOWN, Event, append, append_many, append_selected, append_told
from moorage.store.sqlite import SqliteDatabase
from moorage.store.transaction import Transaction
from tests.unit.api.conftest import House, client_of


class Isolate:
    """One isolate: what it knows, what runs beside its requests, and what the Clock was told."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.time = 0.0
        self.asked = 0
        self.told = 0
        self.beside: list[Coroutine[Any, Any, None]] = []
        self.listening = Listening(lambda: self.time, self._sleep)

    def entered(self, types: Any) -> None:
        self.listening.entered(types, self._database, self._tell, self.beside.append)

    async def rest(self) -> None:
        while self.beside:
            await self.beside.pop()

    def _database(self) -> SqliteDatabase:
        self.asked += 1
        return self.house.database()

    def _tell(self) -> None:
        self.told += 1

    async def _sleep(self, seconds: float) -> None:
        self.time += seconds * 1000


@pytest.mark.clause("outbox.lag")
async def test_commits_tell_the_clock_only_where_somebody_listens(house: House) -> None:
    isolate = Isolate(house)
    async with client_of(build_app(replace(house.ports(), entered=isolate.entered))) as api:
        for _ in range(5):
            await api.put("/destinations/there", json={"url": "https://there.example.com/"})
            await isolate.rest()
        assert isolate.told == 0, "nobody listens"
        assert isolate.asked == 1 + isolate.time // (LISTENING_SECONDS * 1000), "and that is asked now and then"
        asked = isolate.asked
        await api.put("/subscriptions/all", json={"types": ["*"], "destination": "there"})
        await isolate.rest()
        assert (isolate.told, isolate.asked) == (1, asked), "who subscribes here is heard at once"
        for _ in range(5):
            await api.put("/destinations/there", json={"url": "https://there.example.com/"})
        assert len(isolate.beside) == 1, "commits are gathered for one call"
        await isolate.rest()
        assert isolate.told == 2
        await api.get("/destinations")
        assert isolate.beside == [], "a reading tells nobody"


async def test_what_is_known_grows_old_and_a_lost_call_is_made_good(house: House) -> None:
    isolate = Isolate(house)
    isolate.entered({"record.published"})
    await isolate.rest()
    house.connection.execute(
        "INSERT INTO subscriptions VALUES ('s', 'active', 'there', 0, 'me', 0, 0, NULL, '[\"*\"]', '[]', NULL)"
    )
    isolate.time += LISTENING_SECONDS * 1000
    isolate.entered({"record.published"})
    isolate.beside.pop().close()
    isolate.entered({"record.published"})
    assert isolate.beside == []
    isolate.time += 1100
    isolate.entered({"record.published"})
    await isolate.rest()
    assert isolate.told == 1


@pytest.mark.clause("outbox.lag")
async def test_what_another_isolate_did_is_known_soon_and_what_was_committed_meanwhile_is_told(house: House) -> None:
    isolate = Isolate(house)
    isolate.entered({"record.published"})
    await isolate.rest()
    assert (isolate.told, isolate.asked) == (0, 1), "nobody listens"
    house.connection.execute(
        "INSERT INTO subscriptions VALUES ('s', 'active', 'there', 0, 'me', 0, 0, NULL, '[\"*\"]', '[]', NULL)"
    )
    known, isolate.time = isolate.time, isolate.time + 2000
    for _ in range(5):
        isolate.entered({"record.published"})
    assert len(isolate.beside) == 1, "nothing else need come for it to be told"
    await isolate.rest()
    assert (isolate.told, isolate.asked, isolate.time - known) == (1, 2, LISTENING_SECONDS * 1000)


@pytest.mark.clause("outbox.lag")
async def test_who_subscribes_here_waits_for_nothing_that_is_to_be_asked_later(house: House) -> None:
    isolate = Isolate(house)
    isolate.entered({"record.published"})
    await isolate.rest()
    isolate.entered({"record.published"})
    isolate.entered({"subscription.declared"})
    assert len(isolate.beside) == 2
    began = isolate.time
    await isolate.beside.pop()
    assert (isolate.told, isolate.time - began) == (1, 100)
    await isolate.rest()


async def test_every_way_of_appending_is_heard(house: House) -> None:
    heard: list[set[str]] = []
    ringing = RingingDatabase(
        house.database(), lambda rings: None, lambda pokes: None, entered=lambda types: heard.append({*types})
    )
    empty = "SELECT 0 AS ordinal, 'x' AS subject, NULL AS kind, '{}' AS data, NULL AS content_sha256 LIMIT 0"
    told = (
        "SELECT 0 AS ordinal, 'x' AS subject, NULL AS kind, '{}' AS data, NULL AS content_sha256, 't' AS type, 'a' AS actor"
    )
    ways: list[Callable[[Transaction], Any]] = [
        lambda tx: append(tx, "me", Event("s", "thing.made")),
        lambda tx: append_many(tx, "me", [Event("a", "thing.a"), Event("b", "thing.b")]),
        lambda tx: append_selected(tx, "me", "thing.chosen", empty),
        lambda tx: append_told(tx, told),
        lambda tx: tx.run("SELECT 1"),
    ]
    for way in ways:
        tx = Transaction(house.now)
        way(tx)
        await ringing.commit(tx)
    assert heard == [{"thing.made"}, {"thing.a", "thing.b"}, {"thing.chosen"}, {UNKNOWN}]
