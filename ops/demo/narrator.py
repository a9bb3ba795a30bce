"""How the story reaches a person: headings, short sentences, tables, and a mark beside each claim."""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ops.demo.checks import Check

WIDTH = 100
INDENT = 2
COMMAND = "moorage storage reconcile-guard"
HANGING = 13
"""Where what a command tells of a guard stands, behind the names of the facts."""


class Narrator:
    """Writes to a console. In a pipe it writes plain lines; a quiet one writes nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        if not console.is_terminal or console.width > WIDTH:
            console.width = WIDTH

    def opening(self, title: str, text: str) -> None:
        """The story's title and what it is about."""
        self._console.print()
        self._console.print(Text(title, style="bold"))
        self._print(Text(text, style="dim"))

    def act(self, number: int, title: str, text: str) -> None:
        """An act begins."""
        self._console.print()
        self._console.print(Rule(Text(f"{number} · {title}", style="bold cyan"), align="left", style="cyan"))
        self._indented(Text(text, style="italic dim"))
        self._print("")

    def say(self, text: str) -> None:
        """A sentence or two; words between backticks stand out."""
        shown = Text()
        for number, part in enumerate(text.split("`")):
            shown.append(part, style="bold" if number % 2 else "")
        self._indented(shown)

    def check(self, check: Check) -> None:
        """A claim, and whether it holds."""
        if check.ok:
            self._marked("✓", "green", Text(check.statement))
            return
        self._marked("✗", "bold red", Text(check.statement, style="bold red"))
        self._indented(Text(f"expected {_short(check.expected)}, found {_short(check.found)}", style="red"), INDENT + 2)

    def broke_off(self, why: str) -> None:
        """An act could not go on."""
        self._marked("✗", "bold red", Text(f"the act broke off: {why}", style="bold red"))

    def mark(self, check: Check) -> Text:
        """The mark of a claim, for a table."""
        return Text("✓", style="green") if check.ok else Text("✗", style="bold red")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Sequence[str] = ()) -> None:
        """A table; the columns in `numbers` stand flush right."""
        table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
        for column in columns:
            table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
        self._console.print()
        self._indented(table, INDENT + 2)
        self._console.print()

    def timeline(self, moments: Sequence[tuple[str, str, str, str]]) -> None:
        """Moments in order: when, what, who, and what else is known."""
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(justify="right", style="dim", no_wrap=True)
        table.add_column(style="cyan")
        table.add_column(style="bold", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(style="dim")
        for number, (when, what, who, more) in enumerate(moments):
            last = number == len(moments) - 1
            table.add_row(when, "●", what, who, more)
            if not last:
                table.add_row("", "│", "", "", "")
        self._console.print()
        self._indented(table, INDENT + 2)
        self._console.print()

    def lineage(self, generations: Sequence[tuple[str, str]]) -> None:
        """Records from the youngest to its oldest ancestor: kind, and what it says."""
        tree: Tree | None = None
        branch: Tree | None = None
        for kind, text in generations:
            label = Text.assemble((kind, "bold"), "  ", (text, "dim"), overflow="ellipsis", no_wrap=True)
            if branch is None:
                tree = branch = Tree(label, guide_style="cyan")
            else:
                branch = branch.add(label)
        self._console.print()
        self._indented(tree or "", INDENT + 2)
        self._console.print()

    def terminal(self, command: str, printed: str) -> None:
        """A command as it was run, and what it printed. Prose is broken to the width; a command never is."""
        self._console.print()
        self._line(Text.assemble(("$ ", "dim"), (command, "bold")))
        for line in printed.splitlines():
            parts = [line]
            if len(line) > WIDTH - 2 * INDENT and COMMAND not in line:
                parts = textwrap.wrap(line, WIDTH - 2 * INDENT, subsequent_indent=" " * HANGING, break_on_hyphens=False)
            for part in parts:
                self._line(Text(part, style="cyan"))
        if printed and printed.splitlines()[-1]:
            self._console.print()

    def _line(self, line: Text) -> None:
        """A line that a terminal may break where it ends, and nobody else does."""
        if self._console.quiet:
            return
        line = Text.assemble(" " * 2 * INDENT, line)
        if self._console.is_terminal:
            self._console.print(line, soft_wrap=True)
        else:
            self._console.file.write(f"{line.plain.rstrip()}\n")

    @contextmanager
    def working(self, text: str) -> Iterator["Working"]:
        """Something that takes a while; a terminal shows it moving, a pipe shows nothing."""
        if not self._console.is_terminal or self._console.quiet:
            yield Working(None)
            return
        with self._console.status(Text(text, style="dim"), spinner="dots") as status:
            yield Working(status)

    def ending(self, text: str, ok: bool) -> None:
        """The last line but for what was false."""
        self._console.print()
        self._console.print(Rule(style="green" if ok else "red"))
        self._console.print(Text(text, style="bold green" if ok else "bold red"))

    def note(self, text: str) -> None:
        """A line below the ending."""
        self._console.print(Text(text, style="dim"), soft_wrap=True)

    def _marked(self, mark: str, style: str, text: Text) -> None:
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column()
        grid.add_row(Text(mark, style=style), text)
        self._indented(grid)

    def _indented(self, shown: Any, by: int = INDENT) -> None:
        self._print(Padding(shown, (0, 0, 0, by), expand=False))

    def _print(self, shown: Any) -> None:
        if self._console.is_terminal or self._console.quiet:
            self._console.print(shown)
            return
        # Rich fills lines with blanks; a file does not need them.
        with self._console.capture() as captured:
            self._console.print(shown)
        for line in captured.get().splitlines():
            self._console.file.write(f"{line.rstrip()}\n")
        self._console.file.flush()


class Working:
    """Says how far something has come."""

    def __init__(self, status: Any) -> None:
        self._status = status

    def say(self, text: str) -> None:
        """Replace what is shown."""
        if self._status is not None:
            self._status.update(Text(text, style="dim"))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "…"
