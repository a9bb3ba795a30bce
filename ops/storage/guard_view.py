"""How guards are shown to an operator: what may be in flight, what to look for where it was sent, and the command to run."""

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.console import Console
from rich.text import Text

from moorage.client.guards import Guard, Summary
from moorage.client.models import rfc3339
from ops.remote import DEFAULT_URL
from ops.timeline import duration, printable

RECEIPT_ID = "<id>"
OPERATOR = "<your name>"
"""What an operator puts something in the place of. The command refuses both as they are."""

STYLES = {"unknown": "bold red", "receipt-required": "yellow", "replay-safe": "green"}
CLASSES = tuple(STYLES)

_LABEL = 11
_WIDEST = 100


@dataclass(frozen=True)
class View:
    """How to show: what the commands name the deployment by, and the deployment's own clock."""

    flags: str
    now: datetime

    @classmethod
    def of(cls, project: str | None, url: str, summary: Summary) -> "View":
        """The deployment's clock is read off the oldest guard's age, so that this machine's may be wrong."""
        now = datetime.now().astimezone()
        if summary.oldest_admitted_at is not None and summary.oldest_seconds is not None:
            now = summary.oldest_admitted_at + timedelta(seconds=summary.oldest_seconds)
        return cls(flags_of(project, url), now)

    def in_flight(self, guard: Guard) -> bool:
        """Whether its owner may be at work on it now; a release by hand is refused meanwhile."""
        return guard.holder_exited_at is None and guard.lease_expires_at is not None and guard.lease_expires_at > self.now

    def commands(self, guard: Guard) -> list[str]:
        """What releases it, ready to be run but for what only an operator knows; the likelier first."""
        key = guard.idempotency_key
        evidence = [f"receipt:{key}:{RECEIPT_ID}"]
        if guard.evidence_class == "replay-safe":
            evidence.insert(0, f"idempotency:{key}")
        command = f"moorage storage reconcile-guard {self.flags}{shlex.quote(guard.token)}"
        return [f"{command} --evidence {_quoted(one)} --operator {_quoted(OPERATOR)}" for one in evidence]

    def advice(self, guard: Guard) -> str:
        """What to look at, and what each finding means."""
        there = "where the step sends" if guard.destination is None else printable(guard.destination)
        said = []
        if self.in_flight(guard) and guard.lease_expires_at is not None:
            said.append(f"wait: its owner may be at work on it until {_told(guard.lease_expires_at)}, if it does not renew.")
        if guard.evidence_class == "replay-safe" and guard.window_ends_at is not None:
            until = f"{_told(guard.window_ends_at)} ({self.until(guard.window_ends_at)})"
            said.append(f"{there} drops a second request with this key until {until}.")
            if guard.holder_exited_at is not None:
                return " ".join([*said, "Nothing to do: the holder has exited, and the run goes on by itself."])
            said.append("Let it be sent again meanwhile; or, where its receipt is found there, give that.")
            return " ".join(said)
        what = "what was published" if guard.publication else "what was done"
        said.append(f"look {_at(guard)} for {what} under Idempotency-Key {guard.idempotency_key}.")
        said.append("Found: its id there is the receipt; the step is recorded with it and not sent again.")
        said.append("Not there: see it done by hand, and give the receipt of that. The key alone releases nothing.")
        return " ".join(said)

    def until(self, instant: datetime) -> str:
        """How long from now, or ago."""
        left = round((instant - self.now).total_seconds() * 1000)
        return f"in {duration(left)}" if left >= 0 else f"{duration(-left)} ago"

    def facts(self, guard: Guard) -> Iterator[tuple[str, str]]:
        """Everything that is known of it, but for what its row shows."""
        yield "execution", f"{guard.execution_id}, epoch {guard.epoch}, attempt {guard.attempt} of {guard.run_id}"
        yield "scopes", ", ".join(printable(one) for one in guard.scopes)
        yield "leases", ", ".join(printable(one) for one in guard.lease_keys) or "none"
        yield "holder", f"{guard.holder} ({printable(guard.holder_name or '-')}), {self._standing(guard)}"
        yield "entry", f"{printable(guard.entry_key.label)} {guard.entry_key.input_sha256}"
        yield "key", guard.idempotency_key
        yield "admitted", f"{_told(guard.admitted_at)} ({self.until(guard.admitted_at)})"
        yield "window", self._window(guard)

    def _standing(self, guard: Guard) -> str:
        exited = "has not exited" if guard.holder_exited_at is None else f"exited at {_told(guard.holder_exited_at)}"
        expires = guard.lease_expires_at
        if expires is None:
            return f"{exited}; nobody holds the execution"
        return f"{exited}; the owner's lease {'lasts until' if expires > self.now else 'ended at'} {_told(expires)}"

    def _window(self, guard: Guard) -> str:
        ends = guard.window_ends_at
        if ends is None or guard.window_seconds is None:
            return "none"
        earlier = "" if guard.since == guard.admitted_at else f", counted from an earlier request at {_told(guard.since)}"
        return f"{duration(guard.window_seconds * 1000)}, until {_told(ends)} ({self.until(ends)}){earlier}"


