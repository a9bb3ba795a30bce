"""Watching runs on the real edge: sockets and event streams, from the first step to the end, and what a watcher may not."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import SECONDS, bearer, good, problem
from tests.edge.conftest import EdgeFactory
from tests.edge.party import Party, party
from tests.edge.runs import BODIES, ENDED, VARS, Desk, desk
from tests.edge.sockets import Refused, socket
from tests.edge.timing import tries

pytestmark = [pytest.mark.edge, pytest.mark.clause("runs.stream")]

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
KEY = "collector-key-for-tests"


class Collector:
    """A collector of spans, and a service that bodies ask: what was sent to it, and with which headers."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.got: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.url = ""

    def spans(self, run: str, seconds: float = 15) -> list[dict[str, Any]]:
        """The spans of a run, once they are here."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _, told in list(self.got):
                found: list[dict[str, Any]] = told["resourceSpans"][0]["scopeSpans"][0]["spans"]
                if attributes(found[0])["moorage.run.id"] == run:
                    return found
            time.sleep(0.02)
        raise AssertionError(f"no span of {run}")


def attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


@contextmanager
def collecting() -> Iterator[Collector]:
    one = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            one.asked.append({name.lower(): value for name, value in self.headers.items()})
            self._answer()

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"]))
            one.got.append(({name.lower(): value for name, value in self.headers.items()}, json.loads(text)))
            self._answer()

        def _answer(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    one.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as one:
        yield one


@pytest.fixture(scope="module")
def shop(edge_factory: EdgeFactory, collector: Collector) -> Iterator[LocalEdge]:
    told = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={KEY}"}
    edge = edge_factory(bodies=BODIES, vars={**VARS, **told})
    yield edge
    edge.stop()


@pytest.fixture
def runs(shop: LocalEdge) -> Iterator[Desk]:
    with desk(shop) as one:
        yield one


@pytest.fixture(scope="module")
def other() -> Iterator[Party]:
    with party() as one:
        yield one


@pytest.fixture
async def web(shop: LocalEdge) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=shop.url, headers=bearer(shop.root_token), timeout=SECONDS) as one:
        yield one


class Seen:
    """Messages as they came, checked and folded as a client does."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.came: list[float] = []
        self.steps: dict[tuple[str, str], dict[str, Any]] = {}

    def add(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        self.came.append(time.monotonic())
        if message["type"] == "snapshot":
            self.steps.clear()
        for step in message["steps"]:
            before = self.steps.get((step["label"], step["input_sha256"]))
            assert before is None or before["status"] not in ("success", "failed", "canceled") or before == step
            self.steps[step["label"], step["input_sha256"]] = step
        self.check()

    def check(self) -> None:
        assert self.messages[0]["type"] == "snapshot"
        versions = [(one["version"]["epoch"], one["version"]["counter"]) for one in self.messages]
        assert versions == sorted(set(versions))

    @property
    def last(self) -> dict[str, Any]:
        return self.messages[-1]

    @property
    def told(self) -> list[str]:
        """What was told of steps, one status after the other."""
        return [step["status"] for message in self.messages for step in message["steps"]]


async def start(web: httpx.AsyncClient, body: str, given: Any, **headers: str) -> str:
    run: str = good(await web.post("/runs", json={"body": body, "input": given}, headers=headers))["run_id"]
    return run


async def until(seen: Seen, told: list[str]) -> None:
    """Wait until the view has come, and so much was told of steps."""
    async with asyncio.timeout(SECONDS):
        while not seen.messages or seen.told != told:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def by_socket(edge: LocalEdge, run: str, query: str = "", seen: Seen | None = None) -> tuple[Seen, int | None]:
    """Watch to the end; answers what was seen, and with which code the server closed."""
    seen = seen or Seen()
    async with socket(edge, f"/runs/{run}/stream{query}", bearer(edge.root_token)) as one:
        async for message in one.messages():
            seen.add(message)
        return seen, one.closed


async def by_events(web: httpx.AsyncClient, run: str, **headers: str) -> tuple[Seen, list[str]]:
    """Watch to the end of one stream; answers what was seen, and the ids."""
    seen, ids = Seen(), []
    async with web.stream("GET", f"/runs/{run}/stream", headers={"accept": "text/event-stream", **headers}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                message = json.loads(fields["data"])
                assert fields["event"] == message["type"]
                version = message["version"]
                assert fields["id"].removesuffix(".end") == f"{version['epoch']}.{version['counter']}"
                ids.append(fields["id"])
                seen.add(message)
                fields = {}
            else:
                fields = {}
    return seen, ids


async def test_a_socket_shows_the_run_then_what_changes_and_closes_with_its_end(
    shop: LocalEdge, web: httpx.AsyncClient
) -> None:
    run = await start(web, "stream.talk", {"steps": 10, "pause": 0.15})
    seen, closed = await by_socket(shop, run)
    assert (seen.last["status"], closed) == ("success", 1000)
    assert len(seen.messages) > 3
    assert {step["status"] for step in seen.steps.values()} == {"success"}
    assert len(seen.steps) == 10


async def test_a_burst_of_two_hundred_steps_is_at_most_ten_messages_a_second(
    shop: LocalEdge, web: httpx.AsyncClient
) -> None:
    run, began = await start(web, "stream.talk", {"steps": 200}), time.monotonic()
    seen, closed = await by_socket(shop, run)
    took = seen.came[-1] - began
    print(f"\n200 steps in {took:.2f} s: {len(seen.messages)} messages")
    assert len(seen.messages) <= 3 + 10 * took
    assert (len(seen.steps), seen.last["status"], closed) == (200, "success", 1000)


async def test_events_carry_their_versions_and_the_last_one_lets_the_client_rest(web: httpx.AsyncClient) -> None:
    run = await start(web, "stream.talk", {"steps": 5, "pause": 0.12})
    seen, ids = await by_events(web, run)
    assert seen.last["status"] == "success"
    assert [one.endswith(".end") for one in ids] == [False] * (len(ids) - 1) + [True]
    rest = await web.get(f"/runs/{run}/stream", headers={"last-event-id": ids[-1]})
    assert rest.status_code == 204


async def test_the_end_of_each_of_a_hundred_short_runs_arrives(shop: LocalEdge, web: httpx.AsyncClient) -> None:
    slots = asyncio.Semaphore(8)

    async def one(number: int) -> str:
        async with slots:
            run = await start(web, "stream.talk", {"steps": 1 + number % 3})
            if number % 2:
                return str((await by_events(web, run))[0].last["status"])
            return str((await by_socket(shop, run))[0].last["status"])

    assert set(await asyncio.gather(*(one(number) for number in range(100)))) == {"success"}


async def test_whoever_comes_after_the_end_is_told_from_the_record(
    shop: LocalEdge, web: httpx.AsyncClient, runs: Desk
) -> None:
    run = await start(web, "stream.fail", {"steps": 0})
    assert runs.until(run)["status"] == "failed"
    shop.kill()
    shop.start()
    async with httpx.AsyncClient(base_url=shop.url, headers=bearer(shop.root_token), timeout=SECONDS) as again:
        seen, _ = await by_events(again, run)
    by_label = {step["label"]: step for step in seen.steps.values()}
    assert (len(seen.messages), seen.last["status"]) == (1, "failed")
    assert by_label["first"]["status"] == "success"
    assert (by_label["second"]["status"], by_label["second"]["error"]["tag"]) == ("failed", seen.last["error"]["tag"])
    assert seen.last["error"]["step"] == "second"


@pytest.mark.clause("runs.machine-state")
async def test_a_view_is_made_anew_from_the_record_and_the_run_goes_on_unchanged(
    shop: LocalEdge, web: httpx.AsyncClient, other: Party
) -> None:
    run = await start(web, "trial.wait", {"party": other.url, "steps": 2})
    token = await asyncio.to_thread(other.token, run)
    before = await first_of(shop, run, "suspended")
    good(await web.get(f"/runs/{run}"))
    shop.kill()
    shop.start()
    async with httpx.AsyncClient(base_url=shop.url, headers=bearer(shop.root_token), timeout=SECONDS) as again:
        steps = good(await again.get(f"/runs/{run}/steps"))
        after = await first_of(shop, run, "suspended")
        assert good(await again.get(f"/runs/{run}/steps")) == steps
        assert shape(after) == shape(before)
        assert after["version"]["epoch"] > before["version"]["epoch"]
        watching = asyncio.create_task(by_socket(shop, run))
        await asyncio.sleep(0.5)
        good(await again.post(f"/awake/{token}", json={"ok": True}))
        seen, _ = await watching
    assert seen.last["status"] == "success"


def shape(view: dict[str, Any]) -> dict[str, Any]:
    """A view without what its host and the database note to the millisecond, each by its own clock."""
    same = ("label", "input_sha256", "kind", "position", "status", "attempt", "ref", "error")
    steps = [{name: step[name] for name in same} for step in view["steps"]]
    return {**view, "version": None, "type": None, "steps": steps}


async def first_of(edge: LocalEdge, run: str, status: str) -> dict[str, Any]:
    """The whole view of a run once it has a status: the snapshot that a new watcher gets then."""
    for _ in range(100):
        async with socket(edge, f"/runs/{run}/stream", bearer(edge.root_token)) as one:
            message = await one.receive()
        if message is not None and message["status"] == status:
            return message
        await asyncio.sleep(0.1)
    raise AssertionError(f"{run} is never {status}")


async def test_the_stop_of_a_run_that_nobody_holds_is_seen_at_once(
    shop: LocalEdge, web: httpx.AsyncClient, other: Party
) -> None:
    for one in tries(2):
        run = await start(web, "trial.wait", {"party": other.url, "steps": 1})
        await first_of(shop, run, "suspended")
        watching = asyncio.create_task(by_socket(shop, run))
        await asyncio.sleep(2.5)
        began = time.monotonic()
        good(await web.post(f"/runs/{run}/stop", json={}))
        seen, closed = await watching
        assert (seen.last["status"], seen.last["error"], closed) == ("canceled", None, 1000)
        one.took = seen.came[-1] - began
        waits = [step for step in seen.steps.values() if step["kind"] == "wait"]
        assert [(step["status"], step["error"]["tag"]) for step in waits] == [("failed", "Canceled")]


async def test_who_is_not_admitted_is_refused_before_the_upgrade(shop: LocalEdge, web: httpx.AsyncClient) -> None:
    run = await start(web, "stream.talk", {"steps": 1})
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic cm9vdA=="}):
        with pytest.raises(Refused) as refused:
            async with socket(shop, f"/runs/{run}/stream", headers):
                pass
        assert refused.value.status == 401
        assert refused.value.problem()["code"] == "RunStreamUnauthorized"
        assert refused.value.headers["x-request-id"].startswith("req_")
        # Nothing is told of which runs there are, either.
        async with httpx.AsyncClient(base_url=shop.url, headers=headers) as nobody:
            for one in (run, "run_0"):
                assert problem(await nobody.get(f"/runs/{one}/stream"), 401)["code"] == "RunStreamUnauthorized"


async def test_a_run_that_may_not_be_seen_is_not_there(shop: LocalEdge, web: httpx.AsyncClient) -> None:
    run = await start(web, "stream.talk", {"steps": 1})
    made = {"subject": "guest", "grants": [{"actions": ["read"], "kinds": ["trial.row"]}]}
    guest = bearer(good(await web.post("/credentials", json=made))["token"])
    for headers, wanted in ((guest, run), (bearer(shop.root_token), "run_00000000000000000000000000")):
        with pytest.raises(Refused) as refused:
            async with socket(shop, f"/runs/{wanted}/stream", headers):
                pass
        assert (refused.value.status, refused.value.problem()["code"]) == (404, "RunUnknown")


async def test_a_revoked_credential_sees_no_more(shop: LocalEdge, web: httpx.AsyncClient) -> None:
    made = {"subject": "auditor", "grants": [{"actions": ["read"], "kinds": ["stream.talk"]}]}
    credential = good(await web.post("/credentials", json=made))
    run = await start(web, "stream.talk", {"steps": 150, "pause": 0.1})
    async with socket(shop, f"/runs/{run}/stream", bearer(credential["token"])) as one:
        assert await one.receive() is not None
        good(await web.delete(f"/credentials/{credential['id']}"))
        revoked = time.monotonic()
        async for _ in one.messages():
            pass
        assert one.closed == 1008
        assert time.monotonic() - revoked < 8
    good(await web.post(f"/runs/{run}/stop", json={}))


async def test_a_socket_only_reads(shop: LocalEdge, web: httpx.AsyncClient, other: Party) -> None:
    run = await start(web, "trial.wait", {"party": other.url})
    await first_of(shop, run, "suspended")
    path = f"/runs/{run}/stream"
    async with socket(shop, path, bearer(shop.root_token)) as one:
        assert await one.receive() is not None
        assert await one.ping(b"still there?") == b"still there?"
        await one.send('{"type":"stop"}')
        assert await one.receive() is None
        assert (one.closed, one.reason) == (1008, "a socket only reads")
    async with socket(shop, path, bearer(shop.root_token)) as one:
        assert await one.receive() is not None
        await one.close()
        assert one.closed == 1000
    assert good(await web.get(f"/runs/{run}"))["status"] == "suspended"


async def test_a_socket_and_a_stream_end_in_time_and_go_on_where_they_were(shop: LocalEdge, web: httpx.AsyncClient) -> None:
    run = await start(web, "stream.talk", {"steps": 40, "pause": 0.1})
    keeping = asyncio.create_task(by_socket(shop, run))
    first, closed = await by_socket(shop, run, "?max_seconds=1")
    assert (first.messages[0]["type"], closed) == ("snapshot", 1001)
    version = first.last["version"]
    at = f"{version['epoch']}.{version['counter']}"
    async with socket(shop, f"/runs/{run}/stream?after={at}", bearer(shop.root_token)) as one:
        message = await one.receive()
    assert message is not None
    assert (message["type"], message["version"]["epoch"]) == ("update", version["epoch"])
    assert message["version"]["counter"] > version["counter"]
    async with web.stream("GET", f"/runs/{run}/stream?max_seconds=1", headers={"last-event-id": at}) as answer:
        text = (await answer.aread()).decode()
    assert "event: update" in text
    assert "event: snapshot" not in text
    wrong = await web.get(f"/runs/{run}/stream", headers={"last-event-id": "17"})
    assert problem(wrong, 422)["code"] == "RequestInvalid"
    assert (await keeping)[0].last["status"] == "success"


async def test_who_reads_nothing_for_a_while_gets_the_latest_view_and_the_end(
    shop: LocalEdge, web: httpx.AsyncClient
) -> None:
    """So much is sent that neither side's buffers hold it, for longer than what is kept for who is slow."""
    run = await start(web, "stream.talk", {"steps": 420, "pause": 0.08, "bytes": 16_000})
    seen = Seen()
    async with socket(shop, f"/runs/{run}/stream", bearer(shop.root_token), receive_bytes=4096) as one:
        first = await one.receive()
        assert first is not None
        seen.add(first)
        watching = asyncio.create_task(by_socket(shop, run))
        # Whoever reads nothing for a minute is given up.
        await asyncio.wait([watching], timeout=50)
        async for message in one.messages():
            seen.add(message)
    quick, _ = await watching
    print(f"\n{len(quick.messages)} messages to who is quick, {len(seen.messages)} to who is slow")
    assert [one["type"] for one in quick.messages].count("snapshot") == 1
    assert [one["type"] for one in seen.messages].count("snapshot") == 2
    assert [one["status"] for one in (seen.last, quick.last)] == ["success"] * 2
    assert len(seen.steps) == len(quick.steps) == 420


@pytest.mark.clause("runs.outputs-by-reference")
async def test_no_output_and_no_result_is_in_any_message(shop: LocalEdge, web: httpx.AsyncClient) -> None:
    run = await start(web, "stream.talk", {"steps": 5, "pause": 0.1, "secret": "WORTH-A-LOT"})
    seen, _ = await by_socket(shop, run)
    late, _ = await by_events(web, run)
    assert "WORTH-A-LOT" not in json.dumps([*seen.messages, *late.messages])
    for step in seen.steps.values():
        assert step["output"] == {"ref": f"say@{step['input_sha256']}", "bytes": len('"WORTH-A-LOT0"')}
    assert seen.last["result_bytes"] == len('"WORTH-A-LOT"')
    assert good(await web.get(f"/runs/{run}"))["result"] == "WORTH-A-LOT"


async def test_what_else_is_asked_of_the_route(shop: LocalEdge, web: httpx.AsyncClient) -> None:
    run = await start(web, "stream.talk", {"steps": 1})
    path = f"/runs/{run}/stream"
    head = await web.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/event-stream")
    assert (await web.options(path)).headers["allow"] == "GET, HEAD, OPTIONS"
    assert problem(await web.post(path), 405)["code"] == "MethodNotAllowed"
    assert problem(await web.get(path, params={"since": "1"}), 422)["code"] == "RequestInvalid"
    assert problem(await web.get(path, params={"after": "x"}), 422)["code"] == "RequestInvalid"
    with pytest.raises(Refused) as refused:
        async with socket(shop, f"{path}?max_seconds=0", bearer(shop.root_token)):
            pass
    assert refused.value.status == 422


@pytest.mark.clause("runs.run-span", "runs.trace-context")
async def test_a_run_that_ended_is_one_span_below_its_caller_s(
    web: httpx.AsyncClient, collector: Collector, runs: Desk
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "shop=1"}
    run = await start(web, "stream.fail", {"steps": 0, "secret": "WORTH-A-LOT"}, **headers)
    shown = await asyncio.to_thread(runs.until, run, ENDED)
    own, *steps = await asyncio.to_thread(collector.spans, run)
    assert (own["name"], own["traceId"], own["parentSpanId"], own["traceState"]) == ("moorage.run", TRACE, PARENT, "shop=1")
    assert shown["traceparent"] == f"00-{TRACE}-{own['spanId']}-01"
    told = attributes(own)
    assert (told["moorage.body"], told["moorage.run.status"], told["error.type"]) == (
        "stream.fail",
        "failed",
        shown["error"]["tag"],
    )
    assert [(one["name"], one["parentSpanId"]) for one in steps] == [("first", own["spanId"]), ("second", own["spanId"])]
    posted = [(sent, body) for sent, body in collector.got if run in json.dumps(body)]
    assert len(posted) == 1
    assert posted[0][0]["x-key"] == KEY
    assert not {"WORTH-A-LOT", KEY} & set(json.dumps(posted[0][1]).split('"'))
    assert "WORTH-A-LOT" not in json.dumps(posted[0][1])


@pytest.mark.clause("runs.trace-context")
async def test_what_a_step_asks_of_others_names_the_step_s_own_span(
    web: httpx.AsyncClient, collector: Collector, runs: Desk
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "shop=1"}
    run = await start(web, "trial.ask", {"url": f"{collector.url}/asked"}, **headers)
    assert (await asyncio.to_thread(runs.until, run))["status"] == "success"
    own, step = await asyncio.to_thread(collector.spans, run)
    (asked,) = collector.asked
    assert (step["name"], step["kind"], step["parentSpanId"]) == ("ask", 3, own["spanId"])
    assert (asked["traceparent"], asked["tracestate"]) == (f"00-{TRACE}-{step['spanId']}-01", "shop=1")


async def test_a_run_whose_host_is_elsewhere_is_seen_as_its_record_changes(
    shop: LocalEdge, web: httpx.AsyncClient, collector: Collector
) -> None:
    build = {"implementation": "a" * 64}
    offered = {"build": build, "effects": ["look"], "description": "Looks"}
    good(await web.put("/bodies/stream.remote", json=offered))
    asked = {"body": "stream.remote", "input": None, "holder": "host-1"}
    look = {"label": "look", "kind": "step", "position": "0"}
    operations: list[tuple[dict[str, Any], list[str]]] = [
        ({"op": "claim", **look}, ["running"]),
        ({"op": "record", "label": "look", "value": 7}, ["running", "success"]),
    ]
    for one in tries(0.9):
        held = good(await web.post("/executions", json=asked))
        run, journal = held["run_id"], f"/executions/{held['execution_id']}/journal"
        epoch, seen = held["lease"]["epoch"], Seen()
        watching = asyncio.create_task(by_socket(shop, run, seen=seen))
        await until(seen, [])
        for operation, told in operations:
            good(await web.post(journal, json={"epoch": epoch, "operations": [operation]}))
            await until(seen, told)
        began = time.monotonic()
        close = {"op": "close", "status": "success", "result": 7}
        good(await web.post(journal, json={"epoch": epoch, "operations": [close]}))
        _, closed = await watching
        assert (seen.told, seen.last["status"], closed) == (["running", "success"], "success", 1000)
        assert seen.last["host"] == "remote"
        one.took = seen.came[-1] - began
        assert attributes((await asyncio.to_thread(collector.spans, run))[0])["moorage.run.status"] == "success"


@pytest.mark.clause("runs.run-span")
async def test_a_run_that_is_stopped_while_nobody_holds_it_is_a_span_too(
    shop: LocalEdge, web: httpx.AsyncClient, collector: Collector, other: Party
) -> None:
    run = await start(web, "trial.wait", {"party": other.url, "steps": 1})
    await first_of(shop, run, "suspended")
    good(await web.post(f"/runs/{run}/stop", json={}))
    own = (await asyncio.to_thread(collector.spans, run))[0]
    assert attributes(own)["moorage.run.status"] == "canceled"
    assert own["traceId"] not in (TRACE, "0" * 32)
