"""W3C trace context of runs: what a caller sends becomes the trace of its run (clause runs.trace-context).

Both headers are read strictly. A `traceparent` that is not one starts a fresh trace, and its state goes with it; a
`tracestate` that is not one goes alone.
"""

import hashlib
import re
import secrets
from typing import Final

from moorage.journal.model import EntryKey
from moorage.runs.model import Trace

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[!-~]*)?")
_STATE_CHARACTERS: Final = 512
_STATE_MEMBERS: Final = 32
_KEY: Final = r"(?:[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13}|[a-z0-9][a-z0-9_*/-]{0,255})"
_MEMBER: Final = re.compile(rf"({_KEY})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")


def trace_of(traceparent: str | None, tracestate: str | None = None) -> Trace:
    """The trace of a run that is opened now: the caller's with a span of the run's own, or a fresh one.

    The headers are taken as they came, several of one name between commas. Of a version past 00 what 00 has is read.
    """
    match = _PARENT.fullmatch(traceparent.strip(" \t")) if traceparent else None
    if match is None or not _is_valid(*match.groups()):
        return Trace(_random(16), _random(8))
    return Trace(match[2], _random(8), match[3], _state(tracestate))


def child_trace(trace: Trace) -> Trace:
    """The trace of a run that another run starts: the same, below the parent run's span."""
    return Trace(trace.trace_id, _random(8), trace.span_id, trace.state)


def step_span(trace: Trace, key: EntryKey) -> str:
    """The span of a step: made of its run's and of its key, so that every replay of the run tells the same."""
    told = f"{trace.span_id}\0{key.label}\0{key.input_sha256}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def traceparent(trace: Trace, key: EntryKey | None = None) -> str:
    """The header by which what the run calls learns of its trace, below the span of a step if one calls. Always sampled."""
    return f"00-{trace.trace_id}-{trace.span_id if key is None else step_span(trace, key)}-01"


def outbound(trace: Trace, key: EntryKey | None = None) -> dict[str, str]:
    """The headers of a request that a run sends, by lower-case name."""
    headers = {TRACEPARENT: traceparent(trace, key)}
    return headers if trace.state is None else {**headers, TRACESTATE: trace.state}


def _is_valid(version: str, trace: str, parent: str, more: str | None) -> bool:
    if version == "ff" or (version == "00" and more is not None):
        return False
    return trace.strip("0") != "" and parent.strip("0") != ""


def _state(tracestate: str | None) -> str | None:
    """The state as it is sent on: its members without the space around them, or None when it is malformed.

    What passes the characters that everybody must take loses members from its end, which are the oldest.
    """
    members = [one for part in (tracestate or "").split(",") if (one := part.strip(" \t"))]
    matches = [_MEMBER.fullmatch(one) for one in members]
    keys = [one[1] for one in matches if one is not None]
    if not members or len(members) > _STATE_MEMBERS or len(keys) != len(members) or len(set(keys)) != len(keys):
        return None
    while len(",".join(members)) > _STATE_CHARACTERS:
        members.pop()
    return ",".join(members)


def _random(size: int) -> str:
    while True:
        told = secrets.token_hex(size)
        if told.strip("0"):
            return told
