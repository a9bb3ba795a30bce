"""Values small and large: in their rows up to one mebibyte, in the bucket past it."""

import json

import pytest

from moorage.journal.model import Value
from moorage.kernel import canonical
from moorage.kernel.errors import (
    BlobCorrupt,
    BlobMissing,
    EntryUnknown,
    LeaseFenced,
    PayloadTooLarge,
    RequestInvalid,
    UploadTimedOut,
)
from moorage.kernel.instants import after
from moorage.kernel.limits import ARTIFACT_UPLOAD_SECONDS, JOURNAL_INLINE_BYTES, JOURNAL_VALUE_BYTES
from moorage.runs.model import Minted
from moorage.runs.operations import Await, Close, CommitCursor, Mint, Operation, Put, Record, StartChild, Suspend
from tests.contract.adapters import Store
from tests.contract.harbor import Harbor, claim, entry, key, put, record, text, value


@pytest.fixture
def harbor(store: Store) -> Harbor:
    return Harbor(store)


def of_size(size: int, letter: str = "x") -> str:
    """A text whose canonical JSON has so many bytes."""
    return letter * (size - 2)


@pytest.mark.clause("blobs.inline-cutoff")
@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("step", ["record", "put"])
async def test_the_cutoff_is_one_mebibyte_for_every_kind_of_step(harbor: Harbor, past: int, step: str) -> None:
    fence = (await harbor.opened()).fence
    told = of_size(int(JOURNAL_INLINE_BYTES) + past)
    if step == "record":
        await harbor.apply(fence, claim("a"))
    [outcome] = await harbor.apply(fence, record("a", told) if step == "record" else put("a", told))
    assert text(outcome) == value(told).text
    assert harbor.cost.trips == 1 + past
    [row] = await harbor.rows("journal")
    assert row["size"] == JOURNAL_INLINE_BYTES + past
    assert (row["value"] is None, row["blob"]) == (
        (True, canonical.digest(value(told).text or "")) if past else (False, None)
    )
    assert [one async for one in harbor.store.blobs.list()] == ([row["blob"]] if past else [])
    [loaded] = await harbor.substrate.values(fence, [key("a")])
    assert loaded.text == value(told).text


