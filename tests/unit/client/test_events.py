"""Events and correlations through the client, against the application itself."""

import asyncio
from contextlib import aclosing

import pytest

from moorage.client import Moorage, Problem
from moorage.kernel.limits import EVENT_BATCH
from tests.unit.client.conftest import World


@pytest.mark.clause("inbox.accept")
async def test_events_are_sent_seen_and_followed(moorage: Moorage, world: World) -> None:
    made = await moorage.events.send("t", {"n": None}, source="/s", id="1", subject="k", correlationid="c", exta=7)
    assert (made.added, made.keys, made.event["exta"], made.data) == (True, ["k", "c"], 7, {"n": None})
    again = await moorage.events.send("t", {"n": 2}, source="/s", id="1")
    assert (again.added, again.content_differs, again.data) == (False, True, {"n": None})
    assert (await moorage.events.get(made.event_id)).data == {"n": None}
    other = await moorage.events.send("u", b"\x00\xff", source="/s")
    assert (other.data, other.added, (await moorage.events.send("u", source="/s")).data) == (b"\x00\xff", True, None)
    batch = [{"specversion": "1.0", "id": f"b-{n}", "source": "/s", "type": "b"} for n in range(EVENT_BATCH)]
    told = await moorage.events.send_batch(batch)
    assert [one.id for one in told] == [f"b-{n}" for n in range(EVENT_BATCH)]
    assert await moorage.events.last_seq() == told[-1].seq
    assert await moorage.events.last_seq("t") == made.seq
    assert await moorage.events.last_seq("nothing") == 0
    assert [one.seq async for one in moorage.events.iterate(type_="b")] == [one.seq for one in told]
    newest = moorage.events.iterate(type_="b", newest_first=True)
    assert [one.seq async for one in newest] == [one.seq for one in reversed(told)]
    page = await moorage.events.page(newest_first=True, limit=3)
    rest = await moorage.events.page(newest_first=True, limit=2, cursor=page.next_cursor)
    assert [one.id for one in [*page.items, *rest.items]] == [f"b-{EVENT_BATCH - n}" for n in range(1, 6)]
    async with aclosing(moorage.events.follow(1, after=told[-2].seq, type_="b")) as found:
        assert (await anext(found)).id == f"b-{EVENT_BATCH - 1}"
        waiting = asyncio.ensure_future(anext(found))
        await world.until(lambda: world.clock.sleepers)
        await moorage.events.send("b", source="/s", id="last")
        await world.advance(1)
        assert (await waiting).id == "last"


@pytest.mark.clause("inbox.correlation")
async def test_keys_are_attached(moorage: Moorage) -> None:
    [made] = await moorage.correlations.attach("w", [("/s", "1")])
    assert (made.work, await moorage.correlations.work_of("/s", "1")) == ("w", "w")
    assert await moorage.correlations.work_of("/s", "2") is None
    await moorage.correlations.attach("w", [("/s", "2"), ("/s", "0")])
    assert [one.external_id async for one in moorage.correlations.iterate("w")] == ["0", "1", "2"]
    page = await moorage.correlations.page("w", limit=1)
    rest = await moorage.correlations.page("w", cursor=page.next_cursor)
    assert [one.external_id for one in rest.items] == ["1", "2"]
    with pytest.raises(Problem) as caught:
        await moorage.correlations.attach("x", [("/s", "1")])
    assert caught.value.code == "CorrelationConflict"
