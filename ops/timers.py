"""`moorage timers`: set timers, look at them and delete them."""

from datetime import datetime
from typing import Annotated, Any

import typer

from moorage.client import Moorage
from moorage.client.timers import NOTHING, Timer
from moorage.kernel.limits import EVERY_SECONDS
from ops import remote

app = remote.group("Set timers, look at them and delete them.")

_FURTHEST = 10_000 * 366 * 86400
"""Seconds; past the last instant that can be written, whatever the time is now."""

TimerId = Annotated[str, typer.Argument(metavar="TIMER", help="The timer's id, of your choice.")]


@app.command()
def put(
    timer: TimerId,
    type_: Annotated[str, typer.Option("--type", help="The type of the event that it sends.")],
    at: Annotated[
        datetime | None,
        typer.Option(help="When it fires: an instant with its offset.", parser=remote.instant, metavar="INSTANT"),
    ] = None,
    in_: Annotated[
        float | None, typer.Option("--in", min=0, max=_FURTHEST, help="Instead of --at: so many seconds from now.")
    ] = None,
    every: Annotated[
        float | None, typer.Option(min=1, max=int(EVERY_SECONDS), help="Again and again after so many seconds.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="The event's data as JSON, @FILE, or - for standard input.")] = None,
    source: Annotated[str | None, typer.Option(help="The event's source; else /timers/TIMER.")] = None,
    event_id: Annotated[
        str | None, typer.Option("--id", help="The event's id; else of the timer's id and revision.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="The event's subject, by which waits find it.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A further key by which waits find it; repeatable.")] = None,
    revision: Annotated[
        int | None, typer.Option(min=0, help="Only if the timer has this revision; 0 if it is not there.")
    ] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Set a timer, or set it anew: at its instant its event is accepted, once.

    Example: moorage timers put reminder-7 --type reminder --in 3600 --subject order-7
    """
    if (at is None) == (in_ is None):
        raise typer.BadParameter("give either --at or --in")
    value = NOTHING if data is None else remote.json_argument(data, "--data")
    made = remote.call(
        url,
        token,
        lambda moorage: moorage.timers.put(
            timer,
            type_,
            at=at,
            delay_seconds=in_,
            every_seconds=every,
            data=value,
            source=source,
            event_id=event_id,
            subject=subject,
            keys=key or [],
            revision=revision,
        ),
    )
    remote.print_one(made, as_json)


@app.command("list")
def list_(
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List the timers that will fire, by id.

    Example: moorage timers list --all
    """

    async def ask(moorage: Moorage) -> tuple[list[Timer], bool]:
        return await remote.first(moorage.timers.iterate(), limit, everything)

    timers, more = remote.call(url, token, ask)
    remote.print_list(
        timers,
        more,
        as_json,
        ("timer", "revision", "fires", "every", "type", "source", "id"),
        _row,
        numbers=("revision", "every"),
    )


@app.command()
def show(
    timer: TimerId,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show a timer with its event.

    Example: moorage timers show reminder-7
    """
    remote.print_one(remote.call(url, token, lambda moorage: moorage.timers.get(timer)), as_json)


@app.command()
def delete(
    timer: TimerId,
    revision: Annotated[int | None, typer.Option(min=1, help="Only if it has this revision; else as it is now.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.DoneAsJson = False,
) -> None:
    """Delete a timer: it will not fire.

    Example: moorage timers delete reminder-7
    """

    async def ask(moorage: Moorage) -> None:
        at = revision if revision is not None else (await moorage.timers.get(timer)).revision
        await moorage.timers.delete(timer, at)

    remote.call(url, token, ask)
    remote.print_done("deleted", timer, as_json)


def _row(timer: Timer) -> tuple[Any, ...]:
    every = None if timer.every_seconds is None else f"{timer.every_seconds:g} s"
    fires = timer.wire()["fire_at"] if timer.failing is None else f"failing, again {timer.failing.wire()['retry_at']}"
    return timer.id, timer.revision, fires, every, timer.event.type, timer.event.source, timer.event.id
