"""Trace context in and out, and the spans of runs."""

import asyncio
import json
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.journal.model import EntryKey
from moorage.kernel.instants import Instant
from moorage.runs.live.model import Snapshot
from moorage.runs.live.reducer import reduce
from moorage.runs.model import Trace
from moorage.runs.tracing import Exporter, request
from moorage.runs.tracing_context import child_trace, outbound, step_span, trace_of, traceparent
from tests.unit.runs.live.views import HASH, START, run, step, view

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.clause("runs.trace-context")
@pytest.mark.parametrize(
    "sent", [GOOD, f"00-{TRACE}-{PARENT}-00", f"00-{TRACE}-{PARENT}-ff", f"cc-{TRACE}-{PARENT}-01-what-will-be"]
)
def test_a_caller_s_trace_becomes_the_run_s(sent: str) -> None:
    found = trace_of(sent, "vendor=1")
    assert (found.trace_id, found.parent_span, found.state) == (TRACE, PARENT, "vendor=1")
    assert found.span_id not in (PARENT, "0" * 16)


@pytest.mark.clause("runs.trace-context")
@pytest.mark.parametrize(
    "sent",
    [
        None,
        "",
        "nonsense",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-01-",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE[1:]}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}g-01",
        f"00-{TRACE}-{PARENT}-01, 00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01\n",
        f"cc-{TRACE}-{PARENT}-01.more",
        GOOD.translate({ord("0"): "\u0660"}),
    ],
)
def test_what_is_malformed_starts_a_fresh_trace(sent: str | None) -> None:
    found, again = trace_of(sent, "vendor=1"), trace_of(sent, "vendor=1")
    assert found.trace_id not in (TRACE, "0" * 32, again.trace_id)
    assert (found.parent_span, found.state) == (None, None)
    assert len(found.trace_id) == 32
    assert len(found.span_id) == 16


@pytest.mark.clause("runs.trace-context")
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("a=1", "a=1"),
        ("a=1, b=2\t,c@d=3", "a=1,b=2,c@d=3"),
        ("a=1,,b=2", "a=1,b=2"),
        ("fw529a3039@dt=FfAAAC4xMjM,rojo=00f067aa0ba902b7", "fw529a3039@dt=FfAAAC4xMjM,rojo=00f067aa0ba902b7"),
        ("a= x", "a= x"),
        ("a=1,a=2", None),
        ("A=1", None),
        ("a", None),
        ("a=", None),
        ("a=x=y", None),
        ("a=\u00e9", None),
        ("a@B=1", None),
        (",".join(f"k{number}=1" for number in range(32)), ",".join(f"k{number}=1" for number in range(32))),
        (",".join(f"k{number}=1" for number in range(33)), None),
        (f"a={'x' * 256},b={'y' * 240},c=12345678", f"a={'x' * 256},b={'y' * 240},c=12345678"),
        (f"a={'x' * 256},b={'y' * 240},c=123456789", f"a={'x' * 256},b={'y' * 240}"),
        (f"a={'x' * 257}", None),
        ("", None),
        (None, None),
    ],
)
def test_a_state_is_read_strictly_and_a_bad_one_goes_alone(sent: str | None, kept: str | None) -> None:
    found = trace_of(GOOD, sent)
    assert (found.trace_id, found.state) == (TRACE, kept)


@given(st.text(max_size=60), st.text(max_size=60))
def test_nothing_that_is_sent_breaks_anything_or_makes_a_header_of_its_own(sent: str, state: str) -> None:
    for found in (trace_of(sent, state), trace_of(GOOD, state)):
        headers = outbound(found)
        assert trace_of(headers["traceparent"], headers.get("tracestate")).trace_id == found.trace_id
        assert all(value.isascii() and value.isprintable() for value in headers.values())


@pytest.mark.clause("runs.trace-context")
def test_what_a_run_sends_names_its_trace_and_the_span_of_the_step_that_sends() -> None:
    trace = Trace(TRACE, PARENT, None, "a=1")
    one, other = EntryKey("charge", HASH), EntryKey("charge", "b" * 64)
    assert outbound(trace) == {"traceparent": GOOD, "tracestate": "a=1"}
    assert outbound(trace, one) == {"traceparent": f"00-{TRACE}-{step_span(trace, one)}-01", "tracestate": "a=1"}
    assert step_span(trace, one) == step_span(Trace(TRACE, PARENT), one)
    assert len({step_span(trace, one), step_span(trace, other), step_span(replace(trace, span_id="c" * 16), one)}) == 3
    assert traceparent(trace, one) == outbound(trace, one)["traceparent"]


@pytest.mark.clause("runs.trace-context")
def test_a_child_is_in_the_same_trace_below_its_parent() -> None:
    child = child_trace(Trace(TRACE, PARENT, None, "a=1"))
    assert (child.trace_id, child.parent_span, child.state) == (TRACE, PARENT, "a=1")
    assert child.span_id != PARENT


