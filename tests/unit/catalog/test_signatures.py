"""Webhook signatures, as senders make them and as others forge them (clause awake.senders)."""

import base64
import hashlib
import hmac
import re
from datetime import UTC, datetime
from typing import get_args

import pytest
from standardwebhooks import Webhook

from moorage.catalog import signatures
from moorage.catalog.model import Scheme
from moorage.catalog.signatures import standard_key, verify
from moorage.kernel.errors import Unauthenticated
from moorage.kernel.instants import Instant

SECONDS = 1_800_000_000
NOW = Instant(SECONDS * 1000)
SECRET = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PAYLOAD = b'{"test": 2432232314}'
MESSAGE = "msg_p5jXN8AQM9LWM0D4loKWxJek"
OTHER = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
CASE_SECRET = "case-secret-1"


def accepts(
    scheme: Scheme,
    secrets: list[str],
    headers: dict[str, str],
    raw: bytes,
    now: int = NOW,
    tolerance: int = 300,
) -> bool:
    """Whether the request is let in; a refusal always reads the same and never repeats what was sent."""
    refused: Unauthenticated | None = None
    try:
        verify(scheme, secrets, tolerance, headers, raw, Instant(now))
    except Unauthenticated as error:
        refused = error
    if refused is None:
        return True
    assert refused.detail == "the signature does not verify"
    assert refused.__context__ is None
    return False


def signed(at: int = SECONDS, secret: str = SECRET, raw: bytes = PAYLOAD, family: str = "svix") -> dict[str, str]:
    """The headers of a message that the public library signed."""
    signature = Webhook(secret).sign(MESSAGE, datetime.fromtimestamp(at, UTC), raw.decode())
    return {f"{family}-id": MESSAGE, f"{family}-timestamp": str(at), f"{family}-signature": signature}


def standard(headers: dict[str, str], secrets: list[str] | None = None, raw: bytes = PAYLOAD, now: int = NOW) -> bool:
    """Whether a Standard Webhooks message is let in."""
    return accepts("standard", [SECRET] if secrets is None else secrets, headers, raw, now)


def hexmac(secret: str, raw: bytes) -> str:
    """What a scheme that signs in hex puts into its header."""
    return hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()


pytestmark = pytest.mark.clause("awake.senders")


# --- Standard Webhooks ----------------------------------------------------------------------------------------------


def test_standard_accepts_a_valid_signature_under_either_family_of_headers() -> None:
    assert standard(signed())
    assert standard(signed(family="webhook"))
    assert standard({name.title(): value for name, value in signed().items()})


def test_standard_accepts_the_published_example() -> None:
    at = 1614265330
    signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    headers = {"webhook-id": MESSAGE, "webhook-timestamp": str(at), "webhook-signature": signature}
    assert standard(headers, ["whsec_" + SECRET], now=at * 1000)


@pytest.mark.parametrize("missing", ["svix-id", "svix-timestamp", "svix-signature"])
@pytest.mark.parametrize("how", ["absent", "empty"])
def test_standard_refuses_a_message_without_one_of_its_headers(missing: str, how: str) -> None:
    headers = signed()
    if how == "absent":
        del headers[missing]
    else:
        headers[missing] = ""
    assert not standard(headers)


@pytest.mark.parametrize(
    "timestamp", ["hello", "", "-1", "1e9", "1800000000.0", " 1800000000", "9" * 40, "١٨٠٠٠٠٠٠٠٠", "0x6b49d200"]
)
def test_standard_refuses_a_timestamp_that_is_not_whole_seconds(timestamp: str) -> None:
    assert not standard({**signed(), "svix-timestamp": timestamp})


@pytest.mark.parametrize(
    "signature",
    ["v1,dawfeoifkpqwoekfpqoekf", "v1,", "v1", ",", " ", "v2," + signed()["svix-signature"][3:], "é,é", OTHER],
)
def test_standard_refuses_a_signature_that_is_wrong_or_of_another_version(signature: str) -> None:
    assert not standard({**signed(), "svix-signature": signature})


