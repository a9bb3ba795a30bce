"""`moorage demo`: the main story on real input, told to a reader and checked claim by claim."""

import os
import signal
import sys
from types import FrameType
from typing import Annotated

import typer

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that end the story early: a closed terminal sends the last."""


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the story.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the state folder and say where it is.")] = False,
) -> None:
    """Tell the main story on real webhook payloads and check every claim it makes.

    Everything runs on this machine, on a real workerd, in a fresh folder. Exits 1 when a claim is false.
    """
    from ops.demo.story import ACTS, run  # the processes that the story starts need none of it

    for number in ENDING:
        signal.signal(number, _interrupt)
    try:
        status = run(ACTS, as_json=as_json, keep=keep)
    except KeyboardInterrupt:
        typer.echo("interrupted; every process is stopped", err=True)
        status = 130
    except BrokenPipeError:
        # Whoever read the story has gone. Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    raise typer.Exit(status)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # Once is enough: a second Ctrl-C must not interrupt the cleaning up itself.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
