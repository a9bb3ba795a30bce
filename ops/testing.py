"""`moorage test`: everything CI checks, in the order that fails fastest, with pytest's own verdict last."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console

from ops.bodies_folder import FOLDER_VARIABLE, BodiesOption, check_bodies
from ops.setup.paths import ROOT, node_env

BIN = Path(sys.executable).parent
CHECKS = {
    "ruff check": [str(BIN / "ruff"), "check"],
    "ruff format": [str(BIN / "ruff"), "format", "--check"],
    "mypy": [str(BIN / "mypy")],
    "import-linter": [str(BIN / "lint-imports")],
}
"""What holds besides the tests, by the name it is reported under."""

TWO_PROCESSES = ["-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder"]
"""Two processes share the whole suite, a test at a time in its order (no test has a group). So no test may measure as if it
were alone on the machine."""


def command(context: typer.Context, bodies: BodiesOption = None) -> None:
    """Run everything CI checks: lint, format, types and import layers, then every test.

    With pytest arguments after `test`, only pytest runs, with these arguments; `--clauses` lists the clauses of
    CONTRACT.md with the tests that prove each. With `--bodies`, edges of the tests run these bodies instead of
    `worker/bodies`. Exits 0 when all of it held.
    """
    if bodies is not None:
        check_bodies(bodies)
        os.environ[FOLDER_VARIABLE] = str(bodies.absolute())
    console = Console(stderr=True, highlight=False)
    failed = [] if context.args else [name for name, check in CHECKS.items() if not _holds(console, name, check)]
    if failed:
        console.print(f"[red]failed: {', '.join(failed)}[/red]; the tests run all the same")
    verdict = run_pytest(context.args)
    raise typer.Exit(verdict or int(bool(failed)))


def _holds(console: Console, name: str, check: Sequence[str]) -> bool:
    began = time.monotonic()
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"})
    seconds = time.monotonic() - began
    if done.returncode == 0:
        console.print(f"[green]✓[/green] {name:<16}{seconds:5.1f} s")
        return True
    console.print(f"[red]✗[/red] {name:<16}{seconds:5.1f} s")
    console.print((done.stdout + done.stderr).rstrip(), markup=False)
    return False


def run_pytest(arguments: Sequence[str]) -> int:
    """Runs pytest from the root, with paths read from where the caller is, and returns its exit status."""
    located = [_from_here(argument) for argument in arguments]
    sys.stderr.flush()
    shared = [] if located else TWO_PROCESSES
    return subprocess.run([sys.executable, "-m", "pytest", *shared, *located], cwd=ROOT, env=node_env()).returncode


def _from_here(argument: str) -> str:
    """A path of the caller's, or a test below one, as pytest finds it from the root; anything else as it is."""
    path, colons, test = argument.partition("::")
    if argument.startswith("-") or not path or not Path(path).exists():
        return argument
    return f"{Path(path).absolute()}{colons}{test}"
