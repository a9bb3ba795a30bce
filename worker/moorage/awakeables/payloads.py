"""The payload of an awakeable: the one value of its body, as canonical JSON (clause awake.content-types).

Which value a body has by its content type stands in `kernel.content`.
"""

from dataclasses import dataclass
from typing import Any

from moorage.kernel import canonical, content
from moorage.kernel.errors import PayloadTooLarge
from moorage.kernel.limits import AWAKE_PAYLOAD_BYTES, JOURNAL_INLINE_BYTES

_BEFORE, _AFTER = '{"resolved":', "}"


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload as canonical JSON text, its bytes, and the digest by which two are the same."""

    text: str
    sha256: str
    size: int

    @classmethod
    def of(cls, value: Any) -> "Payload":
        """The payload of a value. Raises PayloadTooLarge past AWAKE_PAYLOAD_BYTES of canonical JSON."""
        text = canonical.dumps(value)
        size = canonical.size(text)
        if size > AWAKE_PAYLOAD_BYTES:
            raise _too_large()
        return cls(text, canonical.digest(text), size)

    @property
    def is_large(self) -> bool:
        """Whether it is kept as an object of the bucket instead of in its row (clause blobs.inline-cutoff)."""
        return self.size > JOURNAL_INLINE_BYTES

    @property
    def outcome(self) -> str:
        """What a large one is stored as: the value that the journal records for whoever awaits it."""
        return f"{_BEFORE}{self.text}{_AFTER}"


def of_outcome(outcome: str) -> str:
    """The payload's text inside a stored outcome, exactly as it was."""
    return outcome[len(_BEFORE) : -len(_AFTER)]


def read(content_type: str | None, raw: bytes) -> Payload:
    """The canonical payload of a request body.

    Raises what `content.read` does, and PayloadTooLarge when the body or its canonical JSON passes AWAKE_PAYLOAD_BYTES.
    Nothing was looked up by then, so whatever is raised leaves the awakeable as it is.
    """
    if len(raw) > AWAKE_PAYLOAD_BYTES:
        raise _too_large()
    return Payload.of(content.read(content_type, raw))


def _too_large() -> PayloadTooLarge:
    return PayloadTooLarge(f"a payload may have {AWAKE_PAYLOAD_BYTES} bytes, as sent and as canonical JSON")
