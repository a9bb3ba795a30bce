"""What a body may not do, and what it is told to do instead."""

import asyncio
import random
import time
import urllib.request
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest

from moorage.bodies import Body, Run, StepFailed, body, each
from moorage.journal.model import Entry, EntryKey, Value, input_hash
from moorage.kernel.limits import JOURNAL_ENTRIES
from tests.unit.bodies.clock import START
from tests.unit.bodies.world import World


async def nothing() -> int:
    return 1


def failing(function: Callable[[Run], Any]) -> Body:
    async def written(run: Run) -> Any:
        return await function(run)

    return body("written", effects=["a", "b", each("many")])(written)


async def fault_of(function: Callable[[Run], Any]) -> dict[str, Any]:
    world = World(failing(function))
    assert await world.run("written") == "failed"
    assert world.row.error is not None
    assert world.row.error["tag"] == "Permanent"
    return world.row.error


@pytest.mark.clause("runs.effect-boundary")
async def test_an_undeclared_label_is_named_with_those_that_are_declared() -> None:
    async def wrong(run: Run) -> None:
        await run.step("c", nothing)

    error = await fault_of(wrong)
    assert error["code"] == "EffectUndeclared"
    assert "'a', 'b', 'many'" in error["message"]
    assert "effects=[...]" in error["message"]


async def test_a_misuse_cannot_be_caught_away() -> None:
    async def wrong(run: Run) -> str:
        for label in ("c", "a"):
            with suppress(Exception):
                await run.step(label, nothing)
        return "fine"

    assert (await fault_of(wrong))["code"] == "EffectUndeclared"


async def test_one_label_with_two_inputs_wants_each() -> None:
    async def wrong(run: Run) -> None:
        await run.step("a", nothing, input=1)
        await run.step("a", nothing, input=2)

    error = await fault_of(wrong)
    assert error["code"] == "StepLabelReused"
    assert "each('a')" in error["message"]


async def test_the_same_step_again_gives_what_was_recorded() -> None:
    count = []

    async def right(run: Run) -> list[int]:
        def effect() -> int:
            count.append(1)
            return len(count)

        return [await run.step("a", effect), await run.step("a", effect), *await run.gather(*(run.step("b", effect),) * 1)]

    world = World(failing(right))
    assert await world.run("written") == "success"
    assert world.row.result == [1, 1, 2]


@pytest.mark.clause("runs.entry-key", "runs.claim-takeover")
async def test_two_branches_that_want_one_value_compute_it_once() -> None:
    count: list[int] = []

    async def right(run: Run) -> list[int]:
        async def effect() -> int:
            count.append(1)
            await asyncio.sleep(0)
            return len(count)

        return await run.gather(run.step("a", effect), run.step("a", effect), run.step("a", effect))

    world = World(failing(right))
    assert await world.run("written") == "success"
    assert world.row.result == [1, 1, 1]
    assert len(count) == 1


@pytest.mark.parametrize(
    ("name", "use", "instead"),
    [
        ("time.time", lambda run: time.time(), "run.now()"),
        ("random.random", lambda run: random.random(), "run.random()"),
        ("random.choice", lambda run: random.choice([1, 2]), "run.random()"),
        ("uuid.uuid4", lambda run: str(uuid.uuid4()), "run.uuid()"),
        ("asyncio.sleep", lambda run: asyncio.sleep(1), "run.sleep"),
        ("asyncio.gather", lambda run: asyncio.gather(run.step("a", nothing), run.step("b", nothing)), "run.gather"),
        ("asyncio.wait", lambda run: asyncio.wait([run.step("a", nothing)]), "run.gather"),
        ("asyncio.as_completed", lambda run: list(asyncio.as_completed([run.step("a", nothing)])), "run.gather"),
        ("asyncio.create_task", lambda run: asyncio.create_task(run.step("a", nothing)), "run.gather"),
        ("asyncio.ensure_future", lambda run: asyncio.ensure_future(run.step("a", nothing)), "run.gather"),
        ("asyncio.wait_for", lambda run: asyncio.wait_for(run.step("a", nothing), 1), "run.first"),
        ("urllib.request.urlopen", lambda run: urllib.request.urlopen("http://127.0.0.1:1/"), "run.fetch"),
        ("httpx.AsyncClient", lambda run: httpx.AsyncClient().get("http://127.0.0.1:1/"), "run.fetch"),
    ],
)
@pytest.mark.clause("runs.effect-boundary")
async def test_effects_outside_a_step_are_named_with_what_to_use(name: str, use: Callable[[Run], Any], instead: str) -> None:
    async def wrong(run: Run) -> None:
        found = use(run)
        if asyncio.iscoroutine(found):
            await found

    error = await fault_of(wrong)
    assert error["code"] == "EffectOutsideStep"
    assert name in error["message"]
    assert instead in error["message"]


async def test_the_same_inside_a_step_or_outside_a_body_is_nobodys_business() -> None:
    async def right(run: Run) -> bool:
        async def effect() -> float:
            await asyncio.gather(asyncio.sleep(0), asyncio.create_task(asyncio.sleep(0)))
            return await asyncio.wait_for(nothing(), 1) + time.time() + random.random() + len(str(uuid.uuid4()))

        return await run.step("a", effect) > 0

    world = World(failing(right))
    assert await world.run("written") == "success"
    assert time.time() > 0


