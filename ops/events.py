"""`moorage events`: sending events, and looking at those that came in."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

import typer

from moorage.client import Moorage, Problem
from moorage.client.events import Event
from moorage.client.keys import key_or_fresh
from moorage.kernel import canonical
from moorage.kernel.errors import MoorageError
from moorage.kernel.limits import EVENT_BATCH, EVENT_BATCH_BYTES
from ops import remote
from ops.failure import CommandFailed

app = remote.group("Send events, look at those that came in, and follow them.")

_Id = Annotated[str, typer.Argument(metavar="EVENT", help="The event's own id, as its acceptance told it.")]
_Type = Annotated[str | None, typer.Option("--type", help="Only events of this type.")]
_Source = Annotated[str | None, typer.Option(help="Only events of this source.")]
_Key = Annotated[str | None, typer.Option(help="Only events that carry this key: a subject or a correlationid.")]
_OfScope = Annotated[str | None, typer.Option("--scope", help="Only events of this scope.")]
_Work = Annotated[str | None, typer.Option(help="Only events that belong to this work: the scope of runs.")]
_Unrouted = Annotated[bool, typer.Option("--unrouted", help="Only events that are not routed yet.")]
_OWN = frozenset({"specversion", "id", "source", "type", "subject", "data", "data_base64"})
_PLACE = re.compile(r"/([0-9]+)((?:/.*)?)")
_COLUMNS = ("event", "accepted", "type", "source", "id", "keys", "became", "work")


@app.command()
def send(
    type_: Annotated[
        str | None, typer.Argument(metavar="TYPE", help="The event's type; without one, whole events are read.")
    ] = None,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="Its data: any JSON, @FILE, or - for standard input.")
    ] = None,
    source: Annotated[str, typer.Option(help="Where it comes from: a URI reference.")] = "/moorage/cli",
    id_: Annotated[str | None, typer.Option("--id", help="Its id there. The same source and id are accepted once.")] = None,
    subject: Annotated[str | None, typer.Option(help="What it is about; waits find it by that.")] = None,
    extension: Annotated[
        list[str] | None,
        typer.Option("--attribute", help="A further attribute, as name=text; for instance correlationid=c-1."),
    ] = None,
    scope: Annotated[str | None, typer.Option(help="The declared scope that it belongs to.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Send one event; or, without a type, the events of CloudEvents 1.0 on standard input, one a line.

    Example: moorage events send payment.received '{"amount":1250}' --subject order-7 --id pay-1
    """
    if type_ is None:
        if data or id_ or subject or extension:
            raise typer.BadParameter("whole events are read from standard input; give a type, or none of this")
        _send_lines(scope, url, token, as_json)
        return
    named = key_or_fresh(id_)
    event: dict[str, Any] = {"specversion": "1.0", "id": named, "source": source, "type": type_}
    event |= dict(_attribute(one) for one in extension or [])
    if subject is not None:
        event["subject"] = subject
    if (read := remote.json_argument(data, "DATA")) is not None:
        event["data"] = read
    sent = remote.call(url, token, lambda moorage: moorage.events.send_event(event, scope=scope))
    if as_json:
        remote.print_json(sent.wire())
    else:
        print(_told(sent))


