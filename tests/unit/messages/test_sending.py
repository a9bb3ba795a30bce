"""What one delivery sends and what its answer means (clause outbox.deliver; case C06 for deliveries)."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from moorage.kernel.instants import Instant, parse
from moorage.kernel.limits import DELIVERY_RETRY_AFTER_SECONDS, RUN_ERROR_BYTES
from moorage.messages.outbox import sending
from moorage.messages.outbox.backoff import FIRST_SECONDS, delay
from moorage.messages.outbox.sending import Leased, Outcome, Sender, Target, meaning, told

pytestmark = pytest.mark.clause("outbox.deliver")

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
NOON = parse("2026-03-01T12:00:00Z")
LEASED = Leased("dlv_1", "dom_1", 2, 3, 7, '{"text":"ünï","n":1}')


class Wire(httpx.AsyncBaseTransport):
    """Keeps what was sent and answers as it was told, or raises."""

    def __init__(self, answer: httpx.Response | Exception | None = None) -> None:
        self.sent: list[httpx.Request] = []
        self.answer = answer or httpx.Response(204)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Hanging(httpx.AsyncBaseTransport):
    """Answers nothing."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError


class Endless(httpx.AsyncByteStream):
    """A body that never ends, breaks, or stops coming after its first piece."""

    def __init__(self, broken: Exception | None = None, *, stuck: bool = False) -> None:
        self.given = 0
        self.closed = False
        self._broken = broken
        self._stuck = stuck

    async def __aiter__(self) -> Any:
        while True:
            if self._broken is not None:
                raise self._broken
            if self._stuck and self.given:
                await asyncio.Event().wait()
            self.given += 1000
            yield b"x" * 1000

    async def aclose(self) -> None:
        self.closed = True


def target(**changes: Any) -> Target:
    wanted: dict[str, Any] = {"name": "there", "url": "https://there.example.com/hook?team=a", "method": "POST",
                              "secret": "env:HOOK", "timeout_seconds": 15}  # fmt: skip
    return Target(**{**wanted, **changes})


async def send(wire: httpx.AsyncBaseTransport, secret: str | None = SECRET, now: Instant = NOON, **changes: Any) -> Outcome:
    names: Callable[[str], str | None] = {"HOOK": secret}.get
    return await Sender(wire, names).send(target(**changes), LEASED, now)


async def test_the_public_library_verifies_what_is_sent() -> None:
    wire = Wire()
    now = Instant(int(time.time() * 1000))
    assert await send(wire, now=now) == Outcome("delivered", 204)
    [request] = wire.sent
    assert Webhook(SECRET).verify(request.content, dict(request.headers)) == {"text": "ünï", "n": 1}
    for content in (request.content + b" ", request.content.replace(b"1", b"2")):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(content, dict(request.headers))
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(request.content, dict(request.headers))


async def test_what_is_sent() -> None:
    wire = Wire()
    await send(wire)
    [request] = wire.sent
    assert (request.method, str(request.url)) == ("POST", "https://there.example.com/hook?team=a")
    assert request.content == LEASED.body.encode()
    headers = dict(request.headers)
    assert headers.pop("webhook-signature").startswith("v1,")
    assert headers == {
        "host": "there.example.com",
        "content-length": str(len(request.content)),
        "content-type": "application/cloudevents+json",
        "user-agent": "Moorage",
        "webhook-id": "dom_1",
        "webhook-timestamp": str(NOON // 1000),
        "moorage-generation": "2",
        "moorage-attempt": "3",
    }


async def test_a_run_s_trace_goes_beside_the_bytes_that_are_signed() -> None:
    wire = Wire()
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "shop=1"}
    await Sender(wire, {"HOOK": SECRET}.get).send(target(), replace(LEASED, trace=trace), NOON)
    await send(wire)
    told, untold = wire.sent
    assert {name: told.headers[name] for name in trace} == trace
    assert not set(trace) & set(untold.headers)
    assert (told.content, told.headers["webhook-signature"]) == (untold.content, untold.headers["webhook-signature"])


async def test_every_attempt_is_signed_anew_over_the_same_bytes() -> None:
    wire = Wire()
    await send(wire)
    await send(wire, now=Instant(NOON + 1000))
    first, second = wire.sent
    assert (first.content, first.headers["webhook-id"]) == (second.content, second.headers["webhook-id"])
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]


async def test_while_a_secret_is_rotated_both_verify() -> None:
    wire = Wire()
    await send(wire, f"{OTHER} {SECRET}", Instant(int(time.time() * 1000)))
    [request] = wire.sent
    for secret in (SECRET, OTHER):
        Webhook(secret).verify(request.content, dict(request.headers))


async def test_without_a_secret_nothing_is_signed() -> None:
    wire = Wire()
    assert (await send(wire, secret=None)).error == "nothing is sent: the secret HOOK is not bound"
    assert wire.sent == []
    await Sender(wire, lambda name: None).send(target(secret=None), LEASED, NOON)
    assert "webhook-signature" not in wire.sent[0].headers


@pytest.mark.parametrize("secret", ["", "  ", "whsec_", "not base64!", "whsec_ß"])
async def test_a_secret_that_is_none_sends_nothing_and_is_not_repeated(secret: str) -> None:
    wire = Wire()
    outcome = await send(wire, secret)
    assert (outcome.fate, wire.sent) == ("failed", [])
    assert outcome.error is not None
    assert outcome.error.startswith("nothing is sent")
    assert not secret.strip() or secret == "whsec_" or secret not in outcome.error


