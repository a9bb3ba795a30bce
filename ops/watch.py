"""`moorage watch`: what happens to a kind's records, as it happens."""

from contextlib import aclosing
from typing import Annotated

import typer

from moorage.client import Moorage
from moorage.client.models import Change
from moorage.kernel import canonical
from ops import remote


def command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The kind's name.")],
    match: remote.Match = None,
    after: Annotated[
        int | None, typer.Option(min=0, help="Begin past this position of history; 0 begins at its start. Else now.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="End after so many.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Print what happens to a kind's records, as it happens, until Ctrl-C.

    A broken connection is opened again, and nothing is left out or told twice.

    Example: moorage watch document --match '{"type":"pdf"}' --json | jq .record.id
    """
    pattern = remote.json_object(match, "--match")

    async def follow(moorage: Moorage) -> None:
        told = 0
        async with aclosing(moorage.watch(kind, pattern, after=after)) as changes:
            async for change in changes:
                _tell(change, as_json)
                told += 1
                if told == limit:
                    return

    remote.call(url, token, lambda moorage: moorage.health())  # so that a wrong address is told at once
    try:
        remote.call(url, token, follow, remote.LASTING)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _tell(change: Change, as_json: bool) -> None:
    if as_json:
        remote.print_json(change.wire())
        return
    record = change.record
    about = "" if record is None else f"  {record.id}  {record.state:<8}  {canonical.compact(record.body)}"
    print(f"{change.position:>8}  {change.type:<20}{about}", flush=True)
