"""`moorage up` as a person or a program runs it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.failure import CommandFailed
from ops.local.entrypoints import EntryInvalid, entry_classes
from ops.setup import paths
from ops.up import secrets_of
from tests.edge.http import ask_url

pytestmark = [pytest.mark.edge, pytest.mark.clause("edge.local")]

UP = [sys.executable, "-m", "ops.cli", "up"]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = ["--port", "0", "--json", "--test-clock", "--root-token", "given", "--state", str(tmp_path / "state")]
    process = subprocess.Popen([*UP, *arguments], cwd=paths.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*UP, *arguments], cwd=paths.ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_answers_until_a_signal_and_exits_zero(running: subprocess.Popen[str], number: int) -> None:
    assert running.stdout is not None
    facts = json.loads(running.stdout.readline())
    assert facts["pid"] == running.pid
    assert facts["root_token"] == "given"
    assert ask_url(f"{facts['url']}/health")[0] == 200
    assert ask_url(facts["docs"])[0] == 200
    status, clock = ask_url(f"{facts['url']}/testing/clock", token="given")
    assert (status, "offset_seconds" in json.loads(clock)) == (200, True)
    os.kill(running.pid, number)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (0, "", "")


def test_secrets_come_from_the_environment_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_SECRET", "whsec_c2VjcmV0")
    monkeypatch.delenv("OTHER", raising=False)
    assert secrets_of(["CRM_SECRET"]) == {"CRM_SECRET": "whsec_c2VjcmV0"}
    for name in ("OTHER", "crm", "MOORAGE_ROOT_TOKEN", ""):
        with pytest.raises(CommandFailed) as refused:
            secrets_of(["CRM_SECRET", name])
        assert "c2VjcmV0" not in str(refused.value)


def test_a_taken_port_is_one_line_and_a_nonzero_exit(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--port", str(port), "--state", str(tmp_path / "state"))
    assert done.returncode == 1
    assert done.stderr == f"moorage: port {port} cannot be used: Address already in use\n"
    assert done.stdout == ""


def test_a_newer_state_folder_is_one_line_and_a_nonzero_exit(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"format": 2}')
    done = run("--port", "0", "--state", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("moorage: the state folder ")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of its own to break things in, with this one's installed programs."""
    root = tmp_path / "checkout"
    for name in ("ops", "worker", "d1_schema", "r2_layout"):
        if (paths.ROOT / name).is_dir():
            shutil.copytree(paths.ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("wrangler.toml", "package.json", "package-lock.json"):
        shutil.copy(paths.ROOT / name, root / name)
    for name in (".venv", "node_modules", "python_modules"):
        (root / name).symlink_to(paths.ROOT / name)
    return root


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("wrangler.toml", "name = ", "wrangler.toml is not valid TOML"),
        ("wrangler.toml", 'name = "m"\n', "wrangler.toml is incomplete: KeyError('main')"),
        ("worker/entry.py", "class Default(:\n", "entry.py:1: SyntaxError: "),
        ("worker/entry.py", "x = 1\n", "entry.py has no class Default(WorkerEntrypoint)"),
    ],
    ids=["toml", "incomplete", "syntax", "no-entrypoint"],
)
def test_a_broken_checkout_is_one_line_and_a_nonzero_exit(checkout: Path, file: str, text: str, said: str) -> None:
    (checkout / file).write_text(text)
    script = f"import sys; sys.path.insert(0, {str(checkout)!r}); from ops.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, "up", "--port", "0", "--state", str(checkout / "state")],
        cwd=checkout, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(f"moorage: {said}")
    assert done.stderr.count("\n") == 1


def test_entry_classes_are_found_through_imports_and_base_classes(tmp_path: Path) -> None:
    room = tmp_path / "rooms"
    room.mkdir()
    (tmp_path / "entry.py").write_text(
        "import workers\nfrom rooms.clock import Clock as Ticker\nfrom rooms import Base\nfrom missing import Nothing\n"
        "class Bell(Base):\n    async def webSocketMessage(self, ws, text): ...\n"
        "class Default(workers.WorkerEntrypoint):\n    async def fetch(self, request): ...\n"
        "class Helper:\n    def fetch(self): ...\n"
    )
    (room / "__init__.py").write_text("from .base import Base\n")
    (room / "base.py").write_text(
        "from workers import DurableObject\nclass Base(DurableObject):\n    async def alarm(self): ...\n"
    )
    (room / "clock.py").write_text("from .base import Base\nclass Clock(Base):\n    async def fetch(self, r): ...\n")
    found = {one.name: (one.kind, one.handlers) for one in entry_classes(tmp_path, "entry")}
    assert found == {
        "Ticker": ("durable-object", ("fetch", "alarm")),
        "Base": ("durable-object", ("alarm",)),
        "Bell": ("durable-object", ("alarm", "webSocketMessage")),
        "Default": ("worker", ("fetch",)),
    }


def test_a_syntax_error_anywhere_on_the_way_is_placed(tmp_path: Path) -> None:
    (tmp_path / "entry.py").write_text("from room import Room\n")
    (tmp_path / "room.py").write_text("\nclass Room(\n")
    with pytest.raises(EntryInvalid, match=r"^room\.py:2: SyntaxError: "):
        entry_classes(tmp_path, "entry")
