"""Branches and the joins at which they meet; awakeables and children that they wait for."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from moorage.bodies import ChildFailed, Failed, Rejected, Run, Step, TimedOut, body, each
from moorage.bodies.declare import Each
from moorage.kernel.instants import render
from tests.unit.bodies.clock import START
from tests.unit.bodies.world import World

EFFECTS: list[str | Each] = [each("one"), "bad", "ask", "kid", "other"]


async def times_ten(given: int) -> int:
    return given * 10


def bad() -> None:
    raise Failed("Invalid", "no such thing")


@pytest.mark.clause("runs.fan-out-join")
async def test_a_failed_branch_fails_the_run_once_all_have_ended() -> None:
    @body("joined", effects=EFFECTS)
    async def joined(run: Run) -> None:
        async def slow() -> None:
            await run.sleep(5)
            await run.step("one", times_ten, input=2)

        await run.gather(run.step("one", times_ten, input=1), run.step("bad", bad), slow())

    world = World(joined)
    row = await world.to_the_end("joined")
    assert row.status == "failed"
    assert row.error == {"tag": "Invalid", "message": "no such thing", "step": "bad"}
    assert sorted(world.entries("done")) == ["one", "one", "run.sleep"]


@pytest.mark.clause("runs.fan-out-join", "runs.partial-failure")
async def test_allow_partial_names_failed_branches_by_label_and_tag() -> None:
    @body("joined", effects=EFFECTS)
    async def joined(run: Run) -> Any:
        async def own() -> int:
            raise ValueError("mine")

        found = await run.gather(run.step("one", times_ten, input=1), run.step("bad", bad), own(), allow_partial=True)
        assert not found.complete
        return [found.values, found.succeeded, [[one.branch, one.label, one.tag] for one in found.failed]]

    world = World(joined)
    row = await world.to_the_end("joined")
    assert row.result == [[10, None, None], [10], [[1, "bad", "Invalid"], [2, "own", "Permanent"]]]
    assert row.metadata["failed_branches"] == [
        {"branch": "0.1", "label": "bad", "tag": "Invalid"},
        {"branch": "0.2", "label": "own", "tag": "Permanent"},
    ]


async def test_the_first_one_wins_and_the_others_are_given_up() -> None:
    canceled: list[int] = []

    @body("race", effects=EFFECTS)
    async def race(run: Run) -> Any:
        async def slow(given: int) -> int:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                canceled.append(given)
                raise
            return given

        index, value = await run.first(run.step("one", slow, input=1), run.step("one", times_ten, input=2), run.sleep(100))
        after = await run.step("other", lambda: "after")
        return [index, value, after]

    world = World(race)
    row = await world.to_the_end("race")
    assert row.result == [1, 20, "after"]
    assert canceled == [1]
    states = {entry.position: entry.state for entry in row.entries.values()}
    assert states == {"0.0/0": "canceled", "0.1/0": "done", "0.2/0": "canceled", "0": "done", "1": "done"}
    kinds = [one.op for batch in world.memory.applied for one in batch]
    assert kinds.index("give_up") < len(kinds) - 1
    # The decision and the claim of the next step are one commit: nothing begins before the winner is known for good.
    assert any(
        [one.op for one in batch][-1] == "claim" and "give_up" in [one.op for one in batch] for batch in world.memory.applied
    )


async def test_a_first_with_a_timeout_suspends_until_either() -> None:
    @body("race", effects=EFFECTS)
    async def race(run: Run) -> Any:
        handle = await run.awakeable("ask", ttl=1000)
        index, value = await run.first(handle, run.sleep(60))
        return [index, value]

    world = World(race)
    assert await world.run("race") == "suspended"
    assert world.row.next_attempt_at == START + 60_000
    assert sorted(one["kind"] for one in world.row.awaiting) == ["sleep", "wait"]
    assert "token" not in str(world.row.awaiting)
    early = World(race)
    await early.run("race")
    early.memory.end("awk_ask_" + next(iter(early.row.entries)).input_sha256[:6], {"resolved": {"yes": 1}})
    assert await early.again() == "success"
    assert early.row.result == [0, {"yes": 1}]
    world.clock.advance_to(START + 60_000)
    assert await world.again() == "success"
    assert world.row.result == [1, None]


@pytest.mark.clause("awake.reject", "awake.journal")
@pytest.mark.parametrize(
    ("ended", "told"),
    [
        ({"resolved": {"ok": True, "n": 1}}, [["payload", {"ok": True, "n": 1}], "resolved"]),
        ({"rejected": {"tag": "Forbidden", "message": "no"}}, [["Rejected", "Forbidden", "no"], "rejected"]),
        ({"timed_out": render(START)}, [["TimedOut", render(START)], "timed_out"]),
    ],
)
async def test_an_awakeable_ends_in_one_of_three_ways_and_a_replay_reads_the_same(ended: Any, told: Any) -> None:
    @body("asks", effects=EFFECTS)
    async def asks(run: Run) -> Any:
        handle = await run.awakeable("ask", ttl=1000)
        found: Any
        try:
            found = ["payload", await handle]
        except Rejected as error:
            found = ["Rejected", error.tag.value, error.message]
        except TimedOut as error:
            found = ["TimedOut", error.deadline]
        return [found, (await handle.outcome()).state]

    world = World(asks)
    assert await world.run("asks") == "suspended"
    (ref,) = [entry.ref for entry in world.row.entries.values() if entry.kind == "wait"]
    world.memory.end(str(ref), ended)
    assert await world.again() == "success"
    assert world.row.result == told
    execution = replace(world.row.execution, entries=tuple(world.row.entries.values()))
    world.row.owner, world.row.epoch, world.row.expires_at = "host", 1, START + 10**9  # type: ignore[assignment]
    assert await world.clock.drive(world.host.run(execution)) == "success"
    assert world.row.result == told


@pytest.mark.clause("awake.early")
async def test_what_ends_before_it_is_awaited_or_while_the_host_lets_go_is_not_missed() -> None:
    @body("asks", effects=EFFECTS)
    async def asks(run: Run) -> Any:
        return await (await run.awakeable("ask", ttl=1000))

    for call in (2, 3):
        world = World(asks)

        async def ends(world: World = world, call: int = call) -> None:
            if world.memory.calls == call:
                ref = "awk_ask_" + next(iter(world.row.entries)).input_sha256[:6]
                world.memory.end(ref, {"resolved": 7})

        world.memory.latency = ends
        assert await world.run("asks") == "success", call
        assert world.row.result == 7


@pytest.mark.parametrize(
    ("ended", "status", "result"),
    [
        ({"run_id": "run_9", "status": "success", "result": 5}, "success", 5),
        (
            {"run_id": "run_9", "status": "failed", "error": {"tag": "Invalid", "message": "no"}},
            "success",
            ["failed", "Invalid"],
        ),
        ({"run_id": "run_9", "status": "canceled"}, "success", ["canceled", "Canceled"]),
    ],
)
async def test_a_parent_sees_how_its_child_ended(ended: Any, status: str, result: Any) -> None:
    @body("parent", effects=EFFECTS)
    async def parent(run: Run) -> Any:
        try:
            return await run.child("kid", "other", {"n": 1})
        except ChildFailed as error:
            return [error.status, error.tag.value]

    world = World(parent)
    assert await world.run("parent") == "suspended"
    (ref,) = [entry.ref for entry in world.row.entries.values()]
    world.memory.end(str(ref), ended)
    assert await world.again() == status
    assert world.row.result == result


async def test_records_and_cursors_go_with_the_journal() -> None:
    @body("moves", effects=["rows", "move"])
    async def moves(run: Run) -> Any:
        cursor = await run.cursor("page")
        ids = await run.publish("rows", [{"kind": "row", "body": {"n": cursor.revision}}])
        cursor = await run.commit("move", cursor, {"page": 2}, records=[{"kind": "row", "body": {"n": 2}}])
        return [ids, cursor.position, cursor.revision]

    world = World(moves)
    row = await world.to_the_end("moves")
    assert row.result == [["rec_1_0"], {"page": 2}, 1]
    assert await World(moves).run("moves") == "success"


async def test_a_refused_publication_is_a_failed_step_that_may_be_caught() -> None:
    from moorage.bodies import StepFailed
    from moorage.kernel.errors import KindUnknown
    from moorage.runs.operations import Publish

    @body("moves", effects=["rows", "next"])
    async def moves(run: Run) -> Any:
        try:
            await run.publish("rows", [{"kind": "row", "body": {}}])
        except StepFailed as error:
            return [error.code, error.tag.value, await run.step("next", lambda: 1)]
        return None

    def refuse(operations: Any) -> None:
        if any(isinstance(one, Publish) for one in operations):
            raise KindUnknown

    world = World(moves)
    world.memory.refuse = refuse
    row = await world.to_the_end("moves")
    assert row.result == ["KindUnknown", "Unknown", 1]
    assert world.entries("failed") == ["rows"]


async def test_metadata_goes_with_the_next_operation_and_is_bounded() -> None:
    from moorage.kernel.errors import RunMetadataTooLarge

    @body("told", effects=[each("one")])
    async def tells(run: Run) -> Any:
        refused = ""
        for index in range(3):
            run.metadata["done"] = index
            await run.step("one", times_ten, input=index)
        try:
            run.metadata["much"] = "x" * 20_000
        except RunMetadataTooLarge as error:
            refused = error.detail
        return [dict(run.metadata), refused]

    world = World(tells)
    row = await world.to_the_end("told")
    assert row.metadata == {"done": 2}
    assert row.result[0] == {"done": 2}
    assert "16384" in row.result[1]
    assert [one.op for one in world.memory.applied[0]] == ["set_metadata", "claim"]


async def test_steps_of_a_gather_have_one_key_each_and_a_branchs_span() -> None:
    keys: dict[str, set[str]] = {}

    @body("keys", effects=[each("one")])
    async def keyed(run: Run) -> int:
        def effect(given: int, step: Step) -> int:
            keys.setdefault(step.idempotency_key, set()).add(step.traceparent)
            return given

        return sum(await run.gather(*(run.step("one", effect, input=index) for index in range(20))))

    world = World(keyed)
    assert await world.run("keys") == "success"
    assert len(keys) == 20
    assert all(one.startswith(f"00-{'a' * 32}-") for spans in keys.values() for one in spans)
