"""The document at /openapi.json and the real edge agree, as far as generated requests can tell."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from ops.setup import paths
from tests.edge.client import client, declare, fresh, good
from tests.edge.edges import EdgeFactory
from tests.edge.known_runs import known_runs

pytestmark = pytest.mark.edge

SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
SENDER = {"scheme": "github", "secrets": ["a-long-enough-secret"], "subject": "s"}
CLOCK = "/testing/clock"
CENTURY = 3_000_000_000
FAR = "9999-01-01T00:00:00Z"

EXAMPLES = "5"
"""Of each operation, besides those that cover each of its fields; there are some hundred and fifty operations."""

SCHEDULE_ACTS = ("pause", "resume", "trigger", "backfill", "next", "triggers")


@pytest.fixture(scope="module")
def own(edge_factory: EdgeFactory) -> LocalEdge:
    """An edge whose clock schemathesis may move by centuries."""
    return edge_factory(vars={"MOORAGE_TEST_CLOCK": "1"})


def existing(edge: LocalEdge) -> dict[str, list[Any]]:
    """Things that generated requests may name, in every state."""
    with client(edge) as api:
        kind = declare(api, fresh("generated"), {"n": "number", "s": "string"}, lease_seconds=40_000)
        empty = declare(api, fresh("empty"), {"n": "number"})
        batch = [{"kind": kind, "body": {"n": number}} for number in range(60)]
        records = [one["id"] for one in good(api.post("/records/batch", json={"records": batch}))["records"]]
        claims = good(api.post("/claims", json={"kind": kind, "worker": "w", "limit": 50}))["claims"]
        for claim in claims[:16]:
            body: dict[str, Any] = {"epoch": claim["lease"]["epoch"]}
            if claim["record"]["body"]["n"] % 2:
                good(api.post(f"/claims/{claim['record']['id']}/settle", json=body))
            else:
                body |= {"error": {"tag": "Permanent", "message": "no"}, "dead_letter": True}
                good(api.post(f"/claims/{claim['record']['id']}/fail", json=body))
        minted = [good(api.post("/awakeables", json={"ttl_seconds": 30_000_000}))["token"] for _ in range(60)]
        credentials = [good(api.post("/credentials", json={"subject": "s", "grants": []}))["id"] for _ in range(3)]
        artifacts = [good(api.post("/artifacts", content=f"bytes {number}".encode()))["id"] for number in range(30)]
        good(api.put("/senders/hook", json=SENDER))
        # A bearer sender is verified by the credential that the generated requests carry anyway.
        bearer = {**SENDER, "scheme": "bearer", "secrets": [edge.root_token], "event": {"id": "header:host"}}
        good(api.put("/senders/caller", json=bearer))
        good(api.put("/scopes/top", json={}))
        good(api.put("/destinations/hook", json={"url": "https://example.test/"}))
        deliveries = some_deliveries(api)
        timers = [f"timer{number}" for number in range(40)]
        keys = [f"k{number}" for number in range(40)]
        for name in timers:
            good(api.put(f"/timers/{name}", json={"fire_at": FAR, "event": {"type": "ping"}}))
        for name in keys:
            good(api.put(f"/kv/space/{name}", json={"value": 1}))
        ticking = {"record": {"kind": kind, "body": {"n": 1}}}
        schedules = [f"schedule{number}" for number in range(40)]
        for name in schedules:
            good(api.put(f"/schedules/{name}", json={"cron": "0 0 1 1 *", "target": ticking}))
        good(api.post("/inbox/consumer/seen", json={"outcome": 1}))
        sent = [{"specversion": "1.0", "id": f"{number}", "source": "/s", "type": "ping"} for number in range(30)]
        events = [good(api.post("/events", json=one))["event_id"] for one in sent]
    held = [claim["record"]["id"] for claim in claims]
    ended, held = held[:16], held[16:]
    return {
        "record": records,
        "/claims/{record}/renew record": held[:3],
        "/claims/{record}/release record": held[3:14],
        "/claims/{record}/settle record": [*held[14:24], *ended[1::2]],
        "/claims/{record}/fail record": held[24:],
        "/dead-letters/{record} record": ended[::2],
        "/dead-letters/{record}/requeue record": ended[::2],
        "kind": [kind],
        "/dead-letters/requeue kind": [empty],
        "/kinds/{kind} kind": [kind, *(fresh("more") for _ in range(20))],
        "artifact": artifacts[:3],
        "/artifacts/{artifact}/shred artifact": artifacts[3:],
        "token": minted[:5],
        "/awake/{token} token": minted[5:40],
        "/awake/{token}/reject token": minted[40:],
        "/credentials/{id} id": credentials,
        "/subscriptions/{name} name": [f"sub{number}" for number in range(12)],
        "delivery": deliveries,
        "/deliveries/{delivery}/redeliver delivery": deliveries[:20],
        "/deliveries/{delivery}/cancel delivery": deliveries[20:],
        "destination": ["hook"],
        "types": [["record.published"]],
        "filter": [None],
        "/scopes/{id} id": ["top", "new"],
        "name": ["hook"],
        "sender": ["caller"],
        "secrets": [SENDER["secrets"]],
        "scheme": ["github", "stripe"],
        "subject": ["someone"],
        "/history subject": [records[0], records[20]],
        "url": ["https://example.test/hook"],
        "/timers/{timer} timer": timers,
        "/timers/{timer} fire_at": [FAR],
        "/timers/{timer} delay_seconds": [None],
        "/timers/{timer} every_seconds": [None],
        "/timers/{timer} event": [{"type": "ping"}],
        "/timers/{timer} revision": [1, None],
        "/clock/failures work": ["lease_expired", "timer_fired"],
        "/clock/failures/retry work": ["lease_expired", "timer_fired"],
        "/schedules/{name} name": schedules[:30],
        **{f"/schedules/{{name}}/{act} name": schedules[30:] for act in SCHEDULE_ACTS},
        **{f"/schedules/{path} cron": ["0 0 1 1 *"] for path in ("{name}", "preview")},
        **{f"/schedules/{path} every_seconds": [None] for path in ("{name}", "preview")},
        **{f"/schedules/{path} timezone": ["UTC", "Europe/Paris"] for path in ("{name}", "preview")},
        **{f"/schedules/{path} target": [ticking] for path in ("{name}", "preview")},
        "/schedules/preview after": [None, FAR],
        "/schedules/{name}/next after": ["2027-01-01T00:00:00Z"],
        "/schedules/{name}/backfill start": ["2020-01-01T00:00:00Z"],
        "/schedules/{name}/backfill end": ["2021-01-02T00:00:00Z"],
        "/kv/{namespace}/{key} namespace": ["space"],
        "/kv/{namespace}/{key} key": keys,
        "/kv/{namespace}/{key} revision": [None],
        "/kv/{namespace} namespace": ["space"],
        "/kv/{namespace} prefix": [None, "k"],
        "/inbox/{consumer}/{event_id} consumer": ["consumer"],
        "/inbox/{consumer}/{event_id} event_id": ["seen", *(fresh("event") for _ in range(10))],
        "/inbox/{consumer}/{event_id} kv": [{}, {"space": {"made": 1}}],
        "/inbox/{consumer}/{event_id} records": [[]],
        "/events/{event_id} event_id": events,
        "/events/{event_id}/scope event_id": events,
        "/events/{event_id}/scope scope": ["top"],
        "/events event_id": [f"evt_{fresh('own')}" for _ in range(40)],
        "/events id": [fresh("sent") for _ in range(40)],
        "/events source": ["/s"],
        "/events type": ["ping"],
        "/events scope": ["top"],
        "/events time": [FAR],
        "/events datacontenttype": [None],
        "/events dataschema": [None],
        "/events data_base64": [None],
        "/correlations work": ["work"],
        "/correlations keys": [[{"source": "/s", "external_id": f"{number}"}] for number in range(20)],
        "/correlations source": [None],
        "/correlations external_id": [None],
        "correlations": [[]],
        "epoch": [1],
        "match": [{}, {"n": {"$gte": 0}}],
        "parents": [[], records[:1]],
        "results": [[], [{"kind": kind, "body": {}}]],
        "records": [[{"kind": kind, "body": {"n": 1}}] * 3],
        "body": [{"n": 1}, {"s": "text"}],
        "worker": ["w"],
        "parent": [None, "top"],
        "actions": [["publish", "read"]],
        "paths": [{"n": "number", "s": "string"}],
        "grants": [[], [{"actions": ["read"], "kinds": [kind]}]],
        "cursor": [None],
        "schema": [None],
        "wait_seconds": [0, 0.01],
        "after": [0],
        "/watch match": ["{}", '{"n": {"$gte": 0}}'],
    }


def some_deliveries(api: httpx.Client) -> list[str]:
    """Deliveries of all that was published so far, some of them given up, and subscriptions that tell nothing more."""
    sent = {"types": ["record.published"], "destination": "hook"}
    good(api.put("/subscriptions/hook", json={**sent, "from": 0}))
    found: list[dict[str, Any]] = []
    while len(found) < 50:
        found = good(api.get("/deliveries", params={"limit": 60}))["items"]
    for number in range(12):
        good(api.put(f"/subscriptions/sub{number}", json={**sent, "paused": True}))
    made = [one["delivery_id"] for one in found]
    for one in made[:20]:
        good(api.post(f"/deliveries/{one}/cancel", json={}))
    return made


def generate(edge: LocalEdge, *arguments: str, known: dict[str, list[Any]]) -> Counter[tuple[str, int]]:
    """How often each operation got each status, in a run that found no fault."""
    met = edge.config.state / "met"
    met.write_text("")
    command = [str(SCHEMATHESIS), "run", f"{edge.url}/openapi.json", "--checks", CHECKS, "--no-color", "--warnings", "off"]
    command += ["--phases", "coverage,fuzzing", "--generation-deterministic", "--max-failures", "10", *arguments]
    environment = os.environ | {
        "MOORAGE_TEST_KNOWN": json.dumps(known),
        "MOORAGE_TEST_MET": str(met),
        "SCHEMATHESIS_HOOKS": "tests.edge.schemathesis_hooks",
        "PYTHONPATH": str(paths.ROOT),
    }
    done = subprocess.run(command, cwd=edge.config.state, capture_output=True, text=True, env=environment, check=False)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    found = re.search(r"(\d+) generated, (\d+) passed", told)
    assert found is not None, told
    assert found[1] == found[2], told
    lines = [line.rsplit(" ", 1) for line in met.read_text().splitlines()]
    return Counter((operation, int(status)) for operation, status in lines)


def operations(edge: LocalEdge) -> dict[str, dict[str, Any]]:
    with client(edge) as api:
        found = good(api.get("/openapi.json"))["paths"]
    return {f"{method.upper()} {path}": operation for path, item in found.items() for method, operation in item.items()}


@pytest.mark.timeout(600)  # It takes two minutes, where nothing else is at work.
@pytest.mark.clause("kernel.problem", "edge.cors-head")
def test_the_root_credential_meets_only_what_is_documented(own: LocalEdge) -> None:
    header = f"Authorization: Bearer {own.root_token}"
    with known_runs(own) as runs:
        known = {**existing(own), **runs}
        met = generate(own, "--max-examples", EXAMPLES, "--exclude-path", CLOCK, "-H", header, known=known)
    assert met.total() > 1000
    # The run means something only where requests got through.
    succeeded = {operation for operation, status in met if status < 300}
    # What schemathesis has loaded its document from, it does not ask for again; and a dead letter that one generated
    # request has requeued is none when the next asks for it.
    # Guards and their holders are made by hosts that send, as in test_guards_edge.py.
    unsure = {"GET /openapi.json", "GET /dead-letters/{record}", "GET /guards/{token}", "POST /guards/{token}/reconcile"}
    unsure |= {"POST /holders", "POST /holders/{holder}/exit"}
    # Of few generated bytes none may be an event, or an upload that tells its length.
    unsure |= {"POST /events", "POST /artifacts"}
    expected = {operation for operation in operations(own) if CLOCK not in operation} - unsure
    assert expected - succeeded == set()
    # Then the clock too, which ends what was promised: all of that at once, for which schemathesis would not wait. Schedules
    # would come a hundred times a century, each by itself.
    with client(own) as api:
        for schedule in good(api.get("/schedules", params={"limit": 500}))["items"]:
            good(api.delete(f"/schedules/{schedule['name']}"))
        good(api.post(CLOCK, json={"advance_seconds": CENTURY}, timeout=400))
    met = generate(own, "--max-examples", EXAMPLES, "--include-path", CLOCK, "-H", header, known={})
    assert {operation for operation, status in met if status == 200} >= {f"GET {CLOCK}", f"POST {CLOCK}"}
    with client(own) as api:
        assert good(api.get("/health"))["ok"] is True


@pytest.mark.clause("kernel.problem", "awake.authenticates")
def test_a_stranger_meets_only_what_is_documented(own: LocalEdge) -> None:
    met = generate(own, "--max-examples", "3", known={})
    closed = {name for name, operation in operations(own).items() if operation.get("security") == [{"bearer": []}]}
    assert len(closed) > 35
    # Besides 401, a stranger may learn that a request's target makes no sense.
    assert {status for (operation, status) in met if operation in closed} <= {401, 400}
    assert closed <= {operation for operation, status in met if status == 401}
