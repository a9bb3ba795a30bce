"""Retention: what has ended long enough goes, in bounded batches, and nothing that is still needed goes with it."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.catalog.builtin import ARTIFACT, BUILT_IN
from moorage.kernel.errors import Forbidden, KindUnknown, RecordExists, RecordRemoved, RecordUnknown
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import IDEMPOTENCY_SECONDS, RETENTION_BATCH, RETENTION_CHILDREN
from moorage.records import publish, retention
from moorage.records.model import Draft
from moorage.records.retention import Retention
from moorage.store.transaction import Reading, Transaction
from moorage.timers import clock
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, grant, ref

HOUR = 3600
KEPT = "kept"


@pytest.fixture
async def desk(store: Store) -> Desk:
    """KIND keeps its records for an hour, KEPT for good."""
    made = Desk(store)
    await made.declare(retention=HOUR)
    await made.declare(KEPT, {})
    return made


async def end(desk: Desk, *ids: str, kind: str = KIND) -> None:
    """Publish records with these ids and consume them at once."""
    await desk.publish_all([Draft(kind, {}, id=name) for name in ids])
    for held in await desk.claim(kind=kind, limit=len(ids)):
        await desk.settle(ref(held))


async def left(desk: Desk) -> set[str]:
    """The ids that the table holds."""
    return {row["id"] for row in await desk.store.sql("SELECT id FROM records")}


async def preview(desk: Desk, kind: str = KIND, limit: int = 10, seconds: int | None = None) -> retention.Preview:
    return await retention.preview(desk.db(), desk.kinds, desk.caller, desk.now, kind, limit, seconds)


@pytest.mark.clause("records.retention")
async def test_age_counts_from_the_end_and_only_what_has_ended_goes(desk: Desk) -> None:
    await end(desk, "old")
    await desk.publish(id="waiting", not_before=after(desk.now, 48 * HOUR))
    await desk.publish({"to": "ready"}, id="ready")
    await desk.publish({"to": "dead"}, id="dead")
    await desk.fail(ref(await desk.claim_one(match={"to": "dead"})), dead=True)
    await desk.publish({"to": "held"}, id="held")
    held = await desk.claim_one(match={"to": "held"}, seconds=3 * HOUR)
    await desk.publish({"to": "late"}, id="late")
    desk.pass_time(HOUR)
    await desk.settle(ref(await desk.claim_one(match={"to": "late"})))
    desk.pass_time(60)
    assert await desk.fire() == {"retention_swept": 2}
    assert await left(desk) == {"waiting", "ready", "held", "late"}
    assert (await desk.settle(ref(held))).record.state == "consumed"
    await desk.history_agrees()


@pytest.mark.clause("records.retention")
async def test_without_a_policy_nothing_ever_goes(desk: Desk) -> None:
    await end(desk, "a", "b", kind=KEPT)
    desk.pass_time(10 * 366 * 86400)
    assert await desk.next_due() is None
    assert await desk.fire() == {}
    assert await left(desk) == {"a", "b"}


@pytest.mark.clause("records.retention", "timers.alarm")
async def test_a_kind_falls_due_at_the_full_minute_after_its_longest_ended_record(desk: Desk) -> None:
    desk.pass_time(1)
    await end(desk, "a")
    desk.pass_time(90)
    await end(desk, "b")
    first = Instant((desk.now - 90_000 + HOUR * 1000 + 59_999) // 60_000 * 60_000)
    assert await desk.next_due() == first
    desk.now = Instant(first - 1)
    assert await desk.fire() == {}
    desk.now = first
    assert await desk.fire() == {"retention_swept": 1}
    assert await left(desk) == {"b"}
    assert await desk.next_due() == first + 60_000


@pytest.mark.clause("records.retention")
async def test_a_policy_declared_later_reaches_what_ended_before(desk: Desk) -> None:
    await end(desk, "a", kind=KEPT)
    desk.pass_time(120)
    await desk.declare(KEPT, {}, retention=60)
    assert await desk.fire() == {"retention_swept": 1}
    await end(desk, "b", kind=KEPT)
    await desk.declare(KEPT, {}, retention=None)
    desk.pass_time(10 * HOUR)
    assert await desk.fire() == {}
    assert await left(desk) == {"b"}


@pytest.mark.clause("records.retention", "records.lineage")
async def test_a_parent_stays_while_a_live_record_descends_from_it(desk: Desk) -> None:
    await end(desk, "grandparent")
    await desk.publish({"to": "parent"}, id="parent", parents=("grandparent",))
    done = await desk.settle(ref(await desk.claim_one()), Draft(KEPT, {}))
    child = done.results[0].id
    desk.pass_time(HOUR)
    desk.pass_time(60)
    assert await desk.fire() == {"retention_swept": 2}
    assert await left(desk) == {"parent", child}
    assert (await desk.row("parent"))["held_until"] == desk.now + HOUR * 1000 + 60_000
    await desk.settle(ref(await desk.claim_one(kind=KEPT)))
    desk.pass_time(HOUR)
    assert await desk.fire() == {}
    desk.pass_time(120)
    assert await desk.fire() == {"retention_swept": 1}
    assert await left(desk) == {child}
    assert (await desk.get(child)).parents == ["parent"]
    assert (await desk.lineage(child))[0] == []
    assert [row["child"] for row in await desk.store.sql("SELECT child FROM record_parents")] == [child]
    await desk.history_agrees()


@pytest.mark.clause("records.retention", "kernel.limits")
async def test_a_parent_with_too_many_children_stays(desk: Desk) -> None:
    await end(desk, "many", "fewer")
    pairs = [("many", RETENTION_CHILDREN + 1), ("fewer", RETENTION_CHILDREN)]
    for parent, children in pairs:
        await desk.store.sql(
            "INSERT INTO record_parents (child, parent) WITH RECURSIVE n(i) AS "
            "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST(? AS INTEGER)) SELECT ?2 || '-' || i, ?2 FROM n",
            children,
            parent,
        )
    desk.pass_time(HOUR + 60)
    assert await desk.fire() == {"retention_swept": 2}
    assert await left(desk) == {"many"}


@pytest.mark.clause("records.retention", "records.idempotent")
async def test_what_a_key_may_ask_for_stays_as_long_as_the_key(desk: Desk) -> None:
    key = desk.key("k", "content")
    drafts = [Draft(KIND, {}, id="mine")]
    published = await desk.publish_all(drafts, key)
    failed = ref(await desk.claim_one())
    await desk.fail(failed, dead=True, key=desk.key("f", "fail"))
    desk.pass_time(HOUR + 60)
    assert await desk.fire() == {}
    assert [one.id for one in await desk.publish_all(drafts, key)] == [published[0].id]
    assert (await desk.fail(failed, dead=True, key=desk.key("f", "fail"))).state == "dead"
    desk.pass_time(IDEMPOTENCY_SECONDS)
    assert await desk.fire() == {"retention_swept": 1}
    assert await left(desk) == set()


@pytest.mark.clause("records.retention", "records.idempotent")
async def test_a_key_outlives_a_requeue_and_age_counts_from_the_last_end(desk: Desk) -> None:
    await desk.publish_all([Draft(KIND, {}, id="mine")], desk.key("k", "content"))
    await desk.fail(ref(await desk.claim_one()), dead=True)
    desk.pass_time(IDEMPOTENCY_SECONDS - HOUR / 2)
    await desk.requeue("mine")
    await desk.settle(ref(await desk.claim_one()))
    desk.pass_time(HOUR / 2 + 60)
    assert await desk.fire() == {"retention_swept": 1}
    assert (await desk.row("mine"))["held_until"] is None
    desk.pass_time(HOUR / 2 + 60)
    assert await desk.fire() == {"retention_swept": 1}
    assert await left(desk) == set()
    await desk.history_agrees()


@pytest.mark.clause("records.retention", "history.query")
async def test_a_removed_record_is_told_of_and_its_id_is_never_used_again(desk: Desk) -> None:
    await end(desk, "gone")
    seq = (await desk.row("gone"))["seq"]
    desk.pass_time(HOUR + 60)
    await desk.fire()
    with pytest.raises(RecordRemoved):
        await desk.get("gone")
    with pytest.raises(RecordRemoved):
        await desk.lineage("gone")
    with pytest.raises(RecordRemoved):
        await desk.requeue("gone")
    with pytest.raises(RecordRemoved):
        await desk.cancel("gone")
    with pytest.raises(RecordExists):
        await desk.publish(id="gone")
    told = await desk.told("gone")
    assert [entry.type for entry in told] == [
        "record.published",
        "record.claimed",
        "record.settled",
        "record.removed",
    ]
    assert [entry.revision for entry in told] == [1, 2, 3, 4]
    assert (told[0].position, told[-1].data["seq"], told[-1].data["state"]) == (seq, seq, "consumed")
    assert (told[-1].actor, told[-1].content_sha256) == ("moorage:clock", told[0].content_sha256)


@pytest.mark.clause("records.retention", "catalog.grants")
async def test_only_who_might_have_read_it_is_told_that_a_record_was_removed(desk: Desk) -> None:
    await end(desk, "gone")
    desk.pass_time(HOUR + 60)
    await desk.fire()
    whole = desk.seen_by(await desk.credential("who", grant("read", kinds=[KIND])))
    with pytest.raises(RecordRemoved):
        await whole.get("gone")
    for name, grants in (
        ("nar", grant("read", kinds=[KIND], match={"to": "x"})),
        ("oth", grant("read", kinds=[KEPT])),
        ("cla", grant("claim")),
    ):
        other = desk.seen_by(await desk.credential(name, grants))
        with pytest.raises(RecordUnknown):
            await other.get("gone")


@pytest.mark.clause("records.retention", "timers.alarm")
async def test_many_are_removed_in_bounded_transactions(desk: Desk) -> None:
    names = [f"r{number:03}" for number in range(RETENTION_BATCH + 30)]
    for start in range(0, len(names), 65):
        await end(desk, *names[start : start + 65])
    desk.pass_time(HOUR + 60)
    assert await Retention().fire(desk.db(), desk.now, f"{KIND}@{HOUR}") == RETENTION_BATCH
    assert desk.cost.trips == 2
    assert await left(desk) == set(names[RETENTION_BATCH:])
    assert await desk.fire() == {"retention_swept": 30}
    await desk.history_agrees()


@pytest.mark.edge
@pytest.mark.clause("records.retention")
async def test_what_a_removal_reads_does_not_grow_with_what_stays(d1_store: Any) -> None:
    desk = Desk(d1_store)
    await desk.declare(retention=HOUR)
    await desk.publish_all([Draft(KIND, {}, id=f"gone{number}") for number in range(50)])
    for held in await desk.claim(limit=50):
        await desk.settle(ref(held))
    await desk.publish_all([Draft(KIND, {"size": number}, id=f"late{number}") for number in range(50)])
    desk.pass_time(HOUR + 60)
    assert await Retention().fire(desk.db(), desk.now, f"{KIND}@{HOUR}") == 50
    small = desk.cost.rows_read
    for held in await desk.claim(limit=50):
        await desk.settle(ref(held))
    for _ in range(2):
        await desk.publish_all([Draft(KIND, {"to": "bulk"}) for _ in range(500)])
    desk.pass_time(HOUR + 60)
    assert await Retention().fire(desk.db(), desk.now, f"{KIND}@{HOUR}") == 50
    assert desk.cost.rows_read <= small + 25
    assert small <= 50 * 30


class Between:
    """A Database in which something happens once between a reading and the commit."""

    def __init__(self, desk: Desk, happens: Callable[[], Awaitable[Any]]) -> None:
        self.db = desk.store.db()
        self.cost = self.db.cost
        self._happens: Callable[[], Awaitable[Any]] | None = happens

    async def read(self, reading: Reading) -> None:
        await self.db.read(reading)
        happens, self._happens = self._happens, None
        if happens is not None:
            await happens()

    async def commit(self, transaction: Transaction) -> None:
        await self.db.commit(transaction)

    async def initialize(self, statements: list[str]) -> None:
        await self.db.initialize(statements)


@pytest.mark.clause("records.retention", "timers.late")
async def test_a_stale_picture_removes_nothing(desk: Desk) -> None:
    """Between the reading and the commit a record is requeued, held by a key, or gets a live child."""
    await end(desk, "settled")
    await desk.publish({"to": "dead"}, id="requeued")
    await desk.fail(ref(await desk.claim_one()), dead=True)
    await end(desk, "parent")
    desk.pass_time(HOUR + 60)

    async def meanwhile() -> None:
        await desk.requeue("requeued")
        await desk.publish({"to": "child"}, parents=("parent",), id="child")

    assert await Retention().fire(Between(desk, meanwhile), desk.now, f"{KIND}@{HOUR}") == 1
    assert await left(desk) == {"requeued", "parent", "child"}
    assert (await desk.get("requeued")).state == "ready"
    await desk.history_agrees()


@pytest.mark.clause("records.retention", "blobs.order")
async def test_an_artifact_that_is_needed_again_keeps_its_bytes(desk: Desk) -> None:
    await desk.declare(ARTIFACT, BUILT_IN[ARTIFACT], retention=HOUR)
    for name in ("stays", "goes"):
        body = {"digest": name, "media_type": "text/plain", "size": 1}
        drafts = [Draft(ARTIFACT, body, id=name)]
        await publish.publish(desk.db(), desk.kinds, desk.caller, desk.now, drafts, also=lambda tx, planned: None)
        await desk.store.sql("INSERT INTO blob_references (sha256, holder) VALUES (?, ?)", name, name)
        await desk.cancel(name)
    desk.pass_time(HOUR + 60)
    between = Between(desk, lambda: desk.requeue("stays"))
    assert await Retention().fire(between, desk.now, f"{ARTIFACT}@{HOUR}") == 1
    assert await left(desk) == {"stays"}
    assert [row["holder"] for row in await desk.store.sql("SELECT holder FROM blob_references")] == ["stays"]
    assert [row["sha256"] for row in await desk.store.sql("SELECT sha256 FROM blob_deletions")] == ["goes"]


@pytest.mark.clause("records.retention", "timers.alarm")
async def test_a_kind_that_fails_is_set_aside_and_the_others_go_on(desk: Desk) -> None:
    await desk.declare("other", {}, retention=HOUR)
    await end(desk, "a")
    await end(desk, "b", kind="other")
    desk.pass_time(HOUR + 60)
    await desk.store.sql(
        "CREATE TRIGGER poison BEFORE DELETE ON records WHEN old.id = 'a' BEGIN SELECT raise(ABORT, 'no'); END"
    )
    drained = await clock.drain(desk.db, desk.now, [Retention()])
    assert [one.item for one in drained.failed] == [f"{KIND}@{HOUR}"]
    assert await left(desk) == {"a"}
    await desk.store.sql("DROP TRIGGER poison")
    desk.now = drained.failed[0].retry_at
    assert await desk.fire() == {"retention_swept": 1}
    assert await left(desk) == set()


@pytest.mark.clause("records.retention")
async def test_a_preview_tells_what_is_old_enough_and_changes_nothing(desk: Desk) -> None:
    await end(desk, "a")
    desk.pass_time(10)
    await end(desk, "b")
    await end(desk, "c")
    await desk.publish_all([Draft(KIND, {}, id="keyed")], desk.key("k", "c"))
    await desk.settle(ref(await desk.claim_one()))
    before = await dump(desk.store)
    assert (await preview(desk)).candidates == 0
    desk.pass_time(HOUR)
    seen = await preview(desk, limit=2)
    assert (seen.candidates, seen.held, seen.retention_seconds) == (3, 1, HOUR)
    assert [one.id for one in seen.oldest] == ["a", "b"]
    assert seen.oldest[0].state == "consumed"
    supposed = await preview(desk, seconds=HOUR + 5)
    assert (supposed.candidates, [one.id for one in supposed.oldest]) == (1, ["a"])
    kept = await preview(desk, KEPT)
    assert (kept.retention_seconds, kept.candidates, kept.oldest) == (None, 0, [])
    assert await dump(desk.store) == before


@pytest.mark.clause("records.retention", "catalog.grants")
async def test_a_preview_takes_a_grant_to_operate_on_the_whole_kind(desk: Desk) -> None:
    operator = desk.seen_by(await desk.credential("ope", grant("operate", kinds=[KIND])))
    assert (await preview(operator)).candidates == 0
    for name, grants in (("rea", grant("read")), ("nar", grant("operate", match={"to": "x"}))):
        with pytest.raises(Forbidden):
            await preview(desk.seen_by(await desk.credential(name, grants)))
    other = desk.seen_by(await desk.credential("oth", grant("operate", kinds=[KEPT])))
    for nowhere in (preview(other), preview(desk, "nowhere")):
        with pytest.raises(KindUnknown):
            await nowhere
