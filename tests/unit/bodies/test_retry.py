"""The schedule, its decision, and Retry-After in all its shapes (case C06)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.bodies import ONCE, BodyMisdeclared, Failed, Retry, Run, RunRetryTagUnretryable, Step, body
from moorage.bodies.retry import decide, opened_with
from moorage.kernel import canonical
from moorage.kernel.errors import FailureTag
from moorage.kernel.instants import Instant
from moorage.kernel.limits import RETRY_DELAY_MS, RETRY_FACTOR, RETRY_JITTER_MS, UPSTREAM_WAIT_SECONDS
from moorage.kernel.retry_after import retry_after
from tests.unit.bodies.clock import START
from tests.unit.bodies.world import World

PLAIN = Retry(jitter_ms=0)


@pytest.mark.clause("runs.schedule", "runs.default-policy")
@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (PLAIN, [0.1, 0.2, 0.4, 0.8, None]),
        (Retry(attempts=12, jitter_ms=0), [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, None]),
        (Retry(attempts=4, backoff="fixed", base_ms=700, jitter_ms=0), [0.7, 0.7, 0.7, None]),
        (Retry(attempts=4, base_ms=1000, factor=10, clamp_ms=5000, jitter_ms=0), [1.0, 5.0, 5.0, None]),
        (ONCE, [None]),
    ],
)
def test_delays_of_a_schedule(policy: Retry, delays: list[float | None]) -> None:
    assert [decide(policy, attempt, "Transient", "seed") for attempt in range(1, len(delays) + 1)] == delays


@pytest.mark.clause("runs.default-policy", "runs.decision-is-pure")
@given(st.integers(1, 4), st.text(max_size=20))
def test_jitter_is_below_250_ms_and_comes_from_the_seed(attempt: int, seed: str) -> None:
    first, plain = decide(Retry(), attempt, "Transient", seed), decide(PLAIN, attempt, "Transient", seed)
    assert first is not None
    assert plain is not None
    assert 0 <= first - plain < 0.25
    assert first == decide(Retry(), attempt, "Transient", seed)


def test_jitter_spreads() -> None:
    assert len({decide(Retry(), 1, "Transient", f"seed {number}") for number in range(100)}) > 50


@pytest.mark.clause("runs.retryable-classes")
@pytest.mark.parametrize("tag", list(FailureTag))
def test_only_transient_and_rate_limited_are_tried_again(tag: FailureTag) -> None:
    again = decide(PLAIN, 1, tag, "seed") is not None
    assert again == (tag in ("Transient", "RateLimited"))


@pytest.mark.clause("runs.retryable-classes")
def test_retry_on_narrows_the_two() -> None:
    policy = Retry(retry_on=["RateLimited"], jitter_ms=0)
    assert decide(policy, 1, "Transient", "seed") is None
    assert decide(policy, 1, "RateLimited", "seed") == 0.1


@pytest.mark.clause("runs.unretryable-tag")
@pytest.mark.parametrize("tag", ["Invalid", "Permanent", "Conflict", "nonsense"])
def test_retry_on_another_tag_is_refused_where_it_is_written(tag: str) -> None:
    with pytest.raises(RunRetryTagUnretryable, match=tag):
        Retry(retry_on=["Transient", tag])


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": 101},
        {"base_ms": -1},
        {"base_ms": RETRY_DELAY_MS + 1},
        {"clamp_ms": RETRY_DELAY_MS + 1},
        {"jitter_ms": RETRY_JITTER_MS + 1},
        {"factor": 0.5},
        {"factor": RETRY_FACTOR + 1},
        {"factor": float("nan")},
        {"backoff": "linear"},
    ],
)
def test_a_schedule_without_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BodyMisdeclared):
        Retry(**wrong)  # type: ignore[arg-type]


CAP = float(UPSTREAM_WAIT_SECONDS)
SHAPES = [
    (["3"], 3.0),
    ([" 3 "], 3.0),
    (["0"], 0.0),
    (["Sun, 01 Mar 2026 12:00:05 GMT"], 5.0),
    (["Sunday, 01-Mar-26 12:00:05 GMT"], 5.0),
    (["Sun Mar  1 12:00:05 2026"], 5.0),
    (["Sun, 01 Mar 2020 12:00:00 GMT"], 0.0),
    (["-5"], None),
    (["+5"], None),
    (["1.5"], None),
    (["5s"], None),
    (["soon"], None),
    (["NaN"], None),
    (["Infinity"], None),
    ([""], None),
    (["٣"], None),
    (["Sun, 99 Mar 2026 12:00:05 GMT"], None),
    (["Sun, 01 Foo 2026 12:00:05 GMT"], None),
    (["31536000"], CAP),
    (["99999999999999999999"], CAP),
    (["9" * 5000], CAP),
    (["Sun, 01 Mar 9999 12:00:05 GMT"], CAP),
    (["3", "120"], 120.0),
    (["120", "3"], 120.0),
    (["soon", "3"], 3.0),
    (["3, 120"], 120.0),
    (["soon,3"], 3.0),
    (["Sun, 01 Mar 2020 12:00:00 GMT, 7"], 7.0),
    (["7, Sun, 01 Mar 2020 12:00:00 GMT"], 7.0),
    ([","], None),
    ([], None),
]


@pytest.mark.clause("runs.retry-after")
@pytest.mark.parametrize(("lines", "seconds"), SHAPES)
def test_retry_after_in_all_its_shapes(lines: list[str], seconds: float | None) -> None:
    assert retry_after(lines, START) == seconds


@given(st.lists(st.text()), st.integers(0, 2**45))
def test_whatever_stands_there_the_wait_is_bounded(lines: list[str], now: int) -> None:
    found = retry_after(lines, Instant(now))
    assert found is None or 0 <= found <= CAP


@pytest.mark.clause("runs.retry-after")
def test_a_servers_wait_replaces_the_delay_and_no_wait_keeps_the_floor() -> None:
    floor = Retry(base_ms=1000, jitter_ms=0)
    assert decide(floor, 1, "RateLimited", "seed", 3.0) == 3.0
    assert decide(floor, 1, "RateLimited", "seed", 0.0) == 1.0
    assert decide(floor, 1, "RateLimited", "seed", None) == 1.0
    assert decide(floor, 5, "RateLimited", "seed", 3.0) is None
    assert decide(floor, 1, "RateLimited", "seed", 1e18) == CAP


calls: list[tuple[int, int]] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()


def flaky(failing: int, **failure: object) -> object:
    @body("flaky", effects=["call"], retry=Retry(jitter_ms=0), deadline_seconds=600)
    async def flaky_body(run: Run) -> str:
        def call(step: Step) -> str:
            calls.append((step.attempt, world.clock.now() - START))
            if len(calls) <= failing:
                raise Failed("RateLimited" if failure else "Transient", "not yet", **failure)  # type: ignore[arg-type]
            return "done"

        return await run.step("call", call)

    world = World(flaky_body)
    return world


@pytest.mark.clause("runs.not-before", "runs.waiting-state", "runs.resume-at", "runs.schedule")
async def test_attempts_come_at_their_instants_and_not_before() -> None:
    world = flaky(4)
    assert isinstance(world, World)
    row = await world.to_the_end("flaky")
    assert row.result == "done"
    assert calls == [(1, 0), (2, 100), (3, 300), (4, 700), (5, 1500)]


@pytest.mark.clause("runs.step-failed", "runs.schedule")
async def test_an_exhausted_schedule_fails_the_run_with_step_and_tag() -> None:
    world = flaky(99)
    assert isinstance(world, World)
    row = await world.to_the_end("flaky")
    assert row.status == "failed"
    assert row.error == {"tag": "Transient", "message": "not yet", "step": "call"}
    assert len(calls) == 5


@pytest.mark.clause("runs.retry-after", "runs.waiting-state", "runs.not-before")
async def test_a_long_wait_suspends_the_run_with_its_instant_and_attempt() -> None:
    world = flaky(1, retry_after=120.0)
    assert isinstance(world, World)
    assert await world.run("flaky") == "waiting"
    assert world.row.status == "waiting"
    assert world.row.next_attempt_at == START + 120_000
    (entry,) = world.row.entries.values()
    assert (entry.state, entry.attempt, entry.next_attempt_at) == ("waiting", 1, START + 120_000)
    # Taken early, it waits for what remains, and calls nobody.
    world.clock.advance_to(START + 60_000)
    taken = await world.memory.take("exe_1")
    assert taken is not None
    assert await world.clock.drive(world.host.run(taken)) == "waiting"
    assert len(calls) == 1
    assert await world.again() == "success"
    assert calls == [(1, 0), (2, 120_000)]


@pytest.mark.clause("runs.retry-after")
async def test_a_wait_past_the_runs_deadline_ends_the_run_at_once() -> None:
    world = flaky(1, retry_after=1e9)
    assert isinstance(world, World)
    assert await world.run("flaky") == "failed"
    assert world.row.error is not None
    assert (world.row.error["tag"], world.row.error["code"], world.row.error["step"]) == ("TimedOut", "RunDeadline", "call")
    assert world.clock.now() == START


@pytest.mark.clause("runs.no-double-spend", "runs.resume-at")
async def test_a_restart_grants_no_attempt_anew() -> None:
    world = flaky(99, retry_after=5.0)
    assert isinstance(world, World)
    await world.run("flaky")
    for _ in range(3):
        assert await world.again() == "waiting"
    assert await world.again() == "failed"
    assert [attempt for attempt, _ in calls] == [1, 2, 3, 4, 5]


@pytest.mark.clause("runs.single-attempt", "runs.no-compensation")
async def test_a_schedule_of_one_attempt_tries_once_and_nothing_is_undone() -> None:
    did: list[str] = []

    @body("once", effects=["reserve", "charge"])
    async def once(run: Run) -> None:
        def charge() -> None:
            did.append("charge")
            raise Failed("Transient", "gone")

        await run.step("reserve", lambda: did.append("reserve"))
        await run.step("charge", charge, retry=ONCE)

    world = World(once)
    assert await world.run("once") == "failed"
    assert world.row.error == {"tag": "Transient", "message": "gone", "step": "charge"}
    assert did == ["reserve", "charge"]
    assert [(entry.key.label, entry.state) for entry in world.row.entries.values()] == [
        ("reserve", "done"),
        ("charge", "failed"),
    ]


@pytest.mark.clause("runs.pressure-is-local")
async def test_a_throttled_run_holds_up_nobody_else_on_its_host() -> None:
    @body("polite", effects=["call"])
    async def polite(run: Run, throttled: bool) -> int:
        def call() -> int:
            if throttled:
                raise Failed("RateLimited", "slow down", retry_after=300)
            return 1

        return await run.step("call", call)

    world = World(polite)
    tasks = [world.host.start(world.memory.open("polite", index == 0, name=f"exe_{index}")) for index in range(5)]
    ended = [await world.clock.drive(task) for task in tasks]
    assert ended == ["waiting", *["success"] * 4]
    assert world.clock.now() == START


# --- where a schedule comes from -------------------------------------------------------------------------------------


@body("thrice", effects=["own", "plain"], retry=Retry(attempts=3, base_ms=0, jitter_ms=0))
async def thrice(run: Run, label: str) -> None:
    def fails() -> None:
        raise Failed("Transient", "not yet")

    own = Retry(attempts=4, base_ms=0, jitter_ms=0) if label == "own" else None
    await run.step(label, fails, retry=own)


@pytest.mark.clause("runs.schedule")
@pytest.mark.parametrize(
    ("label", "told", "attempts"),
    [("plain", None, 3), ("plain", 2, 2), ("plain", 5, 5), ("own", None, 4), ("own", 2, 4)],
)
async def test_a_step_s_schedule_stands_above_the_execution_s_and_that_above_the_body_s(
    label: str, told: int | None, attempts: int
) -> None:
    world = World(thrice)
    retry = None if told is None else Retry(attempts=told, base_ms=0, jitter_ms=0).wire()
    opened = replace(world.memory.open("thrice", label), retry=retry)
    assert await world.clock.drive(world.host.run(opened)) == "failed"
    (entry,) = world.row.entries.values()
    assert (entry.state, entry.attempt) == ("failed", attempts)


def test_a_schedule_comes_back_from_json_as_it_was() -> None:
    one = Retry(attempts=7, base_ms=5, factor=1.5, backoff="fixed", clamp_ms=9, jitter_ms=1, retry_on=["RateLimited"])
    told = canonical.loads(canonical.dumps(one.wire()).encode())
    assert opened_with(told, ONCE).wire() == one.wire()
    assert opened_with({**told, "of_a_later_house": 1}, ONCE).wire() == one.wire()
    assert opened_with(None, ONCE) is ONCE
