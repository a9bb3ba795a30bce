"""The Python client of a Moorage deployment: its operations, its watches, workers, and hosts of bodies.

It needs httpx and pydantic, and of this package the kernel; a host also the engine of bodies.
"""

from moorage.client.artifacts import DigestMismatch
from moorage.client.drafts import Debounce, Draft
from moorage.client.host import Host
from moorage.client.jobs import FailWork, Job, Work, worker
from moorage.client.models import Claim, Held, Record
from moorage.client.moorage import Moorage
from moorage.client.problems import ClientFailure, Problem, Unanswered
from moorage.client.running import run
from moorage.client.runs import RunFailed
from moorage.client.wire import Patience
from moorage.client.working import Report, Worker
from moorage.kernel.errors import FailureTag

__all__ = [
    "Claim",
    "ClientFailure",
    "Debounce",
    "DigestMismatch",
    "Draft",
    "FailWork",
    "FailureTag",
    "Held",
    "Host",
    "Job",
    "Moorage",
    "Patience",
    "Problem",
    "Record",
    "Report",
    "RunFailed",
    "Unanswered",
    "Work",
    "Worker",
    "run",
    "worker",
]
