"""Input from the field that breaks systems of this kind: hostile text, numbers, ids, long lists, keys that stand twice."""

import re
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from moorage.kernel import canonical
from moorage.kernel.errors import (
    IdInvalid,
    JsonInvalid,
    KindUnknown,
    MoorageError,
    PatternInvalid,
    RequestInvalid,
)
from moorage.kernel.pages import PageRequest
from moorage.records.model import Draft
from tests.contract.adapters import dump, sqlite_store
from tests.contract.desk import KIND, Desk, ref

HOSTILE = [
    "k') OR 1=1 --",
    'k"); DROP TABLE records; --',
    "$.k",
    "k\u0000",
    "%",
    "x" * 10_000,
    ".".join(["s"] * 200),
    "v%",
    "v_",
    "?1",
    ":now",
    "'",
    "{candidates}",
    "{selection}",
]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with sqlite_store(tmp_path) as store:
        made = Desk(store)
        await made.declare()
        yield made
        # After every case an ordinary publish, claim and settle still works.
        record = await made.publish({"to": "ordinary"}, priority=1_000_000)
        held = await made.claim_one()
        assert held.record.id == record.id
        await made.settle(ref(held))
        await made.history_agrees()


# --- C12: text that is hostile to SQL ---


async def refused(attempt: Awaitable[Any], error: type[MoorageError]) -> None:
    """The attempt is refused, and no SQL is told."""
    with pytest.raises(error) as told:
        await attempt
    assert not re.search(r"SELECT|json_|r\.s\d|\?\d{2}", told.value.detail)


@pytest.mark.clause("records.pattern-safe")
async def test_c12_hostile_text_is_taken_as_itself_or_refused(desk: Desk) -> None:
    odd = {"k": "v1", "a'b": 1, 'a"b': 2, "a.b": 3, "a": {"b": 4}, "x]": 5, "$": 6, "": 7, "0": 8, "*": 9, "#": 10, "é": 11}
    await desk.declare("odd", {"k": "string", "a'b": "any", r"a\.b": "any", "a.b": "any", "$": "any", "": "any", "#": "any"})
    first = await desk.publish(odd, kind="odd")
    for _ in range(5):
        await desk.publish({"k": "v2"}, kind="odd")
    for path, value in (("a'b", 1), (r"a\.b", 3), ("a.b", 4), ("$", 6), ("", 7), ("#", 10)):
        assert [one.id for one in (await desk.query({path: value}, kind="odd")).items] == [first.id]
        assert (await desk.query({path: value + 1}, kind="odd")).items == []
    for text in HOSTILE:
        assert (await desk.query({"k": text}, kind="odd")).items == []
        assert await desk.claim({"k": text}, kind="odd") == []
        await refused(desk.query({text: 1}, kind="odd"), PatternInvalid)
        for attempt in (desk.query(kind=text), desk.claim(kind=text), desk.publish(kind=text)):
            await refused(attempt, KindUnknown)
        if not re.fullmatch(r"[A-Za-z0-9._~:@-]{1,200}", text):
            await refused(desk.claim(worker=text, kind="odd"), IdInvalid)
            await refused(desk.publish(id=text), IdInvalid)
        try:
            key = desk.key(text, "content")
        except IdInvalid:
            continue
        [once] = await desk.publish_all([Draft(KIND, {"to": text})], key)
        assert await desk.publish_all([Draft(KIND, {"to": text})], key) == [once]
        assert [one.id for one in (await desk.query({"to": text})).items] == [once.id]
    assert len((await desk.query(kind="odd")).items) == 6


# --- C13: numbers ---


@pytest.mark.clause("kernel.canonical-json", "records.pattern-one-meaning")
async def test_c13_a_number_is_kept_as_it_is_or_refused(desk: Desk) -> None:
    accepted = {
        '{"any":9007199254740992}': 9007199254740992,
        '{"any":-0}': 0,
        '{"any":0.1}': 0.1,
        '{"any":1.0}': 1,
        '{"any":1e20}': 1e20,
    }
    for text, value in accepted.items():
        record = await desk.publish(canonical.loads(text.encode()))
        read = await desk.get(record.id)
        assert read.body["any"] == value
        assert read == record
        match = canonical.loads(text.encode())
        found = (await desk.query(match)).items
        assert record.id in [one.id for one in found]
        assert all(one.body["any"] == value for one in found)
        between = {"any": {"$gte": match["any"], "$lte": match["any"]}}
        assert record.id in [one.id for one in (await desk.query(between)).items]
        held = await desk.claim_one(match=match)
        done = await desk.settle(ref(held), Draft(KIND, held.record.body, priority=-5))
        assert done.results[0].body_sha256 == record.body_sha256
        await desk.settle(ref(await desk.claim_one(match=match)))
    for text in (
        '{"any":9007199254740993}', '{"any":12345678901234567890123}', '{"any":1e400}', '{"any":1e-400}', '{"any":NaN}',
        '{"any":Infinity}', '{"any":01}', '{"any":+1}',
    ):  # fmt: skip
        with pytest.raises(JsonInvalid):
            canonical.loads(text.encode())


