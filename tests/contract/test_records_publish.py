"""Publishing: what is stored, what is refused, and that a batch is all or none."""

import hashlib
from typing import Any

import pytest

from moorage.kernel.canonical import dumps
from moorage.kernel.errors import (
    BodyInvalid,
    IdInvalid,
    JsonInvalid,
    KindUnknown,
    ParentUnknown,
    PayloadTooLarge,
    RecordExists,
    RequestInvalid,
)
from moorage.kernel.instants import after
from moorage.kernel.limits import (
    METADATA_BYTES,
    NOT_BEFORE_SECONDS,
    PUBLISH_BATCH,
    PUBLISH_BATCH_BYTES,
    RECORD_BODY_BYTES,
    RECORD_PARENTS,
    RECORD_PRIORITY,
)
from moorage.records.model import Draft
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, POLICY, START, Desk, ref


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    return made


def filled(size: int, text: str = "x") -> dict[str, Any]:
    """A body of exactly `size` canonical bytes."""
    unit = len(dumps(text).encode()) - 2
    frame = len(dumps({"text": "", "pad": ""}).encode())
    count, rest = divmod(size - frame, unit)
    return {"text": text * count, "pad": "x" * rest}


@pytest.mark.clause("records.publish")
async def test_a_record_is_answered_as_it_is_read_back(desk: Desk) -> None:
    body = {"to": "a@example.test", "size": 2, "free": {"é": [1, None, 0.1]}}
    published = await desk.publish(body, metadata={"trace": "t"}, priority=7)
    assert published == await desk.get(published.id)
    assert published.id.startswith("rec_")
    assert (published.state, published.attempts, published.priority, published.parents) == ("ready", 0, 7, [])
    assert (published.created_at, published.created_by) == (START, "root")
    assert published.body_sha256 == hashlib.sha256(dumps(body).encode()).hexdigest()
    assert (published.not_before, published.ended_at, published.failure) == (None, None, None)
    await desk.history_agrees()


@pytest.mark.clause("records.publish")
async def test_metadata_overrides_no_field_of_the_runtime(desk: Desk) -> None:
    claims = {
        "id": "mine", "seq": 99, "created_at": "1999-01-01T00:00:00Z", "created_by": "mallory", "body_sha256": "0" * 64,
        "state": "consumed", "attempts": 9, "kind": "other",
    }  # fmt: skip
    published = await desk.publish(metadata=claims)
    read = await desk.get(published.id)
    assert read.metadata == claims
    assert read.id != "mine"
    assert (read.created_at, read.created_by, read.state, read.attempts, read.kind) == (START, "root", "ready", 0, KIND)


@pytest.mark.clause("records.publish", "kernel.limits")
async def test_a_full_batch_keeps_its_order(desk: Desk) -> None:
    drafts = [Draft(KIND, {"size": number}) for number in range(PUBLISH_BATCH)]
    published = await desk.publish_all(drafts)
    assert [record.body["size"] for record in published] == list(range(PUBLISH_BATCH))
    assert [record.seq for record in published] == sorted(record.seq for record in published)
    page = await desk.query()
    assert [record.id for record in page.items] == [record.id for record in published[:50]]
    with pytest.raises(RequestInvalid):
        await desk.publish_all([*drafts, drafts[0]])
    with pytest.raises(RequestInvalid):
        await desk.publish_all([])
    await desk.history_agrees()


@pytest.mark.clause("records.publish", "store.atomic")
async def test_small_and_large_records_of_several_kinds_in_one_batch_keep_their_order(desk: Desk) -> None:
    await desk.declare("parcel", {"weight": "number"})
    drafts = [
        Draft("parcel", {"weight": 1}),
        Draft(KIND, filled(400_000)),
        Draft("parcel", {"weight": 2}),
        Draft(KIND, filled(300_000, "é")),
        Draft(KIND, {"to": "z"}),
    ]
    published = await desk.publish_all(drafts)
    assert [(record.kind, record.body) for record in published] == [(draft.kind, draft.body) for draft in drafts]
    assert [record.seq for record in published] == sorted(record.seq for record in published)
    for record in published:
        assert await desk.get(record.id) == record
    await desk.history_agrees()


@pytest.mark.clause("store.atomic", "store.conflict")
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Draft(KIND, {"to": 5}), BodyInvalid),
        (Draft("nowhere", {}), KindUnknown),
        (Draft(KIND, {}, id="taken"), RecordExists),
        (Draft(KIND, {}, parents=("nobody",)), ParentUnknown),
        (Draft(KIND, {}, parents=("p" * 201,)), ParentUnknown),
        (Draft(KIND, {"to": "a\ud800"}), JsonInvalid),
        (Draft(KIND, {"n": 2**53}), JsonInvalid),
        (Draft(KIND, {"n": float("nan")}), JsonInvalid),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
