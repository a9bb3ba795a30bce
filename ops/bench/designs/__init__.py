"""`moorage bench --designs`: what ways of keeping records cost in D1's own counters; ARCHITECTURE.md has the figures."""

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from ops.bench.baseline import Baseline
from ops.bench.designs.candidates import DESIGNS, Design
from ops.failure import CommandFailed

_SCRIPT = Path(__file__).parent / "d1.mjs"
_CHUNK = 50_000
_BODIES = {"300 B": 300, "4 KiB": 4096, "100 KiB": 102_400}
_TOLD = ("publish", "claim, hit", "claim, miss", "settle", "read by id")
_TIMED = tuple(f"{name}{size}" for name in ("claim, hit", "read by id", "settle") for size in ("", ", 4 KiB", ", 100 KiB"))


@dataclass(frozen=True)
class Spent:
    """Rows that D1 counted and what the batch took there, in milliseconds of whole batches."""

    read: int
    written: int
    milliseconds: float

    def plus(self, other: "Spent") -> "Spent":
        """Both together."""
        return Spent(self.read + other.read, self.written + other.written, self.milliseconds + other.milliseconds)


@dataclass(frozen=True)
class Figures:
    """What one design costs: each operation, and the bytes that a record takes."""

    design: str
    spent: dict[str, Spent]
    bytes_a_record: int

    @property
    def written_in_a_life(self) -> int:
        """Rows written for one record from its publication to its settlement."""
        return sum(self.spent[name].written for name in ("publish", "claim, hit", "settle"))


def show(figures: Sequence[Figures], scale: int) -> None:
    """Print a table of rows and one of times."""
    rows = Table(title=f"Rows with {scale:,} ready records, read / written", title_justify="left", title_style="bold")
    times = Table(title="Milliseconds of the batch, by the size of the body", title_justify="left", title_style="bold")
    for table, columns in ((rows, (*_TOLD, "written in a life", "bytes a record")), (times, _TIMED)):
        table.add_column("design")
        for column in columns:
            table.add_column(column, justify="right")
    for one in figures:
        told = [f"{one.spent[name].read} / {one.spent[name].written}" for name in _TOLD]
        rows.add_row(one.design, *told, str(one.written_in_a_life), str(one.bytes_a_record))
        times.add_row(one.design, *(f"{one.spent[name].milliseconds:.1f}" for name in _TIMED))
    console = Console(highlight=False)
    console.print(rows)
    console.print(times)


def as_json(figures: Sequence[Figures], scale: int) -> dict[str, Any]:
    """The same as one object."""
    designs = [asdict(one) | {"written_in_a_life": one.written_in_a_life} for one in figures]
    return {"scale": scale, "designs": designs}


def measure(scale: int, repeat: int) -> list[Figures]:
    """Every design in a database of its own with `scale` ready records."""
    with tempfile.TemporaryDirectory(prefix="moorage-designs-") as folder:
        return [_measure_one(design, Path(folder) / str(place), scale, repeat) for place, design in enumerate(DESIGNS)]


class _D1:
    """The plain Worker's database."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.size = 0

    def run(self, statements: Sequence[str], *values: Any) -> tuple[Spent, list[dict[str, Any]]]:
        """One batch, each statement with as many of the values as it names; the last rows that it gave."""
        wanted = [{"sql": sql, "values": values[: _named(sql)]} for sql in statements]
        response = self._client.post("/", json={"statements": wanted})
        if response.is_error:
            raise CommandFailed(f"a design's batch failed: {response.text[:300]}")
        answer = response.json()
        metas = [one["meta"] for one in answer["answers"]]
        self.size = metas[-1]["size_after"]
        rows: list[dict[str, Any]] = next((one["rows"] for one in reversed(answer["answers"]) if one["rows"]), [])
        read, written = (sum(meta[name] for meta in metas) for name in ("rows_read", "rows_written"))
        return Spent(read, written, answer["milliseconds"]), rows


def _measure_one(design: Design, state: Path, scale: int, repeat: int) -> Figures:
    with _database(state) as d1:
        d1.run(design.schema)
        empty = d1.size
        for start in range(1, scale + 1, _CHUNK):
            for sql in design.loads:
                d1.run([sql], start, min(start + _CHUNK - 1, scale))
        bytes_a_record = (d1.size - empty) // max(scale, 1)
        spent = {name: _dearest(costs) for name, costs in _costs(d1, design, repeat).items()}
    return Figures(design.name, spent, bytes_a_record)


def _costs(d1: _D1, design: Design, repeat: int) -> dict[str, list[Spent]]:
    """Each operation `repeat` times, by name; those on larger bodies under names of their own."""
    costs: dict[str, list[Spent]] = {}
    for label, size in _BODIES.items():
        suffix = "" if size == min(_BODIES.values()) else f", {label}"
        for number in range(repeat):
            record, type_ = f"rec_{size:013d}{number:013d}", f"rare-{size}-{number}"
            body = json.dumps({"size": 5, "type": type_, "text": "x" * size})
            steps: list[tuple[str, Sequence[str], tuple[Any, ...]]] = [
                ("publish", design.publish, (record, body, type_, 5)),
                ("claim, hit", (design.claim,), (type_, record)),
                ("claimed", design.owned, (record,)),
                ("read by id", ("SELECT * FROM records WHERE id = ?1",), (record,)),
                ("settle", design.settle, (record,)),
            ]
            if not suffix:
                steps.append(("claim, miss", (design.claim,), ("absent", "nobody")))
            for name, statements, values in steps:
                spent, _ = d1.run(statements, *values)
                if name == "claimed":
                    before = costs[f"claim, hit{suffix}"].pop()
                    name = "claim, hit"
                    spent = before.plus(spent)
                costs.setdefault(f"{name}{suffix}", []).append(spent)
    return costs


def _dearest(costs: Sequence[Spent]) -> Spent:
    """The most rows of several runs, and the median time."""
    return Spent(
        max(one.read for one in costs), max(one.written for one in costs), median(one.milliseconds for one in costs)
    )


def _named(sql: str) -> int:
    """How many parameters a statement has."""
    return max((int(number) for number in re.findall(r"\?(\d+)", sql)), default=0)


@contextmanager
def _database(state: Path) -> Iterator[_D1]:
    with Baseline(state, _SCRIPT) as worker, httpx.Client(base_url=worker.url, timeout=600) as client:
        yield _D1(client)
