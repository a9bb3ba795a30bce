"""What the Clock has set aside, on every adapter: it is listed in pages, and tried again at once when that is asked for."""

from typing import Final

import pytest

from moorage.catalog.access import Caller
from moorage.kernel.errors import CursorMismatch, Forbidden, RequestInvalid
from moorage.kernel.instants import Instant
from moorage.kernel.limits import CLOCK_RETRY_BATCH
from moorage.kernel.pages import PageRequest
from moorage.timers import clock, failures
from tests.contract.adapters import Store
from tests.contract.desk import grant
from tests.contract.test_clock import NOW, ROOT, Bells, Log

pytestmark = pytest.mark.clause("timers.alarm")

MANY: Final = """
INSERT INTO due_failures WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST(? AS INTEGER))
SELECT 'a', 'item' || i, 1, CAST(? AS INTEGER) + i, 'KeyError' FROM n
"""


async def test_what_failed_is_listed_with_why_and_when_it_is_tried_again(store: Store) -> None:
    log: Log = []
    a, b = Bells("a", log), Bells("b", log)
    for bells, key in ((a, "ax"), (a, "ay"), (b, "bx")):
        bells.poison[key] = KeyError("the secret is hunter2")
        await bells.hang(store.db(), key, NOW)
    await store.sql("INSERT INTO due_failures VALUES ('of_yore', 'item', 9, 5, 'ValueError')")
    await clock.drain(store.db, NOW, [a, b])
    first = await failures.list_failures(store.db(), ROOT, PageRequest(2))
    rest = await failures.list_failures(store.db(), ROOT, PageRequest(2, first.next_cursor))
    told = [(one.work, one.item, one.failing.attempts, one.failing.error) for one in first.items + rest.items]
    assert told == [("a", "ax", 1, "KeyError"), ("a", "ay", 1, "KeyError"), ("b", "bx", 1, "KeyError"),
                    ("of_yore", "item", 9, "ValueError")]  # fmt: skip
    assert (first.items[0].failing.retry_at, rest.next_cursor) == (NOW + 1000, None)
    of_a = await failures.list_failures(store.db(), ROOT, PageRequest(1), "a")
    others = await failures.list_failures(store.db(), ROOT, PageRequest(1, of_a.next_cursor), "a")
    assert [one.item for one in of_a.items + others.items] == ["ax", "ay"]
    assert others.next_cursor is None
    with pytest.raises(CursorMismatch):
        await failures.list_failures(store.db(), ROOT, PageRequest(1, of_a.next_cursor))


async def test_what_was_mended_is_tried_at_once(store: Store) -> None:
    log: Log = []
    works = a, b = Bells("a", log), Bells("b", log)
    for bells, key in ((a, "ax"), (a, "ay"), (b, "bx"), (b, "by")):
        bells.poison[key] = KeyError()
        await bells.hang(store.db(), key, NOW)
    await clock.drain(store.db, NOW, works)
    now = Instant(NOW + 500)
    for bells in works:
        bells.poison.pop(f"{bells.name}x")
    for item, items, shards in (("ax", 1, {"time"}), ("ax", 0, set()), ("none", 0, set())):
        retried = await failures.retry(store.db(), ROOT, now, works, "a", item)
        assert (retried.items, retried.shards) == (items, shards)
    assert await clock.next_due(store.db(), now, works) == now
    drained = await clock.drain(store.db, now, works)
    assert (drained.fired, drained.failed, log) == ({"a": 1}, [], [("a", "ax", now)])
    assert (await failures.retry(store.db(), ROOT, now, works, "b")).items == 2
    assert (await failures.retry(store.db(), ROOT, now, works)).items == 1
    drained = await clock.drain(store.db, now, works)
    assert drained.fired == {"b": 1}
    assert [(one.item, one.attempts, one.retry_at) for one in drained.failed] == [
        ("ay", 2, now + 2000),
        ("by", 2, now + 2000),
    ]
    with pytest.raises(RequestInvalid):
        await failures.retry(store.db(), ROOT, now, works, "c")
    with pytest.raises(RequestInvalid):
        await failures.retry(store.db(), ROOT, now, works, None, "ax")


async def test_a_great_many_are_tried_in_batches_and_what_nobody_knows_is_left(store: Store) -> None:
    works = [Bells("a", [])]
    await store.sql(MANY, str(CLOCK_RETRY_BATCH + 5), str(NOW))
    await store.sql("INSERT INTO due_failures VALUES ('of_yore', 'item', 9, ?, 'ValueError')", str(NOW + 5))
    sizes = []
    for _ in range(3):
        db = store.db()
        sizes.append((await failures.retry(db, ROOT, NOW, works)).items)
        assert db.cost.trips == 1
    assert sizes == [CLOCK_RETRY_BATCH, 5, 0]
    assert await store.sql("SELECT count(*) AS n FROM due_failures WHERE retry_at > ?", str(NOW)) == [{"n": 1}]


@pytest.mark.clause("catalog.grants")
async def test_only_who_operates_everything_sees_and_tries_it(store: Store) -> None:
    for given in (grant("read", "publish"), grant("operate", kinds=["doc"], match={"to": "a"})):
        ann = Caller("ann", (given,), "crd_ann")
        with pytest.raises(Forbidden):
            await failures.list_failures(store.db(), ann, PageRequest())
        with pytest.raises(Forbidden):
            await failures.retry(store.db(), ann, NOW, [Bells("a", [])])
