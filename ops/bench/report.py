"""How a bench is told: tables for people, one object for programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from ops.bench.budget import Measured

_console = Console(highlight=False)
_stderr = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Results:
    """What a run measured. `small` and `large` are the same operations without and with the backlog of `scale`
    records; `bare_ms` is the baseline's median, `boot_ms` the Worker's cold start."""

    measured: Sequence[Measured]
    small: Sequence[Measured]
    large: Sequence[Measured]
    scale: int
    bare_ms: float
    boot_ms: int

    def uneven(self) -> list[str]:
        """Operations of the scaled part that broke their budget or wrote more rows with the backlog than without."""
        pairs = zip(self.small, self.large, strict=False)
        return [
            after.operation.name
            for before, after in pairs
            if not after.within_budget or after.rows_written != before.rows_written or after.trips != before.trips
        ]


def progress(text: str) -> None:
    """One line about what is being done, apart from the result."""
    _stderr.print(f"[dim]… {text}[/dim]")


def silent(text: str) -> None:
    """Says nothing: the result alone is wanted."""


def show(results: Results) -> None:
    """Print the tables."""
    _console.print(_table("Cost of each operation", results.measured, results.bare_ms))
    if results.large:
        _console.print(_table("With the few records of the runs above", results.small, results.bare_ms))
        _console.print(_table(f"With {results.scale:,} more ready records", results.large, results.bare_ms))
    _console.print(
        f"Rows are D1's own counts, the dearest of the repetitions. Times are medians through HTTP; a bare D1 insert by a "
        f"plain JavaScript Worker took {results.bare_ms:.1f} ms in this run. Dollars are D1's published prices for rows "
        f"(0.001 a million read, 1.00 a million written). Cold start of the interpreter: {results.boot_ms} ms."
    )


def as_json(results: Results) -> dict[str, Any]:
    """The same as one object."""
    return {
        "bare_insert_ms": round(results.bare_ms, 3),
        "boot_ms": results.boot_ms,
        "scale": results.scale,
        "operations": [_object(one, results.bare_ms) for one in results.measured],
        "small": [_object(one, results.bare_ms) for one in results.small],
        "large": [_object(one, results.bare_ms) for one in results.large],
    }


def _object(one: Measured, bare_ms: float) -> dict[str, Any]:
    budget = one.operation.budget
    return {
        "operation": one.operation.name,
        "trips": one.trips,
        "rows_read": one.rows_read,
        "rows_written": one.rows_written,
        "budget": {"trips": budget.trips, "rows_read": budget.rows_read, "rows_written": budget.rows_written},
        "within_budget": one.within_budget,
        "milliseconds": round(one.milliseconds, 3),
        "ratio_to_bare_insert": round(one.milliseconds / bare_ms, 2),
        "dollars_per_million": round(one.dollars_per_million, 4),
    }


def _table(title: str, rows: Sequence[Measured], bare_ms: float) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("operation")
    for name in ("trips", "rows read", "rows written", "$ a million", "ms", "× bare insert"):
        table.add_column(name, justify="right")
    for one in rows:
        budget = one.operation.budget
        table.add_row(
            one.operation.name,
            _beside(one.trips, budget.trips),
            _beside(one.rows_read, budget.rows_read),
            _beside(one.rows_written, budget.rows_written),
            f"{one.dollars_per_million:.2f}",
            f"{one.milliseconds:.1f}",
            f"{one.milliseconds / bare_ms:.1f}",
        )
    return table


def _beside(value: int, budget: int) -> str:
    colour = "green" if value <= budget else "bold red"
    return f"[{colour}]{value}[/{colour}] [dim]/ {budget}[/dim]"
