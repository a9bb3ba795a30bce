"""Generated bodies with guarded effects, steps, waits, branches and entities, and one body that interprets them."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from moorage.bodies import Retry, Run, body, each

Node = Any
Program = list[Any]


@body("guarded", effects=[each("pay"), each("step")], retry=Retry(attempts=10, jitter_ms=0))
async def guarded(run: Run, nodes: Any) -> Any:
    return await interpret(run, nodes)


async def interpret(run: Run, nodes: Program) -> list[Any]:
    return [await one(run, node) for node in nodes]


async def one(run: Run, node: Node) -> Any:
    match node:
        case ["pay", number, destination]:
            effect = run.publication if destination == "press" else run.effect
            await effect("pay", destination, "jobs", json=number)
            return number
        case ["step", number]:
            return await run.step("step", lambda: number, input=number)
        case ["sleep", seconds]:
            return await run.sleep(seconds)
        case ["entity", name, *nodes]:
            async with run.entity("customer", name):
                return await interpret(run, nodes)
        case ["gather", *branches]:
            return await run.gather(*(interpret(run, branch) for branch in branches))
    raise AssertionError(node)


def programs() -> st.SearchStrategy[Program]:
    """Programs whose effects are numbered apart."""
    leaves = st.one_of(
        st.tuples(st.just("pay"), st.just(0), st.sampled_from(["bank", "bank", "printer", "press"])),
        st.tuples(st.just("step"), st.just(0)),
        st.tuples(st.just("sleep"), st.sampled_from([0.05, 3, 100])),
    )

    def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        some = st.lists(inner, min_size=1, max_size=3)
        entity = st.builds(lambda name, nodes: ("entity", name, *nodes), st.sampled_from("xy"), some)
        gather = st.builds(lambda found: ("gather", *found), st.lists(some, min_size=1, max_size=3))
        return st.one_of(inner, entity, gather)

    return st.lists(st.recursive(leaves, deeper, max_leaves=6), min_size=1, max_size=4).map(lambda made: numbered(made, [0]))


def numbered(nodes: Any, count: list[int]) -> Program:
    done: Program = []
    for node in nodes:
        if node[0] in ("pay", "step"):
            count[0] += 1
            done.append([node[0], count[0], *node[2:]])
        elif node[0] == "gather":
            done.append(["gather", *(numbered(branch, count) for branch in node[1:])])
        elif node[0] == "entity":
            done.append(["entity", node[1], *numbered(node[2:], count)])
        else:
            done.append(list(node))
    return done


def payments_of(nodes: Any) -> Iterator[int]:
    """The numbers of all effects of a program."""
    for node in nodes:
        if node[0] == "pay":
            yield node[1]
        elif node[0] == "entity":
            yield from payments_of(node[2:])
        elif node[0] == "gather":
            for branch in node[1:]:
                yield from payments_of(branch)