@app.command("list")
def list_(
    type_: _Type = None,
    source: _Source = None,
    key: _Key = None,
    scope: _OfScope = None,
    work: _Work = None,
    unrouted: _Unrouted = False,
    after: Annotated[int, typer.Option(min=0, help="Only events past this seq.")] = 0,
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List events in the order in which they were accepted.

    Example: moorage events list --type payment.received --unrouted
    """

    async def ask(moorage: Moorage) -> tuple[list[Event], bool]:
        wanted = {"type_": type_, "source": source, "key": key, "scope": scope, "work": work}
        found = moorage.events.iterate(**wanted, unrouted=unrouted, after=after, newest_first=newest)
        return await remote.first(found, limit, everything)

    found, more = remote.call(url, token, ask)
    remote.print_list(found, more, as_json, _COLUMNS, _row)


@app.command()
def show(
    event: _Id,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show one event, as it was sent, what became of it, and which runs have taken it.

    Example: moorage events show evt_01kb1y0z3w5q9v8d7c6b5a4m3n
    """

    async def ask(moorage: Moorage) -> tuple[Event, list[str]]:
        return await moorage.events.get(event), [] if as_json else await _taken(moorage, event)

    found, taken = remote.call(url, token, ask)
    if as_json:
        remote.print_json(found.wire())
        return
    remote.print_facts(found.wire())
    if taken:
        print("\n".join(["", *taken]))


@app.command()
def tail(
    type_: _Type = None,
    source: _Source = None,
    key: _Key = None,
    scope: _OfScope = None,
    work: _Work = None,
    after: Annotated[
        int | None, typer.Option(min=0, help="Begin past this seq; 0 begins with the first that is kept. Else now.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="End after so many.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=3600, help="How often to look.")] = 1.0,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Print events as they are accepted, each once, until Ctrl-C.

    Example: moorage events tail --type payment.received --json | jq .event.data
    """
    wanted = {"type_": type_, "source": source, "key": key, "scope": scope, "work": work}

    async def follow(moorage: Moorage) -> None:
        start = after if after is not None else await moorage.events.last_seq(type_)
        told = 0
        async with aclosing(moorage.events.follow(seconds, after=start, **wanted)) as found:
            async for one in found:
                if as_json:
                    remote.print_json(one.wire())
                else:
                    print(_line(one), flush=True)
                told += 1
                if told == limit:
                    return

    remote.call(url, token, lambda moorage: moorage.health())  # so that a wrong address is told at once
    try:
        remote.call(url, token, follow, remote.LASTING)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command("scope")
def scope_(
    event: _Id,
    scope: Annotated[str, typer.Argument(metavar="SCOPE", help="A declared scope.")],
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Say which scope an event belongs to. It is written once.

    Example: moorage events scope evt_01kb1y0z3w5q9v8d7c6b5a4m3n team-a
    """
    found = remote.call(url, token, lambda moorage: moorage.events.set_scope(event, scope))
    remote.print_one(found, as_json)


async def _taken(moorage: Moorage, event: str) -> list[str]:
    """Whose waits an event has ended, a line each, as far as the credential may read history."""
    found: dict[str, str] = {}
    more = 0
    try:
        async for one in moorage.iterate_history(subject=event):
            if one.type == "event.routed":
                woken = one.data.get("executions", [])
                more = one.data["waits"] - len(woken)
                found |= {execution: f"woke {execution}" for execution in woken}
            elif one.type == "event.matched":
                found[one.data["execution"]] = f"taken by {one.data['execution']}, which waited for {one.data['label']!r}"
    except Problem:
        return []
    return [*found.values(), *([f"and woke {more} more"] if more > 0 else [])]


def _send_lines(scope: str | None, url: str, token: str | None, as_json: bool) -> None:
    """Send what stands on standard input in batches, each whole or not at all."""
    sent = known = 0

    async def ask(moorage: Moorage) -> None:
        nonlocal sent, known
        for batch in _batches(sys.stdin.buffer):
            try:
                answers = await moorage.events.send_batch(list(batch.values()), scope=scope)
            except Problem as problem:
                raise _at_lines(problem, list(batch)) from None
            sent += len(answers)
            known += sum(not one.added for one in answers)
            if as_json:
                for one in answers:
                    remote.print_json(one.wire())

    try:
        remote.call(url, token, ask)
    except (CommandFailed, typer.Exit, KeyboardInterrupt, OSError):
        if sent:
            print(f"{remote.counted(sent, 'event')} sent before", file=sys.stderr)
        raise
    if not as_json:
        print(f"sent {remote.counted(sent, 'event')}" + (f", {known} of them accepted before" if known else ""))


def _batches(lines: Iterable[bytes]) -> Iterator[dict[int, dict[str, Any]]]:
    """The events in batches, each by the number of its line."""
    held: dict[int, dict[str, Any]] = {}
    size = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if held and (len(held) == EVENT_BATCH or size + len(line) > EVENT_BATCH_BYTES):
            yield held
            held, size = {}, 0
        held[number] = _event(line, number)
        size += len(line)
    if held:
        yield held


def _at_lines(problem: Problem, lines: Sequence[int]) -> Problem:
    """What was wrong with a batch, told by where its events stand."""
    if problem.status not in (400, 409, 413, 422):
        return problem
    told = f"one of lines {lines[0]} to {lines[-1]}: {problem.detail}"
    for error in problem.errors[:1]:
        if found := _PLACE.fullmatch(error["pointer"]):
            told = f"line {lines[int(found[1])]}: {' '.join(filter(None, (found[2], error['message'])))}"
    members = {**problem.members, "detail": told, "errors": []}
    return Problem(problem.status, members, retry_after=problem.retry_after, request_id=problem.request_id)


def _event(line: bytes, number: int) -> dict[str, Any]:
    try:
        event = canonical.loads(line)
    except MoorageError as refusal:
        raise CommandFailed(f"line {number}: {refusal.detail}") from None
    if not isinstance(event, dict):
        raise CommandFailed(f"line {number} is not an event of CloudEvents 1.0")
    return event


def _attribute(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter("an attribute is given as name=text", param_hint="--attribute")
    if name in _OWN:
        raise typer.BadParameter(f"{name} is given otherwise, see --help", param_hint="--attribute")
    return name, value


def _row(one: Event) -> tuple[object, ...]:
    shown = one.wire()
    became = one.disposition or "unrouted"
    return (one.event_id, shown["accepted_at"], one.type, one.source, one.id, " ".join(one.keys), became, one.work)


def _line(one: Event) -> str:
    data = "" if one.data is None else f"  {canonical.compact(one.event.get('data', one.event.get('data_base64')))}"
    keys = f"  [{' '.join(one.keys)}]" if one.keys else ""
    return f"{one.wire()['accepted_at']}  {one.event_id}  {one.type:<24}  {one.source} {one.id}{keys}{data}"


def _told(one: Event) -> str:
    if one.added:
        return f"{one.event_id} accepted"
    other = ", with other content" if one.content_differs else ""
    return f"{one.event_id} was accepted before{other}"
