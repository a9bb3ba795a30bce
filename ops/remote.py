"""What every command that speaks to a deployment shares: where it is, how it is asked, and how failures are told.

A command's module has a Typer `app`; each of its functions takes `Url`, `Token` and, where it prints something,
`AsJson`, and hands an async function of a Moorage to `call`.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import urlsplit

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from moorage.client import ClientFailure, DigestMismatch, Moorage, Patience, Problem
from moorage.client.artifacts import whole_file
from moorage.kernel import canonical
from moorage.kernel.errors import MoorageError
from ops.failure import CommandFailed
from ops.timeline import printable

T = TypeVar("T")
W = TypeVar("W", bound="Told")

DEFAULT_URL = "http://127.0.0.1:8787"

_WIDEST = 100_000
"""Columns of a table in a pipe; nobody's terminal."""

_WHOLE = 40
"""Characters up to which a text in a table is never broken: ids, instants, names."""

_CONTROLS = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What JSON lets stand in its strings and a terminal obeys: DEL and the controls past it, and what breaks or turns lines."""

_FOLDED = 24
"""The least width in which longer texts are folded."""

Url = Annotated[str, typer.Option("--url", envvar="MOORAGE_URL", help="The deployment's address.")]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="MOORAGE_TOKEN", help="The credential to ask with.", show_envvar=True),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table: one value a line for lists.")]
DoneAsJson = Annotated[
    bool, typer.Option("--json", help="""Print one JSON object: {"deleted":NAME}, released or revoked.""")
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Print at most so many.")]
All = Annotated[bool, typer.Option("--all", help="Print everything, over as many pages as it takes.")]
Match = Annotated[
    str | None,
    typer.Option("--match", help="""A pattern as JSON, for instance '{"type":"pdf","size":{"$lt":1000}}'."""),
]


def group(summary: str) -> typer.Typer:
    """The Typer of a group of commands."""
    return typer.Typer(
        help=summary,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


BRIEF = Patience(tries=4)
"""Somebody sits before the terminal: a deployment that is not there is told within two seconds."""

DEPLOYED = Patience(tries=8)
"""What was deployed this moment may take half a minute to be everywhere."""

LASTING = Patience(tries=1_000_000)
"""For what goes on through every restart of the deployment until it is interrupted."""


def connect(url: str, token: str | None, patience: Patience) -> Moorage:
    """A client of the deployment; tests put one of their own in this place."""
    return Moorage(url, token, patience=patience)


def call(url: str, token: str | None, ask: Callable[[Moorage], Awaitable[T]], patience: Patience = BRIEF) -> T:
    """What `ask` answers. Exits 1 after telling what Moorage refused; raises CommandFailed when no answer came."""
    _check_address(url)
    try:
        return asyncio.run(_with_client(url, token, ask, patience))
    except Problem as problem:
        tell(problem)
        raise typer.Exit(1) from None
    except DigestMismatch as failure:
        raise CommandFailed(str(failure)) from None
    except ClientFailure as failure:
        raise CommandFailed(f"no answer from {url}: {failure}; is it running, and is --url right?") from None


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise CommandFailed(f"{url!r} is no address of a deployment, as {DEFAULT_URL}; is --url right?")


async def _with_client(url: str, token: str | None, ask: Callable[[Moorage], Awaitable[T]], patience: Patience) -> T:
    async with connect(url, token, patience) as moorage:
        return await ask(moorage)


def tell(problem: Problem) -> None:
    """Print a problem: what, why, where in the request, and what to do about it."""
    console = Console(stderr=True, highlight=False)
    console.print(
        Text.assemble((f"moorage: {printable(problem.code)}", "bold red"), f": {printable(problem.detail)}"), soft_wrap=True
    )
    for error in problem.errors:
        where, message = error.get("pointer") or "", error.get("message", "")
        if len(problem.errors) > 1 or not (where in problem.detail and message in problem.detail):
            console.print(Text(printable(f"  at {where or 'its root'}: {message}")), soft_wrap=True)
    if problem.code == "Unauthenticated":
        hint = "  give a credential with --token or in MOORAGE_TOKEN; `moorage up` prints its root token"
        console.print(hint, soft_wrap=True)
    if problem.retryable:
        after = "" if problem.retry_after is None else f" after {problem.retry_after:g} s"
        console.print(f"  trying again{after} may help")
    if problem.request_id:
        console.print(Text(f"  request {problem.request_id}", style="dim"))


@contextmanager
def telling_how_far(done: int, came: str) -> Iterator[None]:
    """Say on standard error how far a command came with what it was named, when one past the first ends it."""
    try:
        yield
    except ClientFailure:
        if done:
            print(printable(came), file=sys.stderr)
        raise


def instant(text: str) -> datetime:
    """An instant of the command line, for `parser=`. Raises typer.BadParameter unless it is RFC 3339 with its offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no instant, as 2027-01-01T02:00:00+01:00") from None
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{text!r} lacks its offset: a Z at its end for UTC, or one as +01:00")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise typer.BadParameter(f"{text!r} lies outside of the years 1 to 9999 in UTC") from None


