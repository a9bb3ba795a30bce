"""Reading a Retry-After header, whatever was written there (clauses runs.retry-after, outbox.deliver).

A whole number of seconds or one of the three forms of an HTTP-date counts; everything else is as if it were absent, so that
the schedule's own delay applies. A date in the past is 0 seconds, which is the schedule's own delay too, and an attempt.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from moorage.kernel.instants import Instant
from moorage.kernel.limits import UPSTREAM_WAIT_SECONDS, Limit

_SECONDS = re.compile(r"[0-9]+", re.ASCII)
# IMF-fixdate, RFC 850 and asctime; the library's reader takes far more than these, and guesses.
_DATE: Final = (
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT"
    r"|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, \d{2}-[A-Z][a-z]{2}-\d{2} \d{2}:\d{2}:\d{2} GMT"
    r"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4}"
)
_DATES: Final = re.compile(_DATE, re.ASCII)
# Several header lines are one line with commas by the time that some transports hand them over (RFC 9110, 5.3).
_EACH: Final = re.compile(rf"{_DATE}|[^,]+", re.ASCII)


def retry_after(lines: Iterable[str], now: Instant, longest: Limit = UPSTREAM_WAIT_SECONDS) -> float | None:
    """Seconds to wait from `now`, at most `longest`; of several header lines the longest, None without any."""
    most = float(longest)
    found = [seconds for line in lines for told in _EACH.findall(line) if (seconds := _one(told, now, most)) is not None]
    return max(found, default=None)


def _one(line: str, now: Instant, most: float) -> float | None:
    text = line.strip(" \t")
    if _SECONDS.fullmatch(text):
        # More digits than any sensible wait has: no need to make a number of them.
        return most if len(text) > 12 else min(float(text), most)
    if not _DATES.fullmatch(text):
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError, IndexError):
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    wait = (moment - datetime.fromtimestamp(now / 1000, UTC)).total_seconds()
    return min(max(0.0, wait), most)
