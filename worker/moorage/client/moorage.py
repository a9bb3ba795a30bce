"""One deployment, with all its operations."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from moorage.client.artifacts import Artifacts
from moorage.client.awakeables import Awakeables
from moorage.client.catalog import Credentials, Interests, Kinds
from moorage.client.claims import Claims
from moorage.client.clock import Clock
from moorage.client.dead_letters import DeadLetters
from moorage.client.events import Correlations, Events
from moorage.client.guards import Guards
from moorage.client.jobs import Handler, Job
from moorage.client.kv import Inbox, Values
from moorage.client.models import Change, Entry, Page
from moorage.client.outbox import Deliveries, Subscriptions
from moorage.client.outside import Destinations, Senders
from moorage.client.paging import every, page_of
from moorage.client.problems import Problem
from moorage.client.records import Records
from moorage.client.runs import Runs
from moorage.client.schedules import Schedules
from moorage.client.seals import Seals
from moorage.client.sessions import Sessions
from moorage.client.storage import Storage
from moorage.client.timers import Timers
from moorage.client.timing import RealTime, Timing
from moorage.client.watch import watch
from moorage.client.wire import Patience, Wire
from moorage.client.working import Report, Worker
from moorage.kernel.errors import Unauthenticated
from moorage.kernel.limits import PAGE_ITEMS

ANSWER_SECONDS = 30.0


class Moorage:
    """A deployment at `url`, seen with the credential `token`; an async context manager.

    ```python
    async with Moorage("http://127.0.0.1:8787", token) as moorage:
        record = await moorage.records.publish("document", {"type": "pdf"})
    ```
    Operations raise Problem for an error that Moorage answers, and Unanswered when no answer came. A request is sent again
    by itself where that is safe; `patience` says how often. `transport` and `timing` are there for tests.

    Raises Problem for a token that no header can hold, a line's end behind it for instance.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience: Patience | None = None,
        answer_seconds: float = ANSWER_SECONDS,
        connections: int = 100,
        transport: httpx.AsyncBaseTransport | None = None,
        timing: Timing | None = None,
    ) -> None:
        if token and not (token.isascii() and token.isprintable() and " " not in token):
            raise Problem.unsent(
                Unauthenticated("the token holds a space, a line's end or another character that no token has")
            )
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=answer_seconds,
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            transport=transport,
        )
        self.url = url.rstrip("/")
        self.wire = Wire(self._http, patience or Patience(), timing or RealTime())
        self.records = Records(self.wire)
        self.claims = Claims(self.wire)
        self.sessions = Sessions(self.wire)
        self.kinds = Kinds(self.wire)
        self.credentials = Credentials(self.wire)
        self.interests = Interests(self.wire)
        self.dead_letters = DeadLetters(self.wire)
        self.awakeables = Awakeables(self.wire)
        self.artifacts = Artifacts(self.wire)
        self.events = Events(self.wire)
        self.correlations = Correlations(self.wire)
        self.seals = Seals(self.wire)
        self.runs = Runs(self.wire)
        self.schedules = Schedules(self.wire)
        self.storage = Storage(self.wire)
        self.clock = Clock(self.wire)
        self.guards = Guards(self.wire)
        self.timers = Timers(self.wire)
        self.kv = Values(self.wire)
        self.inbox = Inbox(self.wire)
        self.subscriptions = Subscriptions(self.wire)
        self.deliveries = Deliveries(self.wire)
        self.destinations = Destinations(self.wire)
        self.senders = Senders(self.wire)

    @classmethod
    def of_environment(cls, **options: Any) -> Self:
        """The deployment that MOORAGE_URL and MOORAGE_TOKEN name. Raises KeyError without the first."""
        return cls(os.environ["MOORAGE_URL"], os.environ.get("MOORAGE_TOKEN"), **options)

    def __repr__(self) -> str:
        return f"Moorage({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def health(self) -> dict[str, Any]:
        """Whether requests are served, and if not, why; needs no credential."""
        answer: dict[str, Any] = await self.wire.call("GET", "/health")
        return answer

    def watch(
        self, kind: str, match: Mapping[str, Any] | None = None, *, after: int | None = None
    ) -> AsyncGenerator[Change, None]:
        """Every committed change of a kind's records that match, in order, each once; see `moorage.client.watch`."""
        return watch(self.wire, kind, match, after=after)

    async def history(
        self, *, subject: str | None = None, after: int = 0, limit: int | None = None, cursor: str | None = None
    ) -> Page[Entry]:
        """A page of the history past a position, oldest first; of one subject where given."""
        query = {"subject": subject, "after": after, "limit": limit, "cursor": cursor}
        return page_of(Entry, await self.wire.call("GET", "/history", query=query))

    def iterate_history(self, *, subject: str | None = None, after: int = 0) -> AsyncGenerator[Entry, None]:
        """Every such entry."""
        return every(lambda cursor: self.history(subject=subject, after=after, limit=int(PAGE_ITEMS), cursor=cursor))

    def work(self, kind: str, match: Mapping[str, Any] | None, handler: Handler, **options: Any) -> Worker:
        """A worker of this deployment, still to be run; `options` are those of Job."""
        return self.worker(Job(kind, match or {}, handler, **options))

    def worker(self, job: Job, report: Callable[[Report], None] | None = None) -> Worker:
        """A worker that does a job, still to be run; `report` is told what happens."""
        return Worker(self, job, report)
