"""`Run`: all that a body asks of the world (clauses runs.effect-boundary, runs.escape-hatch)."""

import math
import random
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from moorage.bodies import asking, fetch, joins, values
from moorage.bodies.asking import Step, called, loaded
from moorage.bodies.effects import arguments
from moorage.bodies.errors import ChildFailed, StepFailed
from moorage.bodies.events import Waits
from moorage.bodies.fetch import Request, Response
from moorage.bodies.handles import Cursor, Journal, Metadata
from moorage.bodies.joins import Partial, Won
from moorage.bodies.replay import placed
from moorage.bodies.retry import Retry
from moorage.bodies.values import NOTHING, Shape, Unrecordable, returned_shape, wanted_arguments
from moorage.bodies.waits import Awakeable
from moorage.journal.model import Kind, Value
from moorage.kernel import canonical
from moorage.kernel.errors import FailureTag
from moorage.kernel.limits import AWAKE_TTL_SECONDS
from moorage.runs.operations import CommitCursor, Mint, Publish, Put, StartChild

if TYPE_CHECKING:
    from moorage.bodies.core import Core
    from moorage.bodies.declare import Body

T = TypeVar("T")

LONGEST_SLEEP_SECONDS: Final = 10 * 366 * 86400


class Run(Waits):
    """What a body gets as its first argument. Everything that reaches outside the body goes through it, and is recorded.

    Labels are those that the body declares in `effects`. A replay asks for the same in the same order and gets what was
    recorded; nothing recorded is done again. Failures of a step are StepFailed; they may be caught.
    """

    __slots__ = ("_journal", "_metadata")

    def __init__(self, engine: "Core") -> None:
        super().__init__(engine)
        self._journal = Journal(engine)
        self._metadata = Metadata(engine)

    @property
    def id(self) -> str:
        """The run's id. Another opening of the same execution has another one: let no step's choice depend on it."""
        return self._engine.execution.run_id

    @property
    def execution_id(self) -> str:
        """The execution's id, the same in every opening."""
        return self._engine.execution.execution_id

    @property
    def scope(self) -> str:
        """The scope that the execution is bound to."""
        return self._engine.execution.scope

    @property
    def attempt(self) -> int:
        """How often a host has taken this run up, from 1."""
        return self._engine.execution.lease.attempt

    @property
    def config(self) -> Mapping[str, Any]:
        """The scope's configuration as it stood when the run was opened."""
        return self._engine.execution.config

    @property
    def metadata(self) -> MutableMapping[str, Any]:
        """The run's metadata: at most METADATA_BYTES of JSON for people, told with the next step. Decide nothing by it.

        Setting a key past the bound raises RunMetadataTooLarge, and nothing changes.
        """
        return self._metadata

    @property
    def journal(self) -> "Journal":
        """The way around the journal, for idempotent reads only: `run.journal.unsafe(label, effect)`."""
        return self._journal

    # --- steps --------------------------------------------------------------------------------------------------------

    @overload
    async def step(
        self,
        label: str,
        fn: Callable[..., Any],
        *,
        input: Any = ...,
        retry: Retry | None = ...,
        timeout: float | None = ...,  # noqa: ASYNC109 - data of the step
        returns: type[T],
    ) -> T: ...
    @overload
    async def step(
        self,
        label: str,
        fn: Callable[..., Awaitable[T]],
        *,
        input: Any = ...,
        retry: Retry | None = ...,
        timeout: float | None = ...,  # noqa: ASYNC109 - data of the step
        returns: Any = ...,
    ) -> T: ...
    @overload
    async def step(
        self,
        label: str,
        fn: Callable[..., T],
        *,
        input: Any = ...,
        retry: Retry | None = ...,
        timeout: float | None = ...,  # noqa: ASYNC109 - data of the step
        returns: Any = ...,
    ) -> T: ...

    async def step(
        self,
        label: str,
        fn: Callable[..., Any],
        *,
        input: Any = NOTHING,  # noqa: A002
        retry: Retry | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        returns: Any = NOTHING,
    ) -> Any:
        """Run `fn` once, record its value, and give it; a replay gives what was recorded.

        `fn` is async or plain, and is called with nothing, with `input` if it takes an argument, and with a Step if it takes
        one more. The value is found again by the label and the hash of `input` (canonical JSON), so that the same label with
        another input is another value: declare the label with `each`. `returns`, or the function's own return annotation, is
        how pydantic reads the value; without either it is JSON. A failed attempt is tried again by `retry`, the body's
        schedule by default; `timeout` in seconds bounds one attempt and counts as Transient. Raises StepFailed.
        """
        engine = self._engine
        branch, token = await engine.begin(label)
        try:
            key = self._key(label, input)
            shape = returned_shape(fn) if returns is NOTHING else Shape.of(returns)
            wants = wanted_arguments(fn)

            async def work(step: Step) -> str:
                return shape.dump(await called(fn(*arguments(wants, input, step))))

            text = await asking.effect(engine, branch, key, "step", work, retry or engine.retry, timeout)
            return loaded(label, shape.load, text)
        finally:
            engine.leave(branch, token)

    async def fetch(
        self,
        label: str,
        url: str,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        json: Any = NOTHING,
        body: str | bytes | None = None,
        timeout: float = fetch.TIMEOUT_SECONDS,  # noqa: ASYNC109
        accept: Collection[int] = (),
        keep: Collection[str] = (),
        retry: Retry | None = None,
    ) -> Response:
        """Make one HTTP request as a step: GET, or POST with `json` or `body`, unless `method` says otherwise.

        It carries `Idempotency-Key` and `traceparent`, the same key on every attempt. The answer's status, body and some
        headers (`keep` names more) are recorded. An answer that is neither 2xx nor in `accept` is a failure: 429 and 5xx are
        tried again, when the answer's Retry-After says so where it does. Redirects are not followed. The step is found again
        by label, method, URL and body, not by its headers: credentials belong into `headers`. Raises StepFailed.
        """
        engine = self._engine
        branch, token = await engine.begin(label)
        try:
            request = Request.of(url, method, headers, json, body, timeout, accept, keep)
            key = self._key(label, request.identity())
            transport = engine.transport()

            async def work(step: Step) -> str:
                return await fetch.send(transport, request, step, engine.world.now(), engine.execution.trace.state)

            text = await asking.effect(engine, branch, key, "fetch", work, retry or engine.retry, timeout)
            return Response.of(canonical.stored(text))
        finally:
            engine.leave(branch, token)

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        """Wait. The instant is recorded: a restart waits for what remains; a long wait holds no process."""
        if not (math.isfinite(seconds) and seconds <= LONGEST_SLEEP_SECONDS):
            raise ValueError(f"run.sleep takes seconds, at most ten years of them, not {seconds!r}")
        engine = self._engine
        branch, token = await engine.begin("run.sleep")
        try:
            await asking.sleep(engine, branch, max(0.0, seconds))
        finally:
            engine.leave(branch, token)

    async def awakeable(
        self,
        label: str,
        *,
        ttl: float,
        subject: str | None = None,
        input: Any = NOTHING,  # noqa: A002
        metadata: Mapping[str, Any] | None = None,
        returns: Any = NOTHING,
    ) -> Awakeable:
        """A promise that somebody outside resolves: hand out its `token` or `url`, then `await` it.

        It times out `ttl` seconds after it was first asked for. With `subject` nobody else can resolve it. `returns` is how
        pydantic reads the payload. `input` tells several of one label apart, declared with `each`. Raises CapabilityUnwired.
        """
        engine = self._engine
        if not 0 < ttl <= AWAKE_TTL_SECONDS:
            raise ValueError(f"an awakeable's ttl is more than 0 and at most {AWAKE_TTL_SECONDS} seconds, not {ttl!r}")
        engine.require("awakeables")
        branch, token = await engine.begin(label)
        try:
            key = self._key(label, input)
            told = dict(metadata or {})
            minted = await asking.mint(engine, lambda at: Mint(key, at, float(ttl), subject, told), branch, key)
            return Awakeable(label, minted.id, minted.token, minted.url, minted.deadline, engine, Shape.of(returns))
        finally:
            engine.leave(branch, token)

    async def child(
        self,
        label: str,
        body: "str | Body",
        input: Any = None,  # noqa: A002
        *,
        scope: str | None = None,
        returns: Any = NOTHING,
    ) -> Any:
        """Run another body to its end, and give its result. The child is started in the transaction that records it.

        `scope` is the parent's scope, a slash and the label with the input's hash by default. Raises ChildFailed, naming the
        child's run and status, when it did not succeed.
        """
        engine = self._engine
        engine.require("children")
        name = body if isinstance(body, str) else body.name
        branch, token = await engine.begin(label)
        try:
            key = self._key(label, input)
            given = Value.of(self._text(label, input))
            ended = await asking.child(engine, branch, key, lambda at: StartChild(key, at, name, given, scope))
        finally:
            engine.leave(branch, token)
        if ended["status"] != "success":
            error = ended.get("error") or {}
            message = f"{ended['status']}: {error.get('message', 'no error was told')}"
            tag = error.get("tag") or (FailureTag.CANCELED if ended["status"] == "canceled" else FailureTag.PERMANENT)
            raise ChildFailed(label, tag, message, ended["run_id"], ended["status"], error.get("code"))
        return engine.shaped(label, Shape.of(returns), ended.get("result"))

    # --- branches -----------------------------------------------------------------------------------------------------

    @overload
    async def gather(self, *coroutines: Awaitable[T], allow_partial: Literal[False] = ...) -> list[T]: ...
    @overload
    async def gather(self, *coroutines: Awaitable[T], allow_partial: Literal[True]) -> Partial[T]: ...

    async def gather(self, *coroutines: Awaitable[Any], allow_partial: bool = False) -> Any:
        """Run coroutines of this run side by side, and give their values in order once all have ended.

        If any failed, the failure of the first one in order is raised, after all have ended. With `allow_partial` it gives a
        Partial instead: values, and the failed branches by label and tag, which the run's metadata tells too, under
        `failed_branches`. Raises ValueError past RUN_BRANCHES.
        """
        return await joins.gather(self._engine, coroutines, allow_partial)

    async def first(self, *coroutines: Awaitable[Any]) -> Won:
        """Run coroutines of this run side by side until one has ended: `index, value = await run.first(a, b)`.

        The winner is recorded. The others are canceled, their steps given up, and what they changed in memory is not seen
        by a replay. If the first one to end failed, its failure is raised.
        """
        return await joins.first(self._engine, coroutines)

    # --- records and cursors ------------------------------------------------------------------------------------------

    async def publish(self, label: str, records: Iterable[Mapping[str, Any]]) -> list[str]:
        """Publish records in the transaction that records their ids: `{"kind", "body", "metadata"?, "parents"?, …}` each."""
        engine = self._engine
        engine.require("publish")
        branch, token = await engine.begin(label)
        try:
            told = self._records(label, records)
            key = self._key(label, told)
            value = await asking.at_once(engine, branch, key, "publish", lambda at: Publish(key, at, told))
            found: list[str] = value["records"]
            return found
        finally:
            engine.leave(branch, token)

    async def cursor(self, name: str) -> "Cursor":
        """A cursor of the scope, as it stood when this was first asked: `position` is None before the first commit."""
        engine = self._engine
        engine.require("cursors")
        branch, token = await engine.begin("run.cursor")
        try:
            key = placed("run.cursor", branch.position(), name)
            position, entry = engine.ask(branch, key)
            if entry is None:
                value, revision = await engine.world.substrate.cursor(engine.execution.fence, name)
                text = "null" if value is None else value.text or "null"
                recorded = f'{{"position":{text},"revision":{revision}}}'
                await engine.commit(Put(key, "cursor", position, Value.of(recorded)))
                engine.remember(key, "cursor", position, recorded)
            else:
                recorded = await engine.text(entry)
            found = canonical.stored(recorded)
            return Cursor(name, found["position"], found["revision"])
        finally:
            engine.leave(branch, token)

    async def commit(
        self, label: str, cursor: "Cursor", position: Any, *, records: Iterable[Mapping[str, Any]] = ()
    ) -> "Cursor":
        """Move a cursor to `position` (JSON), and publish records, in one transaction.

        Raises StepFailed with code CursorMoved when somebody moved it since it was read.
        """
        engine = self._engine
        engine.require("cursors")
        branch, token = await engine.begin(label)
        try:
            told = self._records(label, records)
            key = self._key(label, {"name": cursor.name, "position": position, "records": told, "revision": cursor.revision})
            value = Value.of(self._text(label, position))
            done = await asking.at_once(
                engine, branch, key, "cursor", lambda at: CommitCursor(key, at, cursor.name, value, cursor.revision, told)
            )
            return Cursor(cursor.name, done["position"], done["revision"])
        finally:
            engine.leave(branch, token)

    # --- what a replay must find again --------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The instant, in UTC with milliseconds; a replay gets the same."""
        told = self._drawn("run.now", "now", lambda: int(self._engine.world.now()), str)
        return datetime.fromtimestamp(told / 1000, UTC)

    def random(self) -> float:
        """A random number from 0 up to 1; a replay gets the same. Not for secrets: it is recorded."""
        told: float = self._drawn("run.random", "random", random.SystemRandom().random, values.dump)
        return float(told)

    def uuid(self) -> uuid.UUID:
        """A random UUID; a replay gets the same."""
        return uuid.UUID(self._drawn("run.uuid", "uuid", lambda: str(uuid.uuid4()), values.dump))

    def _drawn(self, label: str, kind: Kind, draw: Callable[[], Any], write: Callable[[Any], str]) -> Any:
        engine = self._engine
        branch, token = engine.enter(label)
        try:
            return asking.drawn(engine, branch, label, kind, draw, write)
        finally:
            engine.leave(branch, token)

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _text(self, label: str, given: Any) -> str:
        try:
            return values.dump(given)
        except Unrecordable as error:
            raise StepFailed(label, FailureTag.PERMANENT, f"cannot be recorded: {error}", "ValueUnrecordable") from None

    def _records(self, label: str, records: Iterable[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = canonical.stored(self._text(label, [dict(one) for one in records]))
        return found