def show(guards: Sequence[Guard], view: View) -> None:
    """The guards, the oldest first: a row each, and beneath it what is known, what to check, and what to run."""
    console = Console(highlight=False)
    columns = ("age", "class", "step", "destination", "attempt", "token")
    rows = [_row(one, view) for one in guards]
    widths = [max(len(row[place]) for row in (columns, *rows)) for place in range(len(columns))]
    width = min(console.width, _WIDEST) if console.is_terminal else 0
    _print(console, Text(_line(columns, widths), style="bold"))
    for guard, row in zip(guards, rows, strict=True):
        line = Text(_line(row, widths))
        began = widths[0] + 2
        line.stylize(STYLES.get(guard.evidence_class, ""), began, began + len(row[1]))
        _print(console, line)
        for name, told in view.facts(guard):
            _print(console, Text.assemble((f"  {name:<{_LABEL}}", "dim"), told))
        for number, part in enumerate(_wrapped(view.advice(guard), width)):
            _print(console, Text.assemble((f"  {'' if number else 'check':<{_LABEL}}", "dim"), part))
        for number, command in enumerate(view.commands(guard)):
            _print(console, Text.assemble((f"  {'or' if number else 'run':<{_LABEL}}", "dim"), (command, "bold")))
        _print(console, Text(""))


def counted(summary: Summary) -> str:
    """How many are open, of which class, and how old the oldest is, in one line."""
    if summary.open == 0:
        return "no guard is open: nothing that was sent is in doubt"
    classes = ", ".join(f"{summary.by_class[name]} {name}" for name in CLASSES if summary.by_class.get(name))
    oldest = duration((summary.oldest_seconds or 0) * 1000)
    return f"{summary.open} open: {classes}; the oldest for {oldest}"


def flags_of(project: str | None, url: str) -> str:
    """The options by which a command finds this deployment again, with a blank behind them."""
    if project is not None:
        return f"--project {shlex.quote(project)} "
    return "" if url == DEFAULT_URL else f"--url {shlex.quote(url)} "


def instant(moment: datetime) -> str:
    """An instant for people, to the second."""
    return _told(moment)


def _row(guard: Guard, view: View) -> tuple[str, ...]:
    age = duration(max(0, round((view.now - guard.admitted_at).total_seconds() * 1000)))
    label, destination = printable(guard.entry_key.label), printable(guard.destination or "-")
    return age, guard.evidence_class, label, destination, str(guard.attempt), guard.token


def _at(guard: Guard) -> str:
    return "where the step sends" if guard.destination is None else f"at {printable(guard.destination)}"


def _told(moment: datetime) -> str:
    return rfc3339(moment)[:19].replace("T", " ") + " UTC"


def _quoted(text: str) -> str:
    """Quoted for a shell in any case, so that it is seen where the quotes belong when something is put in."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(40, width - _LABEL - 2), break_on_hyphens=False) if width else [text]


def _print(console: Console, line: Text) -> None:
    # Nothing is cut or broken: a command has to survive being copied.
    console.print(line, soft_wrap=True)
