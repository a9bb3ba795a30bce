"""Events on the real edge: every mode of CloudEvents, copies at the same moment, what is large, and what it costs."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from moorage.kernel.limits import EVENT_BATCH, EVENT_DATA_BYTES, JSON_DEPTH
from moorage.messages.inbox.cloudevents import BATCH, STRUCTURED
from ops.local.edge import LocalEdge
from ops.setup import paths
from tests.edge.client import client, crowd, fresh, good, problem

pytestmark = pytest.mark.edge

PAGE = (paths.ROOT / "docs" / "events.md").read_text(encoding="utf-8")


@pytest.fixture
def api(edge: LocalEdge) -> Iterator[httpx.Client]:
    with client(edge) as one:
        yield one


def event(source: str, id_: str = "1", **more: Any) -> dict[str, Any]:
    """An event in structured mode."""
    return {"specversion": "1.0", "id": id_, "source": source, "type": "edge.paid", **more}


def send(api: httpx.Client, sent: Any, media: str = STRUCTURED, **headers: str) -> httpx.Response:
    """Send JSON, or bytes, under a type."""
    raw = sent if isinstance(sent, bytes) else json.dumps(sent, ensure_ascii=False).encode()
    return api.post("/events", content=raw, headers={"content-type": media, **headers})


def routed(api: httpx.Client, event_id: str) -> dict[str, Any]:
    """The event, once it is routed, which happens right after it was accepted."""
    for _ in range(2000):
        found: dict[str, Any] = good(api.get(f"/events/{event_id}"))
        if found["routed_at"] is not None:
            return found
    raise AssertionError(f"{event_id} was not routed")


@pytest.mark.clause("inbox.accept", "inbox.two-checkpoints")
def test_every_mode_is_read_as_the_sdk_writes_it(api: httpx.Client) -> None:
    source = f"/{fresh('sdk')}"
    attributes = {"source": source, "type": "edge.paid", "specversion": "1.0", "subject": "Zürich € 😀 100%"}
    sent: list[tuple[Any, Any, dict[str, str]]] = [
        (to_structured_event, {"n": 0.1, "text": "ü"}, {}),
        (to_binary_event, {"n": 0.1, "text": "ü"}, {}),
        (to_binary_event, {"n": 0.1, "text": "ü"}, {"datacontenttype": "application/json"}),
        (to_binary_event, "grüß", {"datacontenttype": "text/plain; charset=utf-8"}),
        (to_binary_event, b"\x00\xff", {"datacontenttype": "application/octet-stream"}),
        (to_structured_event, b"\x00\xff", {"datacontenttype": "application/octet-stream"}),
    ]
    for place, (write, data, typed) in enumerate(sent):
        written = CloudEvent({**attributes, **typed, "id": f"{place}"}, data)
        message = write(written)
        told = good(api.post("/events", content=message.body, headers=dict(message.headers)))
        assert (told["added"], told["keys"]) == (True, ["Zürich € 😀 100%"])
        back = from_http_event(HTTPMessage({"content-type": STRUCTURED}, json.dumps(told["event"]).encode()))
        assert (back.get_data(), back.get_subject(), back.get_time()) == (data, attributes["subject"], written.get_time())
    listed = good(api.get("/events", params={"source": source}))["items"]
    assert [one["id"] for one in listed] == [f"{n}" for n in range(6)]
    assert {routed(api, one["event_id"])["disposition"] for one in listed} == {"unmatched"}


@pytest.mark.clause("inbox.accept")
async def test_twenty_copies_at_the_same_moment_are_one_event(edge: LocalEdge) -> None:
    async with crowd(edge) as many:
        for round_ in range(5):
            sent = event(f"/{fresh('copies')}", data={"round": round_})
            headers = {"content-type": STRUCTURED}
            answers = await asyncio.gather(
                *(many.post("/events", content=json.dumps(sent).encode(), headers=headers) for _ in range(20))
            )
            told = [good(answer) for answer in answers]
            assert [one["added"] for one in told].count(True) == 1
            assert len({(one["event_id"], one["seq"]) for one in told}) == 1
            found = (await many.get("/events", params={"source": sent["source"]})).json()["items"]
            assert len(found) == 1


@pytest.mark.clause("inbox.accept", "kernel.limits")
def test_batches_and_bounds(api: httpx.Client) -> None:
    source = f"/{fresh('batch')}"
    batch = [event(source, f"{n}", data={"n": n}) for n in range(EVENT_BATCH)]
    answer = send(api, batch, BATCH)
    assert [one["added"] for one in good(answer)["events"]] == [True] * EVENT_BATCH
    trips = re.search(r"trips=(\d+)", answer.headers["server-timing"])
    assert trips is not None
    assert trips.group(1) == "1"
    seqs = [one["seq"] for one in answer.json()["events"]]
    assert seqs == list(range(seqs[0], seqs[0] + EVENT_BATCH))
    problem(send(api, [*batch, event(source, "more")], BATCH), 422)
    problem(send(api, [event(source, "new"), event(source, "")], BATCH), 422)
    assert good(api.get("/events", params={"key": "new"}))["items"] == []
    largest = json.dumps("x" * (EVENT_DATA_BYTES - 2)).encode()
    headers = {f"ce-{name}": value for name, value in event(source, "large").items()}
    told = good(send(api, largest, "application/json", **headers))
    assert len(told["event"]["data"]) == EVENT_DATA_BYTES - 2
    assert good(send(api, largest, "application/json", **headers))["event"] == told["event"]
    problem(send(api, largest + b" ", "application/json", **{**headers, "ce-id": "larger"}), 413)
    for depth in (JSON_DEPTH - 1, JSON_DEPTH, 5000, 20_000):
        raw = json.dumps(event(source, f"deep {depth}")).encode()[:-1] + b',"data":' + b"[" * depth + b"]" * depth + b"}"
        answer = send(api, raw)
        assert answer.status_code == (202 if depth < JSON_DEPTH else 400), depth
    for bad in (b'{"n":9007199254740993}', b'{"n":1e400}', b'{"a":1,"a":2}', b'{"n":NaN}'):
        problem(send(api, bad, "application/json", **{**headers, "ce-id": "bad"}), 400)
    proto = b'{"__proto__":{"x":1},"constructor":2}'
    told = good(send(api, proto, "application/json", **{**headers, "ce-id": "proto"}))
    assert good(api.get(f"/events/{told['event_id']}"))["event"]["data"] == json.loads(proto)


@pytest.mark.clause("inbox.correlation", "inbox.scope-once", "inbox.causation")
def test_keys_scopes_and_causes(api: httpx.Client) -> None:
    source, work = f"/{fresh('keys')}", fresh("work")
    key = {"source": source, "external_id": "order-7"}
    good(api.put("/correlations", json={"work": work, "keys": [key]}))
    problem(api.put("/correlations", json={"work": "other", "keys": [key]}), 409)
    first = good(send(api, event(source, "1", subject="order-7")))
    assert routed(api, first["event_id"])["work"] == work
    derived = good(send(api, event(source, "2", causationid=first["event_id"])))
    assert derived["causation"] == first["event_id"]
    problem(send(api, event(source, "3", causationid="evt_nobody")), 409)
    scope = fresh("scope")
    good(api.put(f"/scopes/{scope}", json={}))
    good(api.put(f"/events/{first['event_id']}/scope", json={"scope": scope}))
    assert [one["id"] for one in good(api.get("/events", params={"work": work}))["items"]] == ["1"]
    assert [one["id"] for one in good(api.get("/events", params={"scope": scope, "order": "desc"}))["items"]] == ["1"]


def printed(language: str, name: str) -> str:
    """The block of docs/events.md whose first line is a comment with this name."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [program] = [one for one in blocks if one.startswith(f"# {name}\n")]
    return str(program)


@pytest.mark.clause("inbox.accept", "inbox.correlation")
def test_the_page_s_programs_run_as_they_are_printed(edge: LocalEdge, api: httpx.Client) -> None:
    env = os.environ | {"MOORAGE_URL": edge.url, "MOORAGE_TOKEN": edge.root_token}

    def run(*command: str) -> str:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    attached = json.loads(run("bash", "-c", printed("sh", "attach.sh")))
    answers = run("bash", "-c", printed("sh", "send.sh")).replace("}{", "}\n{").splitlines()
    first, again, batch = (json.loads(one) for one in answers)
    assert (first["added"], again["added"], again["event_id"]) == (True, False, first["event_id"])
    assert [one["added"] for one in batch["events"]] == [True, True]
    assert (routed(api, first["event_id"])["work"], attached["items"][0]["work"]) == ("orders/7", "orders/7")
    assert run(sys.executable, "-c", printed("python", "follow.py")).split()[0] == first["event_id"]
