"""Start runs, watch how they go, and stop them."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from moorage.bodies.retry import Retry
from moorage.client.keys import fresh_key, key_or_fresh
from moorage.client.models import Body, Run, Started, Step, Steps, rfc3339
from moorage.client.outbox import Completion
from moorage.client.paging import segment
from moorage.client.problems import ClientFailure
from moorage.client.wire import Wire
from moorage.kernel.limits import RUNS_ITEMS, WAIT_SECONDS

_LONGEST: Final = float(WAIT_SECONDS)
_LEAST: Final = 0.1


class RunFailed(ClientFailure):
    """A run ended without a result. `run` tells how: branch on its `status`, and on the `tag` or `code` of its `error`."""

    def __init__(self, run: Run) -> None:
        self.run = run
        told = f": {run.error.code or run.error.tag}: {run.error.message}" if run.error else ""
        super().__init__(f"run {run.run_id} of {run.body!r} ended as {run.status}{told}")


@dataclass(frozen=True, slots=True)
class Description:
    """Runs, newest first. `truncated` tells that there were more in the window, `window` what was looked at."""

    items: Sequence[Run]
    next_cursor: str | None
    truncated: bool
    window: Mapping[str, Any]


def schedule(retry: Retry | Mapping[str, Any]) -> dict[str, Any]:
    """A schedule as a request has it."""
    return retry.wire() if isinstance(retry, Retry) else dict(retry)


class Runs:
    """The operations on runs and on their executions. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def start(
        self,
        body: str,
        input: Any = None,  # noqa: A002  as everywhere in the interface
        *,
        scope: str | None = None,
        key: str | None = None,
        retry: Retry | Mapping[str, Any] | None = None,
        wait: float = 0,
        **more: Any,
    ) -> Started:
        """Start a run of a body. Under a `scope` at most one execution is pending; a later run of it goes on where the
        earlier one ended. With a `key` of your own, the same start again is the same run, for a day.

        `retry` is the schedule of steps that name none of their own; a pending execution goes on with it, or without one
        with the schedule that it has. `wait` is for how many seconds the answer waits for the run's end, WAIT_SECONDS at
        most; it then shows the run. `more` goes into the request: `metadata`, for instance.
        """
        sent: dict[str, Any] = {"body": body, "input": input, **more}
        if scope is not None:
            sent["scope"] = scope
        if retry is not None:
            sent["retry"] = schedule(retry)
        told = await self._wire.call(
            "POST",
            "/runs",
            sent,
            query=_waiting(wait),
            key=key_or_fresh(key),
            wait_seconds=min(wait, _LONGEST),
        )
        return Started.model_validate(told)

    async def get(self, run_id: str, *, wait: float = 0) -> Run:
        """One run; with `wait` as soon as it has ended, or as it is after so many seconds, WAIT_SECONDS at most."""
        path = f"/runs/{segment(run_id)}"
        told = await self._wire.call("GET", path, query=_waiting(wait), wait_seconds=min(wait, _LONGEST))
        return Run.model_validate(told)

    async def notify(self, run_id: str, destination: str) -> Completion:
        """Have the run's end told to a destination, once; at once when it has ended already."""
        path = f"/runs/{segment(run_id)}/notify/{segment(destination)}"
        return Completion.model_validate(await self._wire.call("PUT", path))

    async def completions(self, run_id: str) -> Sequence[Completion]:
        """To whom the run's end is told, by name."""
        told = await self._wire.call("GET", f"/runs/{segment(run_id)}/notify")
        return [Completion.model_validate(one) for one in told["items"]]

    async def list(
        self,
        *,
        body: str | None = None,
        scope: str | None = None,
        status: str | None = None,
        since: str | datetime | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Description:
        """Runs, newest first: five unless `limit` says otherwise, and RUNS_ITEMS at most. `since` is an instant, or a day
        as YYYY-MM-DD."""
        spelled = rfc3339(since) if isinstance(since, datetime) else since
        query = {"body": body, "scope": scope, "status": status, "since": spelled, "limit": limit, "cursor": cursor}
        told = await self._wire.call("GET", "/runs", query=query)
        items = [Run.model_validate(one) for one in told["items"]]
        return Description(items, told["next_cursor"], told["truncated"], told["window"])

    async def iterate(self, **filters: Any) -> AsyncGenerator[Run, None]:
        """Every run that `list` would tell of with these filters."""
        cursor: str | None = None
        while True:
            page = await self.list(**filters, limit=int(RUNS_ITEMS), cursor=cursor)
            for run in page.items:
                yield run
            cursor = page.next_cursor
            if cursor is None:
                return

    async def export(
        self, *, body: str | None = None, since: str | datetime | None = None, limit: int | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The lines of an export: what it holds, then one run after the other."""
        spelled = rfc3339(since) if isinstance(since, datetime) else since
        query = {"body": body, "since": spelled, "limit": limit}
        make = lambda: self._wire.request("GET", "/runs/export", query=query)  # noqa: E731
        async with self._wire.stream(make, True, "/runs/export") as answer:
            async for line in answer.aiter_lines():
                if line:
                    yield json.loads(line)

    async def steps(self, run_id: str) -> Steps:
        """The steps of a run, in the order in which they began."""
        told = await self._wire.call("GET", f"/runs/{segment(run_id)}/steps")
        steps = (Step.model_validate(one) for one in told["items"])
        return Steps(steps, outputs_retired=told.get("outputs") == "retired")

    async def output(self, run_id: str, ref: str) -> Any:
        """What a step recorded, by the reference under which it appears."""
        return await self._wire.call("GET", f"/runs/{segment(run_id)}/steps/output", query={"ref": ref})

    async def stop(self, run_id: str, *, scope: str | None = None, reason: str | None = None) -> Sequence[str]:
        """Ask that a run stop, or with the scope `pipeline` every run in flight under its scope and below it; answers their
        ids. A run stops between two steps; until then it is not canceled."""
        sent = {name: value for name, value in (("scope", scope), ("reason", reason)) if value is not None}
        told = await self._wire.call("POST", f"/runs/{segment(run_id)}/stop", sent, repeatable=True)
        stopped: list[str] = told["run_ids"]
        return stopped

    async def restart(self, run_id: str, reason: str, *, from_step: str | None = None) -> Started:
        """Run again from what a run recorded, all of it or what stands before a step; what comes after is done again, by the
        build that is registered now."""
        sent = {"reason": reason} if from_step is None else {"reason": reason, "from_step": from_step}
        path = f"/runs/{segment(run_id)}/restart"
        return Started.model_validate(await self._wire.call("POST", path, sent, key=fresh_key()))

    async def rewind(
        self, execution_id: str, reason: str, *, force: bool = False, settled: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Release what is pending under a scope, with all that it recorded, so that another build can begin there.

        `settled` are keys of effects that were to be sent again, of which it is known what became of them.
        """
        path = f"/executions/{segment(execution_id)}/rewind"
        sent = {"reason": reason, "force": force, "settled": list(settled)}
        told: dict[str, Any] = await self._wire.call("POST", path, sent)
        return told

    async def bodies(self) -> Sequence[Body]:
        """The registered bodies."""
        told = await self._wire.call("GET", "/bodies")
        return [Body.model_validate(one) for one in told["items"]]

    async def wait(self, run_id: str, seconds: float | None = None) -> Run:
        """The run once it has ended; or as it is after `seconds`. One request waits for WAIT_SECONDS, then another."""
        timing = self._wire.timing
        end = None if seconds is None else timing.now() + seconds
        while True:
            asked = timing.now()
            wait = _LONGEST if end is None else min(max(0.0, end - asked), _LONGEST)
            run = await self.get(run_id, wait=wait)
            now = timing.now()
            if run.ended or (end is not None and now >= end):
                return run
            if now - asked < min(wait, _LEAST):
                # Whatever answered did not wait.
                await timing.sleep(_LEAST if end is None else min(_LEAST, end - now))

    async def result(self, run_id: str) -> Any:
        """What the run returns, once it has. Raises RunFailed when it ends in another way."""
        return _result(await self.wait(run_id))

    async def call(self, body: str, input: Any = None, **options: Any) -> Any:  # noqa: A002
        """Start a run and wait for its result; `options` are those of `start`. Raises RunFailed."""
        started = await self.start(body, input, **{"wait": _LONGEST, **options})
        run = started.run
        return _result(run) if run is not None and run.ended else await self.result(started.run_id)


def _waiting(seconds: float) -> Mapping[str, Any]:
    return {"wait_seconds": min(seconds, _LONGEST)} if seconds > 0 else {}


def _result(run: Run) -> Any:
    if run.status != "success":
        raise RunFailed(run)
    return run.result
