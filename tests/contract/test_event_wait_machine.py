"""Waits for events against a model of a few lines: accept, route, store a wait, time out, give up, end and open again, in
whatever order their transactions come, with ports that fail before and after they commit (clauses waits.match,
inbox.two-checkpoints).

Every operation stops before each of its round trips, and the machine chooses whose turn it is. After each commit the rows
are compared with the model, which knows of events and waits and of nothing else.
"""

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moorage.kernel.errors import EventMatched, ExecutionWoken, StorageBindingUnavailable
from moorage.kernel.instants import after
from moorage.messages.inbox import routing, waits
from moorage.messages.inbox.matching import Filter
from moorage.runs.model import Execution, Failure
from moorage.runs.operations import AwaitEvent, Close, GiveUp
from moorage.store.ports import Database
from moorage.store.sqlite import connect
from moorage.store.transaction import Reading, Transaction
from tests.contract.adapters import SqliteStore, at_once, schema_statements
from tests.contract.harbor import key, put
from tests.contract.quay import Quay

FILTERS = ({"keys": ["a"]}, {"keys": ["a"], "types": ["x"]}, {"types": ["x"], "match": {"n": {"$ne": 1}}})
TURNS = st.sampled_from([0, 1, 2, 9])
"""Round trips that an operation goes on for at once; what is left is somebody else's turn first."""
LABELS = ("one", "two", "three", "four")
SCOPES = ("job",)