@pytest.mark.parametrize(
    "url",
    ["http://there.example.com/", "https://127.0.0.1/", "https://localhost/", "https://10.0.0.8/", "https://169.254.169.254/",
     "https://[::1]/", "https://[fe80::1]/", "https://[::ffff:127.0.0.1]/", "https://0x7f000001/", "https://2130706433/",
     "https://metadata.internal/", "https://u:p@there.example.com/"],
)  # fmt: skip
async def test_a_url_that_may_not_be_is_looked_at_again_as_it_is_sent_to(url: str) -> None:
    wire = Wire()
    outcome = await send(wire, url=url)
    assert (outcome.fate, wire.sent) == ("failed", [])
    assert url not in str(outcome.error)


async def test_a_destination_that_takes_no_body_gets_none() -> None:
    wire = Wire()
    assert (await send(wire, method=None)).fate == "failed"
    assert wire.sent == []


@pytest.mark.parametrize(
    ("status", "fate"),
    [(200, "delivered"), (201, "delivered"), (204, "delivered"), (299, "delivered"), (300, "failed"), (302, "failed"),
     (307, "failed"), (400, "failed"), (401, "failed"), (404, "failed"), (410, "gone"), (429, "failed"), (500, "failed"),
     (503, "failed"), (599, "failed")],
)  # fmt: skip
async def test_what_a_status_means(status: int, fate: str) -> None:
    wire = Wire(httpx.Response(status, headers={"location": "https://127.0.0.1/inside"}))
    outcome = await send(wire)
    assert (outcome.fate, outcome.status) == (fate, status)
    assert len(wire.sent) == 1


CAP = int(DELIVERY_RETRY_AFTER_SECONDS)
SHAPES: list[tuple[list[str], float]] = [
    (["3"], 3), ([" 3 "], 3), (["0"], 0), (["Sun, 01 Mar 2026 12:00:05 GMT"], 5), (["Sunday, 01-Mar-26 12:00:05 GMT"], 5),
    (["Sun Mar  1 12:00:05 2026"], 5), (["Sun, 01 Mar 2020 12:00:00 GMT"], 0), (["-5"], 0), (["+5"], 0), (["1.5"], 0),
    (["5s"], 0), (["soon"], 0), (["NaN"], 0), (["Infinity"], 0), ([""], 0), (["31536000"], CAP),
    (["99999999999999999999"], CAP), (["Fri, 31 Dec 9999 23:59:59 GMT"], CAP), (["3", "120"], 120), (["3, 120"], 120),
]  # fmt: skip
"""Case C06: what a Retry-After says, and the seconds that it counts for; 0 is as if it were absent."""


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("lines", "seconds"), SHAPES)
def test_retry_after_in_all_its_shapes(lines: list[str], seconds: float, status: int) -> None:
    outcome = meaning(status, httpx.Headers([("rEtRy-AfTeR", line) for line in lines]), NOON)
    assert (outcome.fate, outcome.wait_seconds) == ("wait" if seconds else "failed", seconds)


def test_other_answers_ask_for_no_time() -> None:
    assert meaning(500, httpx.Headers({"retry-after": "3"}), NOON) == Outcome("failed", 500, "it answered 500")


async def test_no_answer_in_time_is_a_failure() -> None:
    outcome = await send(Hanging(), timeout_seconds=0)
    assert outcome == Outcome("failed", error="no answer within 0 s")


async def test_an_answer_that_never_ends_is_not_waited_for() -> None:
    endless = Endless()
    assert await send(Wire(httpx.Response(200, stream=endless))) == Outcome("delivered", 200)
    assert endless.given < 10_000
    assert endless.closed
    broken = Endless(httpx.ReadError("it broke off"))
    assert await send(Wire(httpx.Response(200, stream=broken))) == Outcome("delivered", 200)


@pytest.mark.parametrize(("status", "fate"), [(200, "delivered"), (410, "gone"), (500, "failed")])
async def test_whoever_answers_and_then_never_ends_has_answered(
    monkeypatch: pytest.MonkeyPatch, status: int, fate: str
) -> None:
    """Its answer counts as it came in time, whatever becomes of the rest: it would get the same event again and again."""
    monkeypatch.setattr(sending, "DRAIN_SECONDS", 0.01)
    stuck = Endless(stuck=True)
    outcome = await send(Wire(httpx.Response(status, stream=stuck)), timeout_seconds=0.05)
    assert (outcome.fate, outcome.status) == (fate, status)
    assert stuck.closed


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ReadError("reset"), ValueError("odd"), OSError("x")])
async def test_whatever_fails_is_told_by_its_name(error: Exception) -> None:
    outcome = await send(Wire(error))
    assert outcome == Outcome("failed", error=f"{type(error).__name__}: {error}")


async def test_no_secret_comes_into_what_is_kept_of_a_failure() -> None:
    said = f"could not say {SECRET} or {SECRET.removeprefix('whsec_')} with Authorization: Bearer abcdef123456"
    outcome = await send(Wire(httpx.ConnectError(said)))
    assert outcome.error is not None
    assert SECRET.removeprefix("whsec_") not in outcome.error
    assert "abcdef123456" not in outcome.error
    assert len(told("é" * 5000, []).encode()) <= RUN_ERROR_BYTES


def test_delays_double_up_to_the_longest_with_jitter() -> None:
    assert [delay(n, lambda: 1.0) for n in (1, 2, 3, 4)] == [5, 10, 20, 40]
    assert [delay(n, lambda: 0.0) for n in (1, 2, 3)] == [2.5, 5, 10]
    assert delay(1, lambda: 0.5) == FIRST_SECONDS * 0.75
    assert delay(13, lambda: 1.0) == delay(100, lambda: 1.0) == 14_400
