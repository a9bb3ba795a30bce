"""The one way by which an error gets into a row (clause runs.error-cap): masked, and at most RUN_ERROR_BYTES with a mark.

Whoever stores why a step or a run failed passes it through `stored` first; every surface then shows what is stored.
"""

from dataclasses import replace
from typing import Final

from moorage.kernel import canonical
from moorage.kernel.errors import FailureTag
from moorage.kernel.limits import ID_CHARACTERS, RUN_ERROR_BYTES, TEXT_CHARACTERS
from moorage.kernel.masking import mask
from moorage.runs.model import Failure

ELLIPSIS: Final = "…"
_LOOKED_AT: Final = 8 * int(RUN_ERROR_BYTES)
"""Characters of a message that are looked at. What would be shown of the rest, masked or not, is nothing."""


def stored_text(text: str) -> str:
    """The message as it is stored: masked, at most RUN_ERROR_BYTES in UTF-8, with an ellipsis where it was cut."""
    cut = len(text) > _LOOKED_AT
    whole = _without_last_word(text[:_LOOKED_AT]) if cut else text
    raw = mask(whole).encode("utf-8", "replace")
    if not cut and len(raw) <= RUN_ERROR_BYTES:
        return raw.decode()
    room = int(RUN_ERROR_BYTES) - len(ELLIPSIS.encode())
    return raw[:room].decode("utf-8", "ignore") + ELLIPSIS


def stored(failure: Failure) -> Failure:
    """The failure as it is stored. A tag that is none of the closed set is Permanent."""
    tag = failure.tag if failure.tag in set(FailureTag) else FailureTag.PERMANENT.value
    code = None if failure.code is None else mask(_written(failure.code, int(TEXT_CHARACTERS)))
    step = None if failure.step is None else _written(failure.step, int(ID_CHARACTERS))
    return replace(failure, tag=str(tag), message=stored_text(failure.message), code=code, step=step)


def error_json(failure: Failure) -> str:
    """The failure as the text of a column, as it is stored."""
    return canonical.dumps(stored(failure).wire())


def _written(text: object, most: int) -> str:
    """A name as it is stored: at most so many characters, none of them half a surrogate pair. A body may have named a step
    by anything at all, also by what is no text."""
    return str(text)[:most].encode("utf-8", "replace").decode()


def _without_last_word(text: str) -> str:
    """A text that was cut may end in half a credential, which no pattern knows any more: its last word goes too."""
    end = max(text.rfind(" "), text.rfind("\n"), text.rfind("\t"))
    return text[: end + 1] if end >= 0 else ""