def ended(*more: Any) -> Snapshot:
    error = {"tag": "Permanent", "message": "SECRET and so on"}
    told = [
        step("fetch", kind="fetch"),
        step("charge", "failed", 2, error=error),
        step("before", started_at=Instant(START - 9), ended_at=Instant(START - 5)),
    ]
    return reduce(view(metadata={"note": "SECRET"}), [*told, *more, run("failed", error=error)])


def spans_of(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    (resource,) = told["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    found: list[dict[str, Any]] = scope["spans"]
    return found


def attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


@pytest.mark.clause("runs.run-span")
def test_a_run_is_one_span_below_its_caller_s_with_its_steps_below_it() -> None:
    trace = Trace(TRACE, "c" * 16, PARENT, "a=1")
    told = request("shop", trace, ended())
    own, *steps = spans_of(told)
    assert (own["name"], own["traceId"], own["spanId"], own["parentSpanId"]) == ("moorage.run", TRACE, "c" * 16, PARENT)
    assert (own["startTimeUnixNano"], own["endTimeUnixNano"]) == (f"{START}000000", f"{START + 9}000000")
    assert own["status"] == {"code": 2}
    wanted = {
        "moorage.run.id": "run_1",
        "moorage.execution.id": "exe_1",
        "moorage.body": "order",
        "moorage.scope": "run_1",
        "moorage.run.status": "failed",
        "moorage.run.attempt": "1",
        "error.type": "Permanent",
    }
    assert attributes(own) == wanted
    assert [(one["name"], one["kind"], one["status"]) for one in steps] == [
        ("fetch", 3, {"code": 1}),
        ("charge", 1, {"code": 2}),
    ]
    assert [one["parentSpanId"] for one in steps] == ["c" * 16] * 2
    assert steps[0]["spanId"] == step_span(trace, EntryKey("fetch", HASH))
    assert len({one["spanId"] for one in (own, *steps)}) == 3
    assert "SECRET" not in json.dumps(told)


@pytest.mark.clause("runs.run-span")
def test_a_root_run_has_no_parent_and_a_success_is_ok() -> None:
    (own,) = spans_of(request("shop", Trace(TRACE, PARENT), reduce(view(), [run("success", result_bytes=7)])))
    assert "parentSpanId" not in own
    assert own["status"] == {"code": 1}
    assert attributes(own)["moorage.run.result_bytes"] == "7"


class Collector:
    """What an exporter is given: a record, a collector, and work to do later."""

    def __init__(self, found: Any, status: int = 200, fails: bool = False) -> None:
        self.found = found
        self.status = status
        self.fails = fails
        self.posted: list[tuple[str, Mapping[str, str], dict[str, Any]]] = []
        self.later: list[Coroutine[Any, Any, None]] = []
        self.exporter = Exporter("https://o.test/v1/traces", {"x-key": "k"}, "shop", self.load, self.post, self.later.append)

    async def load(self, run_id: str) -> Any:
        assert run_id == "run_1"
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        self.posted.append((url, headers, json.loads(body)))
        if self.fails:
            raise OSError("x-key: k")
        return self.status


@pytest.mark.clause("runs.run-span")
async def test_an_ended_run_is_sent_after_the_fact_with_the_collector_s_headers() -> None:
    collector = Collector((Trace(TRACE, PARENT), ended()))
    collector.exporter.ended("run_1")
    assert collector.posted == []
    for work in collector.later:
        await work
    ((url, headers, body),) = collector.posted
    assert url == "https://o.test/v1/traces"
    assert headers == {"x-key": "k", "content-type": "application/json"}
    assert spans_of(body)[0]["name"] == "moorage.run"


@pytest.mark.clause("runs.run-span")
@pytest.mark.parametrize(
    "collector",
    [
        Collector((Trace(TRACE, PARENT), ended()), status=500),
        Collector((Trace(TRACE, PARENT), ended()), fails=True),
        Collector(RuntimeError("the database")),
        Collector(None),
        Collector((Trace(TRACE, PARENT), view())),
    ],
)
async def test_no_failure_to_send_is_told_to_anybody_but_the_log(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    await collector.exporter.send("run_1")
    assert "x-key" not in caplog.text
    assert bool(collector.posted) == (
        collector.found is not None and isinstance(collector.found, tuple) and collector.found[1].ended
    )


@pytest.mark.clause("runs.run-span")
async def test_a_collector_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Collector((Trace(TRACE, PARENT), ended()))

    async def hang(url: str, headers: Mapping[str, str], body: bytes) -> int:
        await asyncio.Event().wait()
        return 200

    exporter = Exporter("https://o.test", {}, "shop", collector.load, hang, collector.later.append)
    monkeypatch.setattr("moorage.runs.tracing.SEND_SECONDS", 0.01)
    await exporter.send("run_1")
    assert "TimeoutError" in caplog.text
