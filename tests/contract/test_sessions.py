"""Numbered claims: a lost answer is the same claim again, never a second one."""

import asyncio
from typing import Any

import pytest

from moorage.kernel.errors import (
    Forbidden,
    IdInvalid,
    RequestInvalid,
    SequenceConflict,
    SequenceStale,
    SessionExpired,
    SessionUnknown,
    StorageBindingUnavailable,
)
from moorage.kernel.instants import after
from moorage.kernel.limits import SESSION_CONSUMERS, SESSION_SECONDS
from moorage.records import claim, sessions
from moorage.records.claim import NothingMatches
from moorage.records.model import Draft
from moorage.records.sessions import Cursor, Session, Turn
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, grant, ref
from tests.contract.faults import Fault, FaultyDatabase, Plan


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    await made.publish_all([Draft(KIND, {"size": number}) for number in range(6)])
    return made


async def opened(desk: Desk, seconds: float = 600) -> Session:
    return await sessions.open_session(desk.db(), desk.caller, desk.now, seconds)


def turn(session: Session | str, sequence: int, consumer: str = "one", digest: str = "d") -> Turn:
    return Turn(session if isinstance(session, str) else session.id, consumer, sequence, digest)


@pytest.mark.clause("records.claim-replay")
async def test_a_claim_whose_answer_was_lost_is_the_same_claim_again(desk: Desk) -> None:
    session = await opened(desk)
    lost = FaultyDatabase(desk.db(), Plan(commits=[Fault.FAIL_AFTER]))
    with pytest.raises(StorageBindingUnavailable):
        await claim.claim(lost, desk.kinds, desk.caller, desk.now, KIND, {}, "ann", 2, turn=turn(session, 1))
    before = await dump(desk.store)
    again = await desk.claim(limit=2, turn=turn(session, 1))
    assert [one.record.body["size"] for one in again] == [0, 1]
    assert await desk.claim(limit=2, turn=turn(session, 1)) == again
    assert await dump(desk.store) == before
    assert desk.cost.trips == 2
    following = await desk.claim(limit=2, turn=turn(session, 2))
    assert [one.record.body["size"] for one in following] == [2, 3]
    assert desk.cost.trips == 1
    await desk.history_agrees()


@pytest.mark.clause("records.claim-replay")
async def test_only_the_latest_completed_sequence_is_answered(desk: Desk) -> None:
    session = await opened(desk)
    await desk.claim(turn=turn(session, 3))
    await desk.claim(turn=turn(session, 4))
    before = await dump(desk.store)
    for old in (3, 1):
        with pytest.raises(SequenceStale) as caught:
            await desk.claim(turn=turn(session, old))
        assert caught.value.members == {"latest": 4}
    with pytest.raises(SequenceConflict):
        await desk.claim(turn=turn(session, 4, digest="other"))
    assert await dump(desk.store) == before
    assert len(await desk.store.sql("SELECT 1 FROM claim_cursors")) == 1
    assert len(await desk.claim(turn=turn(session, 1, consumer="two"))) == 1


@pytest.mark.clause("records.claim-replay")
async def test_an_empty_answer_completes_its_sequence(desk: Desk) -> None:
    session = await opened(desk)
    assert await desk.claim({"size": 77}, turn=turn(session, 1)) == []
    await desk.publish({"size": 77})
    assert await desk.claim({"size": 77}, turn=turn(session, 1)) == []
    assert len(await desk.claim({"size": 77}, turn=turn(session, 2))) == 1


@pytest.mark.clause("records.claim-replay", "records.claim-wait")
async def test_a_claim_that_waits_completes_nothing_until_it_ends(desk: Desk) -> None:
    session = await opened(desk)
    before = await dump(desk.store)
    with pytest.raises(NothingMatches):
        await desk.claim({"size": 77}, turn=turn(session, 1), or_nothing=True)
    assert await dump(desk.store) == before
    await desk.publish({"size": 77})
    taken = await desk.claim({"size": 77}, turn=turn(session, 1), or_nothing=True)
    assert await desk.claim({"size": 77}, turn=turn(session, 1)) == taken


@pytest.mark.clause("records.claim-replay")
async def test_a_replay_tells_what_the_claim_still_holds(desk: Desk) -> None:
    session = await opened(desk)
    first, second, third = await desk.claim(limit=3, seconds=5, turn=turn(session, 1))
    await desk.settle(ref(first))
    await desk.renew(ref(second), 100)
    desk.pass_time(5)
    await desk.fire()
    await desk.claim(worker="bob", limit=100)
    [held] = await desk.claim(limit=3, seconds=5, turn=turn(session, 1))
    assert (held.record.id, held.lease.expires_at) == (second.record.id, after(desk.now, 95))
    assert third.record.id not in held.record.id