class _Turn:
    """Waits for one's turn."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Stepped:
    """A database before each of whose round trips the machine is asked."""

    def __init__(self, db: Database, step: "Step") -> None:
        self._db, self._step = db, step
        self.cost, self.initialize = db.cost, db.initialize

    async def read(self, reading: Reading) -> None:
        await _Turn()
        await self._db.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        await _Turn()
        fault, self._step.fault = self._step.fault, None
        if fault == "before":
            raise StorageBindingUnavailable
        await self._db.commit(transaction)
        if fault == "after":
            raise StorageBindingUnavailable


@dataclass
class Step:
    """An operation under way: what it is, and in whose hands."""

    what: str
    scope: str | None = None
    work: Coroutine[Any, Any, Any] | None = None
    fault: str | None = None

    def go_on(self) -> bool:
        """Its next round trip, up to the one after that; whether there is one."""
        assert self.work is not None
        try:
            self.work.send(None)
        except StopIteration:
            return False
        except (StorageBindingUnavailable, EventMatched, ExecutionWoken):
            return False
        return True


@dataclass(frozen=True)
class Wait:
    """A wait, as the model sees it."""

    execution: str
    label: str
    state: str
    after: int
    event: int | None
    since: tuple[int, str]
    filter: Filter


_TEMPLATE: sqlite3.Connection | None = None


def _fresh(folder: Path) -> SqliteStore:
    global _TEMPLATE
    store = SqliteStore(folder)
    if _TEMPLATE is None:
        at_once(store.db().initialize(schema_statements()))
        _TEMPLATE = connect(":memory:")
        store.connection.backup(_TEMPLATE)
    else:
        _TEMPLATE.backup(store.connection)
    return store


class Machine(RuleBasedStateMachine):
    """A scope, a handful of labels and of filters: enough for any two transactions to meet."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.quay = Quay(_fresh(Path(self.folder.name)))
        self.loop = asyncio.new_event_loop()
        self.steps: list[Step] = []
        self.executions: dict[str, Execution] = {}
        self.wanted: dict[tuple[str, str], AwaitEvent] = {}
        self.before: dict[tuple[str, str], Wait] = {}
        for scope in SCOPES:
            self._open(scope)

    def teardown(self) -> None:
        for step in self.steps:
            if step.work is not None:
                step.work.close()
        self.quay.store.connection.close()  # type: ignore[attr-defined]
        self.loop.close()
        self.folder.cleanup()

    # --- what happens -------------------------------------------------------------------------------------------------

    @rule(
        keys=st.lists(st.sampled_from([["a"], ["a"], ["b"]]), min_size=1, max_size=2),
        type_=st.sampled_from("xxy"),
        n=st.integers(0, 1),
    )
    def accept(self, keys: list[list[str]], type_: str, n: int) -> None:
        for one in keys:
            at_once(self.quay.send(*one, type_=type_, data={"n": n}))

    @rule(seconds=st.sampled_from([1, 5]))
    def pass_time(self, seconds: int) -> None:
        self.quay.pass_time(seconds)

    @rule(which=st.integers(0, 20), turns=TURNS)
    def route(self, which: int, turns: int) -> None:
        if unrouted := self._sql("SELECT seq FROM events WHERE routed_at IS NULL ORDER BY seq"):
            seq = unrouted[which % len(unrouted)]["seq"]
            self._begin("route", None, lambda db: routing.route(db, self.quay.now, seq), turns)

    @rule(turns=TURNS)
    def route_together(self, turns: int) -> None:
        self._begin("route together", None, lambda db: routing.route_unrouted(db, self.quay.now), turns)

    @rule(
        scope=st.sampled_from(SCOPES),
        label=st.sampled_from(LABELS),
        which=st.sampled_from(FILTERS),
        seconds=st.sampled_from([None, 0, 5]),
        look_back=st.sampled_from([0.0, 5.0, 3600.0]),
        turns=TURNS,
    )
    def store(
        self, scope: str, label: str, which: dict[str, Any], seconds: int | None, look_back: float, turns: int
    ) -> None:
        until = None if seconds is None else after(self.quay.now, seconds)
        told = {"keys": (), "types": (), "match": None, **which}
        wanted = AwaitEvent(key(label), "0", told["keys"], told["types"], told["match"], until, look_back)
        self._apply(scope, "store", self.wanted.setdefault((self.executions[scope].execution_id, label), wanted), turns)

    @rule(scope=st.sampled_from(SCOPES), label=st.sampled_from(LABELS), turns=TURNS)
    def give_up(self, scope: str, label: str, turns: int) -> None:
        execution = self.executions[scope].execution_id
        if self._sql("SELECT 1 FROM journal WHERE execution_id = ? AND label = ?", execution, label):
            self._apply(scope, "give up", GiveUp(key(label)), turns)

    @rule(scope=st.sampled_from(SCOPES), turns=TURNS)
    def time_out(self, scope: str, turns: int) -> None:
        execution = self.executions[scope].execution_id
        self._begin("time out", None, lambda db: waits.time_out(db, self.quay.now, execution), turns)

    @rule(scope=st.sampled_from(SCOPES))
    def take_over(self, scope: str) -> None:
        if not self._busy(scope):
            self.quay.between = None
            self.loop.run_until_complete(self.quay.substrate.refresh(self.executions[scope].fence))

    @rule(scope=st.sampled_from(SCOPES), how=st.sampled_from(["", "", "", "success", "failed"]))
    def end_and_open_again(self, scope: str, how: str) -> None:
        if how and not self._busy(scope):
            error = Failure("Permanent", "x") if how == "failed" else None
            at_once(self.quay.apply(self.executions[scope].fence, Close(how, None, error)))  # type: ignore[arg-type]
            self._open(scope)

    @precondition(lambda self: self.steps)
    @rule(which=st.integers(0, 20), fault=st.sampled_from([None, None, None, "before", "after"]), turns=TURNS)
    def go_on(self, which: int, fault: str | None, turns: int) -> None:
        step = self.steps[which % len(self.steps)]
        step.fault = fault
        self._turns(step, max(1, turns))

    # --- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def the_rows_are_those_of_the_model(self) -> None:
        now, before = self._waits(), self.before
        events = {row["seq"]: row for row in self._sql("SELECT * FROM events")}
        for name, one in now.items():
            was = before.get(name)
            if was is not None and was.state != one.state:
                assert was.state in ("active", "canceled"), f"{name} has ended twice: {was.state}, {one.state}"
            if one.state == "woken" and (was is None or was.state != "woken"):
                self._check_event(one, before, now, events)
            if one.state == "timed_out" and (was is None or was.state != "timed_out"):
                left = [seq for seq in self._free(one, now, events) if not self._belongs(seq, one, before, events)]
                assert not left, f"{name} timed out over {left}"
        taken = [(one.execution, one.event) for one in now.values() if one.event is not None]
        assert len(taken) == len(set(taken)), "an event was taken twice"
        for one in now.values():
            if one.state == "active":
                lost = [seq for seq in self._free(one, now, events) if events[seq]["routed_at"] is not None]
                assert not lost, f"{one.label} has lost {lost}"
        told = {(row["execution_id"], row["label"], row["term"]) for row in self._sql("SELECT * FROM event_wait_terms")}
        active = [one for one in now.values() if one.state == "active"]
        assert told == {(one.execution, one.label, term) for one in active for term in one.filter.terms}
        for row in self._sql("SELECT * FROM journal WHERE kind = 'event' AND state = 'done'"):
            wait = now[(row["execution_id"], row["label"])]
            assert list(json.loads(row["value"])) == [{"woken": "event"}.get(wait.state, wait.state)]
        self.before = now

    def _check_event(
        self, one: Wait, before: dict[tuple[str, str], Wait], now: dict[tuple[str, str], Wait], events: dict[int, Any]
    ) -> None:
        """The event fits, and no wait of the execution that was stored before would have had it."""
        assert one.event is not None
        assert self._fits(one, events[one.event]), f"{one} does not fit"
        assert one.event > one.after
        assert not self._belongs(one.event, one, before, events), f"{one.event} was an earlier wait's"
        if (one.execution, one.label) not in before:
            older = [seq for seq in self._free(one, now, events) if seq < one.event]
            assert all(self._belongs(seq, one, before, events) for seq in older), f"{older} came before {one.event}"

    def _free(self, one: Wait, now: dict[tuple[str, str], Wait], events: dict[int, Any]) -> list[int]:
        """The events that fit a wait and that its execution has not taken."""
        taken = {other.event for other in now.values() if other.execution == one.execution}
        return [seq for seq, row in events.items() if seq > one.after and seq not in taken and self._fits(one, row)]

    def _belongs(self, seq: int, one: Wait, before: dict[tuple[str, str], Wait], events: dict[int, Any]) -> bool:
        """Whether an event was for an earlier wait of the same execution, which was active then."""
        return any(
            other.execution == one.execution
            and other.label != one.label
            and other.state == "active"
            and other.after < seq
            and (other.since < one.since or (one.execution, one.label) not in before)
            and self._fits(other, events[seq])
            for other in before.values()
        )

    @staticmethod
    def _fits(one: Wait, row: Any) -> bool:
        data, keys = json.loads(row["data"]), json.loads(row["keys"])
        if one.filter.types and row["type"] not in one.filter.types:
            return False
        if one.filter.keys and not set(one.filter.keys) & set(keys):
            return False
        return one.filter.match is None or data["n"] != 1

    # --- how it is played ---------------------------------------------------------------------------------------------

    def _open(self, scope: str) -> None:
        execution = at_once(self.quay.opened(scope=scope))
        at_once(self.quay.apply(execution.fence, put("began", 1)))
        self._sql("UPDATE executions SET expires_at = 4102444800000 WHERE execution_id = ?", execution.execution_id)
        self.executions[scope] = execution

    def _apply(self, scope: str, what: str, operation: AwaitEvent | GiveUp, turns: int) -> None:
        if self._busy(scope):
            return
        step = Step(what, scope)
        self.quay.between = lambda db: Stepped(db, step)
        step.work = self.quay.apply(self.executions[scope].fence, operation)
        self.steps.append(step)
        self._turns(step, 1 + turns)

    def _begin(self, what: str, scope: str | None, work: Callable[[Database], Coroutine[Any, Any, Any]], turns: int) -> None:
        if len(self.steps) < 4:
            step = Step(what, scope)
            step.work = work(Stepped(self.quay.store.db(), step))
            self.steps.append(step)
            self._turns(step, 1 + turns)

    def _turns(self, step: Step, turns: int) -> None:
        """Let an operation go on, and look after each of its round trips."""
        for _ in range(turns):
            if not step.go_on():
                self.steps.remove(step)
                self.the_rows_are_those_of_the_model()
                return
            self.the_rows_are_those_of_the_model()

    def _busy(self, scope: str) -> bool:
        """Whether the host that holds the scope's execution is in the middle of something."""
        return any(step.scope == scope for step in self.steps)

    def _sql(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        return at_once(self.quay.store.sql(sql, *values))

    def _waits(self) -> dict[tuple[str, str], Wait]:
        return {
            (row["execution_id"], row["label"]): Wait(
                row["execution_id"],
                row["label"],
                row["state"],
                row["after"],
                row["event"],
                (row["created_at"], row["label"]),
                Filter(tuple(json.loads(row["keys"])), tuple(json.loads(row["types"])), row["match"]),
            )
            for row in self._sql("SELECT * FROM event_waits")
        }


Machine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWaitsForEvents = pytest.mark.clause("waits.match", "inbox.two-checkpoints")(Machine.TestCase)
