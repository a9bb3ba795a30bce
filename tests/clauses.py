"""Clauses and tests, held together: a pytest plugin.

CONTRACT.md states every clause on one line. A test that proves one carries `@pytest.mark.clause("room.clause")`.
- A mark that names no clause of CONTRACT.md stops the run.
- `--clauses` lists the clauses with their tests, and runs nothing.
- When the whole suite was run, a built clause without a passed test fails it. One marked [E] needs a passed test on the
  real edge: one that carries the `edge` mark or lies under tests/edge.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

CONTRACT: Final = Path(__file__).resolve().parents[1] / "CONTRACT.md"
EDGE_TESTS: Final = Path(__file__).resolve().parent / "edge"
_LINE = re.compile(r"- (?P<id>[a-z]+(?:\.[a-z0-9-]+)+) \((?P<stage>built|planned)\)(?P<edge> \[E\])?: (?P<text>\S.*)")


@dataclass(frozen=True, slots=True)
class Clause:
    """One line of CONTRACT.md; `edge` means that it must be proved on the real edge."""

    id: str
    built: bool
    edge: bool
    text: str


@dataclass(slots=True)
class Proof:
    """The tests that carry a clause, and those of them that passed; on the edge and elsewhere."""

    carried: list[str] = field(default_factory=list)
    carried_on_edge: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    passed_on_edge: list[str] = field(default_factory=list)


def read_contract(text: str) -> dict[str, Clause]:
    """The clauses by id. Raises ValueError for a line that starts a clause and is not one, or for an id used twice."""
    clauses: dict[str, Clause] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("- "):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"CONTRACT.md:{number}: not `- id (built|planned) [E]: text`: {line[:60]!r}")
        if match["id"] in clauses:
            raise ValueError(f"CONTRACT.md:{number}: {match['id']} is stated twice")
        clauses[match["id"]] = Clause(match["id"], match["stage"] == "built", bool(match["edge"]), match["text"])
    return clauses


def unproved(clauses: Iterable[Clause], proofs: dict[str, Proof]) -> list[str]:
    """A line for each built clause that no passed test proves where it must hold."""
    said = []
    for clause in clauses:
        proof = proofs.get(clause.id, Proof())
        if not clause.built:
            continue
        if not proof.passed:
            said.append(f"{clause.id}: no passed test carries it")
        elif clause.edge and not proof.passed_on_edge:
            said.append(f"{clause.id}: must be proved on the edge, and no passed test there carries it")
    return said


PROVES = "clause"
PROVES_ON_EDGE = "clause on the edge"
"""Properties of a test's report, each with a clause's id."""


class Clauses:
    """The plugin of one run: of each process of it, where there are several."""

    def __init__(self, clauses: dict[str, Clause]) -> None:
        self.clauses = clauses
        self.proofs: dict[str, Proof] = {}
        self.missing: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        unknown = []
        for item in items:
            ids = [name for mark in item.iter_markers("clause") for name in mark.args]
            unknown += [f"{item.nodeid}: no clause {name!r} in CONTRACT.md" for name in ids if name not in self.clauses]
            on_edge = item.get_closest_marker("edge") is not None or item.path.is_relative_to(EDGE_TESTS)
            # With several processes only this reaches the one that judges.
            item.user_properties += [(PROVES_ON_EDGE if on_edge else PROVES, name) for name in ids]
            for proof in [self.proofs.setdefault(name, Proof()) for name in ids]:
                proof.carried.append(item.nodeid)
                proof.carried_on_edge += [item.nodeid] if on_edge else []
        if unknown:
            raise pytest.UsageError("\n".join(unknown))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" or not report.passed:
            return
        for property_, name in report.user_properties:
            if property_ in (PROVES, PROVES_ON_EDGE):
                proof = self.proofs.setdefault(str(name), Proof())
                proof.passed.append(report.nodeid)
                proof.passed_on_edge += [report.nodeid] if property_ == PROVES_ON_EDGE else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not ran_everything(session.config) or hasattr(session.config, "workerinput"):
            return
        self.missing = unproved(self.clauses.values(), self.proofs)
        if self.missing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """With `--clauses` there is nothing to run: the listing is the summary."""
        return True if session.config.getoption("--clauses") else None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if config.getoption("--clauses"):
            for line in self.listing():
                terminalreporter.write_line(line)
        elif self.missing:
            terminalreporter.section("clauses without proof", red=True)
            for line in self.missing:
                terminalreporter.write_line(line)

    def listing(self) -> list[str]:
        """The clauses in the order of CONTRACT.md, each with its tests; parametrized ones are counted."""
        lines = []
        for clause in self.clauses.values():
            proof = self.proofs.get(clause.id, Proof())
            counts: dict[str, int] = {}
            for nodeid in proof.carried:
                name = nodeid.partition("[")[0]
                counts[name] = counts.get(name, 0) + 1
            state = "" if clause.built else " (planned)"
            lines.append(f"{clause.id}{' [E]' if clause.edge else ''}{state}")
            lines += [f"    {name}{f' x{count}' if count > 1 else ''}" for name, count in counts.items()]
            if clause.built and not counts:
                lines.append("    no test")
            elif clause.built and clause.edge and not proof.carried_on_edge:
                lines.append("    no test on the edge")
        return lines


def ran_everything(config: pytest.Config) -> bool:
    """Whether this run was the whole suite: no path, expression or listing narrowed it."""
    narrowed = ("keyword", "markexpr", "deselect", "lf", "failedfirst", "collectonly", "clauses", "maxfail")
    if any(config.getoption(option, None) for option in narrowed):
        return False
    return config.args_source == pytest.Config.ArgsSource.TESTPATHS


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--clauses`, and `--contract` for the plugin's own tests."""
    parser.addoption("--clauses", action="store_true", help="list the clauses and their tests, and run nothing")
    parser.addoption("--contract", type=Path, default=CONTRACT, help="another CONTRACT.md")


def pytest_configure(config: pytest.Config) -> None:
    """Reads CONTRACT.md once a run."""
    try:
        clauses = read_contract(config.getoption("--contract").read_text())
    except (OSError, ValueError) as error:
        raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(Clauses(clauses), "moorage-clauses")
