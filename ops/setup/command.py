"""`moorage setup` for those who call .venv/bin/moorage: hands over to the launcher, which does the work."""

import os
import sys

import typer

from ops.setup.paths import ROOT


def command(_context: typer.Context) -> None:
    """Make this checkout ready to run."""
    launcher = ROOT / "moorage"
    os.execv(launcher, [str(launcher), *sys.argv[1:]])  # noqa: S606 - our own launcher, no shell
