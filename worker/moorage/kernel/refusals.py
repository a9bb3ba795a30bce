"""Refusing one field of a request, with a pointer to it; and bounds that several rooms share."""

import re
from typing import Final

from moorage.kernel.errors import RequestInvalid
from moorage.kernel.limits import TEXT_CHARACTERS

LINE: Final = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"
"""What names something for people, a label or a subject: one line, without control characters."""

LINES: Final = r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]+$"
"""What people write for people, a reason: the same, with line breaks and tabs."""


def refused(pointer: str, message: str, detail: str | None = None) -> RequestInvalid:
    """The error for the field at `pointer` (a JSON Pointer); `detail` is the whole sentence where that is not both.

    Neither may repeat what may be a secret.
    """
    return RequestInvalid(detail or f"{pointer} {message}", errors=[{"pointer": pointer, "message": message}])


def check_reason(reason: str) -> None:
    """Raise RequestInvalid unless a reason that history is to keep has 1 to TEXT_CHARACTERS characters and fits LINES."""
    if not _fits(reason, LINES):
        message = f"a reason has 1 to {TEXT_CHARACTERS} characters, and of control characters line breaks and tabs only"
        raise refused("/reason", message, message)


def check_line(text: str, pointer: str) -> None:
    """Raise RequestInvalid at `pointer` unless a label or subject has 1 to TEXT_CHARACTERS characters and fits LINE."""
    if not is_line(text):
        raise refused(pointer, f"must have 1 to {TEXT_CHARACTERS} characters, none of them a control character")


def is_line(text: str) -> bool:
    """Whether a text has 1 to TEXT_CHARACTERS characters and fits LINE."""
    return _fits(text, LINE)


def _fits(text: str, pattern: str) -> bool:
    return 1 <= len(text) <= TEXT_CHARACTERS and re.fullmatch(pattern, text) is not None
