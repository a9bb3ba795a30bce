"""Verifying a webhook's signature over the bytes that came (clause awake.senders).

Every scheme compares with every secret of the sender, in constant time. A failure has one error, which says nothing of
what was sent or expected.

    standard  webhook-id, webhook-timestamp, webhook-signature (or the same with svix-): base64 HMAC-SHA256 over
              "id.timestamp.body"; the secret is base64, with or without whsec_
    github    X-Hub-Signature-256: sha256=<hex HMAC-SHA256 over the body>; the scheme has no timestamp, so no window
    stripe    Stripe-Signature: t=<timestamp>,v1=<hex HMAC-SHA256 over "t.body">
    slack     X-Slack-Request-Timestamp, X-Slack-Signature: v0=<hex HMAC-SHA256 over "v0:timestamp:body">
    bearer    Authorization: Bearer <token>; the secrets are the tokens' SHA-256

A timestamp is in seconds and may lie `tolerance_seconds` before or after now, both ends included.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from moorage.catalog.model import Scheme
from moorage.kernel import canonical
from moorage.kernel.errors import Unauthenticated
from moorage.kernel.instants import Instant

Headers = Mapping[str, str]

_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)
_TOKEN = re.compile(r"[\x21-\x7e]{1,512}")
_STANDARD_FAMILIES = ("webhook", "svix")


def verify(
    scheme: Scheme, secrets: Sequence[str], tolerance_seconds: int, headers: Headers, raw: bytes, now: Instant
) -> None:
    """Raise Unauthenticated unless the request carries a signature of `raw` by one of the secrets.

    Header names are matched in any case. Nothing is read but the arguments.
    """
    check = _Check(_lower(headers), raw, now, tolerance_seconds)
    if not _SCHEMES[scheme](check, secrets):
        raise refusal()


def delivery_id(scheme: Scheme, headers: Headers) -> str | None:
    """The id that a verified request's headers name for its delivery, or None where the scheme has none in them.

    For `standard` it is the id that was signed. A Slack request names none: it is known by its signature, which covers its
    instant, and by whose SHA-256 nobody can send it again.
    """
    known = _lower(headers)
    if scheme == "standard":
        parts = _standard_parts(known)
        return None if parts is None else parts[0]
    if scheme == "slack":
        return "sha256:" + canonical.digest(_shown(known, "x-slack-signature"))
    return known.get("x-github-delivery") if scheme == "github" else None


def refusal() -> Unauthenticated:
    """The one error of a webhook that is not admitted, whatever the cause."""
    return Unauthenticated("the signature does not verify")


def standard_key(secret: str) -> bytes | None:
    """The key that a Standard Webhooks secret holds; None when it is not base64 or is empty."""
    text = secret.removeprefix("whsec_").rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def is_token(text: str) -> bool:
    """Whether a text can stand as a bearer token in a header: 1 to 512 visible ASCII characters."""
    return _TOKEN.fullmatch(text) is not None


class _Check:
    """What a request shows: its headers by lower-case name, its bytes, and when it came."""

    def __init__(self, headers: Headers, raw: bytes, now: Instant, tolerance_seconds: int) -> None:
        self.headers = headers
        self.raw = raw
        self._now = now
        self._tolerance = tolerance_seconds * 1000

    def in_time(self, timestamp: str) -> bool:
        """Whether a timestamp in whole seconds lies within the tolerance."""
        return _SECONDS.fullmatch(timestamp) is not None and abs(self._now - int(timestamp) * 1000) <= self._tolerance


def _lower(headers: Headers) -> Headers:
    return {name.lower(): value for name, value in headers.items()}


def _shown(headers: Headers, name: str) -> str:
    """A signature in hex as it is compared."""
    return headers.get(name, "").strip().lower()


def _standard_parts(headers: Headers) -> tuple[str, str, str] | None:
    """Id, timestamp and signature of the first family of headers that is whole; no other one is looked at."""
    for family in _STANDARD_FAMILIES:
        ident, timestamp, shown = (headers.get(f"{family}-{part}") for part in ("id", "timestamp", "signature"))
        if ident and timestamp and shown:
            return ident, timestamp, shown
    return None


def _standard(check: _Check, secrets: Sequence[str]) -> bool:
    parts = _standard_parts(check.headers)
    if parts is None or not check.in_time(parts[1]):
        return False
    ident, timestamp, shown = parts
    signed = f"{ident}.{timestamp}.".encode("utf-8", "replace") + check.raw
    keys = (standard_key(secret) for secret in secrets)
    expected = ["v1," + base64.b64encode(_mac(key, signed)).decode() for key in keys if key]
    return _one_of(shown.split(" "), expected)


def _github(check: _Check, secrets: Sequence[str]) -> bool:
    shown = _shown(check.headers, "x-hub-signature-256")
    return _one_of([shown], ["sha256=" + _mac(secret.encode(), check.raw).hex() for secret in secrets])


def _stripe(check: _Check, secrets: Sequence[str]) -> bool:
    parts = [part.strip().partition("=") for part in check.headers.get("stripe-signature", "").split(",")]
    timestamps = [value for name, _, value in parts if name == "t"]
    if len(timestamps) != 1 or not check.in_time(timestamps[0]):
        return False
    signed = f"{timestamps[0]}.".encode() + check.raw
    shown = [value.lower() for name, _, value in parts if name == "v1"]
    return _one_of(shown, [_mac(secret.encode(), signed).hex() for secret in secrets])


def _slack(check: _Check, secrets: Sequence[str]) -> bool:
    timestamp = check.headers.get("x-slack-request-timestamp", "")
    if not check.in_time(timestamp):
        return False
    signed = f"v0:{timestamp}:".encode() + check.raw
    shown = _shown(check.headers, "x-slack-signature")
    return _one_of([shown], ["v0=" + _mac(secret.encode(), signed).hex() for secret in secrets])


def _bearer(check: _Check, secrets: Sequence[str]) -> bool:
    scheme, _, token = check.headers.get("authorization", "").strip().partition(" ")
    shown = token.strip()
    if scheme.lower() != "bearer" or not is_token(shown):
        return False
    return _one_of([canonical.digest(shown)], secrets)


_SCHEMES: Mapping[Scheme, Callable[[_Check, Sequence[str]], bool]] = {
    "standard": _standard,
    "github": _github,
    "stripe": _stripe,
    "slack": _slack,
    "bearer": _bearer,
}


def _mac(key: bytes, signed: bytes) -> bytes:
    return hmac.new(key, signed, hashlib.sha256).digest()


def _one_of(shown: Iterable[str], expected: Sequence[str]) -> bool:
    """Whether one of the texts is expected; every pair is compared, so that time does not tell which."""
    wanted = [text.encode() for text in expected]
    found = [hmac.compare_digest(text.encode("utf-8", "replace"), want) for text in shown for want in wanted]
    return any(found)
