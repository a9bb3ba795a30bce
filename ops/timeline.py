"""A run as a picture: its state, and each step as a bar on one axis of time.

Pure: from the JSON of `GET /runs/{id}` and of `GET /runs/{id}/steps` to lines of text. Symbols and shapes carry the meaning
and colours only repeat it, so that it reads the same in a pipe, without colour and in a narrow terminal.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from moorage.kernel import instants
from moorage.kernel.instants import Instant
from ops.glyphs import DRAWN, MINTED, STYLES, Glyphs

WITHOUT_BARS = 52
"""Columns below which the bars are left out; `WITHOUT_KINDS` is where the kinds of steps are too."""

WITHOUT_KINDS = 40
_LONGEST_LABEL = 34
_LONGEST_NOTE = 44
_LEAST_BAR = 10
_INSTANTLY = frozenset({"awakeable", "join", "now", "random", "uuid"})
"""Kinds of steps that take no time of their own."""

_SEGMENT = re.compile(r"(\d+)(?:\.(\d+))?", re.ASCII)


@dataclass(frozen=True)
class Span:
    """The time that a picture shows."""

    start: Instant
    end: Instant

    def cells(self, start: Instant, end: Instant, width: int) -> tuple[int, int]:
        """The cells from the first to past the last that an interval takes of `width`; at least one."""
        whole = max(self.end - self.start, 1)
        first = min(max(start - self.start, 0) * width // whole, width - 1)
        last = -(-min(max(end - self.start, 0), whole) * width // whole)
        return first, max(first + 1, min(last, width))


@dataclass(frozen=True)
class Columns:
    """How wide each column is; 0 leaves it out."""

    label: int
    kind: int
    bar: int
    duration: int
    note: int


def render(
    run: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], *, now: Instant, width: int, glyphs: Glyphs = DRAWN
) -> list[Text]:
    """The lines of a picture of the run, none of them wider than `width` columns (at least 20)."""
    width = max(width, 20)
    lines = header(run, now=now, width=width, glyphs=glyphs)
    if not steps:
        return lines
    now = moment(run, now)
    ordered = sorted(steps, key=lambda step: (branch(step["position"]), step.get("started_at") or ""))
    span = _span(run, ordered, now)
    stems = _stems([_path(step["position"]) for step in ordered], glyphs)
    labels = [stem + printable(step["label"]) for stem, step in zip(stems, ordered, strict=True)]
    notes = [_note(step, now, span, glyphs) for step in ordered]
    durations = [_duration_of(step, now) for step in ordered]
    columns = _columns(labels, [step["kind"] for step in ordered], durations, notes, width)
    lines.append(Text(""))
    if columns.bar:
        lines.append(_axis(span, columns, glyphs))
    for step, label, duration, note in zip(ordered, labels, durations, notes, strict=True):
        lines.append(_line(step, label, duration, note, columns, span, now, glyphs))
    return lines


def header(run: Mapping[str, Any], *, now: Instant, width: int, glyphs: Glyphs = DRAWN) -> list[Text]:
    """What the run is, how it stands, what it waits for, and why it failed."""
    status = run["status"]
    style = STYLES.get(status, "")
    lines = [
        Text.assemble((f"{glyphs.marks.get(status, '?')} {status}", style), "  ", (printable(run["body"]), "bold")),
    ]
    # What a rewind takes, where there may be one.
    names = [run[name] for name in ("run_id", "execution_id") if run.get(name) and (name == "run_id" or status != "success")]
    lines += [Text(line, style="dim") for line in _packed(names, glyphs.dot, width)]
    facts = [f"attempt {run['attempt']}", _elapsed(run, now), f"started {short(instants.parse(run['started_at']))}"]
    if run.get("scope") not in (None, run["run_id"]):
        facts.insert(0, f"scope {printable(run['scope'])}")
    lines += [Text(line, style="dim") for line in _packed(facts, glyphs.dot, width)]
    for line in _waiting(run, now):
        lines.append(Text(f"  {line}", style=STYLES["waiting"]))
    if run.get("stop"):
        reason = run["stop"].get("reason")
        what = "the record of a rewind" if run.get("rewound_execution") else "a stop was asked for"
        asked = what + (f": {printable(reason)}" if reason else "")
        lines += [Text(line, style=STYLES["canceled"]) for line in _packed(asked.split(), " ", width)]
    if run.get("error"):
        lines += [Text(line, style=STYLES["failed"]) for line in _packed(told(run["error"]).split(), " ", width)]
    return [_cut(line, width, glyphs) for line in lines]


def line(step: Mapping[str, Any], *, now: Instant, glyphs: Glyphs = DRAWN) -> str:
    """One step's state in one line without a picture, as a log of what happens shows it."""
    status = standing(step)
    span = Span(instants.EARLIEST, now)
    parts = [glyphs.marks.get(status, "?"), f"{status:<8}", f"{step['kind']:<9}", printable(step["label"])]
    note = "" if status == MINTED else _note(step, now, span, glyphs)
    parts += [part for part in (_duration_of(step, now), note) if part]
    return "  ".join(parts)