def json_argument(text: str | None, what: str) -> Any:
    """A JSON value from the command line: the text itself, `@file`, or `-` for standard input; None for none.

    It is read as strictly as Moorage reads it, so that what is sent is what was written. Raises typer.BadParameter, which is
    exit status 2, for anything else.
    """
    if text is None:
        return None
    try:
        return canonical.loads(_written(text))
    except OSError as error:
        raise typer.BadParameter(f"{what}: {error.strerror}: {text[1:]}") from None
    except MoorageError as refusal:
        raise typer.BadParameter(f"{what}: {refusal.detail}") from None


def _written(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    if text.startswith("@"):
        return Path(text[1:]).read_bytes()
    return os.fsencode(text)


def json_object(text: str | None, what: str) -> dict[str, Any]:
    """As `json_argument`, but an object; an empty one for none."""
    found = json_argument(text, what)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{what} must be a JSON object")
    return found


def json_line(value: Any) -> str:
    """One JSON value on one line, with escapes for what would control a terminal, and for everything past ASCII where
    standard output is not in UTF-8."""
    text = json.dumps(value, ensure_ascii=not _in_utf8(), separators=(",", ":"))
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def _in_utf8() -> bool:
    return (sys.stdout.encoding or "utf-8").lower().replace("_", "-") in ("utf-8", "utf8")


def print_json(value: Any) -> None:
    """One JSON value on one line of standard output."""
    sys.stdout.write(json_line(value))
    sys.stdout.flush()


def replace(file: Path, text: str) -> None:
    """Write a file as a whole or not at all. Raises CommandFailed."""
    try:
        with whole_file(file) as whole:
            whole.write(text.encode())
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror}") from None


def print_facts(facts: Mapping[str, Any]) -> None:
    """Names and values below one another; nested values as JSON."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, Text(shown(value)))
    _print_wide(table)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Sequence[str] = ()) -> None:
    """A table; the columns in `numbers` stand flush right. In a pipe no cell is cut.

    In a terminal only long texts are folded: an id that is broken over lines can be neither read nor copied. Where the
    others need more room than there is, each row is names and values below one another.
    """
    cells = [[shown(cell) for cell in row] for row in rows]
    console = Console(highlight=False)
    widths = _fitting(columns, cells, console.width) if console.is_terminal else [None] * len(columns)
    if widths is None:
        for place, row in enumerate(cells):
            sys.stdout.write("\n" * (place > 0))
            print_facts(dict(zip(columns, row, strict=True)))
        return
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold", width=width)
    for row in cells:
        table.add_row(*map(Text, row))
    _print_wide(table)


def _fitting(columns: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> list[int | None] | None:
    """The width of each column, None for one that folds; None altogether where they do not fit, headers folded or not."""
    texts = list(zip(*cells, strict=True)) if cells else [()] * len(columns)
    for heads in ([[column] for column in columns], [column.split() for column in columns]):
        widest = [max(map(cell_len, (*head, *column))) for head, column in zip(heads, texts, strict=True)]
        widths = [width if width <= _WHOLE else None for width in widest]
        if sum(width or _FOLDED for width in widths) + 2 * (len(columns) - 1) <= room:
            return widths
    return None


class Told(Protocol):
    """What the client answers with."""

    def wire(self) -> Mapping[str, Any]: ...


def print_one(one: Told, as_json: bool) -> None:
    """One thing as it came: a line of JSON, or names and values."""
    (print_json if as_json else print_facts)(one.wire())


def print_done(done: str, what: str, as_json: bool) -> None:
    """What has become of a thing that a command has nothing else to tell of: `deleted NAME`, or `{"deleted":"NAME"}`."""
    if as_json:
        print_json({done: what})
    else:
        print(printable(f"{done} {what}"))


def print_list(
    found: Sequence[W],
    more: bool,
    as_json: bool,
    columns: Sequence[str],
    row: Callable[[W], Sequence[Any]],
    numbers: Sequence[str] = (),
) -> None:
    """The first of a list: a line of JSON each, or a table with a `row` each; and whether there is more."""
    if as_json:
        for one in found:
            print_json(one.wire())
    else:
        print_table(columns, [row(one) for one in found], numbers)
    say_more(more)


def _print_wide(table: Table) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDEST
        console.width = max(80, console.measure(table).maximum)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


def shown(value: Any) -> str:
    """A value as a cell shows it: text as it is, nothing as a dash, the rest as JSON. None of it controls a terminal."""
    if value is None:
        return "-"
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number of things: `1 record`, `2 records`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


async def first(items: AsyncIterator[T], limit: int, everything: bool) -> tuple[list[T], bool]:
    """At most `limit` items unless everything is wanted, and whether there are more."""
    found: list[T] = []
    async for item in items:
        if not everything and len(found) == limit:
            return found, True
        found.append(item)
    return found, False


def say_more(more: bool) -> None:
    """Say on standard error that there was more than was printed."""
    if more:
        Console(stderr=True, highlight=False).print("there is more: --limit N or --all prints it", style="dim")


@contextmanager
def progress(what: str, total: int | None, unit: str = "") -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error while the block runs; call what it gives with how much more is done.

    `total` None is not known. Where standard error is no terminal nothing is shown.
    """
    console = Console(stderr=True)
    done = TextColumn("{task.completed:,} {task.fields[unit]}") if total is None else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), done, TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total, unit=unit)
        yield lambda more: bar.advance(task, more)
