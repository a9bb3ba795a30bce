"""The nouns of artifacts."""

import re
from dataclasses import dataclass
from typing import Final

from moorage.kernel.limits import MEDIA_TYPE_CHARACTERS
from moorage.kernel.refusals import refused
from moorage.records.model import Record

ANY_BYTES: Final = "application/octet-stream"

_WORD = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_MEDIA_TYPE = re.compile(rf'{_WORD}/{_WORD}(?:[ \t]*;[ \t]*{_WORD}=(?:{_WORD}|"[ !#-\[\]-~]*"))*')


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact's record, and whether its bytes were removed for good."""

    record: Record
    shredded: bool

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes, in lower-case hex."""
        return str(self.record.body["digest"])

    @property
    def media_type(self) -> str:
        """As the uploader told it; nobody looked."""
        return str(self.record.body["media_type"])

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.record.body["size"])


@dataclass(frozen=True, slots=True)
class Upload:
    """What an uploader says about the bytes. `digest` is None when it is not known before they come; with
    `attach_within` seconds the artifact is collected unless a record names it as a parent by then."""

    size: int
    media_type: str = ANY_BYTES
    digest: str | None = None
    id: str | None = None
    attach_within: float | None = None


def check_media_type(text: str) -> str:
    """A media type, unchanged. Raises RequestInvalid for what could not stand in a header again."""
    if len(text) > MEDIA_TYPE_CHARACTERS or _MEDIA_TYPE.fullmatch(text) is None:
        message = f"a media type is type/subtype with parameters, at most {MEDIA_TYPE_CHARACTERS} characters"
        raise refused("/header/content-type", message, message)
    return text
