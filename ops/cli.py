"""The `moorage` command line. Each subcommand's module is imported when the subcommand runs, so `--help` stays fast."""

import typer

app = typer.Typer(name="moorage", no_args_is_help=True, add_completion=False)


def main() -> None:
    """The console script's entry point."""
    app()
