"""The launcher's slow path: bring every step up to date, then become the command that was asked for."""

import os
import sys
import time
from typing import NoReturn

from ops.setup import paths
from ops.setup.relock import relock
from ops.setup.run import SetupFailed, bring_up_to_date, say, sole_run, sweep, write_whole
from ops.setup.steps import steps

SETUP_HELP = """\
Usage: moorage setup [--again] [--relock [--upgrade]]

Makes this checkout ready to run. Every other command does that by itself when something changed.

  --again    do every step afresh
  --relock   write the lock files anew from pyproject.toml, requirements/uv.in and package.json, then set up
  --upgrade  with --relock: take the newest versions that the bounds allow
"""


def main() -> NoReturn:
    """Sets up, then runs the command in this process's place. Exits 1 when a step fails, 130 on Ctrl-C."""
    arguments = sys.argv[1:]
    wanted = os.environ.pop("MOORAGE_SETUP_WANTED", "")
    options = arguments[1:] if arguments[:1] == ["setup"] else None
    if options is not None:
        _check(options)
    try:
        with sole_run():
            _set_up(wanted, None if options is None else set(options))
    except SetupFailed as failure:
        sys.exit(f"moorage: set-up failed: {failure}")
    except OSError as error:
        sys.exit(f"moorage: set-up failed: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    if options is not None:
        sys.exit(0)
    command = paths.VENV / "bin" / "moorage"
    os.execv(command, [str(command), *arguments])  # noqa: S606 - our own command, no shell


def _check(options: list[str]) -> None:
    if options in (["--help"], ["-h"]):
        print(SETUP_HELP, end="")
        sys.exit(0)
    unknown = [option for option in options if option not in ("--again", "--relock", "--upgrade")]
    if unknown or ("--upgrade" in options and "--relock" not in options):
        print(SETUP_HELP, end="", file=sys.stderr)
        sys.exit(2)


def _set_up(wanted: str, options: set[str] | None) -> None:
    asked = options or set()
    began = time.monotonic()
    first = not paths.READY.parent.joinpath("uv").exists()
    paths.READY.unlink(missing_ok=True)
    sweep()
    paths.LOG.write_text("")
    if "--again" in asked:
        for stamp in paths.STATE.glob("*.stamp"):
            stamp.unlink()
    if "--relock" in asked:
        say("Locking the newest versions allowed" if "--upgrade" in asked else "Locking versions")
        for tool in steps()[:2]:
            bring_up_to_date(tool)
        relock("--upgrade" in asked)
    if any(not step.is_current() for step in steps()):
        say("Setting up Moorage (the first time takes a minute)" if first else "Bringing Moorage's set-up up to date")
        for step in steps():
            bring_up_to_date(step)
        say(f"Ready after {time.monotonic() - began:.1f} s\n")
    elif options is not None:
        say("Everything is up to date.")
    write_whole(paths.READY, wanted)
