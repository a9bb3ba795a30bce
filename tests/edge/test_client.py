"""The client and the commands on the real edge: workers that die, watches, artifacts."""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from moorage.client import Draft, Moorage, Problem
from ops.local.edge import LocalEdge
from ops.setup import paths
from tests.edge.client import fresh

pytestmark = pytest.mark.edge

RECORDS = 100
HELD = 4
SECONDS = 120

PROGRAM = """
import asyncio, json, os, sys
from moorage.client import Draft, Job, Moorage, Report, Work
from moorage.client.running import run_workers

kind, hangs = sys.argv[1], sys.argv[2] == "hangs"

async def handle(work: Work) -> Draft:
    if hangs:
        await asyncio.Event().wait()
    return Draft(f"{kind}-done", {"of": work.record.id})

def report(one: Report) -> None:
    print(json.dumps([one.did, one.claim and one.claim.record.id, one.detail]), flush=True)

async def main() -> None:
    async with Moorage(os.environ["MOORAGE_URL"], os.environ["MOORAGE_TOKEN"]) as moorage:
        job = Job(kind, {}, handle, concurrency=4, lease_seconds=4, wait_seconds=2)
        await run_workers([moorage.worker(job, report)])

asyncio.run(main())
"""


@contextmanager
def working(edge: LocalEdge, kind: str, how: str) -> Iterator[subprocess.Popen[str]]:
    env = os.environ | {"MOORAGE_URL": edge.url, "MOORAGE_TOKEN": edge.root_token}
    command = [sys.executable, "-c", PROGRAM, kind, how]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def reported(stream: IO[str] | None) -> list[list[Any]]:
    assert stream is not None
    return [json.loads(line) for line in stream]


async def until_ended(moorage: Moorage, kind: str, count: int) -> None:
    """Watch until so many records of the kind are consumed."""
    ended = set()
    async with asyncio.timeout(SECONDS), aclosing(moorage.watch(kind, after=0)) as changes:
        async for change in changes:
            if change.type == "record.settled":
                ended.add(change.subject)
                if len(ended) == count:
                    return


@pytest.mark.clause("records.claim", "records.recover", "leases.fence", "history.watch")
async def test_three_workers_one_of_them_killed_do_every_record_once(edge: LocalEdge) -> None:
    kind = fresh("work")
    async with Moorage(edge.url, edge.root_token) as moorage:
        await moorage.kinds.put(kind, {"claim": {"max_attempts": 3}})
        await moorage.kinds.put(f"{kind}-done", {})
        made = await moorage.records.publish_batch([Draft(kind, {"n": n}) for n in range(RECORDS)])
        with ExitStack() as stack:
            doomed = stack.enter_context(working(edge, kind, "hangs"))
            assert doomed.stdout is not None
            held = {json.loads(doomed.stdout.readline())[1] for _ in range(HELD)}
            others = [stack.enter_context(working(edge, kind, "works")) for _ in range(2)]
            doomed.kill()
            await until_ended(moorage, kind, RECORDS)
            for other in others:
                other.send_signal(signal.SIGTERM)
            reports = [one for other in others for one in reported(other.stdout)]
            assert [other.wait(SECONDS) for other in others] == [0, 0]
        assert held == {one.id for one in made[:HELD]}
        settled = Counter(one[1] for one in reports if one[0] == "settled")
        assert settled == Counter({one.id: 1 for one in made})
        done = [one async for one in moorage.records.iterate(f"{kind}-done")]
        assert Counter(one.body["of"] for one in done) == settled
        attempts = {one.id: one.attempts async for one in moorage.records.iterate(kind)}
        assert attempts == {one.id: 2 if one.id in held else 1 for one in made}


