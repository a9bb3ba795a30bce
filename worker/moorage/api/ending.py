"""Requests that wait for a run's end.

The waiting itself happens where the run's ends are heard: a request awaits nothing that another request brings about. It is
always bounded, because a client that has gone cannot be seen.
"""

from itertools import chain, repeat

from moorage.api.requests import ApiRequest
from moorage.runs import record
from moorage.runs.live.ends import LOOKS_SECONDS
from moorage.runs.record import Run


async def once_ended(request: ApiRequest, run_id: str, runner: str, seconds: float) -> Run:
    """The run once it has ended, or as it is after `seconds`; `runner` keeps its live view.

    The caller is admitted anew after each wait, so that a revoked credential sees no more. Raises what `record.show` raises,
    Unauthenticated.
    """
    ports, woken = request.ports, False
    deadline = ports.ticks() + seconds * 1000
    for look in chain(LOOKS_SECONDS, repeat(LOOKS_SECONDS[-1])):
        left = max(0.0, (deadline - ports.ticks()) / 1000)
        woken = await ports.lives.ended(run_id, runner, min(left, look), again=woken)
        caller = await ports.credentials.admit(request.db, ports.now(), request.headers.get("authorization"))
        run = await record.show(request.db, ports.blobs, caller, run_id)
        if run.has_ended or ports.ticks() >= deadline:
            return run
    raise AssertionError("the looks never run out")
