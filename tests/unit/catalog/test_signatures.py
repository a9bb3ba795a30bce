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
from moorage.catalog.signatures import delivery_id, standard_key, verify
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


def test_github_accepts_the_published_example() -> None:
    secret, raw = "It's a Secret to Everybody", b"Hello, World!"
    headers = {"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
    assert accepts("github", [secret], headers, raw)
    assert not accepts("github", [secret], headers, raw + b"\n")


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


def test_stripe_reads_a_header_as_it_is_published() -> None:
    """The published header has no published body, so the one signature that would count is replaced."""
    at = 1492774577
    published = "t={at},v1={right},v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"
    right = stripe_signature(at)
    headers = {"Stripe-Signature": published.format(at=at, right=right)}
    assert accepts("stripe", [CASE_SECRET], headers, PAYLOAD, at * 1000)
    headers = {"Stripe-Signature": published.replace("v0=6ff", f"v0={right},v2=6ff").format(at=at, right="0" * 64)}
    assert not accepts("stripe", [CASE_SECRET], headers, PAYLOAD, at * 1000)


# --- Slack ----------------------------------------------------------------------------------------------------------

SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SLACK_AT = 1531420618
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
    b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SLACK = {
    "X-Slack-Request-Timestamp": str(SLACK_AT),
    "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
}


def slack(headers: dict[str, str], secrets: list[str] | None = None, raw: bytes = SLACK_BODY, late: int = 0) -> bool:
    """Whether a Slack request is let in, so many seconds after it was signed."""
    secrets = [SLACK_SECRET] if secrets is None else secrets
    return accepts("slack", secrets, headers, raw, (SLACK_AT + late) * 1000)


def test_slack_accepts_the_published_example() -> None:
    assert slack(SLACK)
    assert slack({name.lower(): value.upper() for name, value in SLACK.items()}, ["old", SLACK_SECRET])


@pytest.mark.parametrize(("late", "inside"), [(-300, True), (-301, False), (300, True), (301, False)])
def test_slack_takes_timestamps_within_the_tolerance_only(late: int, inside: bool) -> None:
    assert slack(SLACK, late=late) is inside


def test_slack_refuses_everything_else() -> None:
    assert not slack(SLACK, ["another"])
    assert not slack(SLACK, [])
    assert not slack(SLACK, raw=SLACK_BODY + b"&")
    assert not slack(SLACK, raw=b"")
    for name, value in (
        ("X-Slack-Signature", ""),
        ("X-Slack-Signature", SLACK["X-Slack-Signature"].removeprefix("v0=")),
        ("X-Slack-Signature", SLACK["X-Slack-Signature"].replace("v0=", "v1=")),
        ("X-Slack-Signature", SLACK["X-Slack-Signature"][:-1]),
        ("X-Slack-Signature", "é"),
        ("X-Slack-Request-Timestamp", ""),
        ("X-Slack-Request-Timestamp", str(SLACK_AT + 1)),
        ("X-Slack-Request-Timestamp", f"{SLACK_AT}.0"),
    ):
        assert not slack({**SLACK, name: value})
    assert not slack({})


# --- ids of deliveries ----------------------------------------------------------------------------------------------


@pytest.mark.clause("inbox.accept")
def test_the_id_of_a_standard_delivery_is_the_one_that_was_signed() -> None:
    headers = signed()
    assert delivery_id("standard", headers) == MESSAGE
    assert delivery_id("standard", {name.upper(): value for name, value in headers.items()}) == MESSAGE
    forged = {**headers, "webhook-id": "another"}  # the other family's, which is not whole and not verified
    assert standard(forged)
    assert delivery_id("standard", forged) == MESSAGE
    assert delivery_id("standard", {}) is None


@pytest.mark.clause("inbox.accept")
def test_a_slack_request_is_known_by_its_signature_and_tells_it_to_nobody() -> None:
    found = delivery_id("slack", SLACK)
    assert found == "sha256:" + hashlib.sha256(SLACK["X-Slack-Signature"].encode()).hexdigest()
    assert delivery_id("slack", {"x-slack-signature": SLACK["X-Slack-Signature"].upper()}) == found
    assert delivery_id("github", {"X-GitHub-Delivery": "72d3162e"}) == "72d3162e"
    assert [delivery_id(scheme, {}) for scheme in ("github", "stripe", "bearer")] == [None] * 3


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