@pytest.mark.clause("records.claim-replay")
async def test_an_unknown_an_ended_and_another_s_session_are_refused(desk: Desk) -> None:
    with pytest.raises(SessionUnknown):
        await desk.claim(turn=turn("ses_none", 1))
    session = await opened(desk, 10)
    ann = desk.seen_by(await desk.credential("ann", grant("claim")))
    with pytest.raises(SessionUnknown):
        await ann.claim(turn=turn(session, 1))
    with pytest.raises(SessionUnknown):
        await sessions.show(ann.db(), ann.caller, session.id)
    taken = await desk.claim(turn=turn(session, 1))
    desk.pass_time(10)
    for sequence in (1, 2):
        with pytest.raises(SessionExpired):
            await desk.claim(turn=turn(session, sequence))
    with pytest.raises(SessionExpired):
        await sessions.renew(desk.db(), desk.caller, desk.now, session.id)
    assert (await desk.get(taken[0].record.id)).state == "claimed"


@pytest.mark.clause("records.claim-replay")
async def test_a_session_is_renewed_shown_closed_and_forgotten(desk: Desk) -> None:
    session = await opened(desk, 10)
    desk.pass_time(9)
    renewed = await sessions.renew(desk.db(), desk.caller, desk.now, session.id, 100)
    assert renewed.expires_at == after(desk.now, 100)
    assert (await sessions.renew(desk.db(), desk.caller, desk.now, session.id, 5)) == renewed
    await desk.claim(turn=turn(session, 7))
    shown = await sessions.show(desk.db(), desk.caller, session.id)
    assert shown.consumers == (Cursor("one", 7, desk.now),)
    await sessions.close(desk.db(), desk.caller, desk.now, session.id)
    await sessions.close(desk.db(), desk.caller, desk.now, session.id)
    with pytest.raises(SessionExpired):
        await desk.claim(turn=turn(session, 8))
    ended = await sessions.show(desk.db(), desk.caller, session.id)
    assert ended.expires_at == desk.now
    desk.now = sessions.forgotten_at(ended)
    assert (await desk.fire())["session_expired"] == 1
    assert await desk.store.sql("SELECT 1 FROM sessions UNION ALL SELECT 1 FROM claim_cursors") == []
    with pytest.raises(SessionUnknown):
        await desk.claim(turn=turn(session, 8))


async def test_bounds(desk: Desk) -> None:
    for seconds in (0, SESSION_SECONDS + 1):
        with pytest.raises(RequestInvalid):
            await opened(desk, seconds)
    session = await opened(desk)
    for sequence in (0, 2**53):
        with pytest.raises(RequestInvalid):
            await desk.claim(turn=turn(session, sequence))
    with pytest.raises(IdInvalid):
        await desk.claim(turn=turn(session, 1, consumer="a b"))
    with pytest.raises(RequestInvalid):
        await desk.claim(turn=turn(session, 1), key=desk.key("k", 1))
    reader = desk.seen_by(await desk.credential("ann", grant("read")))
    with pytest.raises(Forbidden):
        await opened(reader)


async def test_consumers_of_a_session_are_bounded(desk: Desk) -> None:
    session = await opened(desk)
    for number in range(SESSION_CONSUMERS):
        await desk.claim(turn=turn(session, 1, consumer=f"c{number}"))
    with pytest.raises(RequestInvalid, match="consumers"):
        await desk.claim(turn=turn(session, 1, consumer="more"))
    await desk.claim(turn=turn(session, 2, consumer="c0"))


async def test_a_session_opened_under_a_key_is_opened_once(desk: Desk) -> None:
    key = desk.key("k", "open")
    first = await sessions.open_session(desk.db(), desk.caller, desk.now, 60, key)
    assert await sessions.open_session(desk.db(), desk.caller, desk.now, 60, key) == first


@pytest.mark.clause("records.claim-replay", "records.claim")
async def test_one_of_many_equal_claims_at_once_takes_and_all_answer_it(desk: Desk) -> None:
    session = await opened(desk)

    async def one() -> list[Any]:
        return list(await desk.claim(limit=2, turn=turn(session, 1)))

    answers = await asyncio.gather(*(one() for _ in range(10)))
    assert all(answer == answers[0] for answer in answers)
    [row] = await desk.store.sql("SELECT count(*) AS n FROM records WHERE state = 'claimed'")
    assert row["n"] == 2
