"""Which URLs a destination may have (clause catalog.destinations)."""

import pytest

from moorage.catalog.destinations import check_url
from moorage.kernel.errors import RequestInvalid

pytestmark = pytest.mark.clause("catalog.destinations")


def allowed(url: str, *, allow_local: bool = False) -> bool:
    """Whether the URL is taken; a refusal names the field and never repeats the URL."""
    refused: RequestInvalid | None = None
    try:
        check_url(url, allow_local=allow_local)
    except RequestInvalid as error:
        refused = error
    if refused is None:
        return True
    assert refused.errors is not None
    assert refused.errors[0]["pointer"] == "/url"
    assert not url or url not in str(refused.problem())
    return False


@pytest.mark.parametrize(
    "url",
    [
        "https://example.test",
        "https://example.test/hooks/in?team=blue&page=2&design=x",
        "https://hooks.example.test:8443/a%20b",
        "https://example.test./",
        "HTTPS://EXAMPLE.test/",
        "https://93.184.216.34/",
        "https://[2606:2800:220:1:248:1893:25c8:1946]/",
        "https://[::ffff:93.184.216.34]/",
        "https://1password.example/",
        "https://xn--bcher-kva.example/",
    ],
)
def test_public_https_urls_are_taken(url: str) -> None:
    assert allowed(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://user@example.test/",
        "https://user:password@example.test/",
        "https://:@example.test/",
        "https://example.test/?token=abc",
        "https://example.test/?a=1&api_key=abc",
        "https://example.test/?access-token=abc",
        "https://example.test/?X-Amz-Signature=abc",
        "https://example.test/?sig=abc",
        "https://example.test/?clientSecret=",
        "https://example.test/?key=abc",
        "https://example.test/?q=moor_abcdef",
        "https://example.test/?q=ghp_abcdef",
        "https://example.test/?q=eyJhbGciOi.eyJzdWIi.c2ln",
        "https://example.test/#token",
    ],
)
def test_urls_that_carry_a_credential_are_refused(url: str) -> None:
    assert not allowed(url)
    assert not allowed(url, allow_local=True)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.test",
        "//example.test/",
        "https://",
        "https:///path",
        "ftp://example.test/",
        "javascript:alert(1)",
        "https://example.test:99999/",
        "https://example.test:0/",
        "https://exa mple.test/",
        "https://example.test/\r\nHost: other",
        "https://example.test\\@other.test/",
        "https://bücher.example/",
        "https://[::1/",
        "https://a..b/",
        "https://%6cocalhost.test/",
    ],
)
def test_what_is_no_plain_url_is_refused(url: str) -> None:
    assert not allowed(url)
    assert not allowed(url, allow_local=True)


INSIDE = [
    "https://localhost/",
    "https://LOCALHOST./",
    "https://api.localhost/",
    "https://printer.local/",
    "https://metadata.google.internal/",
    "https://intranet/",
    "https://127.0.0.1/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0177.0.0.1/",
    "https://0.0.0.0/",
    "https://10.1.2.3/",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://100.64.0.1/",
    "https://224.0.0.1/",
    "https://[::1]/",
    "https://[::]/",
    "https://[fe80::1]/",
    "https://[fd00::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:10.0.0.1]/",
    "https://[64:ff9b::10.0.0.1]/",
    "https://[2002:7f00:1::]/",
]


@pytest.mark.parametrize("url", INSIDE)
def test_hosts_of_the_inside_are_refused_unless_allowed(url: str) -> None:
    assert not allowed(url)
    assert allowed(url, allow_local=True)


def test_plain_http_is_for_development_alone() -> None:
    assert not allowed("http://example.test/")
    assert not allowed("http://localhost:8080/")
    assert allowed("http://localhost:8080/", allow_local=True)
