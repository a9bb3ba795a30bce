"""The programs of docs/awakeables.md run as they are printed."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from ops.setup import paths
from tests.edge.client import client, good

pytestmark = pytest.mark.edge

PAGE = paths.ROOT / "docs" / "awakeables.md"
SECRET = "a webhook secret of this test"
SECONDS = 60.0


@pytest.fixture
def api(edge: LocalEdge) -> Iterator[httpx.Client]:
    with client(edge) as made:
        yield made


def run(name: str, folder: Path, **env: str) -> str:
    """Run the block of the page whose first line is a comment with this name; its output."""
    blocks: list[str] = re.findall(r"^```\w+\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (program,) = [block for block in blocks if block.splitlines()[0].endswith(f" {name}")]
    file = folder / name
    file.write_text(program)
    command = [str(paths.node()), str(file)] if name.endswith(".mjs") else ["bash", str(file)]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def minted(api: httpx.Client, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = good(api.post("/awakeables", json={"ttl_seconds": 600, **more}))
    return made


@pytest.mark.clause("awake.route", "awake.idempotent")
def test_an_operator_mints_resolves_and_reads(edge: LocalEdge, tmp_path: Path) -> None:
    told = run("operator.sh", tmp_path, MOORAGE_URL=edge.url, MOORAGE_TOKEN=edge.root_token)
    assert told.count('{"approved":true}') == 3
    assert '"state":"resolved"' in told


@pytest.mark.clause("awake.senders", "awake.binding")
def test_a_webhook_resolves_what_is_bound_to_its_subject(edge: LocalEdge, api: httpx.Client, tmp_path: Path) -> None:
    good(api.put("/senders/reviews", json={"scheme": "github", "secrets": [SECRET], "subject": "reviews"}))
    made = minted(api, subject="reviews")
    env = {"MOORAGE_URL": edge.url, "AWAKE_TOKEN": made["token"], "WEBHOOK_SECRET": SECRET}
    for _ in range(2):
        assert run("webhook.sh", tmp_path, **env) == '{"action":"approved","number":42}'
    assert good(api.get(f"/awakeables/{made['id']}"))["ended_by"] == "reviews"


@pytest.mark.clause("awake.route", "catalog.credentials")
def test_a_page_answers_with_its_public_credential(edge: LocalEdge, api: httpx.Client, tmp_path: Path) -> None:
    declared = {"subject": "approvals", "public": True, "grants": [{"actions": ["resume"]}]}
    credential = good(api.post("/credentials", json=declared))["token"]
    made = minted(api)
    env = {"MOORAGE_URL": edge.url, "MOORAGE_TOKEN": credential, "AWAKE_TOKEN": made["token"]}
    assert run("page.mjs", tmp_path, **env) == "thank you\n"
    other = minted(api)
    good(api.post(f"/awake/{other['token']}", json={"approved": False}))
    assert run("page.mjs", tmp_path, **env | {"AWAKE_TOKEN": other["token"]}) == "somebody answered already\n"
    late = minted(api)
    good(api.post(f"/awake/{late['token']}/reject", json={"tag": "Forbidden", "message": "no"}))
    assert run("page.mjs", tmp_path, **env | {"AWAKE_TOKEN": late["token"]}) == "too late\n"


@pytest.mark.clause("blobs.inline-cutoff", "awake.content-types")
def test_a_large_payload_goes_through_the_bucket_and_comes_back(api: httpx.Client) -> None:
    made = minted(api)
    text = "é" * 2_000_000
    for _ in range(2):
        answer = api.post(f"/awake/{made['token']}", content=text.encode(), headers={"content-type": "text/plain"})
        assert good(answer) == text
    assert good(api.get(f"/awakeables/{made['id']}"))["payload"] == text
    assert api.post(f"/awake/{made['token']}", json="another").status_code == 409
