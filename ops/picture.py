"""How a run's picture reaches a person: drawn once, drawn again as it changes, or as lines in a pipe."""

import io
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rich import live
from rich.console import Console, Group
from rich.text import Text

from moorage.kernel.instants import Instant
from ops import glyphs, remote, timeline

PIPE_COLUMNS = 120
"""How wide a picture is drawn where nobody's terminal tells a width."""

_REFRESH_PER_SECOND = 4


@dataclass(frozen=True)
class State:
    """A run and its steps, as the HTTP interface tells them; `change` is what told of it, for programs."""

    run: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    change: Mapping[str, Any] | None = None


def now() -> Instant:
    """This machine's time, for what is under way."""
    return Instant(time.time_ns() // 1_000_000)


def console() -> Console:
    """Standard output; in a pipe a fixed width, unless COLUMNS says otherwise."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a label may hold any letter; the terminal may not
    found = Console(highlight=False, soft_wrap=False)
    if not found.is_terminal and "COLUMNS" not in found._environ:
        found.width = PIPE_COLUMNS
    return found


def glyphs_of(console: Console) -> glyphs.Glyphs:
    """What the terminal can show."""
    try:
        "".join((*glyphs.DRAWN.marks.values(), glyphs.DRAWN.work)).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return glyphs.PLAIN
    return glyphs.DRAWN


def lines(state: State, console: Console) -> list[Text]:
    """The picture's lines as the console can show them."""
    return timeline.render(state.run, state.steps, now=now(), width=console.width, glyphs=glyphs_of(console))


def show(state: State) -> None:
    """Print the picture."""
    target = console()
    for line in lines(state, target):
        target.print(line, no_wrap=True, crop=False, overflow="ignore")


def show_result(result: Any) -> None:
    """Print what a run returned, below its picture; nothing for null."""
    if result is not None:
        print(f"\nresult  {remote.json_line(result)}", end="", flush=True)


def show_metadata(metadata: Mapping[str, Any]) -> None:
    """Print what a run says of itself, below its picture: where an answer goes, for instance."""
    if metadata:
        print(f"\nmetadata  {remote.json_line(metadata)}", end="", flush=True)


class Live:
    """A picture in a terminal that is drawn again as the run changes, and moves with time in between."""

    def __init__(self) -> None:
        self._console = console()
        self._state: State | None = None
        self._live = live.Live(
            get_renderable=self._drawn,
            console=self._console,
            refresh_per_second=_REFRESH_PER_SECOND,
            vertical_overflow="visible",
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._live.__exit__(kind, error, tb)
        if self._state is not None:
            show(self._state)

    def show(self, state: State) -> None:
        """Draw this state from now on."""
        self._state = state
        self._live.refresh()

    def _drawn(self) -> Group:
        if self._state is None:
            return Group()
        drawn = lines(self._state, self._console)
        room = max(self._console.height - 2, 8)
        if len(drawn) > room:
            # The head and the newest steps; a terminal cannot draw again what has scrolled away.
            hidden = len(drawn) - room + 1
            head = 6
            drawn = [*drawn[:head], Text(f"… {hidden} lines …", style="dim"), *drawn[head + hidden :]]
        return Group(*drawn)


class Lines(AbstractContextManager["Lines"]):
    """What changes, one line each, for a pipe or a program."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._glyphs = glyphs_of(console())
        self._told: dict[str, str] = {}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Nothing is left to do."""

    def show(self, state: State) -> None:
        """Print what is not as it was printed last."""
        if self._as_json:
            remote.print_json(state.change if state.change is not None else {"run": state.run, "steps": list(state.steps)})
            return
        for step in sorted(state.steps, key=lambda one: timeline.branch(one["position"])):
            name = f"{step['position']} {step['label']} {step.get('input_sha256')}"
            facts = f"{step['status']} {step['attempt']} {step.get('next_attempt_at')}"
            if self._told.get(name) != facts:
                self._told[name] = facts
                moment = timeline.moment(state.run, now())
                print(timeline.line(step, now=moment, glyphs=self._glyphs), flush=True)
        status = str(state.run["status"])
        if self._told.get("") != status:
            self._told[""] = status
            for line in timeline.header(state.run, now=now(), width=PIPE_COLUMNS, glyphs=self._glyphs):
                print(line.plain, flush=True)
