"""Failing an attempt: the delay that follows, the last attempt, and what the record remembers."""

import pytest

from moorage.kernel.errors import FailureTag, RequestInvalid
from moorage.kernel.instants import after
from moorage.kernel.limits import RETRY_SECONDS, TEXT_CHARACTERS
from moorage.records.model import Failure
from tests.contract.adapters import Store, dump
from tests.contract.desk import BOOM, Desk, ref


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    await made.publish()
    return made


@pytest.mark.clause("records.fail")
async def test_a_failed_attempt_waits_for_the_kinds_delay_and_the_last_one_is_dead(desk: Desk) -> None:
    for attempt, delay in ((1, 1), (2, 2)):
        held = await desk.claim_one()
        failed = await desk.fail(ref(held))
        assert (failed.state, failed.attempts, failed.not_before) == ("ready", attempt, after(desk.now, delay))
        assert failed.failure == {"tag": "Transient", "message": "boom"}
        assert failed == await desk.get(held.record.id)
        assert await desk.next_due() == after(desk.now, delay)
        desk.pass_time(delay - 0.001)
        await desk.fire()
        assert await desk.claim() == []
        desk.pass_time(0.001)
        await desk.fire()
        await desk.history_agrees()
    failed = await desk.fail(ref(await desk.claim_one()))
    assert (failed.state, failed.attempts, failed.not_before, failed.ended_at) == ("dead", 3, None, desk.now)
    assert await desk.next_due() is None
    assert (await desk.types(failed.id))[-2:] == ["failed", "dead_lettered"]
    await desk.history_agrees()


@pytest.mark.clause("records.fail", "kernel.limits")
async def test_a_wished_delay_supersedes_the_kinds(desk: Desk) -> None:
    assert (await desk.fail(ref(await desk.claim_one()), retry=0)).not_before is None
    failed = await desk.fail(ref(await desk.claim_one()), retry=RETRY_SECONDS)
    assert failed.not_before == after(desk.now, RETRY_SECONDS)
    assert await desk.claim() == []
    await desk.history_agrees()


@pytest.mark.clause("records.fail")
async def test_a_failure_that_cannot_get_better_is_dead_at_once(desk: Desk) -> None:
    failed = await desk.fail(ref(await desk.claim_one()), Failure(FailureTag.PERMANENT, "no"), retry=60, dead=True)
    assert (failed.state, failed.attempts, failed.not_before) == ("dead", 1, None)
    assert await desk.claim() == []
    await desk.history_agrees()


@pytest.mark.clause("records.fail", "kernel.limits")
async def test_a_failure_has_bounds(desk: Desk) -> None:
    held = ref(await desk.claim_one())
    before = await dump(desk.store)
    for retry in (-1, RETRY_SECONDS + 1, float("nan"), float("inf")):
        with pytest.raises(RequestInvalid):
            await desk.fail(held, retry=retry)
    with pytest.raises(RequestInvalid):
        await desk.fail(held, Failure(FailureTag.TRANSIENT, "x" * (TEXT_CHARACTERS + 1)))
    assert await dump(desk.store) == before
    message = "\x00\"'\\\n😀" + "x" * (TEXT_CHARACTERS - 6)
    failed = await desk.fail(held, Failure(FailureTag.TRANSIENT, message))
    assert failed.failure == {"tag": "Transient", "message": message}
    assert (await desk.get(failed.id)).failure == failed.failure
    await desk.history_agrees()


@pytest.mark.clause("records.fail", "records.settle")
async def test_a_record_that_succeeds_after_failing_keeps_no_failure(desk: Desk) -> None:
    await desk.fail(ref(await desk.claim_one()), BOOM, retry=0)
    held = await desk.claim_one()
    assert held.record.failure == {"tag": "Transient", "message": "boom"}
    assert (await desk.settle(ref(held))).record.failure is None
    await desk.history_agrees()


@pytest.mark.clause("records.fail", "catalog.kind")
async def test_fewer_attempts_declared_later_make_the_running_one_the_last(desk: Desk) -> None:
    await desk.fail(ref(await desk.claim_one()), retry=0)
    held = await desk.claim_one()
    await desk.declare(policy={"lease_seconds": 30, "max_attempts": 1})
    assert (await desk.fail(ref(held))).state == "dead"
