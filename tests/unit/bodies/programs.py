"""Generated bodies: programs of steps, branches and waits, and one body that interprets them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import strategies as st

from moorage.bodies import Failed, Retry, Run, Step, StepFailed, body, each

Node = Any
Program = list[Any]


class Outside:
    """What effects do: a log of (idempotency key, step's number, attempt) in the order in which they began."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.tries: dict[int, int] = {}
        self.killed: asyncio.Event | None = None
        self.kill_at: tuple[int, str] | None = None
        self.latency: Callable[[], Awaitable[None]] | None = None

    async def call(self, number: int, failing: int, step: Step) -> int:
        self.calls.append((step.idempotency_key, number, step.attempt))
        await self._maybe_killed("before")
        if self.latency is not None:
            await self.latency()
        await asyncio.sleep(0)
        self.tries[number] = self.tries.get(number, 0) + 1
        if self.tries[number] <= failing:
            raise Failed("Transient", "not yet")
        if failing < 0:
            raise Failed("Invalid", "never")
        await self._maybe_killed("after")
        return number * 10

    async def _maybe_killed(self, when: str) -> None:
        if self.killed is not None and self.kill_at == (len(self.calls), when):
            self.kill_at = None
            self.killed.set()
            await asyncio.get_running_loop().create_future()


outside = Outside()


@body("program", effects=[each("step"), each("ask")], retry=Retry(attempts=6, jitter_ms=0))
async def program(run: Run, nodes: Any) -> Any:
    return await interpret(run, nodes)


async def interpret(run: Run, nodes: Program) -> list[Any]:
    return [await one(run, node) for node in nodes]


async def one(run: Run, node: Node) -> Any:
    match node:
        case ["step", number, failing]:
            return await step(run, number, failing)
        case ["gather", *branches]:
            return await run.gather(*(interpret(run, branch) for branch in branches))
        case ["partial", *branches]:
            partial = await run.gather(*(interpret(run, branch) for branch in branches), allow_partial=True)
            return [partial.values, [one.label for one in partial.failed]]
        case ["first", *branches]:
            index, value = await run.first(*(interpret(run, branch) for branch in branches))
            return [index, value]
        case ["sleep", seconds]:
            await run.sleep(seconds)
            return None
        case ["ask", number]:
            handle = await run.awakeable("ask", ttl=10**7, input=number)
            return await handle
        case ["draw"]:
            return [run.now().isoformat(), run.random(), str(run.uuid())]
        case _:
            raise AssertionError(node)


async def step(run: Run, number: int, failing: int) -> Any:
    async def effect(given: int, step: Step) -> int:
        return await outside.call(number, failing, step)

    try:
        return await run.step("step", effect, input=number)
    except StepFailed as error:
        return error.tag.value


def programs(*, races: bool = False, chance: bool = False) -> st.SearchStrategy[Program]:
    """Programs whose steps are numbered apart. Without races and chance, two runs of one give the same."""
    leaves = [
        st.tuples(st.just("step"), st.just(0), st.sampled_from([0, 0, 0, 1, 2, -1])),
        st.tuples(st.just("sleep"), st.sampled_from([0.05, 0.5, 3, 100])),
        st.tuples(st.just("ask"), st.just(0)),
    ]
    if chance:
        leaves.append(st.tuples(st.just("draw")))
    kinds = ["gather", "partial", *(["first"] if races else [])]

    def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        branches = st.lists(st.lists(inner, min_size=1, max_size=3), min_size=1, max_size=3)
        return st.one_of(inner, st.builds(lambda kind, found: (kind, *found), st.sampled_from(kinds), branches))

    nodes = st.recursive(st.one_of(leaves), deeper, max_leaves=8)
    return st.lists(nodes, min_size=1, max_size=4).map(lambda found: numbered(found, [0]))


def numbered(nodes: Any, count: list[int]) -> Program:
    done: Program = []
    for node in nodes:
        if node[0] in ("step", "ask"):
            count[0] += 1
            done.append([node[0], count[0], *node[2:]])
        elif node[0] in ("gather", "first", "partial"):
            done.append([node[0], *(numbered(branch, count) for branch in node[1:])])
        else:
            done.append(list(node))
    return done