def standing(step: Mapping[str, Any]) -> str:
    """How a step stands, for people: an awakeable that was made has not been answered by that."""
    minted = step["kind"] == "awakeable" and step["status"] == "success"
    return MINTED if minted else str(step["status"])


def moment(run: Mapping[str, Any], now: Instant) -> Instant:
    """Up to when a run's steps are told: nothing of a run goes on past its end."""
    return min(now, _instant(run.get("ended_at")) or now)


def duration(milliseconds: int) -> str:
    """A duration in the two units that matter: `12 ms`, `3.4 s`, `2 m 5 s`, `3 h 20 m`, `4 d 1 h`."""
    if milliseconds < 1000:
        return f"{max(milliseconds, 0)} ms"
    if milliseconds < 60_000:
        return f"{milliseconds // 100 / 10:.1f} s"
    seconds = milliseconds // 1000
    for size, name, below, lesser in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            rest = seconds % size // below
            return f"{seconds // size} {name} {rest} {lesser}" if rest else f"{seconds // size} {name}"
    raise AssertionError(milliseconds)


def short(instant: Instant) -> str:
    """An instant for people, to the second."""
    return instants.render(instant)[:19].replace("T", " ") + " UTC"


def told(error: Mapping[str, Any]) -> str:
    """An error in one line: its class, where, and what it says."""
    where = f" at {printable(error['step'])}" if error.get("step") else ""
    code = f" {printable(error['code'])}" if error.get("code") else ""
    return f"{printable(error.get('tag', 'error'))}{code}{where}: {printable(error.get('message', ''))}"


def printable(text: str) -> str:
    """Text that does nothing to a terminal and stays in its line: what controls one becomes a space."""
    return "".join(" " if unicodedata.category(letter) in {"Cc", "Cf", "Zl", "Zp", "Cs"} else letter for letter in text)


def branch(position: str) -> tuple[int, ...]:
    """What steps are ordered by: the place, then the branch, then the place in it."""
    found: list[int] = []
    for segment in position.split("/"):
        match = _SEGMENT.fullmatch(segment)
        found += (0, 0) if match is None else (int(match[1]), int(match[2] or 0))
    return tuple(found)


def _path(position: str) -> tuple[str, ...]:
    """The branches that a position lies in, the outermost first."""
    return tuple(position.split("/")[:-1])


def _stems(paths: Sequence[tuple[str, ...]], glyphs: Glyphs) -> list[str]:
    """What stands before each label: for each branch that it lies in, whether it is its first, its last or between."""
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, path in enumerate(paths):
        for depth in range(1, len(path) + 1):
            rows.setdefault(path[:depth], []).append(row)
    stems = []
    for row, path in enumerate(paths):
        stem = ""
        for depth in range(1, len(path) + 1):
            first, last = rows[path[:depth]][0], rows[path[:depth]][-1]
            if first == last:
                stem += glyphs.only
            else:
                stem += glyphs.first if row == first else glyphs.last if row == last else glyphs.middle
            stem += " "
        stems.append(stem)
    return stems


def _span(run: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], now: Instant) -> Span:
    start = instants.parse(run["started_at"])
    ends = [_instant(step.get("ended_at")) or start for step in steps]
    return Span(start, Instant(max([_instant(run.get("ended_at")) or now, *ends, Instant(start + 1)])))


def _instant(text: str | None) -> Instant | None:
    return None if text is None else instants.parse(text)


def _elapsed(run: Mapping[str, Any], now: Instant) -> str:
    return duration((_instant(run.get("ended_at")) or now) - instants.parse(run["started_at"]))


def _duration_of(step: Mapping[str, Any], now: Instant) -> str:
    """How long a step took, or has taken; nothing for what takes no time of its own."""
    start = _instant(step.get("started_at"))
    if start is None or (step["kind"] in _INSTANTLY and step["status"] == "success"):
        return ""
    return duration((_instant(step.get("ended_at")) or now) - start)


def _waiting(run: Mapping[str, Any], now: Instant) -> list[str]:
    """What a run waits for and until when, a line each."""
    if run["status"] not in {"waiting", "suspended"}:
        return []
    until = _instant(run.get("next_attempt_at"))
    lines = [line for one in run.get("awaiting") or () for line in _awaited(one, now)]
    if until is not None and not any(" until " in line for line in lines):
        lines = lines or ["waiting"]
        lines[0] += _until(until, now)
    return lines or ["waiting until something ends"]


def _awaited(one: Mapping[str, Any], now: Instant) -> list[str]:
    awaited = "waiting for " + printable(str(one.get("label", "something")))
    until = next((one[name] for name in ("deadline", "until", "next_attempt_at") if one.get(name)), None)
    if until is not None:
        awaited += _until(instants.parse(until), now)
    return [awaited, f"  {_events(one)}"] if one.get("kind") == "event" else [awaited]


def _events(one: Mapping[str, Any]) -> str:
    """Which events a wait takes, so that a reader sees why none has come: its types, and its keys."""
    types = " or ".join(map(str, one.get("types") or ["an event"]))
    keys = " or ".join(map(str, one.get("keys") or []))
    return printable(f"{types} with the key {keys}" if keys else types)


