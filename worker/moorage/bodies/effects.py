"""`Run`'s guarded effects: requests and callbacks whose repetition would cost something (clauses guards.*)."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from moorage.bodies import asking, fetch, guarded, sending
from moorage.bodies.asking import called, loaded
from moorage.bodies.entities import Entity
from moorage.bodies.errors import Failed, StepFailed
from moorage.bodies.fetch import Request, Response
from moorage.bodies.guarded import Effect
from moorage.bodies.retry import Retry
from moorage.bodies.sending import Dispatch
from moorage.bodies.values import NOTHING, Shape, Unrecordable, hash_of, returned_shape, wanted_arguments
from moorage.guards.model import lease_key
from moorage.journal.model import EntryKey
from moorage.kernel import canonical
from moorage.kernel.errors import FailureTag

if TYPE_CHECKING:
    from moorage.bodies.core import Core

T = TypeVar("T")

SENT: Final = "sent"
"""Under this a value is recorded, so that none can be mistaken for a receipt."""


@dataclass(frozen=True, slots=True)
class Sent(Generic[T]):
    """What became of an effect: the `value` that its callback returned; or the `receipt` that an operator found where it was
    sent, once nobody knew any more. Then there is no value: the effect happened, and its answer was lost."""

    value: T | None
    receipt: str | None = None

    @property
    def reconciled(self) -> bool:
        """Whether there is a receipt in the place of a value."""
        return self.receipt is not None


class Effects:
    """The part of `Run` whose effects are guarded."""

    __slots__ = ("_engine",)

    def __init__(self, engine: "Core") -> None:
        self._engine = engine

    @overload
    async def effect(
        self,
        label: str,
        destination: str,
        sends: str,
        *,
        method: str | None = ...,
        headers: Mapping[str, str] | None = ...,
        json: Any = ...,
        body: str | bytes | None = ...,
        accept: Collection[int] = ...,
        keep: Collection[str] = ...,
        timeout: float | None = ...,  # noqa: ASYNC109 - data of the step
        retry: Retry | None = ...,
    ) -> Sent[Response]: ...
    @overload
    async def effect(
        self,
        label: str,
        destination: str | None,
        sends: Callable[..., Any],
        *,
        input: Any = ...,
        returns: Any = ...,
        timeout: float | None = ...,  # noqa: ASYNC109 - data of the step
        retry: Retry | None = ...,
    ) -> Sent[Any]: ...

    async def effect(
        self,
        label: str,
        destination: str | None,
        sends: str | Callable[..., Any],
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        retry: Retry | None = None,
        **more: Any,
    ) -> Sent[Any]:
        """Do something outside that must not be done twice, under a guard: see docs/guards.md.

        `sends` is a path beneath the destination's URL, with what `run.fetch` takes beside it; or a function, called with
        `input` if it takes an argument and with a Dispatch if it takes one more, which sends for itself. A function raises
        Failed where it knows what became of the effect; whatever else escapes from it leaves that in doubt. While the guard
        stands the function may set `run.metadata` and ask for nothing else.

        A request whose outcome is not known is sent again under the same key while the destination drops that, by `retry`;
        otherwise the run is suspended until an operator has released the guard. Raises StepFailed.
        """
        return await self._guarded(label, destination, sends, False, timeout, retry, more)

    @overload
    async def publication(
        self,
        label: str,
        destination: str,
        sends: str,
        *,
        method: str | None = ...,
        headers: Mapping[str, str] | None = ...,
        json: Any = ...,
        body: str | bytes | None = ...,
        accept: Collection[int] = ...,
        keep: Collection[str] = ...,
        timeout: float | None = ...,  # noqa: ASYNC109 - data of the step
        retry: Retry | None = ...,
    ) -> Sent[Response]: ...
    @overload
    async def publication(
        self,
        label: str,
        destination: str | None,
        sends: Callable[..., Any],
        *,
        input: Any = ...,
        returns: Any = ...,
        timeout: float | None = ...,  # noqa: ASYNC109 - data of the step
        retry: Retry | None = ...,
    ) -> Sent[Any]: ...

    async def publication(
        self,
        label: str,
        destination: str | None,
        sends: str | Callable[..., Any],
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        retry: Retry | None = None,
        **more: Any,
    ) -> Sent[Any]:
        """An effect that makes something public: as `effect`, and once in doubt nothing but a receipt releases it after the
        destination's window."""
        return await self._guarded(label, destination, sends, True, timeout, retry, more)

    def entity(self, namespace: str, key: str) -> Entity:
        """Hold an entity: no other execution works on it. `async with run.entity("customer", "7"): …`, or `await` it to hold
        it as long as the run is at work.

        Effects inside rely on it: whoever has lost it sends nothing. A wait of the run lets go of it, and it is held anew
        before the body goes on. Raises IdInvalid for a namespace that is no kind's name, and for a key that is no id.
        """
        self._engine.require("entities")
        lease_key(namespace, key)
        return Entity(namespace, key, self._engine)

    # --- what is done -------------------------------------------------------------------------------------------------

    async def _guarded(
        self,
        label: str,
        destination: str | None,
        sends: str | Callable[..., Any],
        publication: bool,
        timeout: float | None,  # noqa: ASYNC109
        retry: Retry | None,
        more: Mapping[str, Any],
    ) -> Sent[Any]:
        engine = self._engine
        engine.require("guards")
        branch, token = engine.enter(label)
        try:
            if isinstance(sends, str):
                key, effect = self._request(label, destination, sends, publication, timeout, retry, **more)
                load: Callable[[Any], Any] = Response.of
            else:
                shape = returned_shape(sends) if more.get("returns", NOTHING) is NOTHING else Shape.of(more["returns"])
                given = more.get("input", NOTHING)
                _check_names(more, {"input", "returns"})
                key = self._key(label, given)
                effect = self._callback(sends, given, shape, destination, publication, timeout, retry)
                load = _loading(label, shape)

            def attempts(position: str, entry: Any) -> Awaitable[str]:
                return guarded.attempts(engine, position, entry, key, effect)

            recorded = canonical.stored(await asking.once(engine, branch, key, attempts))
            if SENT in recorded:
                return Sent(load(recorded[SENT]))
            return Sent(None, recorded["receipt"])
        finally:
            engine.leave(branch, token)

    def _request(
        self,
        label: str,
        destination: str | None,
        path: str,
        publication: bool,
        timeout: float | None,
        retry: Retry | None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        json: Any = NOTHING,
        body: str | bytes | None = None,
        accept: Collection[int] = (),
        keep: Collection[str] = (),
    ) -> tuple[EntryKey, Effect]:
        engine = self._engine
        if destination is None:
            raise ValueError("a request goes to a declared destination: name it")
        within = fetch.TIMEOUT_SECONDS if timeout is None else timeout
        verb = method or "POST"
        sending.check_path(path)
        request = Request.of(path, verb, headers, json, body, within, accept, keep, beneath=True)
        key = self._key(label, {"destination": destination, **request.identity()})
        transport = engine.transport()

        async def work(dispatch: Dispatch) -> str:
            target = dispatch.target
            if target is None:
                raise Failed(FailureTag.UNKNOWN, f"no destination is declared as {destination!r}", code="DestinationUnknown")
            sending.check_method(target, request.method)
            asked = replace(request, url=sending.beneath(target.url, request.url))
            authorization = sending.authorization(target, engine.world.secret)
            told = await fetch.send(
                transport,
                asked,
                dispatch,
                engine.world.now(),
                engine.execution.trace.state,
                authorization=authorization,
                refusal=sending.refusal,
            )
            return f'{{"{SENT}":{told}}}'

        policy = retry or engine.retry
        return key, Effect("fetch", destination, publication, work, sending.is_known_of_request, policy, within)

    def _callback(
        self,
        fn: Callable[..., Any],
        given: Any,
        shape: Shape,
        destination: str | None,
        publication: bool,
        timeout: float | None,
        retry: Retry | None,
    ) -> Effect:
        engine = self._engine
        wants = wanted_arguments(fn)

        async def work(dispatch: Dispatch) -> str:
            authorization = sending.authorization(dispatch.target, engine.world.secret)
            told = replace(dispatch, authorization=authorization)
            return f'{{"{SENT}":{shape.dump(await called(fn(*arguments(wants, given, told))))}}}'

        policy = retry or engine.retry
        return Effect("step", destination, publication, work, sending.is_known, policy, timeout)

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _key(self, label: str, given: Any) -> EntryKey:
        try:
            key = EntryKey(label, hash_of(given))
        except Unrecordable as error:
            raise StepFailed(label, FailureTag.PERMANENT, f"no input to hash: {error}", "InputUnrecordable") from None
        self._engine.declared(label, key.input_sha256)
        return key


def arguments(wants: int, given: Any, step: Any) -> tuple[Any, ...]:
    """What an effect is called with: its input if it takes one, and the Step if it takes one more."""
    if given is NOTHING:
        return (step,) if wants else ()
    return (given, step)[:wants]


def _loading(label: str, shape: Shape) -> Callable[[Any], Any]:
    def load(value: Any) -> Any:
        return value if shape.adapter is None else loaded(label, shape.adapter.validate_python, value)

    return load


def _check_names(given: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(given) - known):
        raise TypeError(f"an effect with a function does not take {', '.join(unknown)}")
