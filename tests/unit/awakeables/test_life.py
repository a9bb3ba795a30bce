"""The life of awakeables against a reference that is a dictionary."""

import asyncio
import sqlite3
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from moorage.awakeables.due import AwakeableDeadlines
from moorage.awakeables.listing import list_awakeables
from moorage.awakeables.mint import mint
from moorage.awakeables.model import Draft, Rejection
from moorage.awakeables.payloads import Payload
from moorage.awakeables.resolve import reject, resolve, show, show_one
from moorage.catalog.access import Action, Caller, Grant
from moorage.history.query import entries
from moorage.kernel.errors import AwakeableUnknown, FailureTag, MoorageError
from moorage.kernel.instants import Instant
from moorage.kernel.pages import PageRequest
from moorage.store.sqlite import SqliteDatabase, connect
from moorage.timers.clock import advance, drain
from tests.contract.adapters import schema_statements

T = TypeVar("T")

START = Instant(1_800_000_000_000)
WORKS = [AwakeableDeadlines()]
SUBJECTS = ["alice", "bob"]
PAYLOADS = [Payload.of(None), Payload.of({"a": 1}), Payload.of({"a": True}), Payload.of("null")]
REJECTIONS = [Rejection(FailureTag.FORBIDDEN, "no"), Rejection(FailureTag.FORBIDDEN, "never")]


def as_caller(subject: str) -> Caller:
    """Root's rights under a subject: who may do what is proved elsewhere."""
    actions: frozenset[Action] = frozenset({"publish"})
    return Caller(subject, (Grant(actions),), bearer=b"token")


@dataclass
class Model:
    """What an awakeable must be."""

    token: str
    subject: str | None
    deadline: int
    state: str = "pending"
    outcome: Payload | Rejection | None = None

    def look(self, now: int) -> None:
        if self.state == "pending" and self.deadline <= now:
            self.state = "timed_out"

    def end(self, caller: str, now: int, outcome: Payload | Rejection) -> str:
        """The state that the call answers, or the code of its refusal."""
        if self.subject not in (None, caller):
            return "AwakeableUnknown"
        self.look(now)
        if self.state == "pending":
            self.state = "resolved" if isinstance(outcome, Payload) else "rejected"
            self.outcome = outcome
        if self.outcome == outcome:
            return self.state
        codes = {
            "resolved": "AwakeableAlreadyResolved",
            "rejected": "AwakeableRejected",
            "timed_out": "AwakeableTimedOut",
        }
        return codes[self.state]


class Life(RuleBasedStateMachine):
    """Mints, resolves, rejects, looks and lets time pass, with and without a Clock that keeps up."""

    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.connection: sqlite3.Connection = connect(":memory:")
        self.loop = asyncio.new_event_loop()
        self.run(self.db().initialize(schema_statements()))
        self.now = START
        self.models: dict[str, Model] = {}

    def teardown(self) -> None:
        self.connection.close()
        self.loop.close()

    def db(self) -> SqliteDatabase:
        return SqliteDatabase(self.connection)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def attempt(self, work: Coroutine[Any, Any, Any]) -> str:
        try:
            return str(self.run(work).state)
        except MoorageError as error:
            return error.code

    @rule(
        target=tokens,
        ttl=st.sampled_from([0.001, 1, 2.5, 60]),
        age=st.sampled_from([0, 1, 1000, 100_000]),
        subject=st.sampled_from([None, *SUBJECTS]),
    )
    def mint(self, ttl: float, age: int, subject: str | None) -> str:
        draft = Draft(ttl, Instant(self.now - age), subject)
        new = self.run(mint(self.db(), as_caller("minter"), self.now, draft))
        self.models[new.awakeable.id] = Model(new.token, subject, self.now - age + round(ttl * 1000))
        return new.awakeable.id

    @rule(awakeable=tokens, caller=st.sampled_from(SUBJECTS), payload=st.sampled_from(PAYLOADS))
    def resolve(self, awakeable: str, caller: str, payload: Payload) -> None:
        model = self.models[awakeable]
        expected = model.end(caller, self.now, payload)
        assert self.attempt(resolve(self.db(), as_caller(caller), self.now, model.token, payload)) == expected

    @rule(awakeable=tokens, caller=st.sampled_from(SUBJECTS), rejection=st.sampled_from(REJECTIONS))
    def reject(self, awakeable: str, caller: str, rejection: Rejection) -> None:
        model = self.models[awakeable]
        expected = model.end(caller, self.now, rejection)
        assert self.attempt(reject(self.db(), as_caller(caller), self.now, model.token, rejection)) == expected

    @rule(milliseconds=st.sampled_from([0, 1, 999, 1000, 2500, 60_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.now = Instant(self.now + milliseconds)

    @rule()
    def the_clock_catches_up(self) -> None:
        drained = self.run(drain(self.db, self.now, WORKS))
        for model in self.models.values():
            model.look(self.now)
        pending = [model.deadline for model in self.models.values() if model.state == "pending"]
        assert drained.next_due == min(pending, default=None)

    @rule(milliseconds=st.sampled_from([1, 1000, 100_000]))
    def the_test_clock_moves(self, milliseconds: int) -> None:
        end = Instant(self.now + milliseconds)
        self.run(advance(self.db, self.now, end, WORKS))
        self.now = end
        stored = self.connection.execute("SELECT count(*) FROM awakeables WHERE state = 'pending' AND deadline <= ?", [end])
        assert stored.fetchone()[0] == 0

    @invariant()
    def everything_reads_as_the_model_says(self) -> None:
        page = self.run(list_awakeables(self.db(), Caller("root"), self.now, PageRequest(500)))
        assert {item.id for item in page.items} == set(self.models)
        for item in page.items:
            model = self.models[item.id]
            model.look(self.now)
            shown = self.run(show_one(self.db(), as_caller("minter"), self.now, item.id)).awakeable
            self.look_by_token(model)
            assert item.state == shown.state == model.state
            recorded = model.outcome.text if isinstance(model.outcome, Payload) else None
            assert shown.payload == recorded
            assert shown.rejection == (model.outcome if isinstance(model.outcome, Rejection) else None)

    def look_by_token(self, model: Any) -> None:
        """By its token it is there for whom it is bound to, and if it is not bound for everyone."""
        for subject in ("alice", "minter", "root"):
            if model.subject in (None, subject):
                assert self.run(show(self.db(), as_caller(subject), self.now, model.token)).awakeable.state == model.state
            else:
                with pytest.raises(AwakeableUnknown):
                    self.run(show(self.db(), as_caller(subject), self.now, model.token))

    @invariant()
    def history_tells_each_end_once(self) -> None:
        told = self.run(entries(self.db(), 0, 100_000))
        assert [entry.position for entry in told] == list(range(1, len(told) + 1))
        for identity, model in self.models.items():
            types = [entry.type for entry in told if entry.subject == identity]
            ends = {"resolved": [["resolved"]], "rejected": [["rejected"]], "timed_out": [[], ["timed_out"]]}
            allowed = ends.get(model.state, [[]])
            assert types in [["awakeable.minted", *(f"awakeable.{end}" for end in some)] for some in allowed]


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLife = pytest.mark.clause("awake.mint", "awake.idempotent", "awake.deadline", "awake.binding", "awake.reject")(
    Life.TestCase
)