async def test_one_bad_record_keeps_the_whole_batch_out(desk: Desk, bad: Draft, error: type[Exception]) -> None:
    await desk.publish(id="taken")
    before = await dump(desk.store)
    good = Draft(KIND, {"to": "a"}, id="good")
    with pytest.raises(error):
        await desk.publish_all([good, bad])
    assert await dump(desk.store) == before
    assert (await desk.publish_all([good]))[0].id == "good"


@pytest.mark.clause("records.publish")
async def test_a_body_that_breaks_its_declaration_is_located(desk: Desk) -> None:
    with pytest.raises(BodyInvalid) as refused:
        await desk.publish_all([Draft(KIND, {}), Draft(KIND, {"to": 1, "size": "x"})])
    assert [error["pointer"] for error in refused.value.errors or []] == ["/records/1/body/to", "/records/1/body/size"]
    with pytest.raises(BodyInvalid) as refused:
        await desk.publish({"tags": "no array"})
    assert [error["pointer"] for error in refused.value.errors or []] == ["/body/tags"]


@pytest.mark.clause("kernel.limits")
@pytest.mark.parametrize("text", ["x", "é", "😀", '"', "\\", "\u0001"])
async def test_a_body_may_have_a_mebibyte_and_not_one_byte_more(desk: Desk, text: str) -> None:
    body = filled(RECORD_BODY_BYTES, text)
    assert len(dumps(body).encode()) == RECORD_BODY_BYTES
    metadata = filled(METADATA_BYTES)
    published = await desk.publish(body, metadata=metadata)
    read = await desk.get(published.id)
    assert (read.body, read.metadata) == (body, metadata)
    with pytest.raises(PayloadTooLarge):
        await desk.publish(filled(RECORD_BODY_BYTES + 1, text))
    with pytest.raises(PayloadTooLarge):
        await desk.publish(metadata=filled(METADATA_BYTES + 1))


@pytest.mark.clause("kernel.limits")
@pytest.mark.parametrize("text", ["x", "😀", '"', "\u0001"])
async def test_a_batch_may_have_its_bytes_and_not_one_more(desk: Desk, text: str) -> None:
    sizes = [60_000] * 20
    last = PUBLISH_BATCH_BYTES - sum(sizes) - len("{}") * 21
    drafts = [Draft(KIND, filled(size, text)) for size in sizes]
    published = await desk.publish_all([*drafts, Draft(KIND, filled(last, text))])
    assert len(published) == 21
    with pytest.raises(PayloadTooLarge):
        await desk.publish_all([*drafts, Draft(KIND, filled(last + 1, text))])


@pytest.mark.clause("kernel.limits", "store.atomic")
async def test_a_batch_within_its_limits_never_passes_those_of_a_statement(store: Store) -> None:
    """Values at declared paths are stored twice, arrays as quoted elements inside quoted text."""
    desk = Desk(store)
    await desk.declare("wide", {f"p{number}": "number[]" for number in range(16)}, POLICY)
    body = {f"p{number}": [1] * 2000 for number in range(16)}
    drafts = [Draft("wide", body) for _ in range(8)]
    published = await desk.publish_all(drafts)
    assert len(published) == len(drafts)
    found = await desk.query({"p15": {"$size": 2000}}, kind="wide")
    assert len(found.items) == len(drafts)


@pytest.mark.clause("records.lineage", "kernel.limits")
async def test_a_batch_of_records_with_many_long_parents(desk: Desk) -> None:
    parents = tuple(f"{number}".rjust(200, "p") for number in range(RECORD_PARENTS))
    await desk.publish_all([Draft(KIND, {}, id=parent) for parent in parents])
    children = [Draft(KIND, {}, parents=parents, id=f"{number}".rjust(200, "c")) for number in range(60)]
    published = await desk.publish_all(children)
    assert published[59].parents == sorted(parents)
    assert await desk.get(published[59].id) == published[59]
    with pytest.raises(PayloadTooLarge):
        await desk.publish_all([Draft(KIND, {}, parents=parents) for _ in range(80)])
    with pytest.raises(RequestInvalid):
        await desk.publish(parents=(*parents, parents[0]))


@pytest.mark.clause("kernel.ids", "records.publish")
async def test_a_clients_id_is_kept_and_never_used_again(desk: Desk) -> None:
    published = await desk.publish(id="order:7@shop.~-_")
    assert published.id == "order:7@shop.~-_"
    with pytest.raises(RecordExists):
        await desk.publish(id=published.id)
    held = await desk.claim_one()
    await desk.settle(ref(held))
    with pytest.raises(RecordExists):
        await desk.publish(id=published.id)
    # Also when the record itself is long gone.
    await desk.store.sql("DELETE FROM records")
    with pytest.raises(RecordExists):
        await desk.publish(id=published.id)
    with pytest.raises(RecordExists):
        await desk.publish_all([Draft(KIND, {}, id="twice"), Draft(KIND, {}, id="twice")])


@pytest.mark.clause("kernel.ids")
@pytest.mark.parametrize(
    "bad",
    ["", ".", "..", "a/b", "a b", "é", "a\x00b", "x" * 201, "rec_mine", "kind:mail", "crd_x", "sender:x", "scope:x"],
)
async def test_an_id_that_is_not_a_clients_to_choose_is_refused(desk: Desk, bad: str) -> None:
    with pytest.raises(IdInvalid):
        await desk.publish(id=bad)


