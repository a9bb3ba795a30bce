"""Every group of operations against the application itself."""

import asyncio
from datetime import datetime, timedelta

import httpx
import pytest

from moorage.client import Debounce, Draft, FailureTag, Held, Moorage, Problem
from moorage.client.models import Lease, Settlement, rfc3339
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


@pytest.mark.clause("kernel.ids")
@pytest.mark.parametrize("name", ["", ".", "..", "\udcff"])
async def test_what_cannot_stand_in_a_path_never_names_something_else(moorage: Moorage, name: str) -> None:
    await moorage.timers.put("t", "ping", delay_seconds=60)
    for asked in (
        moorage.kinds.get(name),
        moorage.kv.get("ns", name),
        moorage.kv.delete(name, "k"),
        moorage.runs.stop(name),
        moorage.timers.delete(name, 1),
        moorage.claims.release(Held(name, 1)),
    ):
        with pytest.raises(Problem) as caught:
            await asked
        assert (caught.value.code, caught.value.tag, caught.value.final) == ("IdInvalid", FailureTag.INVALID, True)


@pytest.mark.clause("kernel.problem")
async def test_what_cannot_be_sent_is_a_problem_and_sends_nothing(moorage: Moorage) -> None:
    for key in ("ü", "\udcff", "a\nb", ""):
        with pytest.raises(Problem, match="IdInvalid: an Idempotency-Key"):
            await moorage.records.publish("doc", {}, key=key)
    with pytest.raises(Problem, match="JsonInvalid"):
        await moorage.records.publish("doc", {"\udcff": 1})
    with pytest.raises(Problem, match="RequestInvalid"):
        await anext(moorage.iterate_history(subject="\udcff"))
    assert [one async for one in moorage.records.iterate("doc")] == []


@pytest.mark.clause("catalog.credentials")
@pytest.mark.parametrize("token", ["moor_secret ", "moor_secret\n", "moor_secretü", " ", "moor_\udcff"])
def test_a_token_that_no_header_can_hold_is_never_repeated(token: str) -> None:
    with pytest.raises(Problem) as caught:
        Moorage("http://127.0.0.1:1", token)
    assert (caught.value.code, "moor_" in str(caught.value)) == ("Unauthenticated", False)


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


async def test_a_public_credential_publishes_and_does_nothing_else(moorage: Moorage, transport: httpx.ASGITransport) -> None:
    grants = [{"actions": ["publish"], "kinds": ["doc"]}]
    rate = {"per_second": 1, "burst": 2}
    made = await moorage.credentials.create("page", grants, public=True, origins=["https://app.example.test"], rate=rate)
    shown = made.wire()
    assert (shown["public"], shown["origins"], shown["rate"]) == (True, ["https://app.example.test"], rate)
    with pytest.raises(Problem) as caught:
        await moorage.credentials.create("page", grants, origins=["https://app.example.test"])
    assert caught.value.errors[0]["pointer"] == "/origins"


@pytest.mark.clause("records.interests", "records.dry-run")
async def test_interests_are_said_found_by_a_dry_run_and_withdrawn(moorage: Moorage) -> None:
    said = await moorage.interests.put("w", "doc", {"n": {"$gt": 5}}, ttl_seconds=60)
    assert (said.worker, said.kind, said.match) == ("w", "doc", {"n": {"$gt": 5}})
    assert [one.worker for one in (await moorage.records.dry_run("doc", {"n": 6})).matches] == ["w"]
    assert (await moorage.records.dry_run("doc", {"n": 5})).matches == []
    assert [one.worker for one in (await moorage.interests.page("doc")).items] == ["w"]
    await moorage.interests.withdraw("w")
    assert (await moorage.interests.page()).items == []


async def test_a_record_is_cancelled_and_what_retention_would_remove_is_shown(moorage: Moorage, world: World) -> None:
    record = await moorage.records.publish("doc", {"n": 1})
    assert (await moorage.records.cancel(record.id, "sent by mistake")).state == "dead"
    await world.house.advance(100)
    shown = await moorage.kinds.retention("doc", retention_seconds=50)
    # The key under which it was cancelled may still ask for it.
    assert (shown.candidates, shown.held, shown.oldest) == (0, 1, [])