async def test_a_chance_in_a_branch_is_caught_too() -> None:
    async def branch(run: Run) -> float:
        await run.step("many", nothing, input=1)
        return random.random()

    async def wrong(run: Run) -> list[float]:
        return await run.gather(branch(run))

    assert (await fault_of(wrong))["code"] == "EffectOutsideStep"


async def test_two_steps_at_once_in_one_branch_want_a_gather() -> None:
    async def wrong(run: Run) -> Any:
        beside = asyncio.get_running_loop().create_task(run.step("a", nothing))
        try:
            return await run.step("b", nothing), await beside
        finally:
            beside.cancel()

    error = await fault_of(wrong)
    assert error["code"] == "StepOverlap"
    assert "run.gather" in error["message"]


async def test_a_step_inside_a_step_is_refused() -> None:
    async def wrong(run: Run) -> Any:
        async def outer() -> int:
            return await run.step("b", nothing)

        return await run.step("a", outer)

    assert (await fault_of(wrong))["code"] == "StepOverlap"


def recorded(world: World) -> tuple[Entry, ...]:
    return tuple(world.row.entries.values())


async def replayed(first: Callable[[Run], Any], then: Callable[[Run], Any]) -> dict[str, Any]:
    """What becomes of entries that one body recorded in the hands of another one."""
    before = World(failing(first))
    assert await before.run("written") == "success"
    after = World(failing(then))
    execution = replace(after.memory.open("written"), entries=recorded(before))
    after.row.entries = {entry.key: entry for entry in recorded(before)}
    await after.clock.drive(after.host.run(execution))
    assert after.row.error is not None, after.row
    assert after.row.error["code"] == "ReplayDivergence"
    return after.row.error


def steps(*labels: str) -> Callable[[Run], Any]:
    async def written(run: Run) -> None:
        for label in labels:
            if label == "gather":
                await run.gather(run.step("many", nothing, input=1), run.step("many", nothing, input=2))
            elif label == "first":
                await run.first(run.step("many", nothing, input=1))
            else:
                await run.step(label, nothing)

    return written


@pytest.mark.clause("runs.effect-boundary")
@pytest.mark.parametrize(
    ("first", "then", "named"),
    [
        (("a", "b"), ("b", "a"), "at 0 the body recorded 'a'"),
        (("a", "b"), ("b",), "at 0 the body recorded 'a'"),
        (("a", "b"), ("a",), "returned without asking for 'b'"),
        (("a", "b"), (), "returned without asking for 'a'"),
        (("a", "gather"), ("a", "b"), "at 1 the body had a gather or a first"),
        (("a", "b"), ("a", "gather"), "at 1 the body recorded 'b'"),
        (("gather", "a"), ("a", "gather"), "at 0 the body had a gather"),
        (("first", "a"), ("gather", "a"), "at 0 the body recorded 'run.first'"),
        (("a", "a", "b"), ("a", "gather", "b"), "before steps that it recorded"),
    ],
)
async def test_another_order_on_replay_is_named(first: tuple[str, ...], then: tuple[str, ...], named: str) -> None:
    error = await replayed(steps(*first), steps(*then))
    assert named in error["message"]
    assert "rewind" in error["message"]


async def test_a_longer_body_goes_on_after_what_was_recorded() -> None:
    before = World(failing(steps("a")))
    await before.run("written")
    after = World(failing(steps("a", "b")))
    execution = replace(after.memory.open("written"), entries=recorded(before))
    after.row.entries = {entry.key: entry for entry in recorded(before)}
    assert await after.clock.drive(after.host.run(execution)) == "success"


@pytest.mark.clause("runs.step-failed", "runs.deterministic-verdict")
async def test_a_failed_step_may_be_caught_and_a_replay_meets_it_again() -> None:
    effects: list[int] = []

    async def right(run: Run) -> str:
        def wrong() -> None:
            effects.append(1)
            raise ValueError("no such sku")

        try:
            await run.step("a", wrong)
        except StepFailed as error:
            return f"{error.label} {error.tag} {error.code} {error.message}"
        return "?"

    world = World(failing(right))
    assert await world.run("written") == "success"
    assert world.row.result == "a Permanent ValueError no such sku"
    execution = replace(world.row.execution, entries=recorded(world))
    world.row.owner = "host"
    assert await world.clock.drive(world.host.run(execution)) == "success"
    assert world.row.result == "a Permanent ValueError no such sku"
    assert len(effects) == 1


