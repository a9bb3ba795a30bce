"""How a worker asks for records: by one request that waits, and under a session, as far as the deployment has these."""

from typing import TYPE_CHECKING

from moorage.client.jobs import Job
from moorage.client.models import Claim
from moorage.client.problems import Problem

if TYPE_CHECKING:
    from moorage.client.moorage import Moorage


class Taking:
    """One worker's claims, one request at a time. `wait_seconds` is 0 where waiting turned out to be refused."""

    def __init__(self, moorage: "Moorage", job: Job) -> None:
        self._moorage = moorage
        self._job = job
        self.wait_seconds = job.wait_seconds

    async def take(self, room: int) -> list[Claim]:
        """Claim up to `room` records. Raises Problem, Unanswered."""
        while True:
            try:
                return await self._claim(room)
            except Problem as problem:
                if not self.wait_seconds or not _is_about(problem, "/wait_seconds"):
                    raise
                self.wait_seconds = 0

    async def _claim(self, room: int) -> list[Claim]:
        job = self._job
        return await self._moorage.claims.claim(
            job.kind,
            job.name,
            job.match,
            limit=room,
            lease_seconds=job.lease_seconds,
            wait_seconds=self.wait_seconds,
        )


def _is_about(problem: Problem, pointer: str) -> bool:
    return problem.status == 422 and any(error.get("pointer") == pointer for error in problem.errors)
