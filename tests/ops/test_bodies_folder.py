"""A folder of bodies is checked before it is bundled, and takes the place of the Worker's own."""

from pathlib import Path

import pytest

from ops.bodies_folder import BodiesInvalid, check_bodies
from ops.bundle import _fingerprint, with_bodies
from ops.setup import paths

GOOD = '''
from moorage.bodies import Run, body


@body("{name}", effects=["look"])
async def one(run: Run) -> int:
    """Look."""
    found: int = await run.step("look", lambda: 1)
    return found
'''


def folder(root: Path, **files: str) -> Path:
    made = root / "mine"
    made.mkdir(exist_ok=True)
    for name, text in files.items():
        (made / f"{name}.py").write_text(text)
    return made


def refusal(given: Path) -> str:
    with pytest.raises(BodiesInvalid) as refused:
        check_bodies(given)
    return str(refused.value)


def test_the_bodies_of_a_folder_are_told_by_name(tmp_path: Path) -> None:
    given = folder(tmp_path, first=GOOD.format(name="b"), second=GOOD.format(name="a"))
    assert check_bodies(given) == ["a", "b"]
    assert not list(given.rglob("__pycache__"))


def test_the_workers_own_bodies_hold() -> None:
    assert "hello" in check_bodies(paths.ROOT / "worker" / "bodies")


def test_a_folder_that_is_not_there_or_has_nothing_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "absent") == f"there is no folder {tmp_path / 'absent'}"
    assert "no Python file" in refusal(folder(tmp_path))
    assert "registers no body" in refusal(folder(tmp_path, helpers="X = 1\n"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\ndef f(:\n", "broken.py:2: SyntaxError"),
        ("import os\n\nimport rich\n", "broken.py:3: the Worker has no module rich"),
        ("from .absent import f\n", "broken.py:1: ModuleNotFoundError"),
        ("x = 1\n\n\ny = x / 0\n", "broken.py:4: ZeroDivisionError"),
        ("import sys\nsys.exit(3)\n", "broken.py:2: SystemExit"),
        (GOOD.format(name="not a name"), "broken.py:5: BodyMisdeclared"),
        (GOOD.format(name="good"), "'good'"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(tmp_path: Path, text: str, told: str) -> None:
    assert told in refusal(folder(tmp_path, good=GOOD.format(name="good"), broken=text))


def test_a_folder_takes_the_place_of_the_workers_own_and_nothing_else_changes(tmp_path: Path) -> None:
    given = folder(tmp_path, mine=GOOD.format(name="mine"))
    project = with_bodies(paths.ROOT, given, tmp_path / "project")
    assert sorted(file.name for file in (project / "worker" / "bodies").iterdir()) == ["__init__.py", "mine.py"]
    own = {file.relative_to(paths.ROOT / "worker") for file in (paths.ROOT / "worker").rglob("*.py")}
    put = {file.relative_to(project / "worker") for file in (project / "worker").rglob("*.py")}
    assert {file for file in own ^ put if file.parts[0] != "bodies"} == set()
    assert (project / "wrangler.toml").read_text() == (paths.ROOT / "wrangler.toml").read_text()
    assert (project / "d1_schema").is_dir()


def test_a_change_of_a_body_makes_another_bundle(tmp_path: Path) -> None:
    given = folder(tmp_path, mine=GOOD.format(name="mine"))
    before = _fingerprint(paths.ROOT, None, given)
    assert _fingerprint(paths.ROOT, None, given) == before
    folder(tmp_path, mine=GOOD.format(name="other"))
    assert _fingerprint(paths.ROOT, None, given) != before
