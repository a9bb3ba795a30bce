"""Every group of operations against the application itself."""

from datetime import timedelta

import pytest

from moorage.client import Draft, FailureTag, Held, Moorage, Problem
from moorage.client.models import rfc3339
from tests.unit.client.conftest import World


async def test_records_are_published_queried_and_traced(moorage: Moorage) -> None:
    first = await moorage.records.publish("doc", {"n": 1}, metadata={"from": "test"}, priority=3)
    assert (first.body, first.metadata, first.priority, first.state) == ({"n": 1}, {"from": "test"}, 3, "ready")
    others = await moorage.records.publish_batch([Draft("doc", {"n": n}, parents=[first.id]) for n in range(2, 8)])
    page = await moorage.records.query("doc", {"n": {"$gt": 1}}, limit=4)
    assert [one.id for one in page.items] == [one.id for one in others[:4]]
    rest = await moorage.records.query("doc", {"n": {"$gt": 1}}, limit=4, cursor=page.next_cursor)
    assert ([one.id for one in rest.items], rest.next_cursor) == ([one.id for one in others[4:]], None)
    newest = [one.id async for one in moorage.records.iterate("doc", order="desc", page=2)]
    assert newest == [one.id for one in reversed([first, *others])]
    assert await moorage.records.get(first.id) == first
    down = await moorage.records.lineage(first.id, "descendants", 1)
    assert {one.record.id for one in down.items} == {one.id for one in others}
    entries = await moorage.records.history(first.id)
    assert [one.type for one in entries.items] == ["record.published"]
    every = [one.subject async for one in moorage.iterate_history()]
    assert len(every) == 8


async def test_what_an_answer_holds_comes_back_whole(moorage: Moorage) -> None:
    body = {"n": 0.5, "ü": [1, None, {"deep": True}], "": "x"}
    record = await moorage.records.publish("doc", body)
    raw = await moorage.wire.call("GET", f"/records/{record.id}")
    assert record.wire() == raw
    assert (await moorage.kinds.get("doc")).wire() == await moorage.wire.call("GET", "/kinds/doc")


async def test_the_same_key_publishes_once(moorage: Moorage) -> None:
    first = await moorage.records.publish("doc", {"n": 1}, key="k")
    assert await moorage.records.publish("doc", {"n": 1}, key="k") == first
    with pytest.raises(Problem) as caught:
        await moorage.records.publish("doc", {"n": 2}, key="k")
    assert (caught.value.status, caught.value.code, caught.value.tag) == (409, "IdempotencyConflict", FailureTag.CONFLICT)
    assert not caught.value.retryable
    assert caught.value.request_id is not None


async def test_claims_are_renewed_settled_failed_and_released(moorage: Moorage, world: World) -> None:
    await moorage.records.publish_batch([Draft("doc", {"n": n}) for n in range(3)])
    one, two, three = await moorage.claims.claim("doc", "w", limit=5, lease_seconds=10)
    await world.house.advance(5)
    lease = await moorage.claims.renew(one, 60)
    assert lease.expires_at == one.lease.expires_at + timedelta(seconds=55)
    done = await moorage.claims.settle(one, [Draft("doc", {"n": 9})])
    assert (done.record.state, done.results[0].parents) == ("consumed", [one.record.id])
    assert (await moorage.claims.settle(one, [Draft("doc", {"n": 9})])).receipt == done.receipt
    failed = await moorage.claims.fail(two, FailureTag.TRANSIENT, "later", retry_after=60)
    assert failed.failure is not None
    assert (failed.state, failed.failure.tag, failed.not_before is not None) == ("ready", FailureTag.TRANSIENT, True)
    await moorage.claims.release(Held(three.record.id, three.lease.epoch))
    with pytest.raises(Problem) as caught:
        await moorage.claims.renew(three)
    assert caught.value.tag is FailureTag.FENCED


async def test_dead_letters_are_listed_and_requeued(moorage: Moorage) -> None:
    records = await moorage.records.publish_batch([Draft("doc", {"n": n}) for n in range(4)])
    for claim in await moorage.claims.claim("doc", "w", limit=4):
        await moorage.claims.fail(claim, FailureTag.PERMANENT, "broken", dead_letter=True)
    letters = [one async for one in moorage.dead_letters.iterate("doc")]
    assert [one.record.id for one in letters] == [one.id for one in records]
    assert letters[0].attempts[0].owner == "w"
    assert (await moorage.dead_letters.get(records[0].id)) == letters[0]
    assert (await moorage.dead_letters.requeue(records[0].id, "fixed")).state == "ready"
    again = await moorage.dead_letters.requeue_matching("doc", "fixed", {"n": {"$gte": 2}})
    assert [one.id for one in again] == [one.id for one in records[2:]]


async def test_credentials_are_made_seen_and_revoked(moorage: Moorage, world: World) -> None:
    until = (await moorage.records.publish("doc", {})).created_at + timedelta(days=1)
    made = await moorage.credentials.create("reader", [{"actions": ["read"], "kinds": ["doc"]}], expires_at=until)
    assert made.token not in repr(made)
    seen = await moorage.credentials.get(made.id)
    assert (seen.subject, seen.grants[0].kinds, seen.expires_at) == ("reader", ["doc"], until)
    assert [one.id async for one in moorage.credentials.iterate()] == [made.id]
    await moorage.credentials.revoke(made.id)
    assert (await moorage.credentials.get(made.id)).revoked_at is not None


async def test_awakeables_are_resolved_and_rejected(moorage: Moorage) -> None:
    made = await moorage.awakeables.mint(60, label="approval", metadata={"a": 1})
    assert made.token not in repr(made)
    assert await moorage.awakeables.resolve(made.token, {"approved": True}) == {"approved": True}
    assert await moorage.awakeables.resolve(made.token, {"approved": True}) == {"approved": True}
    shown = await moorage.awakeables.show(made.token)
    assert (shown.state, shown.payload) == ("resolved", {"approved": True})
    other = await moorage.awakeables.mint(60)
    assert (await moorage.awakeables.reject(other.token, FailureTag.CANCELED, "no")).state == "rejected"
    assert {one.state async for one in moorage.awakeables.iterate()} == {"resolved", "rejected"}
    with pytest.raises(Problem) as caught:
        await moorage.awakeables.resolve(made.token, {"approved": False})
    assert caught.value.code == "AwakeableAlreadyResolved"


async def test_a_problem_names_what_is_wrong_by_pointer(moorage: Moorage) -> None:
    with pytest.raises(Problem) as caught:
        await moorage.kinds.put("doc", {"claim": {"lease_seconds": 0, "unheard_of": 1}})
    assert {one["pointer"] for one in caught.value.errors} == {"/claim/lease_seconds", "/claim/unheard_of"}
    assert (caught.value.status, caught.value.tag) == (422, FailureTag.INVALID)


async def test_ids_that_a_path_could_misread_reach_their_record(moorage: Moorage) -> None:
    made = await moorage.records.publish("doc", {}, id="a:b@c~d.e-f")
    assert (await moorage.records.get("a:b@c~d.e-f")) == made
    with pytest.raises(Problem) as caught:
        await moorage.records.get("../kinds/doc?x=#")
    assert caught.value.status in {400, 404}


def test_an_instant_without_a_zone_is_refused() -> None:
    from datetime import datetime

    with pytest.raises(ValueError, match="time zone"):
        rfc3339(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


def test_no_representation_tells_the_token() -> None:
    assert "secret" not in repr(Moorage("http://moorage.test", "secret"))
