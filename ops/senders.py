"""`moorage senders`: who may send webhooks, and how they become events."""

from pathlib import Path
from typing import Annotated, Any

import typer

from moorage.client import Moorage
from moorage.client.outside import Sender
from ops import remote

app = remote.group("Declare who may send webhooks, and how they become events.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The sender's name; its URL is /webhooks/NAME.")]


@app.command()
def put(
    name: _Name,
    scheme: Annotated[str, typer.Option(help="How it signs: standard, github, stripe, slack, or bearer.")],
    secret: Annotated[
        list[str],
        typer.Option(help="A secret: env:NAME, one of the Worker's; @FILE; or itself. Repeatable, for a rotation."),
    ],
    subject: Annotated[str | None, typer.Option(help="Whose awakeables it may resolve; else its name.")] = None,
    tolerance_seconds: Annotated[
        int | None, typer.Option(help="How far a signed timestamp may lie from now; else 300.")
    ] = None,
    id_: Annotated[
        str | None, typer.Option("--id", help="Where the delivery's id stands: a JSON Pointer, or header:Name.")
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", help="The events' type, or a JSON Pointer to it.")] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="A JSON Pointer to what waits find the event by; repeatable.")
    ] = None,
    scope: Annotated[str | None, typer.Option(help="The declared scope that its events belong to.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Declare a sender, or declare it anew, as a whole. No answer ever holds a secret.

    Example: moorage senders put shop --scheme github --secret env:SHOP_SECRET --type paid --id /order/id --key /order/id
    """
    given: dict[str, Any] = {"id": id_, "type": type_, "keys": key, "scope": scope}
    event = {part: value for part, value in given.items() if value}
    secrets = [_secret(one) for one in secret]

    async def ask(moorage: Moorage) -> Sender:
        return await moorage.senders.put(
            name, scheme, secrets, subject=subject, tolerance_seconds=tolerance_seconds, event=event
        )

    declared = remote.call(url, token, ask)
    remote.print_one(declared, as_json)
    if not as_json:
        print(f"\nit sends to {url.rstrip('/')}/webhooks/{declared.name}")


@app.command("list")
def list_(
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List senders by name.

    Example: moorage senders list
    """

    async def ask(moorage: Moorage) -> tuple[list[Sender], bool]:
        return await remote.first(moorage.senders.iterate(), limit, everything)

    found, more = remote.call(url, token, ask)
    remote.print_list(
        found,
        more,
        as_json,
        ("name", "scheme", "subject", "secrets", "id", "type", "keys", "scope"),
        _row,
        numbers=("secrets",),
    )


@app.command()
def show(
    name: _Name,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show one sender.

    Example: moorage senders show shop
    """
    remote.print_one(remote.call(url, token, lambda moorage: moorage.senders.get(name)), as_json)


@app.command()
def delete(
    name: _Name,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.DoneAsJson = False,
) -> None:
    """Remove a sender: its webhooks are refused from now on.

    Example: moorage senders delete shop
    """
    remote.call(url, token, lambda moorage: moorage.senders.delete(name))
    remote.print_done("deleted", name, as_json)


def _secret(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise typer.BadParameter(f"--secret: {error.strerror}: {text[1:]}") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"--secret: this file is no text: {text[1:]}") from None


def _row(one: Sender) -> tuple[object, ...]:
    event = one.event
    made = (None, None, None, None) if event is None else (event.id, event.type, " ".join(event.keys) or None, event.scope)
    return (one.name, one.scheme, one.subject, one.secrets, *made)
