"""Bodies that other hosts offer: what is taken, who may, and that a name means one body."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.catalog.access import Grant
from moorage.kernel.errors import BodyConflict, BodyUnknown, Forbidden, IdInvalid, RequestInvalid
from moorage.kernel.pages import PageRequest
from moorage.runs import remote_bodies
from moorage.runs.model import BodyInfo, Build
from tests.contract.adapters import Store, dump
from tests.contract.runs_desk import REMOTE, RunsDesk


@pytest.fixture
def desk(store: Store) -> RunsDesk:
    return RunsDesk(store)


async def register(desk: RunsDesk, info: BodyInfo = REMOTE, taken: tuple[str, ...] = ()) -> remote_bodies.RemoteBody:
    return await remote_bodies.register(desk.db(), desk.caller, desk.now, info, taken)


@pytest.mark.clause("runs.substrate", "runs.body-pins")
async def test_an_offer_is_shown_as_it_was_made_and_the_latest_stands(desk: RunsDesk) -> None:
    build = Build("fetch", "a" * 64, {"prompt": "b" * 64}, "c" * 64)
    full = BodyInfo("fetch", "remote", build, ("get", "put"), "Fetches", {"type": "object"}, {"type": "string"})
    first = await register(desk, full)
    assert first.info == full
    assert first.wire()["build"] == {**build.wire(), "digest": build.digest}
    desk.pass_time(1)
    held = await desk.open_remote("job", info=full)
    second = await register(desk)
    shown = await remote_bodies.show(desk.db(), desk.caller, "fetch")
    assert (shown.info, shown.updated_at) == (replace(REMOTE, effects=("get",)), desk.now)
    assert shown == second
    row = await desk.execution(held.execution_id)
    assert row is not None
    assert row["build"] == build.digest
    assert await desk.types("body:fetch") == ["body.registered", "body.registered"]


@pytest.mark.clause("runs.substrate")
async def test_a_name_of_the_worker_is_taken(desk: RunsDesk, store: Store) -> None:
    before = await dump(store)
    with pytest.raises(BodyConflict):
        await register(desk, taken=("order", "fetch"))
    assert await dump(store) == before


@pytest.mark.clause("runs.body-pins", "kernel.limits")
@pytest.mark.parametrize(
    "change",
    [
        {"name": "Fetch"},
        {"name": "other"},
        {"build": Build("fetch", "x")},
        {"build": Build("fetch", "A" * 64)},
        {"build": Build("fetch", "a" * 64, {"p": "q"})},
        {"build": Build("fetch", "a" * 64, {"": "a" * 64})},
        {"build": Build("fetch", "a" * 64, {}, "q")},
        {"effects": ("a", "a")},
        {"effects": ("",)},
        {"effects": tuple(str(number) for number in range(remote_bodies.MOST_EFFECTS + 1))},
        {"description": "x" * 1025},
        {"input_schema": {"x": "y" * 70_000}},
        {"result_schema": {"x": "y" * 70_000}},
    ],
)
async def test_what_is_out_of_bounds_is_refused(desk: RunsDesk, store: Store, change: dict[str, Any]) -> None:
    before = await dump(store)
    with pytest.raises((RequestInvalid, IdInvalid)):
        await register(desk, replace(REMOTE, **change))
    assert await dump(store) == before


@pytest.mark.clause("catalog.grants")
async def test_who_may_offer_look_and_withdraw(desk: RunsDesk) -> None:
    await register(desk)
    other = BodyInfo("order-x", "remote", Build("order-x", "a" * 64))
    await register(desk, other)
    reader = desk.seen_by(await desk.credential("reader", Grant(frozenset({"read"}), ("fetch",))))
    host = desk.seen_by(await desk.credential("host", Grant(frozenset({"execute"}), ("order*",))))
    with pytest.raises(Forbidden):
        await register(reader)
    with pytest.raises(Forbidden):
        await register(host)
    await register(host, other)
    with pytest.raises(BodyUnknown):
        await remote_bodies.show(host.db(), host.caller, "fetch")
    page = await remote_bodies.list_bodies(host.db(), host.caller, PageRequest())
    assert [body.info.name for body in page.items] == ["order-x"]
    whole = await remote_bodies.list_bodies(desk.db(), desk.caller, PageRequest(1))
    assert [body.info.name for body in whole.items] == ["fetch"]
    rest = await remote_bodies.list_bodies(desk.db(), desk.caller, PageRequest(1, whole.next_cursor))
    assert [body.info.name for body in rest.items] == ["order-x"]
    with pytest.raises(Forbidden):
        await remote_bodies.remove(reader.db(), reader.caller, desk.now, "fetch")
    with pytest.raises(BodyUnknown):
        await remote_bodies.remove(host.db(), host.caller, desk.now, "fetch")
    await remote_bodies.remove(host.db(), host.caller, desk.now, "order-x")
    with pytest.raises(BodyUnknown):
        await remote_bodies.find(desk.db(), "order-x")
