"""The hub on a clock that the test drives: what each watcher is told, and when."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from moorage.kernel.errors import RunUnknown, StorageBindingUnavailable
from moorage.kernel.limits import STREAM_INTERVAL_MS, STREAM_RING
from moorage.runs.live.hub import INBOX, KEPT_SECONDS, Hub, Message, Subscription
from moorage.runs.live.model import Snapshot, Version
from moorage.runs.live.reducer import Change, reduce
from tests.unit.runs.live.views import RUN, run, step, view

pytestmark = pytest.mark.clause("runs.stream")


class Time:
    """Milliseconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def ticks(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds * 1000, woken))
        await woken

    async def to(self, instant: float) -> None:
        """Let time pass up to an instant, stopping wherever somebody wakes."""
        await calm()
        while True:
            self._sleepers = [one for one in self._sleepers if not one[1].done()]
            due = min((at for at, _ in self._sleepers), default=instant)
            self.now = max(self.now, min(due, instant))
            for at, woken in self._sleepers:
                if at <= self.now and not woken.done():
                    woken.set_result(None)
            await calm()
            if due >= instant and not any(at <= instant for at, one in self._sleepers if not one.done()):
                return


async def calm() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@dataclass
class Watcher:
    """Somebody who takes messages as they come."""

    time: Time
    subscription: Subscription
    got: list[dict[str, Any]] = field(default_factory=list)
    came: list[float] = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None

    def start(self) -> "Watcher":
        self.task = asyncio.create_task(self._watch())
        return self

    async def _watch(self) -> None:
        while not self.subscription.over:
            message = await self.subscription.next(3600)
            if message is not None:
                self.got.append(json.loads(message.text))
                self.came.append(self.time.now)

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self.subscription.close()

    @property
    def versions(self) -> list[Version]:
        return [Version(**one["version"]) for one in self.got]

    def view(self) -> dict[str, Any]:
        """What a client makes of it: the run as last told, and each step as last told."""
        steps: dict[tuple[str, str], Any] = {}
        for one in self.got:
            if one["type"] == "snapshot":
                steps.clear()
            steps.update({(step["label"], step["input_sha256"]): step for step in one["steps"]})
        return {**self.got[-1], "steps": list(steps.values())}


@dataclass
class House:
    """A hub, its clock, and a record that the test writes."""

    time: Time = field(default_factory=Time)
    record: dict[str, Snapshot] = field(default_factory=lambda: {RUN: view()})
    loads: list[float] = field(default_factory=list)
    hold: asyncio.Event | None = None
    fails: bool = False

    def __post_init__(self) -> None:
        self.hub = Hub(self.load, 1000, self.time.ticks, self.time.sleep)

    async def load(self, run_id: str) -> Snapshot | None:
        self.loads.append(self.time.now)
        if self.fails:
            raise StorageBindingUnavailable
        found = self.record.get(run_id)
        if self.hold is not None:
            await self.hold.wait()
        return found

    def store(self, *changes: Change) -> None:
        """Store what happened, as an engine does before it tells of it."""
        self.record[RUN] = reduce(self.record[RUN], changes)

    def happen(self, *changes: Change) -> None:
        self.store(*changes)
        for change in changes:
            self.hub.tell(change)

    async def watch(self, after: Version | None = None) -> Watcher:
        watcher = Watcher(self.time, await self.hub.subscribe(RUN, after)).start()
        await calm()
        return watcher


@pytest.fixture
def house() -> House:
    return House()


async def test_first_the_whole_view_then_what_changed(house: House) -> None:
    house.store(step("one"))
    watcher = await house.watch()
    house.happen(step("two", "running"), step("two"))
    await house.time.to(200)
    house.happen(run("success", result_bytes=2))
    await calm()
    assert [one["type"] for one in watcher.got] == ["snapshot", "update", "update"]
    assert [[each["label"] for each in one["steps"]] for one in watcher.got] == [["one"], ["two"], []]
    assert watcher.got[-1]["status"] == "success"
    assert watcher.versions == sorted(set(watcher.versions))
    assert watcher.subscription.over


