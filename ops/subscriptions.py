"""`moorage subscriptions`: which events are told to which destination."""

from typing import Annotated, Literal

import typer

from moorage.client import Moorage
from moorage.client.outbox import Subscription
from ops import remote

app = remote.group("Say which events are told to which destination.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The subscription's name.")]


@app.command()
def put(
    name: _Name,
    destination: Annotated[str, typer.Option(help="The destination that is told; it must be declared.")],
    type_: Annotated[
        list[str], typer.Option("--type", help="A type of entries of history, or a prefix with * at its end; repeatable.")
    ],
    kind: Annotated[list[str] | None, typer.Option(help="Only entries of this kind; repeatable, and may end in *.")] = None,
    filter_: Annotated[
        str | None, typer.Option("--filter", help="A pattern as JSON, over the record's body or the entry's data.")
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Tell nothing until it is resumed.")] = False,
    from_: Annotated[
        str | None, typer.Option("--from", help="`now`, or a position of history past which to begin; 0 is its start.")
    ] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Declare a subscription, or declare it anew; one that is there goes on where it stands.

    Example: moorage subscriptions put orders --destination crm --type 'record.*' --kind order --filter '{"total":99}'
    """
    pattern = None if filter_ is None else remote.json_object(filter_, "--filter")
    start = _start(from_)

    async def ask(moorage: Moorage) -> Subscription:
        return await moorage.subscriptions.put(
            name, type_, destination, kinds=kind or (), match=pattern, paused=paused, start=start
        )

    remote.print_one(remote.call(url, token, ask), as_json)


@app.command("list")
def list_(
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List subscriptions by name, and how far each is behind.

    Example: moorage subscriptions list
    """

    async def ask(moorage: Moorage) -> tuple[list[Subscription], bool]:
        return await remote.first(moorage.subscriptions.iterate(), limit, everything)

    found, more = remote.call(url, token, ask)
    remote.print_list(
        found,
        more,
        as_json,
        ("name", "state", "destination", "types", "kinds", "behind"),
        lambda one: (one.name, one.state, one.destination, " ".join(one.types), " ".join(one.kinds) or None, one.behind),
        numbers=("behind",),
    )


@app.command()
def show(
    name: _Name,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show one subscription.

    Example: moorage subscriptions show orders
    """
    remote.print_one(remote.call(url, token, lambda moorage: moorage.subscriptions.get(name)), as_json)


@app.command()
def pause(
    name: _Name,
    reason: Annotated[str | None, typer.Option(help="Why; it is shown with the subscription.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Tell nothing more until it is resumed; what was told already is still delivered.

    Example: moorage subscriptions pause orders --reason 'they move house'
    """
    remote.print_one(remote.call(url, token, lambda moorage: moorage.subscriptions.pause(name, reason)), as_json)


@app.command()
def resume(
    name: _Name,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Go on with the first event that was not told.

    Example: moorage subscriptions resume orders
    """
    remote.print_one(remote.call(url, token, lambda moorage: moorage.subscriptions.resume(name)), as_json)


@app.command()
def delete(
    name: _Name,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.DoneAsJson = False,
) -> None:
    """Tell nothing more; what was told already is still delivered.

    Example: moorage subscriptions delete orders
    """
    remote.call(url, token, lambda moorage: moorage.subscriptions.delete(name))
    remote.print_done("deleted", name, as_json)


def _start(text: str | None) -> int | Literal["now"] | None:
    if text is None or text == "now":
        return text  # type: ignore[return-value]
    if not text.isascii() or not text.isdecimal():
        raise typer.BadParameter("--from takes `now` or a position of history")
    return int(text)
