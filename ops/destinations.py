"""`moorage destinations`: where runs send effects to, and where what happens is told."""

import sys
from typing import Annotated

import typer

from moorage.client import Moorage
from moorage.client.outside import Destination
from ops import remote

app = remote.group("Declare where effects are sent and what happens is told.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The destination's name.")]


@app.command()
def put(
    name: _Name,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Its URL.")],
    secret: Annotated[
        str | None,
        typer.Option(help="env:NAME, the secret of the Worker that signs deliveries; without one they are unsigned."),
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="A method that runs may send; repeatable. Else POST.")] = None,
    ordered: Annotated[bool, typer.Option("--ordered", help="Deliver one after the other, as the events came.")] = False,
    concurrency: Annotated[int, typer.Option(help="How many deliveries may be under way at once.")] = 4,
    max_attempts: Annotated[int, typer.Option(help="How often each delivery is tried.")] = 24,
    timeout_seconds: Annotated[int, typer.Option(help="How long the answer to a delivery may take.")] = 15,
    dedup_window: Annotated[
        int | None, typer.Option(help="For how many seconds the destination itself drops a repeated Idempotency-Key.")
    ] = None,
    publication: Annotated[bool, typer.Option("--publication", help="Runs may publish to it.")] = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Declare a destination, or declare it anew, as a whole.

    Example: moorage destinations put crm https://crm.example.com/hook --secret env:CRM_SECRET
    """
    delivery = {
        "concurrency": concurrency,
        "ordered": ordered,
        "max_attempts": max_attempts,
        "timeout_seconds": timeout_seconds,
    }

    async def ask(moorage: Moorage) -> Destination:
        return await moorage.destinations.put(
            name,
            address,
            secret=secret,
            methods=method or ["POST"],
            dedup_window_seconds=dedup_window,
            publication=publication,
            delivery=delivery,
        )

    declared = remote.call(url, token, ask)
    remote.print_one(declared, as_json)
    if declared.secret_bound is False:
        bound = (declared.secret or "").removeprefix("env:")
        told = f"The deployment has no secret {bound} yet. Nothing is delivered before it is bound"
        print(f"{told}: moorage wrangler secret put {bound}, or moorage up --secret {bound}", file=sys.stderr)


@app.command("list")
def list_(
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List destinations by name. `moorage deliveries summary` tells how each stands.

    Example: moorage destinations list
    """

    async def ask(moorage: Moorage) -> tuple[list[Destination], bool]:
        return await remote.first(moorage.destinations.iterate(), limit, everything)

    found, more = remote.call(url, token, ask)
    remote.print_list(
        found,
        more,
        as_json,
        ("name", "url", "methods", "secret"),
        lambda one: (one.name, one.url, " ".join(one.methods), one.secret),
    )


@app.command()
def show(
    name: _Name,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show one destination.

    Example: moorage destinations show crm
    """
    remote.print_one(remote.call(url, token, lambda moorage: moorage.destinations.get(name)), as_json)
