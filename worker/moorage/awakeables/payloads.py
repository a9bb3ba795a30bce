"""One canonical payload for each content type (clause awake.content-types).

| Content-Type | payload |
|---|---|
| no body, whatever the type | `null` |
| `application/json`, anything `+json` | the value |
| `application/x-www-form-urlencoded` | `{"name": ["value", ...]}`, every field, names and values decoded |
| `text/*` | the text, decoded from its charset, UTF-8 unless it names another |
| anything else | `{"content_type": the header as sent, "base64": the bytes}` |
| none | as `application/octet-stream` |
"""

import base64
import codecs
import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from moorage.kernel import canonical
from moorage.kernel.errors import PayloadTooLarge, UnsupportedMediaType
from moorage.kernel.limits import AWAKE_PAYLOAD_BYTES, JOURNAL_INLINE_BYTES, JSON_VALUES, TEXT_CHARACTERS

CHARSETS: Final = frozenset(
    {
        "utf-8",
        "ascii",
        "iso8859-1",
        "iso8859-2",
        "iso8859-15",
        "cp1251",
        "cp1252",
        "koi8-r",
        "utf-16",
        "utf-16-le",
        "utf-16-be",
        "shift_jis",
        "euc_jp",
        "euc_kr",
        "gb18030",
        "big5",
    }
)
"""Charsets that are decoded, by their Python names: ordinary ones only, since some codecs are slow or no charsets."""

_BEFORE, _AFTER = '{"resolved":', "}"

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = re.compile(rf"\s*({_WORD}/{_WORD})\s*((?:;.*)?)", re.DOTALL)
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([A-Za-z0-9._:+-]{1,40})"?\s*(?:;|$)', re.IGNORECASE)
_NAMES_CHARSET = re.compile(r";\s*charset\s*=", re.IGNORECASE)


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

    Raises JsonInvalid for malformed JSON, UnsupportedMediaType for a malformed Content-Type, an unknown charset, or
    bytes that are not text in theirs, PayloadTooLarge when the body or its canonical JSON passes AWAKE_PAYLOAD_BYTES.
    Nothing was looked up by then, so whatever is raised leaves the awakeable as it is.
    """
    if len(raw) > AWAKE_PAYLOAD_BYTES:
        raise _too_large()
    if not raw:
        return Payload.of(None)
    header = (content_type or "").strip() or "application/octet-stream"
    media_type, parameters = _parse(header)
    if media_type == "application/json" or media_type.endswith("+json"):
        _refuse_other_charset(parameters)
        return Payload.of(canonical.loads(raw))
    if media_type == "application/x-www-form-urlencoded":
        return Payload.of(_form(raw, _charset(parameters)))
    if media_type.startswith("text/"):
        return Payload.of(_decode(raw, _charset(parameters)))
    return Payload.of({"content_type": header, "base64": base64.b64encode(raw).decode("ascii")})


def _parse(header: str) -> tuple[str, str]:
    match = _MEDIA_TYPE.fullmatch(header)
    if match is None or len(header) > TEXT_CHARACTERS:
        raise UnsupportedMediaType("the Content-Type is malformed")
    return match.group(1).lower(), match.group(2)


def _charset(parameters: str) -> str:
    if _NAMES_CHARSET.search(parameters) is None:
        return "utf-8"
    named = _CHARSET.search(parameters)
    try:
        name = codecs.lookup(named.group(1)).name if named else ""
    except LookupError:
        name = ""
    if name not in CHARSETS:
        raise UnsupportedMediaType("the Content-Type names a charset that is not supported")
    return name


def _refuse_other_charset(parameters: str) -> None:
    """JSON between programs is UTF-8 (RFC 8259); guessing another would read another value."""
    if _charset(parameters) not in ("utf-8", "ascii"):
        raise UnsupportedMediaType("JSON is taken in UTF-8 only")


def _decode(raw: bytes, charset: str) -> str:
    try:
        return raw.decode(charset)
    except UnicodeError:
        raise UnsupportedMediaType(f"the body is not text in {charset}") from None


def _form(raw: bytes, charset: str) -> dict[str, list[str]]:
    """Every field in the order of arrival; a name without `=` has the value ""."""
    text = _decode(raw, charset)
    if text.count("&") >= JSON_VALUES:
        raise PayloadTooLarge(f"a form may have {JSON_VALUES} fields", limit=int(JSON_VALUES))
    try:
        pairs = parse_qsl(text, keep_blank_values=True, encoding=charset, errors="strict")
    except UnicodeError:
        raise UnsupportedMediaType(f"the form's fields are not text in {charset}") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields


def _too_large() -> PayloadTooLarge:
    return PayloadTooLarge(f"a payload may have {AWAKE_PAYLOAD_BYTES} bytes, as sent and as canonical JSON")
