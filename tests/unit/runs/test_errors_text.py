"""What a recorded error keeps: its words, no credential, and at most 2 KiB."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.kernel.limits import RUN_ERROR_BYTES
from moorage.kernel.masking import MASK, mask
from moorage.runs.errors_text import ELLIPSIS, error_json, stored, stored_text
from moorage.runs.model import Failure

SECRET = "s3cr3tValue0123456789"
PUT = [
    f"401 for Authorization: Bearer {SECRET}",
    f"authorization: Basic {SECRET}",
    f"sent 'Authorization': 'token {SECRET}'",
    f"bearer {SECRET}, refused",
    f"Basic {SECRET}==",
    f"Cookie: a=b; session={SECRET}",
    f"X-Api-Key: {SECRET}",
    f"https://user:{SECRET}@example.com/path",
    f"postgres://{SECRET}@db:5432/x",
    f"https://u:p@{SECRET}@host/",
    f"GET https://example.com/?a=1&api_key={SECRET}&b=2",
    f"https://example.com/?X-Amz-Signature={SECRET}",
    f'{{"password": "{SECRET}", "user": "ann"}}',
    f'{{"client_secret":"{SECRET} and {SECRET}"}}',
    f"{{'access_token': '{SECRET}'}}",
    f"DB_PASSWORD={SECRET}",
    f"secret => {SECRET}",
    f"jwt eyJhbGciOiJIUzI1NiJ9.{SECRET}.{SECRET}",
    f"key sk_live_{SECRET}",
    f"ghp_{SECRET}{SECRET}",
    f"xoxb-1234-{SECRET}",
    f"whsec_{SECRET}",
    f"moor_{SECRET}{SECRET}{SECRET}",
    f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}",
]
KEPT = [
    "the upstream answered 503: try again in 5 seconds",
    "unexpected token } in JSON at position 4",
    "basic authentication failed for ann",
    "status code=42, key=5, https://example.com/a?b=c#d",
    "KeyError: 'author'",
    "a mail to ann@example.com bounced",
]


@pytest.mark.clause("runs.error-cap")
@pytest.mark.parametrize("text", PUT)
def test_credentials_are_masked(text: str) -> None:
    told = stored_text(text)
    assert SECRET not in told
    assert MASK in told


@pytest.mark.clause("runs.error-cap")
@pytest.mark.parametrize("text", KEPT)
def test_other_words_stay(text: str) -> None:
    assert stored_text(text) == text


@pytest.mark.clause("runs.error-cap")
def test_what_stands_around_a_credential_stays() -> None:
    told = mask(f"GET https://ann:{SECRET}@example.com/a?token={SECRET}&page=2 gave 401\nnext line")
    assert told == f"GET https://{MASK}@example.com/a?token={MASK}&page=2 gave 401\nnext line"


@pytest.mark.clause("runs.error-cap")
def test_the_cap_is_in_bytes_and_shows_that_something_was_cut() -> None:
    exact = "x" * int(RUN_ERROR_BYTES)
    assert stored_text(exact) == exact
    cut = stored_text(exact + "x")
    assert cut.endswith(ELLIPSIS)
    assert len(cut.encode()) == RUN_ERROR_BYTES
    wide = stored_text("ü" * 2000)
    assert wide.endswith(ELLIPSIS)
    assert int(RUN_ERROR_BYTES) - 3 <= len(wide.encode()) <= RUN_ERROR_BYTES
    assert stored_text("half of a pair: \ud800") == "half of a pair: ?"


@pytest.mark.clause("runs.error-cap")
def test_no_end_of_a_credential_comes_up_where_the_text_was_cut() -> None:
    """Masking shortens, so that what is looked at may end inside a token that would then be shown."""
    for size in range(16_300, 16_400):
        text = f"password={'y' * size} key sk_live_{SECRET} tail"
        assert SECRET[:6] not in stored_text(text)


@pytest.mark.clause("runs.error-cap", "kernel.failure-tag")
def test_a_failure_as_it_is_stored() -> None:
    told = stored(Failure("Nonsense", f"token={SECRET}", f"code token={SECRET}", "step"))
    assert (told.tag, told.message, told.code, told.step) == ("Permanent", f"token={MASK}", f"code token={MASK}", "step")
    assert error_json(Failure("Transient", "later")) == '{"message":"later","tag":"Transient"}'


@pytest.mark.clause("runs.error-cap")
@given(st.text(max_size=6000), st.sampled_from(PUT))
def test_any_text_is_bounded_and_masked_wherever_the_credential_stands(text: str, secret: str) -> None:
    told = stored_text(f"{text}\n{secret}\n{text}")
    assert len(told.encode()) <= RUN_ERROR_BYTES
    assert SECRET not in told


PIECES = ["a", "token", "://", "-----BEGIN PRIVATE KEY-----", "eyJaaaa.", "\"'", "x_", "sk_", "basic ", "="]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", PIECES)
def test_no_text_takes_long(piece: str) -> None:
    told = mask(f"{piece * (400_000 // len(piece))}\npassword={SECRET}")
    assert SECRET not in told