@pytest.mark.clause("history.watch")
async def test_a_watch_tells_what_happens_from_now_on_in_order(edge: LocalEdge) -> None:
    kind = fresh("watched")
    async with Moorage(edge.url, edge.root_token) as moorage:
        await moorage.kinds.put(kind, {"paths": {"n": "number"}})
        before = await moorage.records.publish(kind, {"n": 100})
        found: list[Any] = []

        async def follow() -> None:
            async with aclosing(moorage.watch(kind, {"n": {"$gte": 5}}, after=before.seq)) as changes:
                async for change in changes:
                    found.append((change.type, change.record and change.record.body["n"]))
                    if change.type == "record.settled":
                        return

        following = asyncio.create_task(follow())
        await moorage.records.publish_batch([Draft(kind, {"n": n}) for n in range(10)])
        (claim,) = await moorage.claims.claim(kind, "w", {"n": 7})
        await moorage.claims.settle(claim)
        await asyncio.wait_for(following, SECONDS)
    published = [("record.published", n) for n in range(5, 10)]
    assert found == [*published, ("record.claimed", 7), ("record.settled", 7)]


def moorage_command(edge: LocalEdge, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"MOORAGE_URL": edge.url, "MOORAGE_TOKEN": edge.root_token}
    command = [sys.executable, "-m", "ops.cli", *arguments]
    return subprocess.run(command, cwd=paths.ROOT, env=env, capture_output=True, text=True, timeout=SECONDS)


def test_the_watch_command_prints_entries_and_their_records(edge: LocalEdge) -> None:
    kind = fresh("told")
    assert moorage_command(edge, "kinds", "declare", kind).returncode == 0
    record = json.loads(moorage_command(edge, "records", "publish", kind, '{"n":1}', "--json").stdout)
    told = moorage_command(edge, "watch", kind, "--after", str(record["seq"] - 1), "--limit", "1", "--json")
    assert (told.returncode, told.stderr) == (0, "")
    change = json.loads(told.stdout)
    assert (change["position"], change["type"], change["record"]["id"]) == (
        record["seq"],
        "record.published",
        record["id"],
    )


@pytest.mark.clause("artifacts.publish", "artifacts.shred")
def test_the_artifact_commands_carry_a_file_there_and_back(edge: LocalEdge, tmp_path: Path) -> None:
    source, target = tmp_path / "in.bin", tmp_path / "out.bin"
    source.write_bytes(os.urandom(3_000_001))
    made = moorage_command(edge, "artifacts", "upload", str(source), "--json")
    assert made.returncode == 0, made.stderr
    artifact = json.loads(made.stdout)
    assert artifact["body"]["digest"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert artifact["body"]["media_type"] == "application/octet-stream"
    fetched = moorage_command(edge, "artifacts", "download", artifact["id"], "-o", str(target))
    assert (fetched.returncode, target.read_bytes() == source.read_bytes()) == (0, True), fetched.stderr
    assert "digest verified" in fetched.stdout
    assert moorage_command(edge, "artifacts", "shred", artifact["id"], "--reason", "test", "--yes").returncode == 0
    gone = moorage_command(edge, "artifacts", "download", artifact["id"], "-o", str(target))
    assert (gone.returncode, gone.stderr.split(":")[1].strip()) == (1, "ArtifactShredded")
    shown = json.loads(moorage_command(edge, "artifacts", "show", artifact["id"], "--json").stdout)
    assert (shown["shredded"], shown["body"]) == (True, artifact["body"])


async def test_a_download_goes_on_from_any_byte(edge: LocalEdge) -> None:
    raw = os.urandom(700_001)
    async with Moorage(edge.url, edge.root_token) as moorage:
        made = await moorage.artifacts.upload(raw, "application/octet-stream")
        for start in (0, 1, 262_144, 700_000):
            async with aclosing(moorage.artifacts._from(made.id, start)) as pieces:
                assert b"".join([piece async for piece in pieces]) == raw[start:]
        again = await moorage.artifacts.upload(raw, "application/octet-stream")
        assert again.id != made.id
        with pytest.raises(Problem):
            await moorage.artifacts.get("rec_nowhere")
