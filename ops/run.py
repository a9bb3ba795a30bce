"""`moorage run`: what an operator does to one execution."""

from typing import Annotated

import typer

from ops import remote

app = remote.group("What an operator does to one execution of a scope.")


@app.callback()
def group() -> None:
    """What an operator does to one execution of a scope."""


@app.command()
def rewind(
    execution: Annotated[str, typer.Argument(metavar="EXECUTION", help="The pending execution's id, as its runs show it.")],
    reason: Annotated[str, typer.Option(help="Why; history keeps it.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also when nobody asked this scope for another build or input.")
    ] = False,
    settled: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY", help="An effect that was to be sent again, of which you know what became of it; repeatable."
        ),
    ] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Release a pending execution with all that it recorded, so that its scope begins anew. Its cursors stay.

    What is under way is never rewound, forced or not: a live attempt, a wait, or an awakeable before its deadline. Effects
    that were recorded happened, and the next run of the scope makes them again. An effect that may have arrived, and is to
    be sent again under its key, has to be named with --settled: the next run would send it under another key.

    Example: moorage run rewind exe_01kb1y0z3w5q9v8d7c6b5a4m3n --reason 'version 2 replaces it'
    """
    done = remote.call(
        url, token, lambda moorage: moorage.runs.rewind(execution, reason, force=force, settled=settled or ())
    )
    if as_json:
        remote.print_json(done)
    else:
        remote.print_facts(done)
