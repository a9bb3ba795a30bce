"""The launcher: what it needs, what it says, and that neither an interruption nor a second run spoils set-up."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ops.setup import paths, run
from ops.setup.run import SetupFailed, Step, bring_up_to_date

LAUNCHED = ("moorage", "pyproject.toml", "package.json", "package-lock.json", "LICENSE", "README.md")
NOWHERE = "http://127.0.0.1:9/"
"""A registry that cannot be reached: whatever still works with it needs no network."""


def copy_checkout(folder: Path) -> Path:
    """A checkout that has never been set up, with all that set-up reads."""
    folder.mkdir(parents=True)
    for name in LAUNCHED:
        if (paths.ROOT / name).is_file():
            shutil.copy2(paths.ROOT / name, folder / name)
    unwanted = shutil.ignore_patterns("__pycache__", ".wrangler")
    for name in ("requirements", "ops", "worker"):
        shutil.copytree(paths.ROOT / name, folder / name, ignore=unwanted)
    return folder / "moorage"


def offline() -> dict[str, str]:
    return os.environ | {"PIP_INDEX_URL": NOWHERE, "UV_DEFAULT_INDEX": NOWHERE, "npm_config_registry": NOWHERE}


def launch(launcher: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    settings: dict[str, object] = {"env": offline(), "cwd": "/", "timeout": 240} | options
    return subprocess.run([str(launcher), *arguments], capture_output=True, text=True, **settings)  # type: ignore[call-overload, no-any-return]


def start(launcher: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([str(launcher), "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/")


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    """Reads what set-up says until `word` is in it, which is while that step is at work."""
    assert process.stderr is not None
    said = ""
    while word not in said:
        letter = process.stderr.read(1)
        assert letter, f"set-up ended before {word!r}: {said}"
        said += letter


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_killed_midway_then_started_twice_at_once_it_becomes_ready_and_needs_no_network_again(tmp_path: Path) -> None:
    launcher = copy_checkout(tmp_path / "a folder with spaces")
    for step, blow in (("Python environment", signal.SIGKILL), ("Node packages", signal.SIGTERM)):
        killed = start(launcher)
        wait_for(killed, step)
        killed.send_signal(blow)
        assert killed.wait(timeout=30) != 0
        killed.communicate()

    first, second = start(launcher), start(launcher)
    outputs = [first.communicate(timeout=300), second.communicate(timeout=300)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert all("deploy" in out for out, _ in outputs)
    assert sum("waiting for it" in err for _, err in outputs) >= 1
    assert sum("Ready after" in err for _, err in outputs) == 1

    link = tmp_path / "link"
    link.symlink_to(launcher)
    again = launch(link, "--help")
    assert (again.returncode, again.stderr) == (0, "")
    assert "bench" in again.stdout
    assert not list((launcher.parent / ".moorage-setup").glob("t*-*")), "a finished run leaves nothing half-made"

    overhead = fastest(launcher, "--help") - fastest(launcher.parent / ".venv" / "bin" / "moorage", "--help")
    assert overhead < 0.5

    failed = launch(launcher, "setup", "--again")
    assert failed.returncode == 1
    assert re.search(r"^moorage: set-up failed: .*\.moorage-setup/log\)$", failed.stderr, re.MULTILINE)
    assert "Traceback" not in failed.stderr


def fastest(*command: str | Path) -> float:
    """Seconds of the fastest of five runs."""
    spent = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([str(part) for part in command], check=True, capture_output=True)
        spent.append(time.perf_counter() - began)
    return min(spent)


@pytest.fixture
def old_python(tmp_path: Path) -> Path:
    """A PATH with the tools of a plain system and a Python that is too old by every name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "dirname", "readlink", "cksum", "cat"):
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    for name in ("python3", "python3.11", "python"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    return folder


def test_without_a_new_enough_python_it_says_so_in_one_line(tmp_path: Path, old_python: Path) -> None:
    launcher = copy_checkout(tmp_path / "copy")
    done = launch(launcher, "demo", env={"PATH": str(old_python)})
    assert done.returncode == 1
    assert done.stderr == "moorage: needs Python 3.11 or newer on the PATH, or its path in MOORAGE_PYTHON\n"


def test_a_python_that_was_asked_for_and_is_too_old_is_not_replaced_by_another(tmp_path: Path, old_python: Path) -> None:
    launcher = copy_checkout(tmp_path / "copy")
    asked = str(old_python / "python3")
    done = launch(launcher, "demo", env=os.environ | {"MOORAGE_PYTHON": asked})
    assert done.returncode == 1
    assert done.stderr == f"moorage: MOORAGE_PYTHON={asked} is not a Python 3.11 or newer\n"


@pytest.mark.parametrize("arguments", [["--unheard-of"], ["--upgrade"]])
def test_setup_refuses_options_it_does_not_know_before_doing_anything(tmp_path: Path, arguments: list[str]) -> None:
    launcher = copy_checkout(tmp_path / "copy")
    done = launch(launcher, "setup", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: moorage setup")
    assert not (launcher.parent / ".moorage-setup").exists()


@pytest.mark.parametrize("name", ["uv.txt", "worker.txt", "host.txt"])
def test_every_locked_python_package_has_a_version_and_hashes_and_no_host(name: str) -> None:
    text = (paths.ROOT / "requirements" / name).read_text()
    entries = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())
    assert len(entries) > 1
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry
    assert "://" not in text


def test_the_host_runs_the_versions_that_the_worker_runs() -> None:
    pins = [set(re.findall(r"^([a-z0-9-]+==\S+)", lock, re.MULTILINE)) for lock in _locks("worker.txt", "host.txt")]
    assert pins[0]
    assert pins[0] <= pins[1]


def _locks(*names: str) -> list[str]:
    return [(paths.ROOT / "requirements" / name).read_text() for name in names]


def test_the_node_lock_names_no_registry_and_has_an_integrity_for_each_package() -> None:
    text = (paths.ROOT / "package-lock.json").read_text()
    assert '"resolved"' not in text
    assert text.count('"integrity"') == text.count('"node_modules/')


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setattr(paths, "STATE", folder)
    monkeypatch.setattr(paths, "LOG", folder / "log")
    return folder


def counted_step(tmp_path: Path, inputs: list[Path | str], made: list[bool]) -> Step:
    output = tmp_path / "output"

    def make(in_place: bool) -> None:
        made.append(in_place)
        output.touch()

    return Step("a step", inputs, [output], make)


@pytest.mark.usefixtures("state")
def test_a_step_is_done_again_only_when_an_input_changed_or_its_output_is_gone(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("one")
    made: list[bool] = []
    for content, drop in (("one", False), ("one", False), ("two", False), ("two", False), ("two", True)):
        lock.write_text(content)
        if drop:
            (tmp_path / "output").unlink()
        bring_up_to_date(counted_step(tmp_path, [lock, "text"], made))
    assert made == [False, True, False]


@pytest.mark.usefixtures("state")
def test_a_step_that_was_cut_short_is_not_taken_for_a_finished_one(tmp_path: Path) -> None:
    made: list[bool] = []
    bring_up_to_date(counted_step(tmp_path, ["one"], made))

    def cut_short(_in_place: bool) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring_up_to_date(Step("a step", ["two"], [tmp_path / "output"], cut_short))
    assert not counted_step(tmp_path, ["one"], made).is_current()
    bring_up_to_date(counted_step(tmp_path, ["two"], made))
    assert made == [False, False], "what was cut short is made afresh, never updated in place"


def test_a_program_that_fails_is_reported_by_the_line_that_tells_why(tmp_path: Path, state: Path) -> None:
    script = "echo working; echo 'error: no such wheel' >&2; echo 'run again'; exit 3"
    with pytest.raises(SetupFailed, match=rf"^error: no such wheel \(details in {re.escape(str(state))}/log\)$"):
        run.call(["sh", "-c", script], {}, cwd=tmp_path)
    assert "working" in (state / "log").read_text()


def test_a_new_folder_takes_the_old_ones_place_whole(tmp_path: Path, state: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "old").touch()
    fresh = run.workspace("thing") / "made"
    fresh.mkdir()
    (fresh / "new").touch()
    run.swap_in(fresh, place)
    assert [file.name for file in place.iterdir()] == ["new"]
    assert list(state.iterdir()) == []
