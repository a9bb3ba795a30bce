"""What a worker is to do: which records it takes, and the function that works on one."""

import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moorage.client.drafts import Draft
from moorage.client.models import Claim, Lease, Record
from moorage.kernel.errors import FailureTag
from moorage.kernel.limits import CLAIM_BATCH

if TYPE_CHECKING:
    from moorage.client.moorage import Moorage

Results = Draft | Sequence[Draft] | None
"""What a handler returns: the records to publish with the claimed one as their parent; None for none."""


@dataclass(frozen=True, slots=True)
class Work:
    """One claimed record, as its handler sees it. `moorage` is there for whatever else the handler needs."""

    claim: Claim
    moorage: "Moorage"

    @property
    def record(self) -> Record:
        """The claimed record."""
        return self.claim.record

    @property
    def body(self) -> Mapping[str, Any]:
        """The record's body."""
        return self.claim.record.body

    @property
    def lease(self) -> Lease:
        """The lease as it was when the record was claimed; the worker renews it meanwhile."""
        return self.claim.lease


Handler = Callable[[Work], Awaitable[Results]]


class FailWork(Exception):
    """Raised by a handler: the attempt has failed.

    `retry_after` is in seconds and supersedes the kind's delay; `dead_letter` says that no other attempt could succeed.
    """

    def __init__(
        self,
        tag: FailureTag | str,
        message: str = "",
        *,
        retry_after: float | None = None,
        dead_letter: bool = False,
    ) -> None:
        self.tag = FailureTag(tag)
        self.message = message
        self.retry_after = retry_after
        self.dead_letter = dead_letter
        super().__init__(f"{self.tag.value}: {message}")


def own_name() -> str:
    """A worker's name that tells machine and process, and is used once."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


@dataclass(frozen=True)
class Job:
    """Work on records of a kind that match.

    `concurrency` records at once (at most CLAIM_BATCH are claimed in one request). A lease lasts `lease_seconds` and is
    renewed while the handler runs. `wait_seconds` is how long one request waits for a record, at most WAIT_SECONDS. Claims
    are `numbered` in a session where the deployment has sessions, so that no answer is lost. When the worker is stopped,
    handlers have `grace_seconds` to end; then they are cancelled and their records given back. With `announce` the worker
    publishes what it would claim, for dry runs to find.
    """

    kind: str
    match: Mapping[str, Any]
    handler: Handler
    name: str = field(default_factory=own_name)
    concurrency: int = 1
    lease_seconds: float = 30
    wait_seconds: float = 20
    grace_seconds: float = 20
    numbered: bool = True
    announce: bool = False

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError("concurrency is at least 1")
        if self.lease_seconds <= 0 or self.wait_seconds < 0 or self.grace_seconds < 0:
            raise ValueError("lease_seconds is more than 0, wait_seconds and grace_seconds at least 0")

    async def __call__(self, work: Work) -> Results:
        """The handler itself, for its tests."""
        return await self.handler(work)

    def room(self, held: int) -> int:
        """How many records to ask for while so many are held."""
        return min(self.concurrency - held, int(CLAIM_BATCH))


def worker(
    *,
    kind: str,
    match: Mapping[str, Any] | None = None,
    name: str | None = None,
    concurrency: int = 1,
    lease_seconds: float = 30,
    wait_seconds: float = 20,
    grace_seconds: float = 20,
    numbered: bool = True,
    announce: bool = False,
) -> Callable[[Handler], Job]:
    """Make a Job of an async function; `moorage.client.run` runs it. The options are those of Job."""

    def of(handler: Handler) -> Job:
        return Job(
            kind,
            match or {},
            handler,
            name or own_name(),
            concurrency,
            lease_seconds,
            wait_seconds,
            grace_seconds,
            numbered,
            announce,
        )

    return of
