"""Instants: integer milliseconds since 1970 UTC inside, RFC 3339 UTC ending in Z on the wire (clause kernel.instants).

Nothing here reads a clock: `now` is an argument of every operation, injected by the edge and by tests.
Expiry is exclusive: an instant equal to `now` has passed.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import NewType

from moorage.kernel.errors import RequestInvalid

Instant = NewType("Instant", int)
"""Milliseconds since 1970-01-01T00:00:00Z."""

EARLIEST = Instant(0)
LATEST = Instant(253_402_300_799_999)
"""9999-12-31T23:59:59.999Z, the last instant that RFC 3339 can write."""

_RFC3339 = re.compile(r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_OURS = re.compile(r"\d{4}-\d{2}-\d{2}T(?:[01]\d|2[0-3]):\d{2}:\d{2}\.\d{3}Z", re.ASCII)


def normalize(text: str) -> str:
    """Any RFC 3339 instant as fixed-width UTC text with nanoseconds, `2026-11-29T16:35:00.123000000Z`, so that equal
    instants are equal texts and order is text order.

    Raises RequestInvalid when the text is not an RFC 3339 instant with an offset, has a leap second or lies outside the
    years 1 to 9999.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise RequestInvalid(f"not an RFC 3339 instant: {text[:60]!r}")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
        moment -= _offset(zone)
    except (ValueError, OverflowError):
        raise RequestInvalid(f"not an RFC 3339 instant: {text[:60]!r}") from None
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}.{(fraction or '').ljust(9, '0')}Z"


def _offset(zone: str) -> timedelta:
    if zone in "Zz":
        return timedelta()
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError(zone)
    span = timedelta(hours=hours, minutes=minutes)
    return span if zone[0] == "+" else -span


def parse(text: str) -> Instant:
    """An RFC 3339 instant as milliseconds; digits past the millisecond are cut.

    Raises RequestInvalid when it is not one, or lies before 1970.
    """
    try:
        # What `render` wrote needs no second look.
        moment = datetime.fromisoformat(text if _OURS.fullmatch(text) else normalize(text)[:23] + "Z")
    except ValueError:
        raise RequestInvalid(f"not an RFC 3339 instant: {text[:60]!r}") from None
    value = (moment - _EPOCH) // _MILLISECOND
    if value < EARLIEST:
        raise RequestInvalid(f"instant before 1970: {text[:60]!r}")
    return Instant(value)


def render(instant: Instant) -> str:
    """RFC 3339 UTC with milliseconds: `2026-11-29T16:35:00.123Z`."""
    return (_EPOCH + instant * _MILLISECOND).isoformat(timespec="milliseconds")[:23] + "Z"


def full_ten_minutes(instant: Instant) -> Instant:
    """The full ten minutes at or after an instant: when sweeps come by."""
    return Instant(-(-instant // 600_000) * 600_000)


def after(now: Instant, seconds: float) -> Instant:
    """The instant `seconds` after `now`, never past year 9999."""
    return Instant(min(now + round(seconds * 1000), LATEST))
