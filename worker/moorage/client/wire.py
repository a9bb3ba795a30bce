"""Requests over HTTP, and which of them may be sent again.

A request is sent again only where that cannot do its work twice: reads, replacements (PUT, DELETE), what carries an
Idempotency-Key, and what the caller calls repeatable. What was certainly not carried out is always sent again: a refused
connection, and a 429.
"""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from moorage.client.problems import Problem, Unanswered
from moorage.client.timing import RealTime, Timing
from moorage.kernel import canonical, ids
from moorage.kernel.errors import IdInvalid, JsonInvalid, RequestInvalid

REPEATABLE_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_PASSING = frozenset({429, 502, 503, 504})
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a request is sent, and how long to wait between.

    Without a Retry-After the waits grow from `first_seconds` by doubling to `longest_seconds`, each shortened by up to
    half at random. A Retry-After above `longest_retry_after` is not waited for: the problem is raised instead.
    """

    tries: int = 6
    first_seconds: float = 0.2
    longest_seconds: float = 10.0
    longest_retry_after: float = 60.0

    def wait(self, failures: int, told: float | None, chance: float) -> float | None:
        """Seconds to wait after this many failures; None to give up."""
        if failures >= self.tries or (told is not None and told > self.longest_retry_after):
            return None
        grown = min(self.first_seconds * 2.0 ** (failures - 1), self.longest_seconds) * (1 - chance / 2)
        return grown if told is None else max(told, grown * chance)


@dataclass(frozen=True)
class Wire:
    """A connection to one deployment. `timing` and `chance` (0 to 1) are there for tests."""

    http: httpx.AsyncClient
    patience: Patience = field(default_factory=Patience)
    timing: Timing = field(default_factory=RealTime)
    chance: Callable[[], float] = random.random

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        repeatable: bool = False,
        wait_seconds: float = 0,
        shown: str | None = None,
    ) -> Any:
        """The JSON of a successful answer; None when it has no body.

        `wait_seconds` is how much longer than usual the answer may take; `shown` stands for the path in messages where
        the path holds a secret. Raises Problem, Unanswered.
        """
        headers = {} if key is None else {"Idempotency-Key": _checked(key)}
        content = None
        if body is not None:
            content = _encoded(body)
            headers["Content-Type"] = "application/json"

        def make() -> httpx.Request:
            return self.request(method, path, query=query, headers=headers, content=content, wait_seconds=wait_seconds)

        may_repeat = repeatable or key is not None or method in REPEATABLE_METHODS
        answer = await self.send(make, may_repeat, shown or path)
        return _json_of(answer, f"{method} {shown or path}")

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Any = None,
        wait_seconds: float = 0,
        silence_seconds: float | None = None,
    ) -> httpx.Request:
        """A request to send. `silence_seconds` bounds the time between two parts of the answer, instead of the usual.

        Raises Problem for a parameter or header that cannot be written.
        """
        usual = self.http.timeout
        read = silence_seconds or (None if usual.read is None else usual.read + wait_seconds)
        timeout = httpx.Timeout(connect=usual.connect, read=read, write=usual.write, pool=usual.pool)
        for name, value in (headers or {}).items():
            if not (value.isascii() and value.isprintable() and value == value.strip()):
                raise Problem.unsent(RequestInvalid(f"the header {name} cannot hold {value[:100]!r}"))
        params = {name: value for name, value in (query or {}).items() if value is not None}
        try:
            return self.http.build_request(method, path, params=params, headers=headers, content=content, timeout=timeout)
        except UnicodeEncodeError as error:
            raise Problem.unsent(RequestInvalid(f"a query parameter is not UTF-8: {error.object[:100]!r}")) from None

    async def send(self, make: Callable[[], httpx.Request], may_repeat: bool, shown: str) -> httpx.Response:
        """The successful answer, read to its end; `make` makes the request for each try. Raises Problem, Unanswered."""
        return await self._insist(make, may_repeat, shown, whole=True)

    @asynccontextmanager
    async def stream(self, make: Callable[[], httpx.Request], may_repeat: bool, shown: str) -> AsyncIterator[httpx.Response]:
        """The successful answer with its body still to be read. Raises Problem, Unanswered."""
        answer = await self._insist(make, may_repeat, shown, whole=False)
        try:
            yield answer
        finally:
            await answer.aclose()

    async def _insist(
        self, make: Callable[[], httpx.Request], may_repeat: bool, shown: str, *, whole: bool
    ) -> httpx.Response:
        failures = 0
        while True:
            ended, again = await self._attempt(make(), may_repeat, shown, whole)
            if isinstance(ended, httpx.Response):
                return ended
            failures += 1
            told = ended.retry_after if isinstance(ended, Problem) else None
            wait = self.patience.wait(failures, told, self.chance()) if again else None
            if wait is None:
                raise ended
            await self.timing.sleep(wait)

    async def _attempt(
        self, request: httpx.Request, may_repeat: bool, shown: str, whole: bool
    ) -> tuple[httpx.Response | Problem | Unanswered, bool]:
        """How one sending ended, and whether sending again is safe and may help."""
        try:
            answer = await self.http.send(request, stream=True)
            if whole or not answer.is_success:
                await answer.aread()
        except httpx.TransportError as error:
            unanswered = Unanswered(f"{request.method} {shown}: {_name(error)}")
            unanswered.__cause__ = error
            return unanswered, may_repeat or isinstance(error, _NEVER_SENT)
        if answer.is_success:
            return answer, False
        problem = Problem.of(answer)
        passing = answer.status_code in _PASSING and problem.retryable
        return problem, passing and (may_repeat or answer.status_code == 429)


def _checked(key: str) -> str:
    try:
        return ids.check_key(key)
    except IdInvalid as error:
        raise Problem.unsent(error) from None


def _encoded(body: Any) -> bytes:
    try:
        return canonical.compact(body).encode()
    except UnicodeEncodeError:
        raise Problem.unsent(JsonInvalid("the request holds a text that is not UTF-8")) from None


def _json_of(answer: httpx.Response, what: str) -> Any:
    if not answer.content:
        return None
    try:
        return canonical.stored(answer.text)
    except ValueError as error:
        raise Unanswered(f"{what}: the answer is not JSON; is this the address of a Moorage?") from error


def _name(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