@pytest.mark.clause("records.lineage")
async def test_parents_exist_when_a_record_is_published(desk: Desk) -> None:
    mother, father = await desk.publish(), await desk.publish()
    child = await desk.publish(parents=(mother.id, father.id, mother.id))
    assert child.parents == sorted([mother.id, father.id])
    with pytest.raises(ParentUnknown):
        await desk.publish(parents=(mother.id, "rec_nobody"))
    # A record of the same batch is no parent yet, and nobody is its own.
    with pytest.raises(ParentUnknown):
        await desk.publish_all([Draft(KIND, {}, id="first"), Draft(KIND, {}, id="second", parents=("first",))])
    with pytest.raises(ParentUnknown):
        await desk.publish(id="self", parents=("self",))


@pytest.mark.clause("kernel.limits")
async def test_a_priority_lies_within_its_bounds(desk: Desk) -> None:
    for priority in (RECORD_PRIORITY, -RECORD_PRIORITY):
        assert (await desk.publish(priority=int(priority))).priority == priority
        with pytest.raises(RequestInvalid):
            await desk.publish(priority=priority + (1 if priority > 0 else -1))


@pytest.mark.clause("records.claim", "kernel.limits")
async def test_not_before_in_the_past_is_at_once_and_ahead_is_waited_for(desk: Desk) -> None:
    past = await desk.publish(not_before=after(desk.now, -60))
    now = await desk.publish(not_before=desk.now)
    ahead = await desk.publish(not_before=after(desk.now, 60))
    assert (past.not_before, now.not_before, ahead.not_before) == (None, None, after(desk.now, 60))
    assert await desk.get(ahead.id) == ahead
    assert [one.record.id for one in await desk.claim(limit=10)] == [past.id, now.id]
    latest = after(desk.now, NOT_BEFORE_SECONDS)
    assert (await desk.publish(not_before=latest)).not_before == latest
    with pytest.raises(RequestInvalid):
        await desk.publish(not_before=after(latest, 0.001))
    await desk.history_agrees()


@pytest.mark.clause("records.undeclared")
async def test_what_is_not_declared_may_hold_anything(desk: Desk) -> None:
    body = {"__proto__": {"x": 1}, "constructor": 2, "secret": "ciphertext", "$gt": [{"to": 5}], "": {"": None}}
    published = await desk.publish(body)
    assert (await desk.get(published.id)).body == body


@pytest.mark.clause("records.publish", "kernel.canonical-json")
async def test_numbers_come_back_with_the_type_they_went_in_with(desk: Desk) -> None:
    body = {"any": 1e20, "n": [9007199254740992.0, 2**53 - 1, 1e300, 0.1, -(2**53 - 1), -1e16], "text": "1" * 20}
    published = await desk.publish(body, metadata={"n": 1e17})
    read = await desk.get(published.id)
    assert read == published
    assert [type(value) for value in read.body["n"]] == [float, int, float, float, int, float]
    assert dumps(read.body) == dumps(body)
    assert type(read.metadata["n"]) is float
    assert [record.id for record in (await desk.query({"any": 1e20})).items] == [published.id]


@pytest.mark.clause("catalog.kind", "records.publish")
async def test_a_kind_redeclared_elsewhere_is_planned_with_anew(desk: Desk) -> None:
    """Another isolate declared a path; this one still remembers the kind without it."""
    await desk.publish({"later": "x"})
    other = Desk(desk.store)
    await other.declare(paths={"to": "string", "size": "number", "tags": "string[]", "any": "any", "later": "string"})
    published = await desk.publish({"later": "y"})
    assert [record.id for record in (await other.query({"later": "y"})).items] == [published.id]
    await other.declare(
        paths={"to": "string", "size": "number", "tags": "string[]", "any": "any", "later": "string", "n": "number"}
    )
    with pytest.raises(BodyInvalid):
        await desk.publish({"n": "no number"})


@pytest.mark.clause("catalog.kind", "records.pattern")
async def test_a_path_declared_elsewhere_can_be_asked_for_at_once(desk: Desk) -> None:
    other = Desk(desk.store)
    await other.declare(paths={"to": "string", "size": "number", "tags": "string[]", "any": "any", "later": "string"})
    published = await other.publish({"later": "y"})
    assert [record.id for record in (await desk.query({"later": "y"})).items] == [published.id]
    stale = Desk(desk.store)
    stale.kinds.put(stale.now, await desk.declare(paths=(await _paths(other))))
    await other.declare(paths={**await _paths(other), "last": "number"})
    await other.publish({"last": 1})
    assert len(await stale.claim({"last": 1})) == 1


async def _paths(desk: Desk) -> dict[str, str]:
    kind = await desk.kinds.get(desk.db(), desk.now, KIND)
    return {text: path.type for text, path in kind.paths.items()}
