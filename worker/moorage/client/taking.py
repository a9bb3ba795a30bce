"""How a worker asks for records: by one request that waits, numbered in a session, as far as the deployment has these.

A numbered claim whose answer was lost is asked for again in the same words, and answers the same records. That costs the
deployment one row for an answer without records, where a claim without a number costs none.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from moorage.client.jobs import Job
from moorage.client.models import Claim
from moorage.client.problems import ClientFailure, Problem
from moorage.kernel.limits import WAIT_SECONDS

if TYPE_CHECKING:
    from moorage.client.moorage import Moorage

SESSION_SECONDS = 3600.0
_NO_ROUTE = frozenset({404, 405})
_OVER = frozenset({"SessionUnknown", "SessionExpired", "SequenceStale", "SequenceConflict"})


class Taking:
    """One worker's claims, one request at a time. `wait_seconds` is 0 where waiting turned out to be refused; `asked_at`
    is when the latest claim was first asked for."""

    def __init__(self, moorage: "Moorage", job: Job) -> None:
        self._moorage = moorage
        self._job = job
        self._sessions = job.numbered
        self._session: str | None = None
        self._renew_at = 0.0
        self._sequence = 0
        self._pending: int | None = None
        self.wait_seconds = min(job.wait_seconds, float(WAIT_SECONDS))
        self.asked_at = 0.0

    @property
    def numbered(self) -> bool:
        """Whether a claim that is broken off can be found again."""
        return self._session is not None

    async def take(self, room: int) -> list[Claim]:
        """Claim up to `room` records; the records of the claim before, if its answer was lost. Raises Problem,
        Unanswered."""
        while True:
            await self._keep_session()
            if self._pending is None:
                self._pending = room
                self._sequence += 1
                self.asked_at = self._moorage.wire.timing.now()
            try:
                return await self._ask(self.wait_seconds)
            except Problem as problem:
                if self.wait_seconds and _is_about(problem, "/wait_seconds"):
                    self.wait_seconds = 0
                elif problem.code in _OVER:
                    self._session = None
                else:
                    raise

    async def withdraw(self) -> list[Claim]:
        """The records of a claim that was broken off, and no more claims. Raises Problem, Unanswered."""
        if self._session is None:
            return []
        try:
            return [] if self._pending is None else await self._ask(0)
        finally:
            with suppress(ClientFailure):
                await self._moorage.sessions.close(self._session)
            self._session = None

    async def _ask(self, wait_seconds: float) -> list[Claim]:
        job = self._job
        numbered: Mapping[str, Any] = {}
        if self._session is not None:
            numbered = {"session": self._session, "consumer": "worker", "sequence": self._sequence}
        try:
            claims = await self._moorage.claims.claim(
                job.kind,
                job.name,
                job.match,
                limit=self._pending or 1,
                lease_seconds=job.lease_seconds,
                wait_seconds=wait_seconds,
                **numbered,
            )
        except Problem as problem:
            if problem.final:
                self._pending = None
            raise
        self._pending = None
        return claims

    async def _keep_session(self) -> None:
        now = self._moorage.wire.timing.now()
        if not self._sessions or (self._session is not None and now < self._renew_at):
            return
        sessions = self._moorage.sessions
        if self._session is not None:
            with suppress(Problem):  # what is wrong with it, the claim will tell
                await sessions.renew(self._session, ttl_seconds=SESSION_SECONDS)
        else:
            try:
                self._session = (await sessions.open(ttl_seconds=SESSION_SECONDS)).session
            except Problem as problem:
                if problem.status not in _NO_ROUTE:
                    raise
                self._sessions = False
            self._sequence, self._pending = 0, None
        self._renew_at = now + SESSION_SECONDS / 2


def _is_about(problem: Problem, pointer: str) -> bool:
    return problem.status == 422 and any(error.get("pointer") == pointer for error in problem.errors)
