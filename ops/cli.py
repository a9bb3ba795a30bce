"""The `moorage` command line. A subcommand's module is imported when that subcommand runs, so `--help` stays fast."""

import errno
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import typer

from ops.failure import CommandFailed

PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


@dataclass(frozen=True)
class Subcommand:
    """Where a subcommand lives: a module whose `command` is a function that Typer can read the options from, or whose
    `app` is a Typer with commands of its own."""

    module: str
    summary: str
    settings: dict[str, bool] | None = None


SUBCOMMANDS = {
    "up": Subcommand("ops.up", "Run Moorage on this machine, on a real workerd, until Ctrl-C."),
    "demo": Subcommand("ops.demo", "Tell the main story on real webhook payloads and check every claim it makes."),
    "records": Subcommand("ops.records", "Publish, list, read and trace records."),
    "kinds": Subcommand("ops.kinds", "Declare kinds and look at them."),
    "claims": Subcommand("ops.claims", "Claim records by hand, and settle, fail, renew or release them."),
    "runs": Subcommand("ops.runs", "Start runs of bodies, look at them, and stop or restart them."),
    "run": Subcommand("ops.run", "What an operator does to one execution of a scope."),
    "bodies": Subcommand("ops.bodies", "List the bodies that runs can be started of, or show one."),
    "dead-letters": Subcommand("ops.dead_letters", "Look at records that no attempt could finish, and requeue them."),
    "history": Subcommand("ops.history", "Read history, and seal, verify and export its chain of links."),
    "artifacts": Subcommand("ops.artifacts", "Upload, download and shred artifacts."),
    "credentials": Subcommand("ops.credentials", "Make, list and revoke credentials."),
    "timers": Subcommand("ops.timers", "Set timers, look at them and delete them."),
    "schedules": Subcommand("ops.schedules", "Start bodies or publish records again and again, by cron or interval."),
    "events": Subcommand("ops.events", "Send events, look at those that came in, and follow them."),
    "senders": Subcommand("ops.senders", "Declare who may send webhooks, and how they become events."),
    "destinations": Subcommand("ops.destinations", "Declare where effects are sent and what happens is told."),
    "subscriptions": Subcommand("ops.subscriptions", "Say which events are told to which destination."),
    "deliveries": Subcommand("ops.deliveries", "Look at what is told to destinations, follow it, and deliver again."),
    "receive": Subcommand("ops.receive", "Receive deliveries on this machine, verify their signatures, and print them."),
    "kv": Subcommand("ops.kv", "Read and write small values by namespace and key."),
    "watch": Subcommand("ops.watch", "Print what happens to a kind's records, as it happens."),
    "clock": Subcommand("ops.clock", "Look at what failed when it fell due, and have it tried again."),
    "storage": Subcommand("ops.storage", "Check a deployment's storage, bind it, and release what may be in flight."),
    "backup": Subcommand("ops.storage.backup", "Take, verify and restore backups."),
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
    _settle_streams()
    try:
        assemble(sys.argv[1:])()
    except CommandFailed as failure:
        sys.exit(f"moorage: {failure}")
    except KeyboardInterrupt:
        # While a command's module was still being imported: Typer tells of any later one.
        sys.exit(128 + signal.SIGINT)
    except OSError as error:
        if isinstance(error.filename, str):
            sys.exit(f"moorage: {error.filename}: {error.strerror}")
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        with suppress(OSError):
            sys.stdout.close()
        sys.exit(f"moorage: what was done could not be printed: {error.strerror}")


def _settle_streams() -> None:
    """Let printing work wherever standard output leads: nowhere, or where not every character can be written."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lasts
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


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
            _add(app, name, subcommand)
        else:
            app.command(name, help=subcommand.summary)(_not_called)
    return app


def _add(app: typer.Typer, name: str, subcommand: Subcommand) -> None:
    module = import_module(subcommand.module)
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name, help=subcommand.summary)
        return
    function: Callable[..., Any] = module.command
    app.command(name, context_settings=subcommand.settings)(function)


def _not_called() -> None:
    """Stands for every subcommand but the one on the command line."""


if __name__ == "__main__":
    main()
