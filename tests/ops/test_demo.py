"""The demo tells the truth, and says so when the truth is another one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from ops.demo.acts import arrival, catalog, publishing
from ops.demo.narrator import Narrator
from ops.demo.payloads import deliveries
from ops.demo.stage import Act, Stage
from ops.demo.story import ACTS, run, tell
from ops.demo.wire import Answer, Client, Refused
from ops.local.state import children, command_line
from ops.setup import paths

DEMO = [sys.executable, "-m", "ops.cli", "demo"]
SECONDS = 240


@pytest.mark.edge
@pytest.mark.clause(
    "edge.local",
    "records.claim",
    "records.recover",
    "records.dead-letter",
    "records.lineage",
    "leases.fence",
    "awake.route",
    "awake.senders",
    "awake.restart",
    "waits.match",
    "outbox.deliver",
    "completion.subscribe",
    "guards.crash-held",
    "guards.blocked",
    "guards.evidence",
    "guards.cli",
)
def test_every_claim_of_the_story_holds_and_nothing_is_left_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--json"],
        cwd=paths.ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is True
    assert document["false"] == []
    assert [act["act"] for act in document["acts"]] == [act.name for act in ACTS]
    assert all(act["ok"] and act["checks"] and act["seconds"] >= 0 for act in document["acts"])
    assert all(check["ok"] and check["expected"] == check["found"] for act in document["acts"] for check in act["checks"])
    assert list(tmp_path.iterdir()) == []
    assert not _listens(document["acts"][0]["facts"]["url"])


@pytest.mark.edge
def test_an_edge_that_changes_one_number_on_the_way_is_caught(tmp_path: Path) -> None:
    stage = Stage(Narrator(Console(quiet=True)), tmp_path, deliveries(), client=Dishonest)
    with stage.exits:
        tell(stage, [arrival.ACT, catalog.ACT, publishing.ACT])
    false = [check.statement for told in stage.told for check in told.checks if not check.ok]
    assert false == [f"all {len(stage.deliveries)} bodies read back are equal to what GitHub sent"]
    assert [told.broke_off for told in stage.told] == [None] * 3


class Dishonest(Client):
    """Tells the truth, but for one sender's id."""

    def send(self, method: str, path: str, raw: bytes | None, headers: Mapping[str, str]) -> Answer:
        answer = super().send(method, path, raw, headers)
        if path != "/records/query" or answer.status != 200:
            return answer
        page = json.loads(answer.raw)
        for record in page["items"]:
            if record["metadata"]["delivery"] == 7:
                record["body"]["sender"]["id"] += 1
        return Answer(answer.status, json.dumps(page).encode())


def _lie(stage: Stage) -> None:
    stage.check("two and two is five", 5, 2 + 2)
    stage.check("one is true", True, 1)
    stage.check("one is one", 1, 1)


def _give_up(_stage: Stage) -> None:
    raise Refused("POST /records was answered 500 InternalError")


def _be_surprised(_stage: Stage) -> None:
    answer: dict[str, Any] = {"items": []}
    answer["records"]


def test_a_false_claim_makes_the_exit_status_1_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    status = run([Act("lie", "A lie", "It is told.", _lie)], as_json=False, keep=False)
    printed = capsys.readouterr().out
    assert status == 1
    assert "✗ two and two is five\n    expected 5, found 4" in printed
    assert "2 of 3 claims do not hold" in printed
    assert "✗ A lie: one is true" in printed


def test_the_document_names_the_false_claim_too(capsys: pytest.CaptureFixture[str]) -> None:
    status = run([Act("lie", "A lie", "It is told.", _lie)], as_json=True, keep=False)
    document = json.loads(capsys.readouterr().out)
    assert status == 1
    assert document["ok"] is False
    assert document["false"] == ["A lie: two and two is five", "A lie: one is true"]
    assert [check["ok"] for check in document["acts"][0]["checks"]] == [False, False, True]


@pytest.mark.parametrize(
    ("play", "why"),
    [(_give_up, "POST /records was answered 500 InternalError"), (_be_surprised, "KeyError('records')")],
)
def test_an_act_that_breaks_off_ends_the_story_with_status_1(
    play: Any, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    acts = [Act("stop", "A stop", "It goes wrong.", play), Act("lie", "A lie", "It is not told.", _lie)]
    status = run(acts, as_json=False, keep=False)
    printed = capsys.readouterr().out
    assert status == 1
    assert why in " ".join(printed.split())
    assert "It is not told." not in printed


def test_a_kept_folder_is_kept_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    act = Act("truth", "A truth", "It is told.", lambda stage: stage.check("one is one", 1, 1))
    assert run([act], as_json=False, keep=True) == 0
    (folder,) = tmp_path.iterdir()
    assert f"./moorage up --state {folder / 'state'}" in capsys.readouterr().out


@pytest.mark.edge
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_story_leaves_no_process_and_no_folder(tmp_path: Path, number: int) -> None:
    story = subprocess.Popen(
        DEMO,
        cwd=paths.ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _await(lambda: any(tmp_path.glob("moorage-demo-*/sweep-2.jsonl")))
        below = _descendants(story.pid)
        assert sum("ops.demo.worker" in command for command in below.values()) >= 6
        assert any("workerd" in command for command in below.values())
        story.send_signal(number)
        _, errors = story.communicate(timeout=SECONDS)
    finally:
        story.kill()
    assert story.returncode == 130
    assert errors.decode() == "interrupted; every process is stopped\n"
    assert [command for pid, command in below.items() if command_line(pid) == command] == []
    assert list(tmp_path.iterdir()) == []


def _descendants(pid: int) -> dict[int, str]:
    found = children(pid)
    for child in list(found):
        found |= _descendants(child)
    return found


def _await(holds: Any) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def _listens(url: str) -> bool:
    address = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((address.hostname, address.port)) == 0
