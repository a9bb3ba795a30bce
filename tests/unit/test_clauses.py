"""The clause plugin: it reads CONTRACT.md strictly, and it fails a suite that proves too little."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clauses import CONTRACT, Clause, Proof, read_contract, unproved
from tests.contract.adapters import ROOT

BUILT = Clause("a.built", built=True, edge=False, text="It holds.")
ON_EDGE = Clause("a.on-edge", built=True, edge=True, text="It holds there.")
PLANNED = Clause("a.planned", built=False, edge=True, text="It will hold.")


def test_the_contract_reads() -> None:
    clauses = read_contract(CONTRACT.read_text())
    assert clauses["store.atomic"].built
    assert clauses["store.atomic"].edge
    assert clauses["runs.substrate"].built
    assert not clauses["tasks.submit"].built
    assert len(clauses) > 200


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("- a.b: no stage", "not `- id"),
        ("- a.b (done): no such stage", "not `- id"),
        ("- a.b (built) [E] no colon", "not `- id"),
        ("- a.b (built): ", "not `- id"),
        ("- A.b (built): upper case", "not `- id"),
        ("- a.b (built): once\n- a.b (planned): twice", "stated twice"),
    ],
)
def test_a_line_that_is_no_clause_is_refused_with_its_number(line: str, fault: str) -> None:
    with pytest.raises(ValueError, match=rf"CONTRACT.md:\d+: .*{fault}"):
        read_contract(f"# Title\n\nProse.\n{line}\n")


def test_a_built_clause_wants_a_passed_test() -> None:
    carried = Proof(carried=["test"])
    passed = Proof(carried=["test"], passed=["test"])
    assert unproved([BUILT], {}) == ["a.built: no passed test carries it"]
    assert unproved([BUILT], {"a.built": carried}) == ["a.built: no passed test carries it"]
    assert unproved([BUILT], {"a.built": passed}) == []


def test_a_clause_of_the_edge_wants_a_passed_test_there() -> None:
    on_host = Proof(carried=["test"], passed=["test"])
    there = Proof(carried=["test"], passed=["test"], passed_on_edge=["test"])
    assert unproved([ON_EDGE], {"a.on-edge": on_host}) == [
        "a.on-edge: must be proved on the edge, and no passed test there carries it"
    ]
    assert unproved([ON_EDGE], {"a.on-edge": there}) == []


def test_a_planned_clause_wants_nothing() -> None:
    assert unproved([PLANNED], {}) == []


SUITE = """
import pytest

@pytest.mark.clause("a.built")
def test_one(): pass

@pytest.mark.edge
@pytest.mark.clause("a.on-edge")
@pytest.mark.parametrize("number", [1, 2])
def test_two(number): pass

@pytest.mark.clause("a.later")
def test_three(): pass
"""


def run(folder: Path, contract: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The suite above under the plugin, in a process of its own, against another contract."""
    folder.joinpath("CONTRACT.md").write_text(contract)
    folder.joinpath("pytest.ini").write_text("[pytest]\ntestpaths = .\nmarkers =\n    clause(*ids): x\n    edge: x\n")
    folder.joinpath("test_it.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "tests.clauses", "--contract", "CONTRACT.md", "-q", *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


HOLDS = "- a.built (built): It holds.\n- a.on-edge (built) [E]: It holds there.\n- a.later (planned): Later.\n"


def test_a_suite_that_proves_every_clause_passes(tmp_path: Path) -> None:
    done = run(tmp_path, HOLDS)
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr


def test_a_whole_run_fails_for_a_clause_without_proof_and_a_part_of_it_does_not(tmp_path: Path) -> None:
    contract = HOLDS + "- a.missing (built): Nobody proves it.\n"
    whole = run(tmp_path, contract)
    assert whole.returncode == pytest.ExitCode.TESTS_FAILED
    assert "a.missing: no passed test carries it" in whole.stdout
    assert run(tmp_path, contract, "test_it.py").returncode == pytest.ExitCode.OK
    assert run(tmp_path, contract, "-k", "one").returncode == pytest.ExitCode.OK


def test_a_mark_that_names_no_clause_stops_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, HOLDS.replace("a.built", "a.renamed"))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_it.py::test_one: no clause 'a.built' in CONTRACT.md" in done.stderr


def test_the_listing_names_the_tests_and_runs_none(tmp_path: Path) -> None:
    contract = HOLDS.replace("a.later (planned)", "a.later (built) [E]") + "- a.missing (built): Nobody proves it.\n"
    done = run(tmp_path, contract, "--clauses")
    assert done.returncode == pytest.ExitCode.OK
    listing = done.stdout[done.stdout.index("a.built") :].splitlines()[:-1]
    assert listing == [
        "a.built",
        "    test_it.py::test_one",
        "a.on-edge [E]",
        "    test_it.py::test_two x2",
        "a.later [E]",
        "    test_it.py::test_three",
        "    no test on the edge",
        "a.missing",
        "    no test",
    ]
