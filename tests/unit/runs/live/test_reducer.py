"""The reducer of a live view is total: ends stay, what lies behind is a no-op, twice is once."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.kernel.instants import Instant
from moorage.runs.live.model import Snapshot
from moorage.runs.live.reducer import Change, adopt, differing, reduce
from moorage.runs.observing import StepChange
from tests.unit.runs.live.views import HASH, RUN, START, changes, histories, run, runs, step, steps, view

pytestmark = pytest.mark.clause("runs.reducer-total")


@given(changes, steps | runs)
def test_an_end_is_never_overwritten(before: list[Change], change: Change) -> None:
    held = reduce(view(), before)
    after = reduce(held, [change])
    if held.ended:
        assert after is held
    for key, one in held.steps.items():
        if one.ended:
            assert after.steps[key] is one


@given(changes, changes)
def test_folding_at_once_is_folding_one_after_the_other(first: list[Change], second: list[Change]) -> None:
    one_by_one = view()
    for change in [*first, *second]:
        one_by_one = reduce(one_by_one, [change])
    assert reduce(view(), [*first, *second]) == one_by_one == reduce(reduce(view(), first), second)


@given(changes, steps | runs)
def test_what_is_told_twice_makes_no_difference(before: list[Change], change: Change) -> None:
    once = reduce(view(), [*before, change])
    assert reduce(once, [change]) is once


@given(changes)
def test_what_is_about_another_run_is_passed_over(told: list[Change]) -> None:
    own = [change for change in told if change.run_id == RUN]
    assert reduce(view(), told) == reduce(view(), own)
    assert len(reduce(view(), own).steps) <= len(
        {(one.label, one.input_sha256) for one in own if isinstance(one, StepChange)}
    )


@given(changes, st.randoms(use_true_random=False))
def test_what_is_told_of_different_steps_may_come_in_any_order(told: list[Change], chance: st.DataObject) -> None:
    """Each step's own changes stay in their order; how the steps interleave makes no difference to any of them."""
    lanes: dict[tuple[str, str], list[StepChange]] = defaultdict(list)
    for change in told:
        if isinstance(change, StepChange):
            lanes[(change.label, change.input_sha256)].append(change)
    expected = reduce(view(), [change for lane in lanes.values() for change in lane])
    mixed: list[StepChange] = []
    while any(lanes.values()):
        key = chance.choice(sorted(key for key, lane in lanes.items() if lane))  # type: ignore[attr-defined]
        mixed.append(lanes[key].pop(0))
    assert dict(reduce(view(), mixed).steps) == dict(expected.steps)


@given(histories().flatmap(lambda told: st.tuples(st.just(told), st.permutations(told))))
def test_a_history_leads_to_the_same_statuses_in_whatever_order(both: tuple[list[StepChange], list[StepChange]]) -> None:
    told, shuffled = both
    wanted, found = (reduce(view(), one) for one in (told, shuffled))
    assert {key: (one.status, one.attempt) for key, one in found.steps.items()} == {
        key: (one.status, one.attempt) for key, one in wanted.steps.items()
    }


@given(changes, changes)
def test_a_record_that_is_read_again_takes_no_end_back(told: list[Change], recorded: list[Change]) -> None:
    held, record = reduce(view(), told), reduce(view(), recorded)
    after = adopt(held, record)
    if held.ended:
        assert after is held
    assert after.steps.keys() >= held.steps.keys()
    for key, one in held.steps.items():
        if one.ended:
            assert after.steps[key] == one
    assert adopt(after, record) is after


@given(changes, changes)
def test_an_update_with_the_steps_that_differ_is_enough(first: list[Change], second: list[Change]) -> None:
    before = reduce(view(), first)
    after = reduce(before, second)
    patched = {**before.steps, **{one.key: one for one in differing(before, after)}}
    assert patched == after.steps


def test_a_step_is_appended_and_then_merged_field_by_field() -> None:
    told = [
        step("one", "running", kind="awakeable", ref="awk_1"),
        step("two", "running"),
        step("one", "waiting", started_at=None, next_attempt_at=Instant(START + 7)),
    ]
    found = reduce(view(), told)
    assert [one.label for one in found.steps.values()] == ["one", "two"]
    first = found.steps["one", HASH]
    assert (first.status, first.started_at, first.ref, first.next_attempt_at) == ("waiting", START, "awk_1", START + 7)


def test_an_attempt_that_comes_again_waits_for_nothing_and_tells_the_last_error_until_it_succeeds() -> None:
    error = {"tag": "Transient", "message": "busy"}
    held = reduce(view(), [step("one", "waiting", 1, error=error, next_attempt_at=Instant(START + 7))])
    again = reduce(held, [step("one", "running", 2)])
    assert (again.steps["one", HASH].next_attempt_at, again.steps["one", HASH].error) == (None, error)
    assert reduce(again, [step("one", "running", 1)]) is again
    assert reduce(again, [step("one", "success", 2)]).steps["one", HASH].error is None


def test_a_stopped_run_shows_what_it_was_doing_as_failed_with_canceled_and_has_no_error() -> None:
    told: list[Change] = [step("one"), step("two", "running"), step("three", "waiting"), run("canceled")]
    found = reduce(view(), told)
    assert (found.status, found.error) == ("canceled", None)
    assert [one.status for one in found.steps.values()] == ["success", "failed", "failed"]
    assert [one.error and one.error["tag"] for one in found.steps.values()] == [None, "Canceled", "Canceled"]


@pytest.mark.parametrize("status", ["success", "failed", "partial_failure"])
def test_a_run_that_ended_otherwise_leaves_no_step_running(status: str) -> None:
    found = reduce(view(), [step("one", "running"), run(status)])
    one = found.steps["one", HASH]
    assert (one.status, one.error and one.error["tag"]) == ("failed", "Transient")


def test_what_a_run_awaits_is_gone_when_it_runs_again() -> None:
    parked = reduce(view(), [run("suspended", awaiting=[{"label": "approval"}], next_attempt_at=Instant(START + 9))])
    assert (parked.awaiting, parked.next_attempt_at) == ([{"label": "approval"}], START + 9)
    assert reduce(parked, [run("suspended")]) is parked
    running = reduce(parked, [run("running", attempt=2)])
    assert (running.awaiting, running.next_attempt_at, running.attempt) == ((), None, 2)
    assert reduce(running, [run("suspended", attempt=1)]) is running


def test_metadata_is_replaced_and_stays_otherwise() -> None:
    found = reduce(view(metadata={"a": 1}), [run(metadata={"b": 2}), run()])
    assert found.metadata == {"b": 2}


def test_a_reading_of_an_earlier_attempt_is_passed_over() -> None:
    held: Snapshot = reduce(view(), [run("running", attempt=2)])
    assert adopt(held, view(attempt=1, status="suspended")) is held


@pytest.mark.clause("runs.outputs-by-reference")
@given(changes)
def test_an_output_is_a_reference_and_a_size(told: list[Change]) -> None:
    for one in reduce(view(), told).steps.values():
        shown = one.wire()
        assert shown["output"] is None or shown["output"] == {
            "ref": f"{one.label}@{one.input_sha256}",
            "bytes": one.output_bytes,
        }
        assert not {"value", "text", "blob", "result"} & shown.keys()