# --- C18: ids in paths ---


@pytest.mark.clause("kernel.ids")
async def test_c18_an_id_means_exactly_its_record_or_is_refused(desk: Desk) -> None:
    odd = [
        "a/b", "a%2Fb", "../x", ".", "..", "a b", "a+b", "a#b", "a?b=1", "é", "a;b", "a\\b", "%", "%ZZ", "a\x00b",
        "x" * 2000,
    ]  # fmt: skip
    for name in odd:
        with pytest.raises(IdInvalid) as told:
            await desk.publish(id=name)
        assert "200" in told.value.detail or "letters, digits and" in told.value.detail
        with pytest.raises(IdInvalid):
            await desk.claim(worker=name)
        with pytest.raises(MoorageError) as unknown:
            await desk.get(name)
        assert unknown.value.status == 404
    for name in ("cancel", "A", "a", "requeue", "batch", "query"):
        record = await desk.publish({"to": name}, id=name)
        held = await desk.claim_one(match={"to": name}, worker=name)
        assert (held.record.id, held.lease.owner) == (name, name)
        await desk.settle(ref(held))
        assert (await desk.get(name)).body == record.body


# --- C22: lists past the bound values of one statement ---


@pytest.mark.clause("records.pattern-safe", "kernel.limits")
async def test_c22_long_lists_give_the_right_set_or_are_refused(desk: Desk) -> None:
    published = await desk.publish_all([Draft(KIND, {"to": f"s{number}", "size": number}) for number in range(1, 151)])
    assert len(published) == 150
    everything = {record.id for record in published}

    async def found(match: dict[str, Any]) -> set[str]:
        return {one.id for one in (await desk.query(match, PageRequest(500))).items}

    for count in (0, 1, 95, 99, 100, 101, 150, 500):
        names = [f"s{number}" for number in range(1, count + 1)]
        inside = {record.id for record in published[:count]}
        assert await found({"to": {"$in": names}}) == inside
        assert await found({"to": {"$nin": names}}) == everything - inside
        if count < 250:
            assert await found({"to": {"$in": names + names}}) == inside
    assert await found({"$or": [{"to": f"s{number}"} for number in range(1, 63)]}) == {one.id for one in published[:62]}
    bounds = [{"size": {"$gte": number}} for number in range(40)]
    assert await found({"$and": bounds}) == {one.id for one in published[38:]}
    before = await dump(desk.store)
    for match in (
        {"to": {"$in": [f"s{number}" for number in range(1000)]}},
        {"to": {"$nin": [f"s{number}" for number in range(1000)]}},
        {"$or": [{"to": f"s{number}"} for number in range(120)]},
    ):
        for attempt in (desk.query(match), desk.claim(match), desk.requeue_matching(match)):
            with pytest.raises(PatternInvalid):
                await attempt
    with pytest.raises(RequestInvalid):
        await desk.claim(limit=150)
    assert await dump(desk.store) == before
    held = await desk.claim({"to": {"$in": [f"s{number}" for number in range(1, 151)]}}, limit=100)
    held += await desk.claim(limit=100)
    assert {one.record.id for one in held} == everything
    for one in held:
        await desk.settle(ref(one))
    assert len((await desk.query(page=PageRequest(500), state="consumed")).items) == 150


# --- C27: one key twice ---


@pytest.mark.clause("kernel.canonical-json", "records.undeclared")
async def test_c27_a_key_that_stands_twice_is_refused_and_odd_keys_are_data(desk: Desk) -> None:
    for text in ('{"amount":1,"amount":9000}', '{"a":{"b":1,"b":2}}', '{"a":0,"a":-0}'):
        with pytest.raises(JsonInvalid):
            canonical.loads(text.encode())
    body = canonical.loads(b'{"__proto__":{"x":1},"constructor":2,"any":"p"}')
    record = await desk.publish(body)
    assert (await desk.get(record.id)).body == body
    assert (await desk.claim_one(match={"any": "p"})).record.body == body