@pytest.mark.clause("blobs.inline-cutoff")
async def test_what_doubles_when_it_is_quoted_still_fits_its_row(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    told = '"' * (int(JOURNAL_INLINE_BYTES) // 2 - 1)
    assert value(told).size == JOURNAL_INLINE_BYTES
    assert text((await harbor.apply(fence, put("a", told)))[0]) == value(told).text
    [row] = await harbor.rows("journal")
    assert row["value"] == value(told).text


async def test_five_mebibytes_are_recorded_taken_and_loaded(harbor: Harbor) -> None:
    execution = await harbor.opened()
    told = {"big": of_size(5 * 1024 * 1024 // 2, "é")}
    await harbor.apply(execution.fence, claim("a"))
    [outcome] = await harbor.apply(execution.fence, record("a", told))
    assert text(outcome) == value(told).text
    [again] = await harbor.apply(execution.fence, record("a", "other"))
    assert (entry(again).value or Value.of("")).blob == canonical.digest(value(told).text or "")
    harbor.now = execution.lease.expires_at
    second = await harbor.held(execution.execution_id, "bob")
    [one] = second.entries
    assert one.value is not None
    assert (one.value.text, one.value.size) == (None, value(told).size)
    [loaded] = await harbor.substrate.values(second.fence, [one.key])
    assert json.loads(loaded.text or "") == told


async def test_a_value_has_a_bound(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    with pytest.raises(PayloadTooLarge):
        await harbor.apply(fence, put("a", of_size(int(JOURNAL_VALUE_BYTES) + 1)))
    assert await harbor.rows("blob_references") == []
    assert await harbor.rows("journal") == []


@pytest.mark.clause("blobs.verify", "blobs.inline-cutoff")
async def test_a_missing_or_damaged_object_is_an_error_and_never_another_value(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    await harbor.apply(fence, put("a", of_size(1_200_000)))
    [row] = await harbor.rows("journal")
    await harbor.store.damage_blob(row["blob"], b'"other"')
    with pytest.raises(BlobCorrupt) as corrupt:
        await harbor.substrate.values(fence, [key("a")])
    await harbor.store.blobs.delete(row["blob"])
    with pytest.raises(BlobMissing) as missing:
        await harbor.substrate.values(fence, [key("a")])
    assert corrupt.value.members["reference"] == missing.value.members["reference"] == row["blob"]


@pytest.mark.clause("blobs.verify")
async def test_a_run_whose_input_is_gone_ends_with_that(harbor: Harbor) -> None:
    execution = await harbor.open(given=of_size(1_200_000))
    [row] = await harbor.rows("executions")
    await harbor.store.blobs.delete(row["input_blob"])
    assert await harbor.take(execution) is None
    [run] = await harbor.rows("runs")
    error = json.loads(run["error"])
    assert (run["status"], error["code"], error["tag"]) == ("failed", "BlobMissing", "Corrupt")
    assert row["input_blob"] in error["message"]


async def test_a_large_input_is_there_when_the_execution_is_taken(harbor: Harbor) -> None:
    execution = await harbor.opened(given=of_size(1_200_000))
    assert execution.input.text == value(of_size(1_200_000)).text
    assert await harbor.substrate.blob(execution.fence, execution.input.blob or "") == (execution.input.text or "").encode()


async def test_equal_large_values_of_several_steps_are_one_object(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    told = of_size(1_200_000)
    await harbor.apply(fence, put("a", told), put("b", told))
    await harbor.apply(fence, put("c", told))
    assert len({row["blob"] for row in await harbor.rows("journal")}) == 1
    [held] = await harbor.rows("blob_references")
    assert (held["holder"], held["uploading_until"]) == (fence.execution_id, None)


@pytest.mark.clause("blobs.order", "leases.fence")
async def test_a_fenced_write_gives_its_object_back(harbor: Harbor) -> None:
    first = await harbor.opened()
    harbor.now = first.lease.expires_at
    await harbor.held(first.execution_id, "bob")
    with pytest.raises(LeaseFenced):
        await harbor.apply(first.fence, put("a", of_size(1_200_000)))
    assert await harbor.rows("blob_references") == []
    assert len(await harbor.rows("blob_deletions")) == 1


@pytest.mark.clause("blobs.order")
async def test_a_value_that_was_stored_ahead_is_recorded_by_its_digest(harbor: Harbor) -> None:
    first, other = await harbor.opened(), await harbor.opened()
    told = value(of_size(1_200_000))
    stored = await harbor.substrate.store(first.fence, told.text or "")
    assert (stored.text, stored.size, stored.blob) == (None, told.size, canonical.digest(told.text or ""))
    await harbor.apply(first.fence, claim("a"))
    for _ in range(2):
        [outcome] = await harbor.apply(first.fence, Record(key("a"), stored))
        assert (entry(outcome).value or Value.of("")).blob == stored.blob
    [loaded] = await harbor.substrate.values(first.fence, [key("a")])
    assert loaded.text == told.text
    assert await harbor.substrate.blob(first.fence, stored.blob or "") == (told.text or "").encode()
    await harbor.apply(other.fence, claim("a"))
    with pytest.raises(RequestInvalid) as refusal:
        await harbor.apply(other.fence, claim("b"), Record(key("a"), stored))
    message = f"the execution has no upload of {stored.blob}"
    assert refusal.value.errors == [{"pointer": "/operations/1/blob", "message": message}]
    with pytest.raises(EntryUnknown):
        await harbor.substrate.blob(other.fence, stored.blob or "")


@pytest.mark.clause("blobs.order")
@pytest.mark.parametrize("as_", ["record", "result", "input"])
async def test_an_upload_that_nobody_recorded_in_time_is_told_as_that(harbor: Harbor, as_: str) -> None:
    first = await harbor.opened()
    stored = await harbor.substrate.store(first.fence, value(of_size(1_200_000)).text or "")
    missing = Value(None, stored.size, "0" * 64)

    def named(one: Value) -> Operation:
        if as_ == "record":
            return Put(key("a"), "step", "0", one)
        return Close("success", one) if as_ == "result" else StartChild(key("a"), "0", "part", one)

    with pytest.raises(RequestInvalid, match="0000"):
        await harbor.apply(first.fence, named(missing))
    harbor.now = after(harbor.now, ARTIFACT_UPLOAD_SECONDS)
    again = await harbor.held(first.execution_id)
    with pytest.raises(UploadTimedOut):
        await harbor.apply(again.fence, named(stored))


@pytest.mark.clause("blobs.inline-cutoff", "awake.journal")
async def test_a_large_payload_of_an_awakeable_is_an_object_for_its_wait_too(harbor: Harbor) -> None:
    execution = await harbor.opened()
    [minted] = await harbor.apply(execution.fence, Mint(key("m"), "0", 60))
    assert isinstance(minted, Minted)
    told = of_size(1_500_000)
    await harbor.resolve(minted.token, told)
    [outcome] = await harbor.apply(execution.fence, Await(key("w"), "1", minted.id))
    waited = entry(outcome).value
    assert waited is not None
    assert (waited.text, waited.blob is not None) == (None, True)
    [loaded] = await harbor.substrate.values(execution.fence, [key("w")])
    assert json.loads(loaded.text or "") == {"resolved": told}
    assert (loaded.size, loaded.blob) == (len(loaded.text or ""), canonical.digest(loaded.text or ""))
    assert await harbor.substrate.blob(execution.fence, waited.blob or "") == (loaded.text or "").encode()
    await harbor.apply(execution.fence, Close("success"))
    [held] = await harbor.rows("blob_references")
    assert held["holder"] == minted.id


async def test_asking_for_what_has_no_value_is_an_error(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    await harbor.apply(fence, claim("a"), put("b", 1))
    for wrong in ("a", "nothing"):
        with pytest.raises(EntryUnknown):
            await harbor.substrate.values(fence, [key("b"), key(wrong)])
    assert await harbor.substrate.values(fence, []) == []


@pytest.mark.clause("blobs.order")
@pytest.mark.parametrize("last", ["record", "close"])
async def test_a_large_value_that_was_just_let_go_of_is_recorded_again(harbor: Harbor, last: str) -> None:
    told = of_size(1_200_000)
    first = await harbor.opened()
    await harbor.apply(first.fence, put("a", told))
    await harbor.apply(first.fence, Close("success", value(1)))
    assert len(await harbor.rows("blob_deletions")) == 1
    second = await harbor.opened()
    await harbor.apply(second.fence, put("a", told) if last == "record" else Close("success", value(told)))
    digest = canonical.digest(value(told).text or "")
    assert await harbor.store.blobs.get(digest) == (value(told).text or "").encode()
    assert await harbor.rows("blob_deletions") == []


async def test_a_list_that_passes_what_one_transaction_takes_is_too_large_and_stores_nothing(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    moves = [CommitCursor(key(f"c{number}"), "0", f"cursor-{number}", value(1), 0) for number in range(20)]
    with pytest.raises(PayloadTooLarge, match="fewer"):
        await harbor.apply(fence, *moves)
    assert await harbor.rows("journal") == []
    assert len(await harbor.apply(fence, *moves[:4])) == 4


async def test_of_what_a_run_awaits_as_much_is_told_as_has_room(harbor: Harbor) -> None:
    execution = await harbor.opened()
    await harbor.apply(execution.fence, Suspend("suspended", None, [{"label": "x" * 30_000}] * 100))
    run = await harbor.run(execution.run_id)
    assert len(json.loads(run["awaiting"])) == 2
