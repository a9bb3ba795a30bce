"""Writes Python errors for people: the Worker's own frames, many lines, nothing of the machinery underneath."""

import sys
import traceback
from collections.abc import Iterator

_CODE = "/session/metadata/"
_OURS = "/session/edge/"


def _chain(summary: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    stack = [summary]
    while stack:
        one = stack.pop()
        yield one
        stack.extend(other for other in (one.__cause__, one.__context__, *(one.exceptions or ())) if other)


def formatted(error: BaseException) -> str:
    """The traceback as Python prints it, without the frames of the local edge and with paths as in the bundle."""
    summary = traceback.TracebackException.from_exception(error, compact=True)
    for one in _chain(summary):
        kept = [frame for frame in one.stack if not frame.filename.startswith((_OURS, "<frozen importlib"))]
        one.stack = traceback.StackSummary.from_list(kept)
    return "".join(summary.format()).rstrip().replace(_CODE, "")


def log(error: BaseException) -> None:
    """Print the traceback in one piece, so that no other line falls into the middle of it."""
    import js

    js.console.error(formatted(error))


def one_line(error: BaseException) -> str:
    """Where in the bundle it happened and what, on one line."""
    if isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}"
        what = f"{type(error).__name__}: {error.msg}"
    else:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename.startswith(_CODE) and "/python_modules/" not in frame.filename
        ]
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "the bundle"
        what = f"{type(error).__name__}: {error}"
    return " ".join(f"{place}: {what}".replace(_CODE, "").split())


def to_stderr(error: BaseException) -> None:
    """Print the traceback where no event is being handled yet."""
    print(formatted(error), file=sys.stderr)
