"""Where in a body's own code something failed that nobody had foreseen: told in the log, and in nothing that is stored.

What the exception says of itself stands in the run's record, masked and capped; here are only its class, file, line and
function, so that a log holds no value that a body works with.
"""

import logging
import traceback
from pathlib import PurePath

from moorage.kernel.errors import FailureTag
from moorage.runs.model import Failure

log = logging.getLogger("moorage.bodies")


def note(error: BaseException, failure: Failure, package: str, run_id: str) -> None:
    """Log the innermost line of the body's package that an exception went through, if its class alone made it a failure."""
    if failure.tag != FailureTag.PERMANENT.value or failure.code != type(error).__name__:
        return
    place = place_of(error, package)
    if place is not None:
        log.warning("run %s: %s at %s", run_id, failure.code, place)


def place_of(error: BaseException, package: str) -> str | None:
    """`order.py:17 in charge`, of the innermost frame in this package; None when it went through none."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            found = f"{PurePath(frame.f_code.co_filename).name}:{line} in {frame.f_code.co_name}"
    return found