@pytest.mark.clause("runs.unwired")
@pytest.mark.parametrize("what", ["awakeables", "children", "publish", "cursors", "fetch"])
async def test_a_capability_that_is_not_there_is_refused_before_anything_is_done(what: str) -> None:
    async def wants(run: Run) -> Any:
        match what:
            case "awakeables":
                return await run.awakeable("a", ttl=10)
            case "children":
                return await run.child("a", "other", {})
            case "publish":
                return await run.publish("a", [{"kind": "x", "body": {}}])
            case "cursors":
                return await run.cursor("name")
            case _:
                return await run.fetch("a", "https://example.test/")

    world = World(failing(wants))
    assert await world.run("written", capabilities=frozenset()) == "failed"
    assert world.row.error is not None
    assert (world.row.error["code"], world.row.error["tag"]) == ("CapabilityUnwired", "Incompatible")
    assert not world.row.entries


@pytest.mark.clause("runs.escape-hatch")
async def test_an_unsafe_read_is_not_recorded_and_runs_again() -> None:
    reads: list[float] = []

    async def right(run: Run) -> int:
        async def read() -> int:
            reads.append(time.time())
            return len(reads)

        seen = await run.journal.unsafe("the price list is only shown", read)
        await run.step("a", nothing)
        return seen

    world = World(failing(right))
    assert await world.run("written") == "success"
    assert world.entries() == ["a"]
    execution = replace(world.row.execution, entries=recorded(world))
    world.row.owner = "host"
    await world.clock.drive(world.host.run(execution))
    assert len(reads) == 2


# --- too much --------------------------------------------------------------------------------------------------------


@body("counts", effects=[each("many"), "asked"])
async def counts(run: Run, ends: list[Any]) -> str:
    """Fills all but one place of its journal, or finds it filled, and asks for as much more as it is told."""
    for number in range(JOURNAL_ENTRIES - 1):
        await run.step("many", lambda: 0, input=number)
    for kind in ends:
        with suppress(Exception):
            if kind == "step":
                await run.step("many", nothing, input="one more")
            elif kind == "awakeable":
                await run.awakeable("asked", ttl=60)
            elif kind == "now":
                run.now()
            elif kind == "first":
                await run.first(run.step("many", nothing, input="raced"))
    return "kept in the bounds"


@pytest.fixture(scope="module")
def filled() -> list[Entry]:
    """The entries of all but one place."""
    keys = [EntryKey("many", input_hash(number)) for number in range(JOURNAL_ENTRIES - 1)]
    return [
        Entry(key, "step", str(place), "done", 1, 1, START, START, value=Value.of("0")) for place, key in enumerate(keys)
    ]


@pytest.mark.clause("runs.entry-key")
@pytest.mark.parametrize(
    ("ends", "refused"),
    [
        (["step"], None),
        (["step", "step"], None),
        (["awakeable"], None),
        (["now"], None),
        (["step", "awakeable"], "asked"),
        (["step", "now"], "run.now"),
        (["now", "now"], "run.now"),
        (["first"], "run.first"),
    ],
)
async def test_an_entry_past_the_bound_fails_the_run_and_says_what_to_do(
    filled: list[Entry], ends: list[str], refused: str | None
) -> None:
    world = World(counts)
    opened = world.memory.open("counts", ends)
    world.row.entries = {entry.key: entry for entry in filled}
    ended = await world.clock.drive(world.host.run(replace(opened, entries=filled)))
    assert len(world.row.entries) <= JOURNAL_ENTRIES
    if refused is None:
        assert (ended, world.row.result) == ("success", "kept in the bounds")
        return
    assert (ended, len(world.row.entries)) == ("failed", JOURNAL_ENTRIES)
    assert world.row.error is not None
    assert (world.row.error["code"], world.row.error["tag"]) == ("JournalFull", "TooLarge")
    assert f"{refused!r} would be one entry more than the {JOURNAL_ENTRIES}" in world.row.error["message"]
    assert "run.child" in world.row.error["message"]


@pytest.mark.parametrize("caught", [Exception, BaseException])
async def test_a_loop_that_catches_its_own_fault_ends_its_run_and_nothing_else(caught: type[BaseException]) -> None:
    looping = [True]

    async def stubborn(run: Run) -> None:
        while looping:
            with suppress(caught):
                await run.step("c", nothing)

    assert (await fault_of(stubborn))["code"] == "EffectUndeclared"
    looping.clear()


@pytest.mark.parametrize("nested", [False, True])
async def test_a_branch_that_lost_and_swallows_its_cancellation_fails_the_run(nested: bool) -> None:
    looping = [True]

    async def stubborn(run: Run) -> None:
        while looping:
            with suppress(asyncio.CancelledError):
                await run.sleep(3600)

    async def racing(run: Run) -> None:
        await run.first(run.gather(stubborn(run)) if nested else stubborn(run), run.step("a", nothing))

    assert (await fault_of(racing))["code"] == "CancellationSwallowed"
    looping.clear()


async def test_a_branch_that_lost_may_clear_up_with_a_step() -> None:
    cleared = []

    @body("tidy", effects=["a", "clear"])
    async def tidy(run: Run) -> int:
        async def loser() -> None:
            try:
                await run.sleep(3600)
            finally:
                await run.step("clear", lambda: cleared.append(1))

        won = await run.first(loser(), run.step("a", nothing))
        await run.sleep(60)
        return won.branch

    world = World(tidy)
    row = await world.to_the_end("tidy")
    assert (row.status, row.result, cleared) == ("success", 1, [1])