async def test_claims_are_renewed_and_settled_in_batches_with_an_outcome_each(moorage: Moorage, world: World) -> None:
    await moorage.records.publish_batch([Draft("doc", {"n": n}) for n in range(3)])
    one, two, three = await moorage.claims.claim("doc", "w", limit=3, lease_seconds=10)
    await moorage.claims.release(two)
    await world.house.advance(5)
    first, lost, last = await moorage.claims.renew_many([one, two, three], 60)
    assert isinstance(first, Lease)
    assert isinstance(last, Lease)
    assert first.expires_at == one.lease.expires_at + timedelta(seconds=55)
    assert isinstance(lost, Problem)
    assert lost.tag is FailureTag.FENCED
    ends = [(one, [Draft("doc", {"n": 7})]), (two, []), (three, [])]
    settled, refused, done = await moorage.claims.settle_many(ends)
    assert isinstance(settled, Settlement)
    assert isinstance(done, Settlement)
    assert (settled.record.state, settled.results[0].parents) == ("consumed", [one.record.id])
    assert settled.receipt.results == [settled.results[0].id]
    assert isinstance(refused, Problem)
    assert refused.code == "LeaseFenced"
    assert done.record.id == three.record.id


async def test_a_burst_of_debounced_records_is_its_last(moorage: Moorage, world: World) -> None:
    made = [await moorage.records.publish("doc", {"n": n}, debounce=Debounce("k", 10, 60)) for n in range(3)]
    assert len({one.id for one in made}) == 1
    await world.house.advance(11)
    (claim,) = await moorage.claims.claim("doc", "w")
    assert claim.record.body == {"n": 2}


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
    with pytest.raises(ValueError, match="time zone"):
        rfc3339(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


def test_no_representation_tells_the_token() -> None:
    assert "secret" not in repr(Moorage("http://moorage.test", "secret"))


@pytest.mark.clause("outbox.redeliver", "completion.subscribe")
async def test_what_is_told_is_subscribed_to_followed_and_asked_for_again(moorage: Moorage, world: World) -> None:
    await moorage.wire.call("PUT", "/destinations/there", {"url": "https://there.example.com/"})
    made = await moorage.subscriptions.put("docs", ["record.published"], "there", kinds=["doc"], match={"n": {"$gte": 1}})
    assert (made.state, made.types, made.filter, made.behind) == ("active", ["record.published"], {"n": {"$gte": 1}}, 0)
    await moorage.records.publish_batch([Draft("doc", {"n": n}) for n in range(3)])
    assert (await moorage.subscriptions.get("docs")).behind == 3
    assert (await moorage.subscriptions.pause("docs", "wait")).reason == "wait"
    assert (await moorage.subscriptions.resume("docs")).state == "active"
    assert [one.name async for one in moorage.subscriptions.iterate()] == ["docs"]
    await world.house.advance(1)
    first, second = [one async for one in moorage.deliveries.iterate(subscription="docs")]
    shown = await moorage.deliveries.get(first.delivery_id)
    assert shown.body is not None
    follower = moorage.deliveries.follow(destination="there")
    assert [await anext(follower), await anext(follower)] == [first, second]
    canceled = await moorage.deliveries.cancel(first.delivery_id, "no")
    assert canceled.state == "canceled"
    coming = asyncio.ensure_future(anext(follower))
    await world.advance(2)
    assert (await coming).state == "canceled"
    # A burst of more than one page is told whole.
    await moorage.records.publish_batch([Draft("doc", {"n": n}) for n in range(1, 121)])
    await world.house.advance(1)
    coming = asyncio.ensure_future(anext(follower))
    await world.advance(2)
    burst = [await coming, *[await anext(follower) for _ in range(119)]]
    assert len({one.delivery_id for one in burst} - {first.delivery_id, second.delivery_id}) == 120
    await follower.aclose()
    assert (await moorage.deliveries.redeliver(first.delivery_id, "yes")).generation == 2
    assert await moorage.deliveries.redeliver_many("back", destination="there") == ([], None)
    summary = await moorage.deliveries.summary()
    assert [(one.destination, one.pending) for one in summary.items] == [("there", 122)]
    await moorage.wire.call("PUT", "/bodies/work", {"build": {"implementation": "a" * 64}})
    run = await moorage.runs.start("work", None, notify=["there"])
    assert [one.destination for one in await moorage.runs.completions(run.run_id)] == ["there"]
    assert (await moorage.runs.notify(run.run_id, "there")).destination == "there"
    await moorage.subscriptions.delete("docs")
