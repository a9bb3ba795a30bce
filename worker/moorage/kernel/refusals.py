"""Refusing one field of a request, with a pointer to it; and bounds that several rooms share."""

from moorage.kernel.errors import RequestInvalid
from moorage.kernel.limits import TEXT_CHARACTERS


def refused(pointer: str, message: str, detail: str | None = None) -> RequestInvalid:
    """The error for the field at `pointer` (a JSON Pointer); `detail` is the whole sentence where that is not both.

    Neither may repeat what may be a secret.
    """
    return RequestInvalid(detail or f"{pointer} {message}", errors=[{"pointer": pointer, "message": message}])


def check_reason(reason: str) -> None:
    """Raise RequestInvalid unless a reason that history is to keep has 1 to TEXT_CHARACTERS characters."""
    if not 1 <= len(reason) <= TEXT_CHARACTERS:
        message = f"a reason has 1 to {TEXT_CHARACTERS} characters"
        raise refused("/reason", message, message)