def _until(until: Instant, now: Instant) -> str:
    left = f"in {duration(until - now)}" if until > now else "due"
    return f" until {short(until)} ({left})"


def _note(step: Mapping[str, Any], now: Instant, span: Span, glyphs: Glyphs) -> str:
    """What is worth telling of a step besides its bar."""
    parts = [MINTED] if standing(step) == MINTED else []
    start = _instant(step.get("started_at"))
    if start is not None and start < span.start and step["status"] == "success":
        parts.append("recorded earlier")
    if step["attempt"] > 1:
        parts.append(f"{step['attempt']} tries")
    until = _instant(step.get("next_attempt_at"))
    if step["status"] == "waiting" and until is not None:
        what = "ends" if step["kind"] in {"sleep", "wait", "event", "child"} else "again"
        parts.append(f"{what} in {duration(until - now)}" if until > now else "due")
    if step.get("error"):
        parts.append(told({**step["error"], "step": None}))
    return glyphs.dot.join(parts)


def _columns(
    labels: Sequence[str], kinds: Sequence[str], durations: Sequence[str], notes: Sequence[str], width: int
) -> Columns:
    """The widths that fit; the bar takes what is left, and gives way first."""
    note = min(max(map(cell_len, notes)), _LONGEST_NOTE, width // 3)
    kind = max(map(len, kinds)) if width >= WITHOUT_KINDS else 0
    time = max(map(len, durations))
    label = min(max(map(cell_len, labels)), _LONGEST_LABEL, max(width // 3, 8))
    taken = 2 + label + sum(1 + one for one in (kind, time, note) if one)
    bar = width - taken - 1
    if width < WITHOUT_BARS or bar < _LEAST_BAR:
        left = width - (2 + label + sum(1 + one for one in (kind, time) if one)) - 1
        return Columns(label, kind, 0, time, max(left, 0) if note else 0)
    return Columns(label, kind, bar, time, note)


def _axis(span: Span, columns: Columns, glyphs: Glyphs) -> Text:
    """The axis: nothing at its left, the whole time at its right, the half of it between where there is room."""
    indent = 2 + columns.label + (columns.kind + 1 if columns.kind else 0) + 1
    whole = span.end - span.start
    cells = list(glyphs.rule * columns.bar)
    places = [(0, "0 "), (columns.bar - len(duration(whole)) - 1, f" {duration(whole)}")]
    if columns.bar >= 48:
        half = f" {duration(whole // 2)} "
        places.append((columns.bar // 2 - len(half) // 2, half))
    for place, text in places:
        if place >= 0:
            cells[place : place + len(text)] = text
    return Text(" " * indent + "".join(cells)[: columns.bar], style="dim")


def _line(
    step: Mapping[str, Any],
    label: str,
    took: str,
    note: str,
    columns: Columns,
    span: Span,
    now: Instant,
    glyphs: Glyphs,
) -> Text:
    status = standing(step)
    style = STYLES.get(status, "")
    found = Text.assemble((glyphs.marks.get(status, "?"), style), " ", _fit(label, columns.label, glyphs))
    if columns.kind:
        found.append(" ").append(step["kind"].ljust(columns.kind), style="dim")
    if columns.bar:
        found.append(" ").append(_bar(step, columns.bar, span, now, glyphs), style=style)
    if columns.duration:
        found.append(" ").append(took.rjust(columns.duration))
    if columns.note and note:
        found.append(" ").append(_fit(note, columns.note, glyphs), style=style if step.get("error") else "dim")
    found.rstrip()
    return found


def _bar(step: Mapping[str, Any], width: int, span: Span, now: Instant, glyphs: Glyphs) -> str:
    """A step's time: work is solid, a wait is not, and the pause before another try is a line behind the work."""
    start = _instant(step.get("started_at"))
    if start is None:
        return " " * width
    end = _instant(step.get("ended_at")) or now
    first, last = span.cells(start, end, width)
    cell = glyphs.bar(step["kind"])
    if step["kind"] in _INSTANTLY:
        last = first + 1
    drawn = cell * (last - first)
    if step["status"] == "waiting" and cell == glyphs.work:
        drawn = cell + glyphs.between * (last - first - 1)
    if start < span.start:
        drawn = glyphs.earlier + drawn[1:]
    return (" " * first + drawn).ljust(width)


def _fit(text: str, width: int, glyphs: Glyphs) -> str:
    """Text in exactly so many cells; what does not fit is cut, and shows so."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, max(width - len(glyphs.more), 0)) + glyphs.more[:width]


def _cut(line: Text, width: int, glyphs: Glyphs) -> Text:
    if line.cell_len > width:
        line.truncate(width - len(glyphs.more))
        line.append(glyphs.more)
    return line


def _packed(facts: Sequence[str], between: str, width: int) -> list[str]:
    """Facts side by side, on as many lines as it takes, each two columns in."""
    lines = [""]
    for fact in facts:
        longer = f"{lines[-1]}{between}{fact}" if lines[-1] else fact
        if lines[-1] and cell_len(longer) + 2 > width:
            lines.append(fact)
        else:
            lines[-1] = longer
    return [f"  {line}" for line in lines]
