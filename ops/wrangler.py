"""`moorage wrangler`: the locked wrangler with any arguments, for the few things that need doing once per account."""

import subprocess

import typer

from ops.bundle import wrangler_env
from ops.setup import paths


def command(context: typer.Context) -> None:
    """For instance `moorage wrangler login`, `d1 create moorage`, `r2 bucket create moorage-blobs`."""
    done = subprocess.run([*paths.wrangler(), *context.args], cwd=paths.ROOT, env=wrangler_env())
    raise typer.Exit(done.returncode)