async def test_a_burst_is_one_message_an_interval_and_the_latest_wins(house: House) -> None:
    watcher = await house.watch()
    for number in range(1000):
        house.happen(step(f"s{number % 50}", "running", attempt=1 + number // 50))
        await house.time.to(number)
    await house.time.to(2000)
    assert 9 <= len(watcher.got) <= 12
    apart = [later - earlier for earlier, later in zip(watcher.came, watcher.came[1:], strict=False)]
    assert min(apart) >= STREAM_INTERVAL_MS
    assert {one["attempt"] for one in watcher.view()["steps"]} == {20}
    await watcher.stop()


async def test_the_end_is_told_at_once(house: House) -> None:
    watcher = await house.watch()
    house.happen(step("one", "running"))
    await house.time.to(150)
    house.happen(step("two", "running"))
    await house.time.to(151)
    house.happen(run("failed", error={"tag": "Permanent", "message": "no"}))
    await calm()
    assert watcher.came[-1] == 151
    assert (watcher.got[-1]["status"], watcher.got[-1]["error"]["tag"]) == ("failed", "Permanent")
    assert {one["label"] for one in watcher.view()["steps"]} == {"one", "two"}


async def test_telling_never_waits_and_an_end_is_kept_while_all_else_is_dropped(house: House) -> None:
    house.hold = asyncio.Event()
    subscribing = asyncio.create_task(house.hub.subscribe(RUN))
    await calm()
    for number in range(3 * INBOX):
        house.hub.tell(step(f"s{number}", "running"))
    house.hub.tell(run("success"))
    house.hold.set()
    watcher = Watcher(house.time, await subscribing).start()
    await house.time.to(500)
    assert watcher.got[-1]["status"] == "success"
    assert watcher.subscription.over


async def test_what_was_dropped_is_read_from_the_record(house: House) -> None:
    house.hold = asyncio.Event()
    subscribing = asyncio.create_task(house.hub.subscribe(RUN))
    await calm()
    house.happen(*(step(f"s{number}", "running") for number in range(INBOX + 10)))
    house.hold.set()
    watcher = Watcher(house.time, await subscribing).start()
    await house.time.to(500)
    assert len(watcher.view()["steps"]) == INBOX + 10
    assert len(house.loads) == 2
    await watcher.stop()


async def test_what_is_told_while_the_record_is_read_is_neither_missed_nor_doubled(house: House) -> None:
    house.hold = asyncio.Event()
    subscribing = asyncio.create_task(house.hub.subscribe(RUN))
    await calm()
    house.happen(step("one", "running"), step("one"))
    house.hold.set()
    watcher = Watcher(house.time, await subscribing).start()
    await house.time.to(300)
    assert [(one["label"], one["status"]) for one in watcher.view()["steps"]] == [("one", "success")]
    await watcher.stop()


async def test_whoever_joins_gets_the_view_and_what_follows_it(house: House) -> None:
    first = await house.watch()
    house.happen(step("one"))
    await house.time.to(100)
    house.happen(step("two"))
    second = await house.watch()
    await house.time.to(300)
    house.happen(step("three"))
    await house.time.to(500)
    assert [one["label"] for one in second.view()["steps"]] == ["one", "two", "three"]
    assert second.view()["steps"] == first.view()["steps"]
    assert second.versions == sorted(set(second.versions))
    assert second.got[0]["type"] == "snapshot"
    assert len(house.loads) == 1
    for watcher in (first, second):
        await watcher.stop()


async def test_those_who_come_at_once_are_all_served_by_one_reading(house: House) -> None:
    house.hold = asyncio.Event()
    subscribing = [asyncio.create_task(house.hub.subscribe(RUN)) for _ in range(3)]
    await calm()
    house.hold.set()
    watchers = [Watcher(house.time, await one).start() for one in subscribing]
    await house.time.to(200)
    assert [[one["type"] for one in watcher.got] for watcher in watchers] == [["snapshot"]] * 3
    assert len(house.loads) == 1
    for watcher in watchers:
        await watcher.stop()


async def test_who_is_left_alone_by_a_reading_that_was_given_up_reads_itself(house: House) -> None:
    house.hold = asyncio.Event()
    first, second = (asyncio.create_task(house.hub.subscribe(RUN)) for _ in range(2))
    await calm()
    first.cancel()
    house.hold.set()
    watcher = Watcher(house.time, await second).start()
    await house.time.to(100)
    assert [one["type"] for one in watcher.got] == ["snapshot"]
    await watcher.stop()
    await house.time.to(100 + KEPT_SECONDS * 1000)
    house.hub.tell(step("anything"))
    assert house.hub.watched == 0


async def test_who_is_slow_gets_the_latest_view_anew(house: House) -> None:
    slow = await house.hub.subscribe(RUN)
    begun = await slow.next(1)
    quick = await house.watch()
    for number in range(int(STREAM_RING) + 20):
        house.happen(step(f"s{number}"))
        await house.time.to((number + 1) * 100)
    assert len(quick.got) > STREAM_RING
    message = await slow.next(1)
    assert message is not None
    assert begun is not None
    assert (message.type, len(json.loads(message.text)["steps"])) == ("snapshot", int(STREAM_RING) + 20)
    assert message.version > begun.version
    house.happen(run("success"))
    follows = await slow.next(1)
    assert follows is not None
    assert (follows.type, follows.last) == ("update", True)
    assert await slow.next(1) is None
    slow.close()
    await quick.stop()


async def test_who_is_a_little_slow_reads_on_in_order(house: House) -> None:
    slow = await house.hub.subscribe(RUN)
    await slow.next(1)
    quick = await house.watch()
    for number in range(50):
        house.happen(step(f"s{number}"))
        await house.time.to((number + 1) * 100)
    got: list[Message] = []
    while (message := await slow.next(0)) is not None:
        got.append(message)
    assert {one.type for one in got} == {"update"}
    assert [json.loads(one.text)["steps"][0]["label"] for one in got] == [f"s{number}" for number in range(50)]
    slow.close()
    await quick.stop()


async def test_a_client_comes_back_to_where_it_was(house: House) -> None:
    keeper = await house.watch()
    for number in range(5):
        house.happen(step(f"s{number}"))
        await house.time.to((number + 1) * 100)
    back = await house.watch(keeper.versions[2])
    assert [one["type"] for one in back.got] == ["update", "update", "update"]
    assert back.versions == keeper.versions[3:]
    from_the_start = await house.watch(keeper.versions[0])
    assert from_the_start.versions == keeper.versions[1:]
    lost = await house.watch(Version(999, 3))
    assert lost.got[0]["type"] == "snapshot"
    for watcher in (keeper, back, from_the_start, lost):
        await watcher.stop()


async def test_a_channel_is_kept_for_a_minute_after_the_end_and_then_the_record_serves(house: House) -> None:
    watcher = await house.watch()
    house.happen(run("success"))
    await calm()
    await watcher.stop()
    await house.time.to(KEPT_SECONDS * 1000 - 1)
    late = await house.watch()
    assert (late.got[0]["status"], late.subscription.over, len(house.loads)) == ("success", True, 1)
    await late.stop()
    await house.time.to(KEPT_SECONDS * 1000)
    house.hub.tell(step("anything"))
    assert house.hub.watched == 0
    later = await house.watch()
    assert (later.got[0]["status"], len(house.loads)) == ("success", 2)
    assert later.versions > late.versions
    await later.stop()
    assert house.hub.watched == 0


async def test_whoever_comes_after_the_end_is_served_from_the_record(house: House) -> None:
    house.store(step("one"), run("canceled"))
    watcher = await house.watch()
    assert [(one["type"], one["status"]) for one in watcher.got] == [("snapshot", "canceled")]
    assert watcher.subscription.over


async def test_an_end_that_nobody_told_is_found_in_the_record(house: House) -> None:
    watcher = await house.watch()
    house.store(run("partial_failure", error={"tag": "Transient", "message": "the host is gone"}))
    await house.time.to(999)
    assert watcher.got[-1]["status"] == "running"
    await house.time.to(1000)
    assert watcher.got[-1]["status"] == "partial_failure"
    assert watcher.subscription.over


async def test_a_quiet_run_is_read_ever_more_seldom(house: House) -> None:
    watcher = await house.watch()
    await house.time.to(60_000)
    assert house.loads == [0, 1000, 3000, 7000, 15000, 25000, 35000, 45000, 55000]
    assert len(watcher.got) == 1
    await watcher.stop()


async def test_a_run_that_is_hosted_elsewhere_is_read_once_a_second(house: House) -> None:
    house.record[RUN] = view(host="remote")
    watcher = await house.watch()
    for number in range(20):
        house.store(step(f"s{number}"))
        await house.time.to((number + 1) * 500)
    assert house.loads == [number * 1000 for number in range(11)]
    assert len(watcher.view()["steps"]) == 20
    await watcher.stop()


async def test_hints_of_a_remote_run_are_read_at_most_once_an_interval_and_only_while_somebody_watches(house: House) -> None:
    assert not house.hub.changed(RUN)
    assert house.loads == []
    watcher = await house.watch()
    for number in range(500):
        house.store(step(f"s{number % 7}", "running", 1 + number // 7))
        assert house.hub.changed(RUN)
        await house.time.to(number)
    await house.time.to(700)
    assert len(house.loads) <= 8
    assert {one["attempt"] for one in watcher.view()["steps"]} == {72, 71}
    await watcher.stop()
    before = len(house.loads)
    assert not house.hub.changed(RUN)
    await house.time.to(30_000)
    assert len(house.loads) == before


async def test_a_watcher_that_left_leaves_nothing_behind(house: House) -> None:
    watcher = await house.watch()
    await watcher.stop()
    await house.time.to(KEPT_SECONDS * 1000)
    house.happen(step("one"))
    assert house.hub.watched == 0
    with pytest.raises(RunUnknown):
        await house.hub.subscribe("run_2")
    assert house.hub.watched == 0


async def test_a_channel_that_was_left_is_read_again(house: House) -> None:
    first = await house.watch()
    await first.stop()
    house.store(step("missed"))
    second = await house.watch()
    assert [one["label"] for one in second.got[0]["steps"]] == ["missed"]
    await second.stop()


async def test_a_record_that_cannot_be_read_stops_no_view(house: House) -> None:
    watcher = await house.watch()
    house.fails = True
    house.hub.changed(RUN)
    await house.time.to(500)
    house.hub.tell(step("told"))
    await house.time.to(700)
    assert [one["label"] for one in watcher.view()["steps"]] == ["told"]
    await house.time.to(20_000)
    assert len(house.loads) < 8
    house.fails = False
    house.store(run("success"))
    await house.time.to(35_000)
    assert watcher.subscription.over
    await watcher.stop()


async def test_a_record_that_cannot_be_read_at_first_refuses(house: House) -> None:
    house.fails = True
    with pytest.raises(StorageBindingUnavailable):
        await house.hub.subscribe(RUN)
    assert house.hub.watched == 0


async def test_a_hub_that_starts_anew_is_ahead_of_the_one_before(house: House) -> None:
    before = await house.watch()
    for number in range(5):
        house.happen(step(f"s{number}"))
        await house.time.to((number + 1) * 100)
    await before.stop()
    house.hub = Hub(house.load, 1001, house.time.ticks, house.time.sleep)
    after = await house.watch()
    assert after.versions[0] > before.versions[-1]
    assert len(after.got[0]["steps"]) == 5
    await after.stop()


@pytest.mark.clause("runs.machine-state")
async def test_rebuilding_the_view_changes_nothing(house: House) -> None:
    told: list[Change] = [step("one"), step("two", "waiting"), run("suspended", awaiting=[{"label": "two"}])]
    watcher = await house.watch()
    house.happen(*told)
    await house.time.to(200)
    kept = house.record[RUN]
    house.hub = Hub(house.load, 2000, house.time.ticks, house.time.sleep)
    again = await house.watch()
    drop = ("version", "type")
    assert {**again.view(), **dict.fromkeys(drop)} == {**watcher.view(), **dict.fromkeys(drop)}
    assert house.record[RUN] is kept
    for one in (watcher, again):
        await one.stop()