@pytest.mark.parametrize("length", [4, 8, 20, len(signed()["svix-signature"]) - 1])
def test_standard_refuses_a_cut_signature(length: int) -> None:
    headers = signed()
    assert not standard({**headers, "svix-signature": headers["svix-signature"][:length]})


def test_standard_accepts_when_one_of_several_signatures_is_right() -> None:
    headers = signed()
    several = [OTHER, OTHER.replace("v1", "v2"), headers["svix-signature"], OTHER]
    assert standard({**headers, "svix-signature": " ".join(several)})
    assert not standard({**headers, "svix-signature": f"{OTHER} {OTHER}"})


@pytest.mark.parametrize(("offset", "inside"), [(-300, True), (-301, False), (300, True), (301, False), (0, True)])
def test_standard_takes_timestamps_within_the_tolerance_only(offset: int, inside: bool) -> None:
    assert standard(signed(SECONDS + offset)) is inside


def test_standard_takes_a_secret_with_and_without_its_prefix() -> None:
    assert standard(signed(), ["whsec_" + SECRET])
    assert standard(signed(secret="whsec_" + SECRET), [SECRET])


@pytest.mark.parametrize("secret", ["", "whsec_", "!!", "whsec_*", "é", "===="])
def test_a_secret_that_holds_no_key_verifies_nothing(secret: str) -> None:
    assert standard_key(secret) is None
    assert not standard(signed(), [secret])


def test_standard_covers_id_timestamp_and_every_byte_of_the_body() -> None:
    headers = signed()
    assert not standard({**headers, "svix-id": MESSAGE + "x"})
    assert not standard({**headers, "svix-timestamp": str(SECONDS + 1)})
    assert not standard(headers, raw=PAYLOAD + b" ")
    assert not standard(headers, raw=b"")


def test_standard_verifies_bytes_that_are_no_text() -> None:
    raw = b"\xff\xfe\x00"
    key = standard_key(SECRET)
    assert key is not None
    mac = hmac.new(key, f"{MESSAGE}.{SECONDS}.".encode() + raw, hashlib.sha256)
    signature = "v1," + base64.b64encode(mac.digest()).decode()
    assert standard({**signed(), "svix-signature": signature}, raw=raw)


def test_a_rotated_secret_works_beside_the_old_one_until_it_is_removed() -> None:
    new = "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    for secret in (SECRET, new):
        assert standard(signed(secret=secret), [SECRET, new])
    assert not standard(signed(secret=SECRET), [new])
    assert not standard(signed(), [])


# --- GitHub ---------------------------------------------------------------------------------------------------------

EXACT_BODIES = [
    b'{"b": 1,  "a":2}',
    b'{"a":1.0}',
    b'{"a":1e3}',
    b'{"s":"\\u00e9"}',
    '{"s":"é"}'.encode(),
    b'{"a":1}\r\n',
    b'{\n  "a": 1\n}\n',
    b"",
    b"not json",
    b"\xff\x00",
]


def github(raw: bytes, signature: str | None, header: str = "X-Hub-Signature-256") -> bool:
    """Whether a GitHub delivery is let in."""
    return accepts("github", [CASE_SECRET], {} if signature is None else {header: signature}, raw)


@pytest.mark.parametrize(
    ("raw", "signature"),
    [
        (b'{"b": 1,  "a":2}', "1ca8a1207b095fd91bb85551926525ed3229710409b633e933cb73b1cb0ffc70"),
        (
            b"payload=%7B%22zen%22%3A%22Keep+it+simple%22%2C%22sum%22%3A%221%2B1%22%2C%22n%22%3A1%7D",
            "7c2b0aaf8e71e41bf663b97a5fd3bd80ac247869194586fd4851098fe75e2599",
        ),
    ],
)
def test_github_accepts_signatures_made_elsewhere(raw: bytes, signature: str) -> None:
    assert github(raw, "sha256=" + signature)


@pytest.mark.parametrize("raw", EXACT_BODIES)
def test_github_signs_bytes_and_not_what_they_mean(raw: bytes) -> None:
    signature = "sha256=" + hexmac(CASE_SECRET, raw)
    assert github(raw, signature)
    assert not github(raw + b" ", signature)
    assert not github(b" " + raw, signature)


