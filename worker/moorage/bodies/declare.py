"""Declaring a body: the decorator, its closed effects, and what it pins (clauses runs.body-pins, runs.effect-boundary).

@body("order", effects=["reserve", each("charge"), "approval"], depends={"prompt": "v3"}, config={"model": "x"})
async def order(run: Run, order: Order) -> Receipt: ...
"""

import inspect
import re
import typing
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from pydantic.errors import PydanticUserError

from moorage.bodies.errors import BodyMisdeclared
from moorage.bodies.guard import clock_reads
from moorage.bodies.retry import Retry
from moorage.bodies.values import NOTHING, Shape, Unrecordable, dump
from moorage.kernel.errors import IdInvalid
from moorage.kernel.ids import check_client_id
from moorage.kernel.limits import BODY_NAME_CHARACTERS, ID_CHARACTERS

BodyFunction = Callable[..., Coroutine[Any, Any, Any]]

RESERVED: Final = "run."
"""Labels that begin with this are the engine's own: `run.sleep`, `run.now`."""

_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:api[_\-]?key|secret|token|password|passwd|credentials?|authorization|signature|sig|private[_\-]?key)$",
    re.I,
)
_SECRET_VALUE = re.compile(
    r"(?:^|\s)(?:Bearer\s+\S{8,}|sk[-_]\S{12,}|ghp_\S{12,}|AKIA[0-9A-Z]{12,})|-----BEGIN [A-Z ]*PRIVATE KEY"
)


@dataclass(frozen=True, slots=True)
class Each:
    """A label that one run may use with several inputs."""

    label: str


def each(label: str) -> Each:
    """Declare a label that one run uses with several inputs, one recorded value each."""
    return Each(label)


@dataclass(frozen=True, slots=True)
class Body:
    """A declared body. Calling it calls the function itself, so that tests may drive it with a `Run` of their own."""

    name: str
    function: BodyFunction
    effects: Mapping[str, bool]
    depends: Mapping[str, str]
    config: Mapping[str, Any] | None
    description: str
    retry: Retry
    deadline_seconds: float | None
    takes_input: bool
    input: Shape
    result: Shape
    module: str = field(default="")

    def __call__(self, *arguments: Any) -> Coroutine[Any, Any, Any]:
        return self.function(*arguments)


def body(
    name: str,
    *,
    effects: Iterable[str | Each] = (),
    depends: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
    description: str | None = None,
    retry: Retry | None = None,
    deadline_seconds: float | None = None,
) -> Callable[[BodyFunction], Body]:
    """Declare an async function as a body: `async def f(run: Run, input: Input) -> Result`; the input may be left out.

    `effects` is the closed list of its labels, each used with one input in a run unless declared by `each`. `depends` names
    what else its behaviour depends on (a prompt's version), `config` its public configuration; both are pinned with the
    source. `retry` is the schedule of steps that name none, `deadline_seconds` bounds a run from its start. `description`
    is the docstring's first line by default. Raises BodyMisdeclared, naming the fault, at import.
    """

    def declare(function: BodyFunction) -> Body:
        where = f"body {name!r} ({getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)})"
        _check_name(name, where)
        _check_function(function, where)
        takes_input, given, result = _shapes(function, where)
        if deadline_seconds is not None and not deadline_seconds > 0:
            raise BodyMisdeclared(f"{where}: deadline_seconds is more than 0, not {deadline_seconds}")
        return Body(
            name=name,
            function=function,
            effects=_labels(effects, where),
            depends=_depends(depends or {}, where),
            config=_config(config, where),
            description=description if description is not None else (inspect.getdoc(function) or "").split("\n")[0],
            retry=retry or Retry(),
            deadline_seconds=deadline_seconds,
            takes_input=takes_input,
            input=given,
            result=result,
            module=function.__module__,
        )

    return declare


def _check_name(name: object, where: str) -> None:
    if callable(name):
        raise BodyMisdeclared('write @body("name", ...): the decorator takes the name of the body first')
    try:
        check_client_id(str(name), "a body's name")
    except IdInvalid as error:
        raise BodyMisdeclared(f"{where}: {error.detail}") from None
    if len(str(name)) > BODY_NAME_CHARACTERS:
        raise BodyMisdeclared(f"{where}: a body's name has at most {BODY_NAME_CHARACTERS} characters")


