"""One value for each content type: what awakeables and webhooks make of a body (clause awake.content-types).

| Content-Type | value |
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
from typing import Any, Final
from urllib.parse import parse_qsl

from moorage.kernel import canonical
from moorage.kernel.errors import PayloadTooLarge, UnsupportedMediaType
from moorage.kernel.limits import JSON_VALUES, TEXT_CHARACTERS

FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"

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

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = re.compile(rf"\s*({_WORD}/{_WORD})\s*((?:;.*)?)", re.DOTALL)
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([A-Za-z0-9._:+-]{1,40})"?\s*(?:;|$)', re.IGNORECASE)
_NAMES_CHARSET = re.compile(r";\s*charset\s*=", re.IGNORECASE)


def read(content_type: str | None, raw: bytes) -> Any:
    """The value of a body. Nothing is looked up, so whatever is raised leaves everything as it is.

    Raises JsonInvalid for malformed JSON, UnsupportedMediaType for a malformed Content-Type, an unknown charset, or
    bytes that are not text in theirs, PayloadTooLarge past JSON_VALUES. Whoever takes the body bounds its bytes.
    """
    if not raw:
        return None
    header = named(content_type)
    media_type, parameters = _parse(header)
    if is_json(media_type):
        _refuse_other_charset(parameters)
        return canonical.loads(raw)
    if media_type == FORM:
        return _form(raw, _charset(parameters))
    if media_type.startswith("text/"):
        return _decode(raw, _charset(parameters))
    return {"content_type": header, "base64": base64.b64encode(raw).decode("ascii")}


def named(content_type: str | None) -> str:
    """The header as it counts: bytes of no type, where there is none."""
    return (content_type or "").strip() or BYTES


def media_type_of(content_type: str | None) -> str:
    """The media type in lower case, without parameters. Raises UnsupportedMediaType for a malformed header."""
    return _parse(named(content_type))[0]


def is_json(media_type: str) -> bool:
    """Whether a media type, in lower case, says that a body is JSON."""
    return media_type == JSON or media_type.endswith("+json")


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
