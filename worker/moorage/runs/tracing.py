"""A run as spans of OpenTelemetry: one `moorage.run` for each run that ended, and one below it for each step that it ran
(clause runs.run-span).

They are sent as OTLP over HTTP in JSON, after the end was committed and read from the durable record, so that it makes no
difference who ended the run. Sending is best effort: it takes a few seconds at most, and a failure is logged, nothing more.
Spans say what ran, for how long and how it ended; no input, no output, no metadata and no message of an error is in them.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol

import moorage
from moorage.journal.model import EntryKey
from moorage.kernel.instants import Instant
from moorage.runs.live.model import Snapshot, StepView
from moorage.runs.model import Trace
from moorage.runs.tracing_context import step_span

SEND_SECONDS: Final = 5.0
"""How long a collector may take to answer."""

_INTERNAL, _CLIENT = 1, 3
_OK, _ERROR = 1, 2
_FAILED: Final = frozenset({"failed", "partial_failure"})

_log = logging.getLogger("moorage.tracing")

Attributes = Mapping[str, str | int | None]
Ended = tuple[Trace, Snapshot]
"""A run that has ended, as its record tells it."""

Post = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]
"""Posts a body to a URL and answers the status. Whatever it raises is a failure."""


class Spans(Protocol):
    """Told which runs have ended. Returns at once and never fails."""

    def ended(self, run_id: str) -> None:
        """The end of a run was committed."""


class NoSpans:
    """Where no collector is configured."""

    def ended(self, run_id: str) -> None:
        """Nobody wants to know."""


class Exporter:
    """Sends the spans of runs to a collector. `load` reads an ended run, `later` sees work through after the answer."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        service: str,
        load: Callable[[str], Awaitable[Ended | None]],
        post: Post,
        later: Callable[[Coroutine[Any, Any, None]], Any],
    ) -> None:
        self._url = url
        self._headers = {**headers, "content-type": "application/json"}
        self._service = service
        self._load = load
        self._post = post
        self._later = later

    def ended(self, run_id: str) -> None:
        """Send the spans of a run, later."""
        self._later(self.send(run_id))

    async def send(self, run_id: str) -> None:
        """Send the spans of a run. Never fails."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                found = await self._load(run_id)
                if found is None or not found[1].ended:
                    return
                body = json.dumps(request(self._service, *found), separators=(",", ":")).encode()
                status = await self._post(self._url, self._headers, body)
            if status >= 300:
                _log.warning("the collector answered %d to the spans of %s", status, run_id)
        except Exception as error:
            _log.warning("the spans of %s could not be sent: %s", run_id, type(error).__name__)


def request(service: str, trace: Trace, run: Snapshot) -> dict[str, Any]:
    """The body of an OTLP request with the spans of a run that has ended."""
    steps = [_step(trace, run, one) for one in run.steps.values() if _ran(run, one)]
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes({"service.name": service, "service.version": moorage.__version__})},
                "scopeSpans": [
                    {"scope": {"name": "moorage", "version": moorage.__version__}, "spans": [_run(trace, run), *steps]}
                ],
            }
        ]
    }


def _run(trace: Trace, run: Snapshot) -> dict[str, Any]:
    attributes: Attributes = {
        "moorage.run.id": run.run_id,
        "moorage.execution.id": run.execution_id,
        "moorage.body": run.body,
        "moorage.scope": run.scope,
        "moorage.run.status": run.status,
        "moorage.run.attempt": run.attempt,
        "moorage.run.result_bytes": run.result_bytes,
        "error.type": None if run.error is None else run.error.get("tag"),
    }
    span = _span(trace, trace.span_id, "moorage.run", run.started_at, run.ended_at, attributes)
    if trace.parent_span is not None:
        span["parentSpanId"] = trace.parent_span
    return {**span, "kind": _INTERNAL, "status": _status(run.status in _FAILED, run.status == "success")}


def _step(trace: Trace, run: Snapshot, step: StepView) -> dict[str, Any]:
    attributes: Attributes = {
        "moorage.run.id": run.run_id,
        "moorage.step.kind": step.kind,
        "moorage.step.position": step.position,
        "moorage.step.status": step.status,
        "moorage.step.attempt": step.attempt,
        "moorage.step.output_bytes": step.output_bytes,
        "error.type": None if step.error is None else step.error.get("tag"),
    }
    own = step_span(trace, EntryKey(step.label, step.input_sha256))
    span = _span(trace, own, step.label, step.started_at, step.ended_at, attributes)
    kind = _CLIENT if step.kind == "fetch" else _INTERNAL
    status = _status(step.status == "failed", step.status == "success")
    return {**span, "parentSpanId": trace.span_id, "kind": kind, "status": status}


def _ran(run: Snapshot, step: StepView) -> bool:
    """Whether a step ran in this run: not in an earlier one of its execution, and to an end."""
    return step.ended_at is not None and step.started_at is not None and step.ended_at >= run.started_at


def _span(
    trace: Trace, own: str, name: str, start: Instant | None, end: Instant | None, attributes: Attributes
) -> dict[str, Any]:
    span = {
        "traceId": trace.trace_id,
        "spanId": own,
        "name": name,
        "startTimeUnixNano": f"{start}000000",
        "endTimeUnixNano": f"{end}000000",
        "attributes": _attributes(attributes),
    }
    return span if trace.state is None else {**span, "traceState": trace.state}


def _status(failed: bool, succeeded: bool) -> dict[str, int]:
    return {"code": _ERROR} if failed else {"code": _OK} if succeeded else {}


def _attributes(told: Attributes) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in told.items()
        if value is not None
    ]