def _check_function(function: BodyFunction, where: str) -> None:
    if not inspect.iscoroutinefunction(function):
        raise BodyMisdeclared(f"{where}: a body is an `async def` function with `run` as its first parameter")
    for line, call in clock_reads(function):
        raise BodyMisdeclared(
            f"{where}: line {line} calls {call}, which a replay answers otherwise; use run.now(), or read it in a step"
        )


def _shapes(function: BodyFunction, where: str) -> tuple[bool, Shape, Shape]:
    from moorage.bodies.run import Run

    parameters = list(inspect.signature(function).parameters.values())
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if not positional:
        raise BodyMisdeclared(f"{where}: the first parameter is missing: async def {function.__name__}(run: Run, ...)")
    if len(positional) != len(parameters) or len(positional) > 2:
        raise BodyMisdeclared(f"{where}: a body takes `run` and at most one input: make one type of several inputs")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise BodyMisdeclared(f"{where}: its annotations cannot be resolved at import: {error}") from None
    first = hints.get(positional[0].name, Run)
    if first is not Run:
        raise BodyMisdeclared(f"{where}: the first parameter is the Run, not {first!r}")
    try:
        given = Shape.of(hints.get(positional[1].name, NOTHING)) if len(positional) == 2 else Shape(None)
        return len(positional) == 2, given, Shape.of(hints.get("return", NOTHING))
    except (PydanticUserError, TypeError) as error:
        raise BodyMisdeclared(f"{where}: pydantic cannot read or write a type of it: {str(error)[:300]}") from None


def _labels(effects: Iterable[str | Each], where: str) -> Mapping[str, bool]:
    if isinstance(effects, (str, Each)):
        raise BodyMisdeclared(f"{where}: effects is a list of labels, not one")
    labels: dict[str, bool] = {}
    for effect in effects:
        label, several = (effect.label, True) if isinstance(effect, Each) else (effect, False)
        if not 1 <= len(label) <= ID_CHARACTERS:
            raise BodyMisdeclared(f"{where}: a label is text of 1 to {ID_CHARACTERS} characters, not {label!r}")
        if label.startswith(RESERVED):
            raise BodyMisdeclared(f"{where}: labels that begin with {RESERVED!r} are the engine's own: {label!r}")
        if label in labels:
            raise BodyMisdeclared(f"{where}: the label {label!r} is declared twice")
        labels[label] = several
    return labels


def _depends(depends: Mapping[str, str], where: str) -> Mapping[str, str]:
    told: Mapping[Any, Any] = depends
    for name, identity in told.items():
        if not (isinstance(name, str) and isinstance(identity, str)):
            raise BodyMisdeclared(f"{where}: depends maps names to versions, both texts: {name!r}")
    return dict(depends)


def _config(config: Mapping[str, Any] | None, where: str) -> Mapping[str, Any] | None:
    if config is None:
        return None
    try:
        dump(dict(config))
    except Unrecordable as error:
        raise BodyMisdeclared(f"{where}: config is public JSON: {error}") from None
    for path, value in _leaves(config, "config"):
        if reason := _credential(path, value):
            raise BodyMisdeclared(
                f"{where}: {path} {reason}; configuration is pinned and shown: name the credential and read it in a step"
            )
    return dict(config)


def _leaves(value: Any, path: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, child in value.items():
            yield from _leaves(child, f"{path}.{name}")
    elif isinstance(value, (list, tuple)):
        for index, child in enumerate(value):
            yield from _leaves(child, f"{path}.{index}")
    else:
        yield path, value


def _credential(path: str, value: Any) -> str | None:
    """Why a leaf of the configuration looks like a credential; never its value."""
    if not isinstance(value, str) or not value:
        return None
    if _SECRET_NAME.search(path):
        return "is named like a credential"
    if _SECRET_VALUE.search(value):
        return "looks like a credential"
    if "://" not in value:
        return None
    try:
        parts = urlsplit(value)
        if parts.username or parts.password:
            return "is an endpoint with a user or a password in it"
    except ValueError:
        return None
    if any(_SECRET_NAME.search(name) or name.lower() == "key" for name, _ in parse_qsl(parts.query)):
        return "is an endpoint with a credential in its query"
    return None
