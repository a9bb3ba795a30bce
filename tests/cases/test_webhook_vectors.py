"""The public libraries of Standard Webhooks against a sender on the real edge: their own cases, and what they sign."""

import json
import os
import subprocess
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from ops.setup import paths
from tests.edge.client import client, fresh, good, problem

pytestmark = [pytest.mark.edge, pytest.mark.clause("awake.senders", "inbox.accept")]

FOLDER = Path(__file__).parent / "svix"
CASES = paths.NODE_MODULES / "svix" / "src" / "webhook.test.ts"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def run(script: str, *arguments: Path, stdin: str = "", **env: str) -> str:
    """The output of one of the scripts beside this file."""
    command = [str(paths.node()), str(FOLDER / script), *map(str, arguments)]
    done = subprocess.run(
        command, input=stdin, env=os.environ | env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def stored(api: httpx.Client, sender: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = good(api.get("/events", params={"source": f"/webhooks/{sender}"}))["items"]
    return items


def test_f05_svix_s_own_cases_pass_and_what_they_refuse_is_not_stored(edge: LocalEdge, tmp_path: Path) -> None:
    met = tmp_path / "met"
    with client(edge) as api:
        ahead = round(good(api.get("/testing/clock"))["offset_seconds"] * 1000)
        env = {"EDGE_URL": edge.url, "EDGE_TOKEN": edge.root_token, "EDGE_AHEAD": str(ahead), "EDGE_MET": str(met)}
        told = run("play.mjs", paths.NODE_MODULES, CASES, tmp_path / "cases.mjs", NODE_OPTIONS="--test-reporter=tap", **env)
        assert (told.count("\nok "), told.count("not ok")) == (14, 0), told
        answers = [tuple(json.loads(line)) for line in met.read_text().splitlines()]
        # Five are valid: signed, unbranded, one of several signatures, and a secret without and with its prefix.
        assert Counter(status for _, status in answers) == {202: 5, 401: 9}
        for sender, status in answers:
            events = stored(api, sender)
            assert [one["id"] for one in events] == (["msg_p5jXN8AQM9LWM0D4loKWxJek"] if status == 202 else [])
            assert [one["event"]["data"] for one in events] == [{"test": 2432232314}] * len(events)


def test_f05_what_the_standard_library_signs_is_stored_once(edge: LocalEdge) -> None:
    sender = fresh("std")
    bodies = ['{"test": 2432232314}', '{"s":"é😀", "n":1.0}\r\n', "", '{"type":"invoice.paid","data":{"id":1}}']
    with client(edge) as api:
        now = good(api.get("/testing/clock"))["now"]
        at = int(datetime.fromisoformat(now).timestamp())
        good(api.put(f"/senders/{sender}", json={"scheme": "standard", "secrets": [SECRET], "subject": "std"}))
        messages = [(f"msg_{number}", at * 1000, body) for number, body in enumerate(bodies)]
        signatures = json.loads(run("sign.mjs", paths.NODE_MODULES, stdin=json.dumps([SECRET, messages])))

        def send(number: int, signature: str, body: str) -> httpx.Response:
            headers = {"webhook-id": f"msg_{number}", "webhook-timestamp": str(at), "webhook-signature": signature}
            told = {**headers, "content-type": "application/json"}
            return httpx.post(f"{edge.url}/webhooks/{sender}", content=body.encode(), headers=told, timeout=60)

        for number, body in enumerate(bodies):
            problem(send(number, signatures[number - 1], body), 401)
            assert [good(send(number, signatures[number], body))["added"] for _ in range(2)] == [True, False]
        found = stored(api, sender)
        assert [one["event"].get("data") for one in found] == [json.loads(body or "null") for body in bodies]
        assert [one["type"] for one in found] == ["webhook", "webhook", "webhook", "invoice.paid"]
