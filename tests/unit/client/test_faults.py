"""Lost answers, refusals that pass, and answers that nobody can use."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
import respx

from moorage.client import Draft, FailureTag, Held, Moorage, Patience, Problem, Unanswered
from tests.unit.client.conftest import ROOT, Impatient

RECORD = {
    "id": "rec_1",
    "seq": 1,
    "kind": "doc",
    "body": {},
    "metadata": {},
    "parents": [],
    "state": "ready",
    "created_at": "2026-11-29T16:35:00.123Z",
    "created_by": "root",
    "body_sha256": "0" * 64,
    "priority": 0,
    "attempts": 0,
}
LEASE = {"epoch": 1, "owner": "w", "expires_at": "2026-11-29T16:35:00.123Z", "attempt": 1}
BUSY = {"code": "StorageBindingUnavailable", "status": 503, "tag": "Transient", "retryable": True, "detail": "busy"}
LOST = httpx.ReadError("lost")


def busy(status: int = 503, retry_after: str | None = None) -> httpx.Response:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return httpx.Response(status, json={**BUSY, "status": status}, headers=headers)


@pytest.fixture
def api() -> Any:
    with respx.mock(base_url="https://moorage.example", assert_all_called=False) as router:
        yield router


SAFE: dict[str, tuple[str, str, Any, Callable[[Moorage], Awaitable[Any]]]] = {
    "read": ("GET", "/records/rec_1", RECORD, lambda m: m.records.get("rec_1")),
    "query": ("POST", "/records/query", {"items": [], "next_cursor": None}, lambda m: m.records.query("doc")),
    "publish": ("POST", "/records", RECORD, lambda m: m.records.publish("doc", {})),
    "batch": ("POST", "/records/batch", {"records": []}, lambda m: m.records.publish_batch([Draft("doc", {})])),
    "renew": ("POST", "/claims/rec_1/renew", {"lease": LEASE}, lambda m: m.claims.renew(Held("rec_1", 1))),
    "release": ("POST", "/claims/rec_1/release", None, lambda m: m.claims.release(Held("rec_1", 1))),
    "fail": (
        "POST",
        "/claims/rec_1/fail",
        {"record": RECORD},
        lambda m: m.claims.fail(Held("rec_1", 1), FailureTag.TRANSIENT, "m"),
    ),
    "requeue": ("POST", "/dead-letters/rec_1/requeue", RECORD, lambda m: m.dead_letters.requeue("rec_1", "r")),
    "requeue by pattern": (
        "POST",
        "/dead-letters/requeue",
        {"records": []},
        lambda m: m.dead_letters.requeue_matching("doc", "r"),
    ),
    "revoke": ("DELETE", "/credentials/c", None, lambda m: m.credentials.revoke("c")),
    "keyed claim": ("POST", "/claims", {"claims": []}, lambda m: m.claims.claim("doc", "w", key="k")),
    "numbered claim": (
        "POST",
        "/claims",
        {"claims": []},
        lambda m: m.claims.claim("doc", "w", session="s", consumer="c", sequence=1),
    ),
}
UNSAFE: dict[str, tuple[str, Callable[[Moorage], Awaitable[Any]]]] = {
    "claim": ("/claims", lambda m: m.claims.claim("doc", "w")),
}


@pytest.mark.parametrize("name", SAFE)
async def test_a_lost_answer_is_asked_for_again_with_the_same_request(
    api: respx.MockRouter, remote: Moorage, impatient: Impatient, name: str
) -> None:
    method, path, answer, ask = SAFE[name]
    done = httpx.Response(204) if answer is None else httpx.Response(200, json=answer)
    route = api.route(method=method, path=path).mock(side_effect=[LOST, busy(), done])
    await ask(remote)
    assert impatient.slept == [1.0, 2.0]
    sent = [call.request for call in route.calls]
    assert len({one.content for one in sent}) == 1
    assert len({one.headers.get("idempotency-key") for one in sent}) == 1


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("fault", [LOST, busy(), httpx.Response(502, text="<html>")], ids=["lost", "503", "502"])
async def test_what_could_do_its_work_twice_is_not_sent_again(
    api: respx.MockRouter, remote: Moorage, name: str, fault: Any
) -> None:
    path, ask = UNSAFE[name]
    route = api.post(path).mock(side_effect=[fault])
    with pytest.raises((Unanswered, Problem)):
        await ask(remote)
    assert route.call_count == 1


@pytest.mark.parametrize("name", UNSAFE)
async def test_what_was_certainly_not_carried_out_is_always_sent_again(
    api: respx.MockRouter, remote: Moorage, impatient: Impatient, name: str
) -> None:
    path, ask = UNSAFE[name]
    answer = httpx.Response(200, json={"claims": []})
    limited = httpx.Response(429, json={"code": "RateLimited", "tag": "RateLimited"}, headers={"retry-after": "7"})
    api.post(path).mock(side_effect=[httpx.ConnectError("refused"), limited, answer])
    await ask(remote)
    assert impatient.slept == [1.0, 7.0]


async def test_retry_after_is_obeyed_as_a_header_and_as_a_member(
    api: respx.MockRouter, remote: Moorage, impatient: Impatient
) -> None:
    member = httpx.Response(429, json={"code": "RateLimited", "tag": "RateLimited", "retryable": True, "retry_after": 2.5})
    answers = [busy(retry_after="4"), member, httpx.Response(200, json=RECORD)]
    api.get("/records/rec_1").mock(side_effect=answers)
    await remote.records.get("rec_1")
    assert impatient.slept == [4.0, 2.5]


async def test_patience_ends(api: respx.MockRouter, remote: Moorage, impatient: Impatient) -> None:
    route = api.get("/records/rec_1").mock(return_value=busy())
    with pytest.raises(Problem) as caught:
        await remote.records.get("rec_1")
    assert (caught.value.status, caught.value.retryable) == (503, True)
    assert (route.call_count, impatient.slept) == (4, [1.0, 2.0, 3.0])
    api.get("/records/rec_1").mock(side_effect=LOST)
    with pytest.raises(Unanswered, match=r"GET /records/rec_1: ReadError: lost"):
        await remote.records.get("rec_1")


async def test_a_wait_that_is_too_long_is_the_callers_to_decide(
    api: respx.MockRouter, remote: Moorage, impatient: Impatient
) -> None:
    api.get("/records/rec_1").mock(return_value=busy(429, retry_after="31"))
    with pytest.raises(Problem) as caught:
        await remote.records.get("rec_1")
    assert (caught.value.retry_after, impatient.slept) == (31.0, [])


@pytest.mark.parametrize(("status", "retryable"), [(500, False), (503, False), (409, True), (422, False)])
async def test_a_problem_that_waiting_does_not_mend_is_told_at_once(
    api: respx.MockRouter, remote: Moorage, status: int, retryable: bool
) -> None:
    problem = {"code": "Whatever", "status": status, "tag": "Incompatible", "retryable": retryable, "detail": "d"}
    route = api.get("/records/rec_1").mock(return_value=httpx.Response(status, json=problem))
    with pytest.raises(Problem, match="Whatever: d"):
        await remote.records.get("rec_1")
    assert route.call_count == 1


@pytest.mark.parametrize(
    ("status", "tag"),
    [
        (401, FailureTag.UNAUTHENTICATED),
        (404, FailureTag.UNKNOWN),
        (418, FailureTag.INVALID),
        (500, FailureTag.PERMANENT),
    ],
)
async def test_an_error_of_something_between_is_a_problem_too(
    api: respx.MockRouter, remote: Moorage, status: int, tag: FailureTag
) -> None:
    api.get("/records/rec_1").mock(return_value=httpx.Response(status, html="<h1>nginx</h1>"))
    with pytest.raises(Problem) as caught:
        await remote.records.get("rec_1")
    assert (caught.value.code, caught.value.tag) == (f"Http{status}", tag)
    assert "nginx" in caught.value.detail


async def test_a_page_that_is_not_moorages_is_no_answer(api: respx.MockRouter, remote: Moorage) -> None:
    api.get("/records/rec_1").mock(return_value=httpx.Response(200, html="<h1>Welcome</h1>"))
    with pytest.raises(Unanswered, match="not JSON"):
        await remote.records.get("rec_1")


async def test_a_token_in_a_path_stands_in_no_message(api: respx.MockRouter, remote: Moorage) -> None:
    api.post("/awake/awk_secret").mock(side_effect=LOST)
    with pytest.raises(Unanswered) as caught:
        await remote.awakeables.resolve("awk_secret", 1)
    assert "secret" not in str(caught.value)


async def test_waits_grow_are_shortened_by_chance_and_end() -> None:
    patience = Patience(tries=5, first_seconds=1, longest_seconds=6)
    assert [patience.wait(n, None, 0.0) for n in range(1, 6)] == [1, 2, 4, 6, None]
    assert [patience.wait(n, None, 1.0) for n in range(1, 5)] == [0.5, 1, 2, 3]
    assert patience.wait(1, 10, 0.5) == 10


class Forgetful(httpx.AsyncBaseTransport):
    """Delivers each request, and loses the answers of the first tries at each."""

    def __init__(self, inner: httpx.AsyncBaseTransport, losses: int) -> None:
        self.inner, self.losses, self.tries = inner, losses, 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.tries += 1
        answer = await self.inner.handle_async_request(request)
        if self.tries <= self.losses:
            await answer.aclose()
            raise httpx.ReadError("lost after it was carried out")
        return answer


@pytest.mark.clause("records.idempotent")
async def test_a_publish_whose_answers_are_lost_is_published_once(
    moorage: Moorage, transport: httpx.ASGITransport, impatient: Impatient
) -> None:
    forgetful = Forgetful(transport, losses=3)
    async with Moorage("http://moorage.test", ROOT, transport=forgetful, timing=impatient) as client:
        record = await client.records.publish("doc", {"n": 1})
    assert forgetful.tries == 4
    assert [one.id async for one in moorage.records.iterate("doc")] == [record.id]


@pytest.mark.clause("records.settle-replay")
async def test_a_settlement_whose_answers_are_lost_publishes_its_results_once(
    moorage: Moorage, transport: httpx.ASGITransport, impatient: Impatient
) -> None:
    await moorage.records.publish("doc", {"n": 1})
    (claim,) = await moorage.claims.claim("doc", "w")
    async with Moorage("http://moorage.test", ROOT, transport=Forgetful(transport, 2), timing=impatient) as client:
        done = await client.claims.settle(claim, [Draft("doc", {"n": 2})])
    assert [one.id async for one in moorage.records.iterate("doc", state="ready")] == [done.results[0].id]


async def test_a_credential_whose_answer_is_lost_still_tells_its_token(
    moorage: Moorage, transport: httpx.ASGITransport, impatient: Impatient
) -> None:
    async with Moorage("http://moorage.test", ROOT, transport=Forgetful(transport, 1), timing=impatient) as client:
        made = await client.credentials.create("reader", [{"actions": ["read"]}])
    async with Moorage("http://moorage.test", made.token, transport=transport) as reader:
        assert (await reader.kinds.get("doc")).kind == "doc"
    assert len([one async for one in moorage.credentials.iterate()]) == 1
