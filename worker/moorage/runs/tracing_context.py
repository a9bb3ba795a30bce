"""W3C trace context of runs: what a caller sends becomes the trace of its run (clause runs.trace-context)."""

import re
import secrets

from moorage.runs.protocol import Trace

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE_CHARACTERS = 512
_STATE = re.compile(r"[\x20-\x7e]+")


def trace_of(traceparent: str | None, tracestate: str | None = None) -> Trace:
    """The trace of a run that is opened now: the caller's with a span of the run's own, or a fresh one.

    A header that is malformed or all zero is as good as none, and then so is its state.
    """
    match = _PARENT.fullmatch(traceparent.strip()) if traceparent else None
    if match is None or not _is_valid(*match.groups()):
        return Trace(_random(16), _random(8))
    _, trace, parent, _, _ = match.groups()
    return Trace(trace, _random(8), parent, _state(tracestate))


def child_trace(trace: Trace) -> Trace:
    """The trace of a run that another run starts: the same, below the parent run's span."""
    return Trace(trace.trace_id, _random(8), trace.span_id, trace.state)


def traceparent(trace: Trace) -> str:
    """The header by which whatever the run calls learns of its trace. Always sampled."""
    return f"00-{trace.trace_id}-{trace.span_id}-01"


def _is_valid(version: str, trace: str, parent: str, flags: str, more: str | None) -> bool:
    if version == "ff" or (version == "00" and more):
        return False
    return trace.strip("0") != "" and parent.strip("0") != ""


def _state(tracestate: str | None) -> str | None:
    if not tracestate or len(tracestate) > _STATE_CHARACTERS or _STATE.fullmatch(tracestate) is None:
        return None
    return tracestate


def _random(size: int) -> str:
    while True:
        told = secrets.token_hex(size)
        if told.strip("0"):
            return told
