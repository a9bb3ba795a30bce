"""`moorage receive`, a destination to try deliveries with."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from standardwebhooks import Webhook

from ops.failure import CommandFailed
from ops.receive import command
from ops.setup import paths

SECRET = "whsec_" + "c2VjcmV0" * 4
EVENT = json.dumps({"type": "run.closed", "subject": "run_1\x1b[31m"})

Start = Callable[..., tuple["subprocess.Popen[str]", str]]


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[subprocess.Popen[str]] = []

    def receive(*options: str) -> tuple["subprocess.Popen[str]", str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "ops.cli", "receive", "--port", "0", *options],
            cwd=paths.ROOT,
            env=os.environ | {"CRM_SECRET": f"whsec_b2xk {SECRET}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        assert process.stderr is not None
        return process, process.stderr.readline().strip()

    yield receive
    for process in begun:
        process.kill()
        process.communicate()


def post(where: str, body: str, headers: dict[str, str]) -> int:
    connection = HTTPConnection(urlsplit(where.rpartition(" ")[2]).netloc, timeout=10)
    connection.request("POST", "/hook", body, headers)
    return connection.getresponse().status


def signed(body: str, event_id: str = "dom_1") -> dict[str, str]:
    now = datetime.now(UTC)
    signature = Webhook(SECRET).sign(event_id, now, body)
    return {"webhook-id": event_id, "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}


def test_what_is_signed_is_told_apart_from_what_is_forged(start: Start) -> None:
    process, where = start("--secret", "CRM_SECRET", "--limit", "4", "--status", "202")
    told = {"Moorage-Attempt": "2", "Moorage-Generation": "3"}
    answers = [
        post(where, EVENT, signed(EVENT) | told),
        post(where, EVENT + " ", signed(EVENT)),
        post(where, "not JSON", {}),
        post(where, EVENT, signed(EVENT) | {"webhook-timestamp": "soon"}),
    ]
    assert answers == [202, 401, 401, 401]
    lines = [[part.strip() for part in line.split("  ")][1:] for line in process.communicate(timeout=20)[0].splitlines()]
    assert lines[0] == ["verified", "dom_1", "run.closed", "run_1 [31m", "try 2", "generation 3"]
    assert [line[0] for line in lines] == ["verified", "wrong", "unsigned", "wrong"]
    assert process.returncode == 0


def test_without_a_secret_everything_is_taken_and_told_whole(start: Start) -> None:
    process, where = start("--limit", "2", "--json")
    assert [post(where, EVENT, {"webhook-id": "1"}), post(where, "text", {})] == [200, 200]
    found: list[dict[str, Any]] = [json.loads(line) for line in process.communicate(timeout=20)[0].splitlines()]
    assert [one["body"] for one in found] == [json.loads(EVENT), "text"]
    assert (found[0]["signature"], found[0]["path"], found[0]["headers"]["webhook-id"]) == ("unchecked", "/hook", "1")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("NO_SECRET", " ", "the environment has no NO_SECRET"),
        ("NO_KEY", "whsec_?", "NO_KEY is no secret of"),
        ("NO_KEY", "whsec_b2s= not-base64!", "NO_KEY is no secret of"),
    ],
)
def test_a_secret_that_is_none_is_told_at_once(monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(CommandFailed, match=why):
        command(port=0, secret=name)
