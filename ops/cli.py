"""The `moorage` command line. A subcommand's module is imported when that subcommand runs, so `--help` stays fast."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer

from ops.failure import CommandFailed

PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


@dataclass(frozen=True)
class Subcommand:
    """Where a subcommand lives: a module whose `command` is a function that Typer can read the options from."""

    module: str
    summary: str
    settings: dict[str, bool] | None = None


SUBCOMMANDS = {
    "up": Subcommand("ops.up", "Run Moorage on this machine, on a real workerd, until Ctrl-C."),
    "demo": Subcommand("ops.demo", "Tell the main story on real webhook payloads and check every claim it makes."),
    "test": Subcommand("ops.testing", "Run everything CI checks, or only pytest when given its arguments.", PASS_THROUGH),
    "bench": Subcommand("ops.bench", "Print what each operation costs in D1 calls, rows and time, beside its budget."),
    "deploy": Subcommand("ops.deploy", "Vendor, check, migrate and deploy to Cloudflare; --dry-run needs no account."),
    "wrangler": Subcommand("ops.wrangler", "Run the locked wrangler, for instance `moorage wrangler login`.", PASS_THROUGH),
    "setup": Subcommand(
        "ops.setup.command", "Make this checkout ready to run; other commands do it when needed.", PASS_THROUGH
    ),
}


def main() -> None:
    """The console script's entry point. Exits 0 when the command did what it says, 1 when not, 2 on wrong usage."""
    try:
        assemble(sys.argv[1:])()
    except CommandFailed as failure:
        sys.exit(f"moorage: {failure}")


def assemble(arguments: list[str]) -> typer.Typer:
    """The command line for `arguments`: every subcommand's summary, and the options of the one that is called."""
    app = typer.Typer(
        name="moorage",
        help="A durable coordination runtime on one Cloudflare deployment.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    called = arguments[0] if arguments else None
    for name, subcommand in SUBCOMMANDS.items():
        if name == called:
            app.command(name, context_settings=subcommand.settings)(_load(subcommand))
        else:
            app.command(name, help=subcommand.summary)(_not_called)
    return app


def _load(subcommand: Subcommand) -> Callable[..., Any]:
    function: Callable[..., Any] = import_module(subcommand.module).command
    return function


def _not_called() -> None:
    """Stands for every subcommand but the one on the command line."""


if __name__ == "__main__":
    main()
