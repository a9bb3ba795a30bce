"""The hosts of docs/hosts.md run as they are printed, and lose nothing when they are killed."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from ops.setup import paths
from tests.edge.client import client, good
from tests.edge.conftest import EdgeFactory

pytestmark = [pytest.mark.edge, pytest.mark.clause("runs.substrate")]

PAGE = paths.ROOT / "docs" / "hosts.md"
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def edge(edge_factory: EdgeFactory) -> Iterator[LocalEdge]:
    """Moorage whose clock nobody moves: the page's host goes by its own."""
    one = edge_factory()
    yield one
    one.stop()


def program(name: str) -> str:
    """The block of the page whose first line is a comment with this name."""
    blocks: list[str] = re.findall(r"^```\w+\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if block.splitlines()[0].endswith(f" {name}")]
    return found


@contextmanager
def running(edge: LocalEdge, file: Path, token: str) -> Iterator["subprocess.Popen[str]"]:
    """The program as a process of its own."""
    env = os.environ | {"MOORAGE_URL": edge.url, "MOORAGE_TOKEN": token, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([sys.executable, str(file)], env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def a_host(api: httpx.Client, body: str) -> str:
    """The token of a credential that may execute this body and nothing else."""
    grants = [{"actions": ["execute"], "kinds": [body]}]
    token: str = good(api.post("/credentials", json={"subject": f"host-{body}", "grants": grants}))["token"]
    return token


def once_offered(api: httpx.Client, body: str) -> None:
    """Return when a host has offered the body."""
    end = time.monotonic() + PATIENCE_SECONDS
    while api.get(f"/bodies/{body}").status_code != 200:
        assert time.monotonic() < end
        time.sleep(0.1)


def ended(api: httpx.Client, run: str) -> dict[str, Any]:
    """The run once it has ended."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        found: dict[str, Any] = good(api.get(f"/runs/{run}"))
        if "ended_at" in found and found["ended_at"] is not None:
            return found
        assert time.monotonic() < end, found
        time.sleep(0.2)


def standing(api: httpx.Client, run: str, status: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while (found := good(api.get(f"/runs/{run}")))["status"] != status:
        assert time.monotonic() < end, found
        time.sleep(0.1)


def start(api: httpx.Client, body: str, given: Any) -> str:
    answer = api.post("/runs", json={"body": body, "input": given})
    assert answer.status_code == 202
    run: str = good(answer)["run_id"]
    assert answer.headers["location"].endswith(f"/runs/{run}")
    return run


def test_the_pages_host_goes_on_after_it_was_killed(edge: LocalEdge, tmp_path: Path) -> None:
    file = tmp_path / "host.py"
    file.write_text(program("host.py"))
    with client(edge) as api:
        token = a_host(api, "greet")
        with running(edge, file, token) as process:
            once_offered(api, "greet")
            run = start(api, "greet", {"name": "Ada", "seconds": 10})
            standing(api, run, "waiting")
            process.send_signal(signal.SIGKILL)
            said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert said.splitlines() == ["looking Ada"]
        with running(edge, file, token) as process:
            found = ended(api, run)
            process.kill()
            said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        # What was recorded was not done again.
        assert said == ""
        assert (found["status"], found.get("result")) == ("success", "Hello, Ada: 3"), found
        steps = {step["label"]: step["status"] for step in good(api.get(f"/runs/{run}/steps"))["items"]}
        assert steps == {"look": "success", "pause": "success", "send": "success"}


def test_the_pages_host_tells_of_a_failure(edge: LocalEdge, tmp_path: Path) -> None:
    file = tmp_path / "host.py"
    file.write_text(program("host.py"))
    with client(edge) as api, running(edge, file, a_host(api, "greet")):
        once_offered(api, "greet")
        found = ended(api, start(api, "greet", {"nobody": 1}))
        assert (found["status"], found["error"]["tag"]) == ("failed", "Permanent")


def test_the_pages_python_host_serves_until_it_is_told_to_stop(edge: LocalEdge, tmp_path: Path) -> None:
    file = tmp_path / "serve.py"
    file.write_text(program("serve.py"))
    with client(edge) as api, running(edge, file, a_host(api, "parcel")) as process:
        once_offered(api, "parcel")
        found = ended(api, start(api, "parcel", {"pieces": 3}))
        assert (found["status"], found["result"]) == ("success", {"grams": 360})
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0