def test_github_takes_upper_case_hex_and_any_case_of_the_header() -> None:
    raw = EXACT_BODIES[0]
    digits = hexmac(CASE_SECRET, raw)
    assert github(raw, "sha256=" + digits.upper())
    for header in ("x-hub-signature-256", "X-HUB-SIGNATURE-256", "x-Hub-Signature-256"):
        assert github(raw, "sha256=" + digits, header)


@pytest.mark.parametrize("raw", [b'{"a":1}', b"not json"])
def test_github_refuses_missing_wrong_and_bare_signatures(raw: bytes) -> None:
    digits = hexmac(CASE_SECRET, raw)
    wrong = ("0" if digits[0] != "0" else "1") + digits[1:]
    for signature in (None, "", "sha256=", "sha256=" + wrong, digits, "sha1=" + digits, "sha256=" + digits[:-1], "é"):
        assert not github(raw, signature)
    assert not github(raw, "sha256=" + digits, "X-Hub-Signature")
    assert not github(raw, "sha256=" + hexmac("case-secret-2", raw))


# --- Stripe ---------------------------------------------------------------------------------------------------------


def stripe(header: str, secrets: list[str] | None = None, raw: bytes = PAYLOAD) -> bool:
    """Whether a Stripe event is let in."""
    return accepts("stripe", [CASE_SECRET] if secrets is None else secrets, {"Stripe-Signature": header}, raw)


def stripe_signature(at: int, raw: bytes = PAYLOAD, secret: str = CASE_SECRET) -> str:
    """The hex that Stripe puts into v1."""
    return hexmac(secret, f"{at}.".encode() + raw)


def test_stripe_accepts_one_right_signature_among_others_of_any_version() -> None:
    right = stripe_signature(SECONDS)
    assert stripe(f"t={SECONDS},v1={right}")
    assert stripe(f"t={SECONDS}, v1={'0' * 64}, v1={right.upper()}, v0=abc")
    assert stripe(f"t={SECONDS},v1={stripe_signature(SECONDS, secret='new')}", [CASE_SECRET, "new"])


@pytest.mark.parametrize(("offset", "inside"), [(-300, True), (-301, False), (300, True), (301, False)])
def test_stripe_takes_timestamps_within_the_tolerance_only(offset: int, inside: bool) -> None:
    at = SECONDS + offset
    assert stripe(f"t={at},v1={stripe_signature(at)}") is inside


def test_stripe_refuses_everything_else() -> None:
    right = stripe_signature(SECONDS)
    assert not stripe(f"t={SECONDS},v1={right}", raw=PAYLOAD + b"\n")
    for header in (
        "",
        f"v1={right}",
        f"t={SECONDS}",
        f"t={SECONDS},v0={right}",
        f"t={SECONDS},v1=",
        f"t={SECONDS + 1},v1={right}",
        f"t={SECONDS},t={SECONDS},v1={right}",
        f"t=soon,v1={right}",
        f"t={SECONDS};v1={right}",
        "=,=,=",
    ):
        assert not stripe(header)


# --- bearer ---------------------------------------------------------------------------------------------------------


def test_bearer_compares_the_hash_of_the_token() -> None:
    kept = hashlib.sha256(b"tok-1").hexdigest()
    for header in ("Bearer tok-1", "bearer  tok-1", "BEARER tok-1 "):
        assert accepts("bearer", [kept], {"Authorization": header}, b"")
    for header in ("", "Bearer", "Bearer ", "tok-1", "Basic tok-1", "Bearer tok-2", "Bearer tok-1 x", f"Bearer {kept}"):
        assert not accepts("bearer", [kept], {"Authorization": header}, b"")
    assert not accepts("bearer", [kept], {}, b"")


def test_the_module_describes_every_scheme_that_it_verifies() -> None:
    described = set(re.findall(r"^    (\w+)  ", signatures.__doc__ or "", re.MULTILINE))
    assert described == set(get_args(Scheme))
