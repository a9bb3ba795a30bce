"""The worker loop: take, keep, work, end.

Delivery is at least once: a handler may run again for the same record when its worker died or lost the lease. Each record
is held by one task: the handler runs beside the renewing of the lease, and is cancelled when the lease is lost, so that
nobody works on what is somebody else's by now (clause leases.fence).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from moorage.client.batching import Gathering
from moorage.client.drafts import Draft
from moorage.client.jobs import Job, Work
from moorage.client.models import Claim, Lease, Settlement
from moorage.client.outcomes import drafts_of, failure_of
from moorage.client.problems import ClientFailure, Problem, Unanswered
from moorage.client.taking import Taking
from moorage.client.timing import Timing
from moorage.kernel.errors import FailureTag

if TYPE_CHECKING:
    from moorage.client.moorage import Moorage

T = TypeVar("T")
log = logging.getLogger("moorage.client")

_FIRST_IDLE, _LONGEST_IDLE = 0.2, 5.0
_FIRST_TROUBLE, _LONGEST_TROUBLE = 0.5, 15.0
_INTEREST_SECONDS = 60

Did = Literal["claimed", "renewed", "settled", "failed", "released", "lost", "trouble"]


@dataclass(frozen=True, slots=True)
class Report:
    """Something that a worker did with a claim, or `trouble` that it goes on after."""

    did: Did
    claim: Claim | None = None
    detail: str = ""


class Worker:
    """Runs one job until it is stopped. `report` is told what happens; it must not raise."""

    def __init__(self, moorage: "Moorage", job: Job, report: Callable[[Report], None] | None = None) -> None:
        self.job = job
        self._moorage = moorage
        self._timing: Timing = moorage.wire.timing
        self._taking = Taking(moorage, job)
        claims = moorage.claims
        self._renewals: Gathering[Claim, Lease] = Gathering(
            lambda claim: claims.renew(claim, job.lease_seconds), lambda held: claims.renew_many(held, job.lease_seconds)
        )
        self._settlements: Gathering[tuple[Claim, Sequence[Draft]], Settlement] = Gathering(
            lambda end: claims.settle(*end), claims.settle_many
        )
        self._report = report or _log
        self._holds: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._abandoning = asyncio.Event()
        self._freed = asyncio.Event()
        self._stopped_at = 0.0

    def stop(self) -> None:
        """Claim nothing more, let handlers end for `grace_seconds`, give back the rest, and let `run` return. A second
        call gives back at once."""
        if self._stopping.is_set():
            self._abandoning.set()
        else:
            self._stopped_at = self._timing.now()
        self._stopping.set()

    async def run(self) -> None:
        """Work until stopped. When it is cancelled, what is held is given back at once.

        Raises Problem when the claim itself is refused for good: an unknown kind, a bad pattern, a missing grant.
        """
        beside = [asyncio.create_task(self._announce())] if self.job.announce else []
        try:
            await self._take()
            await self._end()
        except BaseException:
            self._abandoning.set()
            raise
        finally:
            for task in beside:
                task.cancel()
            await self._leave()

    async def _leave(self) -> None:
        """End what is still held, and take back what was said."""
        await self._drain()
        try:
            await self._give_back(await self._taking.withdraw())
        except ClientFailure as failure:
            self._report(Report("trouble", detail=str(failure)))
        if self.job.announce:
            with suppress(ClientFailure):
                await self._moorage.interests.withdraw(self.job.name)

    async def _take(self) -> None:
        idle, trouble = _FIRST_IDLE, _FIRST_TROUBLE
        while not self._stopping.is_set():
            room = self.job.room(len(self._holds))
            if room == 0:
                self._freed.clear()
                await self._unless_stopped(self._freed.wait())
                continue
            began = self._timing.now()
            try:
                claims = await self._taken(room)
            except ClientFailure as failure:
                if isinstance(failure, Problem) and failure.final:
                    raise
                self._report(Report("trouble", detail=str(failure)))
                await self._unless_stopped(self._timing.sleep(trouble))
                trouble = min(2 * trouble, _LONGEST_TROUBLE)
                continue
            trouble = _FIRST_TROUBLE
            # Counted from before the request, a lease ends here no later than there, whatever the clocks say. One that
            # waited may have claimed long after that; then the first renewal tells.
            claimed = self._timing.now() if self._taking.wait_seconds else self._taking.asked_at
            for claim in claims:
                self._hold(claim, claimed)
            if claims or self._timing.now() - began >= self._taking.wait_seconds / 2 > 0:
                idle = _FIRST_IDLE
                continue
            await self._unless_stopped(self._timing.sleep(idle))
            idle = min(2 * idle, _LONGEST_IDLE)

    async def _taken(self, room: int) -> list[Claim]:
        """What one request claims. A stop breaks off a numbered one, whose records are found again; another one is let
        end, for the deployment would go on waiting and claim for nobody, and what it brings then is given back."""
        taking = asyncio.create_task(self._taking.take(room))
        try:
            await self._first(taking, self._stopping.wait())
            if not taking.done() and not self._taking.numbered:
                await self._first(taking, self._abandoning.wait())
            if not taking.done():
                return []
            claims = taking.result()
        finally:
            await _cancel(taking)
        if self._stopping.is_set():
            await self._give_back(claims)
            return []
        return claims

    async def _give_back(self, claims: list[Claim]) -> None:
        for claim in claims:
            await self._release(claim)

    async def _first(self, task: "asyncio.Future[Any]", other: Coroutine[Any, Any, Any]) -> None:
        """Return when the task has ended or the other has, which then is no more."""
        beside = asyncio.create_task(other)
        try:
            await asyncio.wait({task, beside}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(beside)

    def _hold(self, claim: Claim, claimed: float) -> None:
        self._report(Report("claimed", claim))
        task = asyncio.create_task(self._work_on(claim, claimed + self.job.lease_seconds))
        self._holds.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._holds.discard(task)
        self._freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(Report("trouble", detail=f"{type(error).__name__}: {error}"))

    async def _work_on(self, claim: Claim, deadline: float) -> None:
        handling = asyncio.ensure_future(self.job.handler(Work(claim, self._moorage)))
        keeping = asyncio.create_task(self._keep(claim, deadline))
        abandoned = asyncio.create_task(self._abandoning.wait())
        try:
            await asyncio.wait({handling, keeping, abandoned}, return_when=asyncio.FIRST_COMPLETED)
            if not handling.done():
                handling.cancel()
                await asyncio.wait({handling})
            if keeping.done():
                self._report(Report("lost", claim, keeping.result()))
                _look_at(handling)
            elif handling.cancelled() and self._abandoning.is_set():
                await self._release(claim)
            else:
                await self._finish(claim, handling)
        finally:
            await _cancel(handling, keeping, abandoned)

    async def _keep(self, claim: Claim, deadline: float) -> str:
        """Renew the lease at each third of its length; returns when it is lost, with the reason."""
        length = self.job.lease_seconds
        renewal = deadline - length + length / 3
        while True:
            await self._timing.sleep(max(0.0, min(renewal, deadline) - self._timing.now()))
            began = self._timing.now()
            if began >= deadline:
                return "it ran out before it could be renewed"
            try:
                await self._within(deadline - began, self._renewals.send(claim))
            except Problem as problem:
                if problem.final:
                    return str(problem)
                renewal = self._timing.now() + length / 10
            except (Unanswered, TimeoutError):
                renewal = self._timing.now() + length / 10
            else:
                deadline, renewal = began + length, began + length / 3
                self._report(Report("renewed", claim))

    async def _finish(self, claim: Claim, handling: "asyncio.Future[Any]") -> None:
        try:
            results = drafts_of(handling)
        except Exception as error:
            await self._fail(claim, error)
            return
        try:
            await self._settlements.send((claim, results))
        except Problem as problem:
            if problem.tag is FailureTag.FENCED or not problem.final:
                self._report(Report("lost", claim, str(problem)))
            else:
                # The results themselves were refused: another attempt may make better ones, and the reason is kept.
                await self._fail(claim, problem)
        except Unanswered as unanswered:
            self._report(Report("lost", claim, str(unanswered)))
        else:
            self._report(Report("settled", claim))

    async def _fail(self, claim: Claim, error: BaseException) -> None:
        failed = failure_of(error)
        try:
            await self._moorage.claims.fail(
                claim, failed.tag, failed.message, retry_after=failed.retry_after, dead_letter=failed.dead_letter
            )
        except ClientFailure as failure:
            self._report(Report("lost", claim, str(failure)))
        else:
            self._report(Report("failed", claim, str(failed)))

    async def _release(self, claim: Claim) -> None:
        try:
            await self._moorage.claims.release(claim)
        except ClientFailure as failure:
            self._report(Report("lost", claim, str(failure)))
        else:
            self._report(Report("released", claim))

    async def _end(self) -> None:
        left = self._stopped_at + self.job.grace_seconds - self._timing.now()
        if self._holds and left > 0:
            grace = asyncio.create_task(self._timing.sleep(left))
            abandoned = asyncio.create_task(self._abandoning.wait())
            drained = asyncio.create_task(self._drain())
            await asyncio.wait({grace, abandoned, drained}, return_when=asyncio.FIRST_COMPLETED)
            await _cancel(grace, abandoned, drained)
        self._abandoning.set()

    async def _drain(self) -> None:
        while self._holds:
            await asyncio.wait(self._holds)

    async def _announce(self) -> None:
        while True:
            try:
                await self._moorage.interests.put(
                    self.job.name, self.job.kind, self.job.match, ttl_seconds=_INTEREST_SECONDS
                )
            except ClientFailure as failure:
                self._report(Report("trouble", detail=f"the interest is not published: {failure}"))
            await self._timing.sleep(_INTEREST_SECONDS / 3)

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(waiting)
        try:
            await self._first(task, self._stopping.wait())
        finally:
            await _cancel(task)

    async def _within(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        """The work's result. Raises TimeoutError when it takes longer, by the client's own timing."""
        task = asyncio.create_task(work)
        try:
            await self._first(task, self._timing.sleep(seconds))
            if not task.done():
                raise TimeoutError
            return task.result()
        finally:
            await _cancel(task)


async def _cancel(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel what still runs and wait until it has ended."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def _look_at(handling: "asyncio.Future[Any]") -> None:
    """An exception that nobody asks for would be complained about when the task is collected."""
    if not handling.cancelled():
        handling.exception()


def _log(report: Report) -> None:
    record = report.claim.record.id if report.claim else "-"
    level = {"lost": logging.WARNING, "failed": logging.WARNING, "trouble": logging.WARNING, "renewed": logging.DEBUG}
    log.log(level.get(report.did, logging.INFO), "%s %s %s", report.did, record, report.detail)
