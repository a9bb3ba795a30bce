"""What README.md tells of durable runs, done as it says: `moorage up --bodies`, the commands, and a kill in the middle."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.setup import paths
from tests.examples.upstream import REGIONS, Upstream

pytestmark = pytest.mark.edge

PATIENCE_SECONDS = 60.0


class Up:
    """`moorage up`, started and killed as a person would, on one port and one state folder."""

    def __init__(self, state: Path, bodies: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self._port = taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._arguments = ["up", "--port", str(self._port), "--state", str(state), "--bodies", str(bodies)]
        self._arguments += ["--allow-local", "--json"]
        self._process: subprocess.Popen[str] | None = None
        self.token = ""

    def start(self) -> None:
        command = [sys.executable, "-m", "ops.cli", *self._arguments]
        process = subprocess.Popen(command, cwd=paths.ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._process = process
        assert process.stdout is not None
        self.token = json.loads(process.stdout.readline())["root_token"]

    def kill(self) -> None:
        """As `kill -9` of the whole group does; what workerd left behind the next start ends."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=PATIENCE_SECONDS)

    def moorage(self, *arguments: str, status: int = 0) -> str:
        """A command, as typed."""
        environment = os.environ | {"MOORAGE_URL": self.url, "MOORAGE_TOKEN": self.token, "COLUMNS": "100"}
        command = [sys.executable, "-m", "ops.cli", *arguments]
        done = subprocess.run(
            command, cwd=paths.ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
        assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture
def up(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Up]:
    made = Up(tmp_path / "state", request.param(tmp_path))
    made.start()
    yield made
    made.stop()


def readme_bodies(folder: Path) -> Path:
    """The body that README.md prints, in a folder of bodies."""
    page = (paths.ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n# bodies/(\w+)\.py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    bodies = folder / "bodies"
    bodies.mkdir()
    (bodies / f"{found[1]}.py").write_text(found[2])
    return bodies


def suspended(up: Up, run: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := json.loads(up.moorage("runs", "show", run, "--json")))["status"] != "suspended":
        assert time.monotonic() < deadline, found
    shown: dict[str, Any] = found
    return shown


@pytest.mark.clause("runs.bodies", "runs.wake")
@pytest.mark.parametrize("up", [readme_bodies], indirect=True)
def test_the_run_of_the_readme_outlives_a_kill_of_everything(up: Up) -> None:
    start = ("runs", "start", "welcome", "--input", '{"name":"Ada"}', "--scope", "guest-ada", "--json")
    run = json.loads(up.moorage(*start))["run_id"]
    answer_at = suspended(up, run)["metadata"]["answer_at"]
    assert answer_at.startswith(f"{up.url}/awake/")
    assert "waiting for answer until" in up.moorage("runs", "show", run)
    up.kill()
    up.start()
    httpx.post(answer_at, json="thank you", headers={"Authorization": f"Bearer {up.token}"}).raise_for_status()
    told = up.moorage("runs", "watch", run)
    assert told.splitlines()[-1] == 'result  "Hello, Ada! thank you"'
    steps = {one["label"]: one for one in map(json.loads, up.moorage("runs", "steps", run, "--json").splitlines())}
    assert steps["greet"]["attempt"] == 1


@pytest.mark.clause("runs.bodies", "runs.fan-out-join", "runs.stream")
@pytest.mark.parametrize("up", [lambda _: paths.ROOT / "examples"], indirect=True)
def test_the_examples_run_in_the_worker_as_they_are_shown(up: Up) -> None:
    assert [line.split()[0] for line in up.moorage("bodies").splitlines()[1:]] == ["import", "order", "report"]
    for kind in ("order.closed", "feed.item", "report.summary"):
        up.moorage("kinds", "declare", kind)
    with Upstream() as upstream:
        regions = [*REGIONS, "atlantis"]
        inputs: dict[str, dict[str, Any]] = {
            "import": {"feed": upstream.base("i")},
            "report": {"night": "2026-11-29", "books": upstream.base("r"), "regions": regions},
            "order": {"id": "17", "shop": upstream.base("o"), "sku": "lamp", "quantity": 1, "amount_cents": 900},
        }
        for body, given in inputs.items():
            shown = up.moorage("runs", "start", body, "--input", json.dumps(given), "--wait")
            assert shown.startswith(f"✓ success  {body}\n"), shown
            if body == "order":
                marked = [line.split()[1] for line in shown.splitlines()[1:] if line.startswith("✓")]
                assert marked == ["reserve", "charge", "ship", "report"]
        declined = inputs["order"] | {"amount_cents": 20_000, "id": "18"}
        run = json.loads(up.moorage("runs", "start", "order", "--input", json.dumps(declined), "--json"))["run_id"]
        suspended(up, run)
        up.moorage("runs", "stop", run)
        assert "canceled" in up.moorage("runs", "watch", run, status=1)
        up.moorage("runs", "stop", run, status=1)
