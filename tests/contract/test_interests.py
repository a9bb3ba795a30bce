"""Interests: what workers say they look for, and which of them a proposed record would reach."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.history.query import entries
from moorage.kernel import canonical
from moorage.kernel.errors import (
    BodyInvalid,
    CursorMismatch,
    Forbidden,
    IdInvalid,
    InterestUnknown,
    KindUnknown,
    PatternInvalid,
    PayloadTooLarge,
    RequestInvalid,
    Unauthenticated,
)
from moorage.kernel.instants import after
from moorage.kernel.limits import INTEREST_TTL_SECONDS
from moorage.kernel.pages import Page, PageRequest
from moorage.records import interests
from moorage.records.interests import SWEEP, ExpiredInterests, Interest
from moorage.records.model import Draft
from moorage.timers import clock
from tests.contract.adapters import Store, dump, sqlite_store
from tests.contract.desk import KIND, Desk, grant


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    await made.declare("other", {"to": "string"})
    return made


async def look(
    desk: Desk, worker: str, match: Mapping[str, Any] | None = None, seconds: float = 60, kind: str = KIND
) -> Interest:
    return await interests.declare(desk.db(), desk.kinds, desk.caller, desk.now, worker, kind, match or {}, seconds)


async def reached(desk: Desk, body: Mapping[str, Any], kind: str = KIND) -> list[str]:
    """The workers that a record would reach."""
    found, truncated = await interests.dry_run(desk.db(), desk.kinds, desk.caller, desk.now, Draft(kind, body))
    assert not truncated
    return [one.worker for one in found]


async def listed(desk: Desk, page: PageRequest | None = None, kind: str | None = None) -> Page[Interest]:
    return await interests.list_interests(desk.db(), desk.caller, desk.now, page or PageRequest(), kind)


async def names(desk: Desk, kind: str | None = None) -> list[tuple[str, str]]:
    return [(one.worker, one.subject) for one in (await listed(desk, kind=kind)).items]


@pytest.mark.clause("records.interests", "records.dry-run")
async def test_a_dry_run_names_the_live_interests_that_match(desk: Desk) -> None:
    await look(desk, "ann", {"to": "a"})
    await look(desk, "ben", {"size": {"$gte": 3}})
    await look(desk, "cid")
    await look(desk, "dan", kind="other")
    assert await reached(desk, {"to": "a", "size": 3}) == ["ann", "ben", "cid"]
    assert await reached(desk, {"to": "b"}) == ["cid"]
    assert await reached(desk, {}, "other") == ["dan"]
    found, _ = await interests.dry_run(desk.db(), desk.kinds, desk.caller, desk.now, Draft(KIND, {"to": "a"}))
    assert (found[0].subject, found[0].expires_at) == ("root", after(desk.now, 60))


@pytest.mark.clause("records.interests", "records.dry-run", "catalog.grants")
async def test_a_stored_pattern_means_what_it_meant_when_its_number_is_written_with_the_digits_of_an_integer(
    desk: Desk,
) -> None:
    below = {"size": {"$lt": 1.2345678901234567e20}}
    made = await look(desk, "ann", below)
    narrow = desk.seen_by(await desk.credential("nar", grant("publish", kinds=[KIND], match=below)))
    assert (made.match, await reached(narrow, {"size": 3})) == (below, ["ann"])
    with pytest.raises(Forbidden):
        await reached(narrow, {"size": 1.2345678901234567e20})


@pytest.mark.clause("records.dry-run")
async def test_a_dry_run_writes_nothing_and_refuses_what_a_publication_would(desk: Desk) -> None:
    await look(desk, "ann")
    before = await dump(desk.store)
    await reached(desk, {"to": "a"})
    for body, refusal in (({"to": 1}, BodyInvalid), ({"x": "x" * 1_100_000}, PayloadTooLarge)):
        with pytest.raises(refusal):
            await reached(desk, body)
    with pytest.raises(KindUnknown):
        await reached(desk, {}, "nowhere")
    narrow = desk.seen_by(await desk.credential("nar", grant("publish", kinds=[KIND], match={"to": "mine"})))
    assert await reached(narrow, {"to": "mine"}) == ["ann"]
    with pytest.raises(Forbidden):
        await reached(narrow, {"to": "his"})
    reader = desk.seen_by(await desk.credential("rea", grant("read", "claim")))
    with pytest.raises(Forbidden):
        await reached(reader, {})
    after_ = await dump(desk.store)
    assert {**after_, "credentials": before["credentials"]} == before


@pytest.mark.clause("records.dry-run")
async def test_a_dry_run_sees_a_path_that_was_declared_elsewhere_a_moment_ago(desk: Desk) -> None:
    elsewhere = Desk(desk.store)
    await elsewhere.declare("other", {"to": "string", "new": "number"})
    await look(elsewhere, "ann", {"new": 1}, kind="other")
    assert await reached(desk, {"new": 1}, "other") == ["ann"]
    assert (await look(desk, "ben", {"new": 2}, kind="other")).match == {"new": 2}


@pytest.mark.clause("records.interests")
async def test_an_interest_lasts_until_its_instant_unless_renewed(desk: Desk) -> None:
    made = await look(desk, "ann", seconds=10)
    desk.pass_time(9.999)
    assert await reached(desk, {}) == ["ann"]
    renewed = await look(desk, "ann", seconds=10)
    assert (renewed.created_at, renewed.expires_at) == (made.created_at, after(desk.now, 10))
    desk.pass_time(10)
    assert await reached(desk, {}) == []
    assert await names(desk) == []
    with pytest.raises(InterestUnknown):
        await interests.withdraw(desk.db(), desk.caller, desk.now, "ann")
    again = await look(desk, "ann", seconds=10)
    assert again.created_at == desk.now


@pytest.mark.clause("records.interests")
async def test_a_second_interest_takes_the_place_of_the_first(desk: Desk) -> None:
    await look(desk, "ann", {"to": "a"})
    desk.pass_time(1)
    changed = await look(desk, "ann", {"to": "b"}, kind="other")
    assert (changed.kind, changed.match, changed.created_at) == ("other", {"to": "b"}, desk.now)
    assert await reached(desk, {"to": "a"}) == []
    assert await reached(desk, {"to": "b"}, "other") == ["ann"]
    await interests.withdraw(desk.db(), desk.caller, desk.now, "ann")
    assert await reached(desk, {"to": "b"}, "other") == []
    with pytest.raises(InterestUnknown):
        await interests.withdraw(desk.db(), desk.caller, desk.now, "ann")


@pytest.mark.clause("records.interests", "history.append")
async def test_history_tells_of_what_is_new_and_not_of_renewals(desk: Desk) -> None:
    await look(desk, "ann", {"to": "a"})
    await look(desk, "ann", {"to": "a"}, seconds=90)
    await look(desk, "ann", {"to": "b"})
    await interests.withdraw(desk.db(), desk.caller, desk.now, "ann")
    told = await entries(desk.store.db(), 0, 10, "interest:ann")
    assert [(one.type, one.revision, one.kind) for one in told] == [
        ("interest.declared", 1, KIND),
        ("interest.declared", 2, KIND),
        ("interest.withdrawn", 3, KIND),
    ]
    assert [one.data for one in told] == [{"match": {"to": "a"}}, {"match": {"to": "b"}}, {}]


@pytest.mark.clause("records.interests", "catalog.grants")
async def test_each_subject_has_workers_of_its_own(desk: Desk) -> None:
    ann = desk.seen_by(await desk.credential("ann", grant("claim", kinds=[KIND])))
    await look(desk, "w", {"to": "root"})
    await look(ann, "w", {"to": "ann"})
    assert await names(desk) == [("w", "ann"), ("w", "root")]
    assert await names(ann) == [("w", "ann")]
    await interests.withdraw(ann.db(), ann.caller, ann.now, "w")
    with pytest.raises(InterestUnknown):
        await interests.withdraw(ann.db(), ann.caller, ann.now, "w")
    assert await names(desk) == [("w", "root")]


@pytest.mark.clause("records.interests", "catalog.grants")
async def test_it_takes_a_grant_to_claim_and_a_pattern_that_fits(desk: Desk) -> None:
    ann = desk.seen_by(await desk.credential("ann", grant("read", kinds=[KIND])))
    before = await dump(desk.store)
    with pytest.raises(Forbidden):
        await look(ann, "w")
    with pytest.raises(KindUnknown):
        await look(ann, "w", kind="other")
    with pytest.raises(PatternInvalid):
        await look(desk, "w", {"undeclared": 1})
    for worker in ("", "a b", "x" * 201):
        with pytest.raises(IdInvalid):
            await look(desk, worker)
    for seconds in (0, 0.5, INTEREST_TTL_SECONDS + 1):
        with pytest.raises(RequestInvalid):
            await look(desk, "w", seconds=seconds)
    assert await dump(desk.store) == before


@pytest.mark.clause("records.dry-run", "catalog.grants")
async def test_an_interest_reaches_no_further_than_its_credential(desk: Desk) -> None:
    caller = await desk.credential("ann", grant("claim", kinds=[KIND], match={"to": "a"}))
    stored = '[{"actions":["claim"],"kinds":["mail"],"match":{"to":"a"}}]'
    await desk.store.sql("UPDATE credentials SET grants = ? WHERE id = ?", stored, str(caller.credential))
    ann = desk.seen_by(caller)
    await look(ann, "w", {"size": {"$gt": 1}}, seconds=3600)
    assert await reached(desk, {"to": "a", "size": 2}) == ["w"]
    assert await reached(desk, {"to": "b", "size": 2}) == []
    await desk.store.sql("UPDATE credentials SET grants = '[]'")
    assert await reached(desk, {"to": "a", "size": 2}) == []
    await desk.store.sql("UPDATE credentials SET grants = ?, expires_at = CAST(? AS INTEGER)", stored, desk.now + 1000)
    assert await reached(desk, {"to": "a", "size": 2}) == ["w"]
    desk.pass_time(1)
    assert await reached(desk, {"to": "a", "size": 2}) == []
    await desk.store.sql("UPDATE credentials SET expires_at = NULL, revoked_at = 1")
    assert await reached(desk, {"to": "a", "size": 2}) == []
    with pytest.raises(Unauthenticated):
        await look(ann, "w")
    with pytest.raises(Unauthenticated):
        await interests.withdraw(ann.db(), ann.caller, ann.now, "w")


@pytest.mark.clause("records.interests", "catalog.grants")
async def test_a_list_shows_ones_own_and_those_of_kinds_that_one_may_read_whole(desk: Desk) -> None:
    for worker, kind in (("a", KIND), ("b", "other"), ("c", KIND)):
        await look(desk, worker, kind=kind)
    for subject, grants, seen in (
        ("rea", [grant("read", kinds=["ma*"])], ["a", "c"]),
        ("all", [grant("read")], ["a", "b", "c"]),
        ("nar", [grant("read", kinds=[KIND], match={"to": "x"})], []),
        ("cla", [grant("claim", kinds=[KIND])], []),
        ("adm", [grant("admin", kinds=["other"])], ["b"]),
    ):
        other = desk.seen_by(await desk.credential(subject, *grants))
        assert [worker for worker, _ in await names(other)] == seen, subject
    claimer = desk.seen_by(await desk.credential("own", grant("claim")))
    await look(claimer, "mine")
    assert await names(claimer) == [("mine", "own")]
    assert [worker for worker, _ in await names(desk, "other")] == ["b"]


@pytest.mark.clause("records.interests")
async def test_pages_of_interests_neither_lose_nor_repeat(desk: Desk) -> None:
    ann = desk.seen_by(await desk.credential("ann", grant("claim")))
    for worker in ("a", "b", "c"):
        await look(desk, worker)
        await look(ann, worker)
    seen: list[tuple[str, str]] = []
    cursor: str | None = None
    while True:
        page = await listed(desk, PageRequest(1, cursor))
        seen += [(one.worker, one.subject) for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
        if len(seen) == 2:
            await interests.withdraw(desk.db(), desk.caller, desk.now, "a")
    assert seen == [(worker, subject) for worker in ("a", "b", "c") for subject in ("ann", "root")]
    cursor = (await listed(desk, PageRequest(1))).next_cursor
    with pytest.raises(CursorMismatch):
        await listed(desk, PageRequest(1, cursor), KIND)


@pytest.mark.clause("records.interests", "timers.alarm")
async def test_the_clock_forgets_expired_interests_in_bulk(desk: Desk) -> None:
    await desk.store.sql(
        "INSERT INTO interests (worker, subject, kind, match, created_at, expires_at) WITH RECURSIVE n(i) AS "
        "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200) SELECT 'w' || i, 'root', 'mail', '{}', 0, 1 FROM n"
    )
    live = await look(desk, "live", seconds=660)
    assert await clock.next_due(desk.db(), desk.now, [ExpiredInterests()]) == 600_000
    assert await ExpiredInterests().fire(desk.db(), desk.now, "sweep") == SWEEP
    drained = await clock.drain(desk.db, desk.now, [ExpiredInterests()])
    assert drained.fired == {"interest_expired": 1200 - SWEEP}
    assert await names(desk) == [("live", "root")]
    assert drained.next_due == interests.swept_at(live) == after(desk.now, 1200)
    desk.pass_time(1200)
    assert (await clock.drain(desk.db, desk.now, [ExpiredInterests()])).fired == {"interest_expired": 1}
    assert await desk.store.sql("SELECT 1 FROM interests") == []


@pytest.mark.clause("records.dry-run", "kernel.limits")
async def test_a_dry_run_asks_a_bounded_number_of_interests(desk: Desk) -> None:
    await desk.store.sql(
        "INSERT INTO interests (worker, subject, kind, match, created_at, expires_at) WITH RECURSIVE n(i) AS "
        "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1001) "
        "SELECT printf('w%04d', i), 'root', 'mail', '{}', 0, CAST(? AS INTEGER) FROM n",
        desk.now + 1000,
    )
    found, truncated = await interests.dry_run(desk.db(), desk.kinds, desk.caller, desk.now, Draft(KIND, {}))
    assert (len(found), truncated, found[-1].worker) == (1000, True, "w1000")


NUMBER = st.integers(-1, 2) | st.just(0.5)
TEXT = st.sampled_from(["a", "b", ""])
TEST = st.one_of(
    st.builds(lambda path, value: {path: value}, st.just("size"), NUMBER | st.none()),
    st.builds(lambda op, value: {"size": {op: value}}, st.sampled_from(["$gt", "$lte", "$ne", "$eq"]), NUMBER),
    st.builds(lambda op, values: {"to": {op: values}}, st.sampled_from(["$in", "$nin"]), st.lists(TEXT, max_size=2)),
    st.builds(lambda op, values: {"tags": {op: values}}, st.sampled_from(["$any", "$all"]), st.lists(TEXT, max_size=2)),
    st.builds(lambda path, there: {path: {"$exists": there}}, st.sampled_from(["to", "size", "any"]), st.booleans()),
)
MATCH = st.recursive(
    TEST,
    lambda inner: st.one_of(
        st.builds(lambda one: {"$not": one}, inner),
        st.builds(
            lambda op, many: {op: many}, st.sampled_from(["$and", "$or", "$nor"]), st.lists(inner, min_size=1, max_size=3)
        ),
    ),
    max_leaves=4,
)
BODY = st.fixed_dictionaries(
    {},
    optional={
        "size": NUMBER | st.none(),
        "to": TEXT | st.none(),
        "tags": st.lists(TEXT, max_size=2),
        "any": NUMBER | TEXT | st.booleans(),
    },
)


@pytest.mark.clause("records.pattern-one-meaning", "records.dry-run")
@settings(max_examples=100, deadline=None)
@given(matches=st.lists(MATCH, min_size=1, max_size=4), grant_match=MATCH, body=BODY)
async def test_a_dry_run_says_what_the_workers_claims_then_get(
    matches: list[dict[str, Any]], grant_match: dict[str, Any], body: dict[str, Any]
) -> None:
    """Each worker's claim is asked of a record of its own; the last worker's grant is narrowed."""
    with tempfile.TemporaryDirectory() as folder:
        async with sqlite_store(Path(folder)) as store:
            desk = Desk(store)
            await desk.declare()
            caller = await desk.credential("nar", grant("claim", kinds=[KIND], match=grant_match))
            stored = canonical.dumps([{"actions": ["claim"], "kinds": [KIND], "match": grant_match}])
            await store.sql("UPDATE credentials SET grants = ?", stored)
            desks = [desk] * (len(matches) - 1) + [desk.seen_by(caller)]
            for place, (one, match) in enumerate(zip(desks, matches, strict=True)):
                await look(one, f"w{place}", match)
            said = await reached(desk, body)
            claimed = []
            for place, (one, match) in enumerate(zip(desks, matches, strict=True)):
                await desk.publish(body)
                if await one.claim(match):
                    claimed.append(f"w{place}")
                else:
                    await desk.claim()
            assert said == claimed
