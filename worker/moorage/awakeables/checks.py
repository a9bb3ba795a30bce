"""The bounds of what is minted, by whomever (clause kernel.limits)."""

from collections.abc import Mapping
from typing import Any, Final

from moorage.kernel import canonical
from moorage.kernel.errors import RequestInvalid
from moorage.kernel.instants import EARLIEST, LATEST, Instant, after
from moorage.kernel.limits import AWAKE_TTL_SECONDS, METADATA_BYTES
from moorage.kernel.refusals import check_line, refused

SHORTEST_SECONDS: Final = 0.001


def span(ttl_seconds: float, created_at: Instant | None, now: Instant) -> tuple[Instant, Instant]:
    """The instants of creation (now unless given) and of the deadline. Raises RequestInvalid outside the bounds."""
    if not SHORTEST_SECONDS <= ttl_seconds <= AWAKE_TTL_SECONDS:
        raise _invalid("ttl_seconds", f"must lie between {SHORTEST_SECONDS} and {AWAKE_TTL_SECONDS} seconds")
    created = now if created_at is None else created_at
    if not EARLIEST <= created <= LATEST:
        raise _invalid("created_at", "must lie between the years 1970 and 9999")
    deadline = after(created, ttl_seconds)
    if deadline > after(now, AWAKE_TTL_SECONDS):
        raise _invalid("created_at", f"puts the deadline further ahead than {AWAKE_TTL_SECONDS} seconds")
    return created, deadline


def text(value: str | None, name: str) -> str | None:
    """A subject or a label, unchanged. Raises RequestInvalid when it is empty, too long or holds a control character."""
    if value is not None:
        check_line(value, f"/{name}")
    return value


def metadata(value: Mapping[str, Any]) -> str:
    """Metadata as canonical JSON. Raises RequestInvalid past METADATA_BYTES."""
    written = canonical.dumps(dict(value))
    if canonical.size(written) > METADATA_BYTES:
        raise _invalid("metadata", f"must have at most {METADATA_BYTES} bytes as canonical JSON")
    return written


def _invalid(name: str, message: str) -> RequestInvalid:
    return refused(f"/{name}", message, f"{name} {message}")
