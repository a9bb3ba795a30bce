"""The workers of docs/workers.md run as they are printed."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from ops.local.edge import LocalEdge
from ops.setup import paths
from tests.edge.client import client, good

pytestmark = pytest.mark.edge

PAGE = paths.ROOT / "docs" / "workers.md"
DOCUMENTS = 6
PATIENCE_SECONDS = 60.0

COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "worker.py": lambda file: [sys.executable, str(file)],
    "worker.sh": lambda file: ["bash", str(file)],
    "worker.mjs": lambda file: [str(paths.node()), str(file)],
}


def program(name: str) -> str:
    """The block of the page whose first line is a comment with this name."""
    blocks: list[str] = re.findall(r"^```\w+\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if block.splitlines()[0].endswith(f" {name}")]
    return found


def declared(api: httpx.Client) -> str:
    """The kinds of the page, and the token of the credential that it makes."""
    good(api.put("/kinds/document", json={"paths": {"type": "string", "size": "number"}}))
    good(api.put("/kinds/summary", json={}))
    grants = [{"actions": ["claim"], "kinds": ["document"]}, {"actions": ["publish"], "kinds": ["summary"]}]
    token: str = good(api.post("/credentials", json={"subject": "summarizer", "grants": grants}))["token"]
    return token


def until_ended(api: httpx.Client, records: set[str], how: str) -> None:
    """Watch the documents until each of these has ended this way."""
    position, left, end = 0, set(records), time.monotonic() + PATIENCE_SECONDS
    while left:
        assert time.monotonic() < end, f"{left} did not end as {how}"
        asked: dict[str, str | int] = {"kind": "document", "after": position, "wait_seconds": 10}
        page = good(api.get("/watch", params=asked, headers={"accept": "application/json"}))
        left -= {entry["subject"] for entry in page["items"] if entry["type"] == how}
        position = page["next"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_worker_of_the_page_works_as_printed(edge: LocalEdge, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(program(name))
    with client(edge) as api:
        token = declared(api)
        sent = [{"kind": "document", "body": {"type": "pdf", "size": n + 1}} for n in range(DOCUMENTS)]
        records = {one["id"] for one in good(api.post("/records/batch", json={"records": sent}))["records"]}
        env = os.environ | {"MOORAGE_URL": edge.url, "MOORAGE_TOKEN": token}
        with subprocess.Popen(COMMANDS[name](file), env=env, stderr=subprocess.PIPE) as process:
            try:
                until_ended(api, records, "record.settled")
                process.terminate()
                _, told = process.communicate(timeout=PATIENCE_SECONDS)
            finally:
                process.kill()
        assert (process.returncode, told) == (0, b"")
        for record in records:
            down = good(api.get(f"/records/{record}/lineage", params={"direction": "descendants"}))["items"]
            assert [(one["record"]["kind"], one["record"]["body"]["of"]) for one in down] == [("summary", record)]


def test_the_pages_python_worker_makes_a_dead_letter_of_an_empty_document(edge: LocalEdge, tmp_path: Path) -> None:
    file = tmp_path / "worker.py"
    file.write_text(program("worker.py"))
    with client(edge) as api:
        token = declared(api)
        empty = good(api.post("/records", json={"kind": "document", "body": {"type": "pdf", "size": 0}}))["id"]
        env = os.environ | {"MOORAGE_URL": edge.url, "MOORAGE_TOKEN": token}
        with subprocess.Popen([sys.executable, str(file)], env=env) as process:
            try:
                until_ended(api, {empty}, "record.dead_lettered")
            finally:
                process.terminate()
        failure = good(api.get(f"/records/{empty}"))["failure"]
        assert (failure["tag"], failure["message"]) == ("Invalid", "the document is empty")
