"""`moorage bench --peers`: claim and settle, one by one and a hundred at a time, beside a plain table in Postgres.

Both do the same work in the same run on the same machine, for one client that waits for each answer: take the oldest ready
records, then consume them. Moorage does it through HTTP, with leases, fencing, history and receipts; Postgres through a
local socket, with `FOR UPDATE SKIP LOCKED` and an UPDATE, durably. The ratio tells what the rest costs.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ops.bench.operations import KIND, Bench
from ops.failure import CommandFailed

BATCH = 100
_TYPE = "peer"
_PLACES = (Path("/usr/lib/postgresql"), Path("/usr/local/pgsql"))

_SCHEMA = """
CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, type text NOT NULL, body jsonb NOT NULL,
    state text NOT NULL DEFAULT 'ready', worker text, expires_at timestamptz, ended_at timestamptz);
CREATE INDEX ready ON jobs (type, id) WHERE state = 'ready';
"""
_FILL = """INSERT INTO jobs (type, body) SELECT 'peer', '{{"type":"peer","size":1}}' FROM generate_series(1, {count});"""
_TURN = """
WITH taken AS (
    UPDATE jobs SET state = 'claimed', worker = 'bench', expires_at = now() + interval '10 minutes'
    WHERE id IN (SELECT id FROM jobs WHERE state = 'ready' AND type = 'peer' ORDER BY id LIMIT {limit}
        FOR UPDATE SKIP LOCKED)
    RETURNING id
) SELECT coalesce(string_agg(id::text, ','), '0') AS ids FROM taken \\gset
UPDATE jobs SET state = 'consumed', ended_at = now() WHERE id IN (:ids) AND state = 'claimed' AND expires_at > now();
"""


@dataclass(frozen=True)
class Pace:
    """Records a second through claim and settle, so many at a time."""

    who: str
    at_once: int
    records: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds


def moorage(bench: Bench, singles: int, batches: int) -> list[Pace]:
    """What the edge does: `singles` records one by one and `batches` times a hundred."""
    _publish(bench, singles + batches * BATCH)
    started = time.monotonic()
    for _ in range(singles):
        [held] = _claim(bench, 1)
        bench.send("POST", f"/claims/{held['record']['id']}/settle", {"epoch": held["lease"]["epoch"]})
    between = time.monotonic()
    for _ in range(batches):
        items = [{"record": one["record"]["id"], "epoch": one["lease"]["epoch"]} for one in _claim(bench, BATCH)]
        settled = bench.send("POST", "/claims/settle", {"items": items}).json()["items"]
        if len(settled) != BATCH or any("receipt" not in one for one in settled):
            raise CommandFailed("a batch was not settled whole; a bench measures what works")
    ended = time.monotonic()
    return [
        Pace("Moorage on the local edge", 1, singles, between - started),
        Pace("Moorage on the local edge", BATCH, batches * BATCH, ended - between),
    ]


def postgres(singles: int, batches: int) -> list[Pace] | str:
    """The same by Postgres, or why it cannot be measured here."""
    programs = _programs()
    if programs is None:
        return "Postgres is not installed here, so there is nothing to compare with (initdb, postgres and psql are needed)"
    become = _unprivileged()
    if become is None:
        return "Postgres does not run as root and there is no user postgres here, so there is nothing to compare with"
    with _server(programs, become) as run:
        run(_SCHEMA + _FILL.format(count=singles + batches * BATCH))
        paces = []
        for at_once, turns in ((1, singles), (BATCH, batches)):
            paces.append(Pace("Postgres, SKIP LOCKED", at_once, turns * at_once, run(_TURN.format(limit=at_once) * turns)))
        run("SELECT 1 / (count(*) = 0)::int FROM jobs WHERE state <> 'consumed';")  # fails unless all of it was done
        return paces


def show(paces: Sequence[Pace], missing: str | None) -> None:
    """Print the table."""
    table = Table(title="Claim and settle, one client that waits for each answer", title_justify="left", title_style="bold")
    table.add_column("who")
    for name in ("at once", "records", "seconds", "records a second"):
        table.add_column(name, justify="right")
    for one in paces:
        table.add_row(one.who, str(one.at_once), str(one.records), f"{one.seconds:.2f}", f"{one.rate:.0f}")
    console = Console(highlight=False)
    console.print(table)
    if missing:
        console.print(missing)


def as_json(paces: Sequence[Pace], missing: str | None) -> dict[str, Any]:
    """The same as one object."""
    shown = [
        {"who": one.who, "at_once": one.at_once, "records": one.records, "records_per_second": round(one.rate, 1)}
        for one in paces
    ]
    return {"paces": shown, "skipped": missing}


def _publish(bench: Bench, count: int) -> None:
    body = {"kind": KIND, "body": {"type": _TYPE, "size": 1}}
    for start in range(0, count, 500):
        bench.send("POST", "/records/batch", {"records": [body] * min(500, count - start)})


def _claim(bench: Bench, limit: int) -> list[dict[str, Any]]:
    sent = {"kind": KIND, "match": {"type": _TYPE}, "worker": "bench", "limit": limit}
    claims: list[dict[str, Any]] = bench.send("POST", "/claims", sent).json()["claims"]
    if len(claims) != limit:
        raise CommandFailed("a claim found fewer records than were published; a bench measures what works")
    return claims


# --- Postgres -------------------------------------------------------------------------------------------------------


def _programs() -> dict[str, str] | None:
    """Where the programs are, on the PATH or where distributions put them."""
    places = [str(folder) for place in _PLACES for folder in sorted(place.glob("**/bin"), reverse=True)]
    path = os.pathsep.join([os.environ.get("PATH", ""), *places])
    found = {name: shutil.which(name, path=path) for name in ("initdb", "postgres", "psql")}
    return {name: place for name, place in found.items() if place} if all(found.values()) else None


def _unprivileged() -> dict[str, Any] | None:
    """How to start a process as somebody who is not root."""
    if os.geteuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        return None
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextmanager
def _server(programs: dict[str, str], become: dict[str, Any]) -> Iterator[Callable[[str], float]]:
    """A server of its own in a folder of its own, reached by a socket alone; `run` gives the seconds of a script."""
    with tempfile.TemporaryDirectory(prefix="moorage-pg-") as folder:
        if become:
            os.chown(folder, become["user"], become["group"])
        data = f"{folder}/data"
        made = [programs["initdb"], "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale"]
        _quietly(made, folder, become)
        start = [programs["postgres"], "-D", data, "-k", folder, "-c", "listen_addresses="]
        with subprocess.Popen(
            start, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_environment(folder), **become
        ) as server:
            try:
                psql = [programs["psql"], "-h", folder, "-U", "bench", "-d", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1"]
                _await(psql, server, folder, become)

                def run(script: str) -> float:
                    started = time.monotonic()
                    _quietly(psql, folder, become, script)
                    return time.monotonic() - started

                yield run
            finally:
                server.terminate()
                server.wait(timeout=30)


def _await(psql: list[str], server: subprocess.Popen[bytes], folder: str, become: dict[str, Any]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and server.poll() is None:
        asked = [*psql, "-c", "SELECT 1"]
        if subprocess.run(asked, cwd=folder, capture_output=True, env=_environment(folder), **become).returncode == 0:
            return
        time.sleep(0.1)
    raise CommandFailed("Postgres did not start")


def _quietly(command: list[str], folder: str, become: dict[str, Any], script: str | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, input=script, text=True, capture_output=True, env=_environment(folder), **become
    )
    if done.returncode != 0:
        raise CommandFailed(f"{Path(command[0]).name}: {done.stderr.strip()[-300:]}")


def _environment(folder: str) -> dict[str, str]:
    """Nothing of the caller's own database settings."""
    return {"PATH": os.environ.get("PATH", ""), "HOME": folder, "LC_ALL": "C"}
