"""Awakeables on every adapter: minted once, ended once, seen by whom they are meant for."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from moorage.awakeables import payloads
from moorage.awakeables.due import AwakeableDeadlines
from moorage.awakeables.listing import list_awakeables
from moorage.awakeables.mint import mint
from moorage.awakeables.model import Draft, Minted, Rejection, State
from moorage.awakeables.resolve import reject, resolve, show, show_one
from moorage.catalog.access import Action, Caller, Grant
from moorage.history.query import entries
from moorage.idempotency.keys import key_for
from moorage.kernel.errors import (
    AwakeableAlreadyResolved,
    AwakeableRejected,
    AwakeableTimedOut,
    AwakeableUnknown,
    CursorMismatch,
    FailureTag,
    Forbidden,
    IdempotencyConflict,
    MoorageError,
    RequestInvalid,
    Unauthenticated,
)
from moorage.kernel.instants import Instant
from moorage.kernel.limits import AWAKE_TTL_SECONDS, METADATA_BYTES, TEXT_CHARACTERS
from moorage.kernel.pages import PageRequest
from moorage.timers.clock import drain
from tests.contract.adapters import Store, dump

ROOT = Caller("root", bearer=b"the root token")
NOW = Instant(1_800_000_000_000)
TTL = 60
DEADLINE = Instant(NOW + TTL * 1000)
OK = payloads.Payload.of({"ok": True, "n": 1})
OTHER = payloads.Payload.of({"ok": False})


def later(milliseconds: int) -> Instant:
    return Instant(NOW + milliseconds)


async def a_credential(store: Store, subject: str, *actions: Action) -> Caller:
    """A stored credential, as admission would have found it."""
    identity = f"crd_{subject}_{len(actions)}"
    await store.sql(
        "INSERT INTO credentials (id, token_sha256, subject, grants, created_at, created_by) VALUES (?, ?, ?, '[]', 0, '')",
        identity,
        f"sha-{identity}",
        subject,
    )
    return Caller(subject, (Grant(frozenset(actions)),), identity, bearer=f"token of {subject}".encode())


async def minted(store: Store, now: Instant = NOW, **draft: Any) -> Minted:
    return await mint(store.db(), ROOT, now, Draft(**{"ttl_seconds": TTL, **draft}))


async def story(store: Store, identity: str) -> list[tuple[str, str]]:
    return [(entry.type, entry.actor) for entry in await entries(store.db(), 0, 500, identity)]


async def outcome(store: Store, token: str, payload: payloads.Payload, caller: Caller = ROOT) -> str:
    """The payload that was recorded, or the code of the refusal."""
    try:
        return (await resolve(store.db(), caller, NOW, token, payload)).payload or "no payload"
    except MoorageError as error:
        return error.code


# --- minting --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("awake.mint")
async def test_a_minted_awakeable_is_pending_before_its_token_is_told(store: Store) -> None:
    new = await minted(store, label="release", metadata={"run": 7}, subject="github")
    shown = await show_one(store.db(), ROOT, NOW, new.awakeable.id)
    assert shown.awakeable == new.awakeable
    assert (new.awakeable.state, new.awakeable.label, new.awakeable.metadata) == ("pending", "release", {"run": 7})
    assert new.awakeable.id.startswith("awk_")
    assert await story(store, new.awakeable.id) == [("awakeable.minted", "root")]


@pytest.mark.clause("awake.mint")
async def test_tokens_are_unguessable_and_stored_nowhere(store: Store) -> None:
    several = [await minted(store) for _ in range(20)]
    await resolve(store.db(), ROOT, NOW, several[0].token, OK)
    stored = repr(await dump(store))
    assert len({new.token for new in several}) == 20
    for new in several:
        secret = new.token.removeprefix("awk_tok_")
        assert len(secret) >= 43
        assert secret not in stored
        assert secret not in repr(new)


@pytest.mark.clause("awake.mint")
async def test_the_same_key_mints_once_and_tells_the_same_token(store: Store) -> None:
    key = key_for("root", "once", "POST /awakeables", {"ttl_seconds": TTL})
    first = await mint(store.db(), ROOT, NOW, Draft(TTL), key)
    again = await mint(store.db(), ROOT, later(5), Draft(TTL), key)
    assert (again.token, again.awakeable) == (first.token, first.awakeable)
    assert len(await store.sql("SELECT id FROM awakeables")) == 1
    assert first.token not in repr(await dump(store))
    other = key_for("root", "once", "POST /awakeables", {"ttl_seconds": 1})
    with pytest.raises(IdempotencyConflict):
        await mint(store.db(), ROOT, NOW, Draft(1), other)
    with pytest.raises(IdempotencyConflict):
        await mint(store.db(), Caller("root", bearer=b"another token"), NOW, Draft(TTL), key)


@pytest.mark.clause("awake.mint")
async def test_who_puts_work_in_may_mint(store: Store) -> None:
    for action in ("publish", "execute", "admin"):
        caller = await a_credential(store, action, action)
        assert (await mint(store.db(), caller, NOW, Draft(TTL))).awakeable.created_by == action
    reader = await a_credential(store, "reader", "read", "claim", "watch", "resume")
    with pytest.raises(Forbidden):
        await mint(store.db(), reader, NOW, Draft(TTL))


async def test_a_revoked_credential_neither_mints_nor_resolves(store: Store) -> None:
    new = await minted(store)
    caller = await a_credential(store, "gone", "publish")
    await store.sql("UPDATE credentials SET revoked_at = ? WHERE id = ?", NOW, caller.credential)
    before = await dump(store)
    with pytest.raises(Unauthenticated):
        await mint(store.db(), caller, NOW, Draft(TTL))
    with pytest.raises(Unauthenticated):
        await resolve(store.db(), caller, NOW, new.token, OK)
    assert await dump(store) == before


@pytest.mark.clause("kernel.limits")
@pytest.mark.parametrize(
    ("inside", "outside", "pointer"),
    [
        (Draft(int(AWAKE_TTL_SECONDS)), Draft(AWAKE_TTL_SECONDS + 1), "/ttl_seconds"),
        (Draft(0.001), Draft(0), "/ttl_seconds"),
        (Draft(TTL), Draft(float("nan")), "/ttl_seconds"),
        (Draft(TTL, later(1000)), Draft(int(AWAKE_TTL_SECONDS), later(1000)), "/created_at"),
        (Draft(TTL, label="l" * TEXT_CHARACTERS), Draft(TTL, label="l" * (TEXT_CHARACTERS + 1)), "/label"),
        (Draft(TTL, subject="s"), Draft(TTL, subject=""), "/subject"),
        (
            Draft(TTL, metadata={"m": "x" * (METADATA_BYTES - 8)}),
            Draft(TTL, metadata={"m": "x" * (METADATA_BYTES - 7)}),
            "/metadata",
        ),
    ],
)
async def test_bounds_of_a_draft(store: Store, inside: Draft, outside: Draft, pointer: str) -> None:
    assert (await mint(store.db(), ROOT, NOW, inside)).awakeable.state == "pending"
    before = await dump(store)
    with pytest.raises(RequestInvalid) as refused:
        await mint(store.db(), ROOT, NOW, outside)
    assert [problem["pointer"] for problem in refused.value.errors or []] == [pointer]
    assert await dump(store) == before


# --- resolving ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("awake.idempotent")
async def test_the_same_payload_again_gets_the_recorded_one(store: Store) -> None:
    new = await minted(store)
    first = await resolve(store.db(), ROOT, NOW, new.token, OK)
    before = await dump(store)
    same = payloads.read("application/json; charset=utf-8", b' { "n" : 1.0, "ok": true } ')
    again = await resolve(store.db(), await a_credential(store, "anyone", "read"), later(1000), new.token, same)
    assert again == first
    assert first.value() == {"ok": True, "n": 1}
    assert (first.ended_at, first.ended_by) == (NOW, "root")
    assert (await dump(store))["awakeables"] == before["awakeables"]
    assert await story(store, new.awakeable.id) == [("awakeable.minted", "root"), ("awakeable.resolved", "root")]


@pytest.mark.clause("awake.idempotent")
async def test_another_payload_conflicts_and_changes_nothing(store: Store) -> None:
    new = await minted(store)
    await resolve(store.db(), ROOT, NOW, new.token, OK)
    before = await dump(store)
    with pytest.raises(AwakeableAlreadyResolved):
        await resolve(store.db(), ROOT, NOW, new.token, OTHER)
    with pytest.raises(AwakeableAlreadyResolved):
        await resolve(store.db(), ROOT, later(TTL * 5000), new.token, OTHER)
    assert (await resolve(store.db(), ROOT, later(TTL * 5000), new.token, OK)).value() == {"ok": True, "n": 1}
    assert await dump(store) == before


@pytest.mark.clause("awake.idempotent")
async def test_a_recorded_null_is_a_payload(store: Store) -> None:
    new = await minted(store)
    empty = payloads.read(None, b"")
    assert (await resolve(store.db(), ROOT, NOW, new.token, empty)).payload == "null"
    assert (await resolve(store.db(), ROOT, NOW, new.token, empty)).payload == "null"
    with pytest.raises(AwakeableAlreadyResolved):
        await resolve(store.db(), ROOT, NOW, new.token, OK)
    assert (await show(store.db(), ROOT, NOW, new.token)).wire()["payload"] is None


@pytest.mark.clause("awake.idempotent")
async def test_of_twenty_resolvers_at_once_one_wins(store: Store) -> None:
    new = await minted(store)
    values = [payloads.Payload.of({"by": number % 4}) for number in range(20)]
    outcomes = await asyncio.gather(*[outcome(store, new.token, value) for value in values])
    recorded = (await show(store.db(), ROOT, NOW, new.token)).awakeable.payload
    assert recorded is not None
    assert Counter(outcomes) == {recorded: 5, "AwakeableAlreadyResolved": 15}
    assert [own for own, value in zip(outcomes, values, strict=True) if value.text == recorded] == [recorded] * 5
    assert len(await story(store, new.awakeable.id)) == 2


@pytest.mark.clause("awake.idempotent")
async def test_resolving_takes_one_round_trip_whatever_the_outcome(store: Store) -> None:
    new = await minted(store)
    for payload in (OK, OK, OTHER):
        db = store.db()
        try:
            await resolve(db, ROOT, NOW, new.token, payload)
        except AwakeableAlreadyResolved:
            assert payload is OTHER
        assert db.cost.trips == 1
        assert db.cost.rows_read <= 15


@pytest.mark.clause("awake.unknown")
@pytest.mark.parametrize("token", ["", "awk_tok_", "awk_tok_unknown", "' OR 1=1 --", "%", "\ud800", "x" * 10_000])
async def test_an_unknown_token_allocates_nothing(store: Store, token: str) -> None:
    await minted(store)
    before = await dump(store)
    with pytest.raises(AwakeableUnknown):
        await resolve(store.db(), ROOT, NOW, token, OK)
    with pytest.raises(AwakeableUnknown):
        await reject(store.db(), ROOT, NOW, token, Rejection(FailureTag.PERMANENT, "no"))
    with pytest.raises(AwakeableUnknown) as refused:
        await show(store.db(), ROOT, NOW, token)
    assert await dump(store) == before
    assert len(token) < 5 or token not in refused.value.detail


@pytest.mark.clause("awake.binding")
async def test_a_bound_awakeable_is_unknown_to_every_other_subject(store: Store) -> None:
    new = await minted(store, subject="github")
    other = await a_credential(store, "gitlab", "resume", "publish")
    before = await dump(store)
    for caller in (other, ROOT):
        for instant in (NOW, later(TTL * 2000)):
            with pytest.raises(AwakeableUnknown):
                await resolve(store.db(), caller, instant, new.token, OK)
            with pytest.raises(AwakeableUnknown):
                await reject(store.db(), caller, instant, new.token, Rejection(FailureTag.PERMANENT, "no"))
    with pytest.raises(AwakeableUnknown):
        await show(store.db(), other, NOW, new.token)
    assert await dump(store) == before
    bound = await a_credential(store, "github", "read")
    assert (await resolve(store.db(), bound, NOW, new.token, OK)).ended_by == "github"


# --- deadlines ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("awake.deadline", "awake.expired")
async def test_at_its_deadline_it_is_timed_out_and_stays_so(store: Store) -> None:
    new = await minted(store)
    assert new.awakeable.deadline == DEADLINE
    with pytest.raises(AwakeableTimedOut):
        await resolve(store.db(), ROOT, DEADLINE, new.token, OK)
    for instant in (DEADLINE, later(TTL * 9000), NOW):
        assert (await show(store.db(), ROOT, instant, new.token)).awakeable.state == "timed_out"
        with pytest.raises(AwakeableTimedOut):
            await resolve(store.db(), ROOT, instant, new.token, OK)
        with pytest.raises(AwakeableTimedOut):
            await reject(store.db(), ROOT, instant, new.token, Rejection(FailureTag.PERMANENT, "no"))
    assert (await drain(store.db, later(TTL * 9000), [AwakeableDeadlines()])).fired == {}
    assert await story(store, new.awakeable.id) == [
        ("awakeable.minted", "root"),
        ("awakeable.timed_out", "moorage:clock"),
    ]


@pytest.mark.clause("awake.deadline")
async def test_a_millisecond_before_its_deadline_it_is_resolved(store: Store) -> None:
    new = await minted(store)
    resolved = await resolve(store.db(), ROOT, Instant(DEADLINE - 1), new.token, OK)
    assert resolved.state == "resolved"
    assert (await drain(store.db, later(TTL * 9000), [AwakeableDeadlines()])).fired == {}
    assert (await show(store.db(), ROOT, later(TTL * 9000), new.token)).awakeable.state == "resolved"


@pytest.mark.clause("awake.deadline")
async def test_the_deadline_counts_from_the_callers_creation_instant(store: Store) -> None:
    new = await minted(store, created_at=later(-30_000))
    assert (new.awakeable.created_at, new.awakeable.deadline) == (NOW - 30_000, DEADLINE - 30_000)
    old = await minted(store, created_at=Instant(0))
    assert old.awakeable.state == "timed_out"
    with pytest.raises(AwakeableTimedOut):
        await resolve(store.db(), ROOT, NOW, old.token, OK)


@pytest.mark.clause("awake.route")
async def test_looking_at_one_past_its_deadline_writes_nothing(store: Store) -> None:
    new = await minted(store)
    before = await dump(store)
    shown = await show(store.db(), ROOT, DEADLINE, new.token)
    assert (shown.awakeable.state, shown.awakeable.ended_at) == ("timed_out", DEADLINE)
    assert await dump(store) == before


@pytest.mark.clause("awake.deadline", "timers.alarm")
async def test_the_clock_times_out_what_is_due_and_nothing_early(store: Store) -> None:
    first, second = await minted(store), await minted(store, ttl_seconds=TTL + 1)
    works = [AwakeableDeadlines()]
    early = await drain(store.db, Instant(DEADLINE - 1), works)
    assert (early.fired, early.next_due) == ({}, DEADLINE)
    due = await drain(store.db, DEADLINE, works)
    assert (due.fired, due.next_due) == ({"awakeable_timed_out": 1}, second.awakeable.deadline)
    states = await store.sql("SELECT state FROM awakeables ORDER BY deadline")
    assert [row["state"] for row in states] == ["timed_out", "pending"]
    assert len(await story(store, first.awakeable.id)) == 2


@pytest.mark.clause("awake.deadline")
async def test_a_resolver_and_the_clock_at_once_agree(store: Store) -> None:
    several = [await minted(store) for _ in range(20)]

    async def try_to_resolve(token: str) -> str:
        try:
            return (await resolve(store.db(), ROOT, Instant(DEADLINE - 1), token, OK)).state
        except AwakeableTimedOut:
            return "timed_out"

    answers, _ = await asyncio.gather(
        asyncio.gather(*[try_to_resolve(new.token) for new in several]),
        drain(store.db, DEADLINE, [AwakeableDeadlines()]),
    )
    for new, answer in zip(several, answers, strict=True):
        stored = (await show(store.db(), ROOT, DEADLINE, new.token)).awakeable.state
        assert stored == answer
        assert len(await story(store, new.awakeable.id)) == 2


# --- rejecting ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("awake.reject")
async def test_a_rejection_ends_it_and_is_idempotent(store: Store) -> None:
    new = await minted(store)
    no = Rejection(FailureTag.FORBIDDEN, "the reviewer said no: hunter2")
    first = await reject(store.db(), ROOT, NOW, new.token, no)
    assert (first.state, first.rejection) == ("rejected", no)
    before = await dump(store)
    assert await reject(store.db(), ROOT, later(TTL * 5000), new.token, no) == first
    with pytest.raises(AwakeableRejected):
        await reject(store.db(), ROOT, NOW, new.token, Rejection(FailureTag.FORBIDDEN, "another reason"))
    with pytest.raises(AwakeableRejected):
        await resolve(store.db(), ROOT, NOW, new.token, OK)
    assert await dump(store) == before
    assert await story(store, new.awakeable.id) == [("awakeable.minted", "root"), ("awakeable.rejected", "root")]
    assert "hunter2" not in repr(before["history"])


@pytest.mark.clause("awake.reject")
async def test_a_resolved_one_cannot_be_rejected(store: Store) -> None:
    new = await minted(store)
    await resolve(store.db(), ROOT, NOW, new.token, OK)
    with pytest.raises(AwakeableAlreadyResolved):
        await reject(store.db(), ROOT, NOW, new.token, Rejection(FailureTag.PERMANENT, "no"))


@pytest.mark.clause("awake.reject", "kernel.limits")
async def test_bounds_of_a_rejections_message(store: Store) -> None:
    new = await minted(store)
    with pytest.raises(RequestInvalid):
        await reject(store.db(), ROOT, NOW, new.token, Rejection(FailureTag.PERMANENT, "m" * (TEXT_CHARACTERS + 1)))
    longest = Rejection(FailureTag.PERMANENT, "m" * TEXT_CHARACTERS)
    assert (await reject(store.db(), ROOT, NOW, new.token, longest)).rejection == longest


# --- looking --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("awake.route")
async def test_only_the_minter_and_operators_see_the_payload(store: Store) -> None:
    minter = await a_credential(store, "minter", "publish")
    new = await mint(store.db(), minter, NOW, Draft(TTL, label="secret plan"))
    await resolve(store.db(), ROOT, NOW, new.token, OK)
    for caller in (minter, ROOT, await a_credential(store, "operator", "operate")):
        shown = (await show(store.db(), caller, NOW, new.token)).wire()
        assert (shown["payload"], shown["label"]) == ({"ok": True, "n": 1}, "secret plan")
    outline = (await show(store.db(), await a_credential(store, "stranger", "read"), NOW, new.token)).wire()
    assert outline["state"] == "resolved"
    assert set(outline) == {"id", "state", "created_at", "deadline", "ended_at"}


@pytest.mark.clause("awake.binding", "catalog.grants")
async def test_a_bound_one_is_shown_by_its_id_to_its_minter_and_operators_alone(store: Store) -> None:
    minter = await a_credential(store, "minter", "publish")
    new = await mint(store.db(), minter, NOW, Draft(TTL, subject="github"))
    bound = await a_credential(store, "github", "read")
    await resolve(store.db(), bound, NOW, new.token, OK)
    assert (await show(store.db(), bound, NOW, new.token)).awakeable.state == "resolved"
    for caller in (minter, ROOT, await a_credential(store, "operator", "operate")):
        assert (await show_one(store.db(), caller, NOW, new.awakeable.id)).wire()["payload"] == {"ok": True, "n": 1}
        with pytest.raises(AwakeableUnknown):
            await show(store.db(), caller, NOW, new.token)
    some = Caller("some", (Grant(frozenset({"operate"}), ("doc",)), Grant(frozenset({"operate"}), (), {"a": 1})), "crd")
    for caller in (bound, some):
        with pytest.raises(AwakeableUnknown):
            await show_one(store.db(), caller, NOW, new.awakeable.id)
    with pytest.raises(AwakeableUnknown):
        await show_one(store.db(), ROOT, NOW, "awk_nobody")
    with pytest.raises(Forbidden):
        await list_awakeables(store.db(), some, NOW, PageRequest())


@pytest.mark.clause("awake.route")
async def test_operators_page_through_all_without_tokens(store: Store) -> None:
    several = [await minted(store, later(number // 3), label=f"l{number}") for number in range(7)]
    await resolve(store.db(), ROOT, NOW, several[2].token, OK)
    await reject(store.db(), ROOT, NOW, several[4].token, Rejection(FailureTag.PERMANENT, "no"))
    expected = sorted(new.awakeable.id for new in several)
    seen: list[str] = []
    cursor = None
    while True:
        page = await list_awakeables(store.db(), ROOT, NOW, PageRequest(3, cursor))
        seen += [item.id for item in page.items]
        assert all(item.payload is None for item in page.items)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == expected
    past = later(TTL * 9000)
    expected_counts: list[tuple[State, int, Instant]] = [
        ("pending", 5, NOW),
        ("resolved", 1, past),
        ("rejected", 1, past),
        ("timed_out", 5, past),
    ]
    for state, count, instant in expected_counts:
        page = await list_awakeables(store.db(), ROOT, instant, PageRequest(), state)
        assert [item.state for item in page.items] == [state] * count
    first = await list_awakeables(store.db(), ROOT, NOW, PageRequest(1), "pending")
    with pytest.raises(CursorMismatch):
        await list_awakeables(store.db(), ROOT, NOW, PageRequest(1, first.next_cursor), "resolved")
    with pytest.raises(Forbidden):
        await list_awakeables(store.db(), await a_credential(store, "reader", "read"), NOW, PageRequest())
