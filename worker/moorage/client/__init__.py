"""The Python client of a Moorage deployment: its operations, its watches, and workers.

It needs httpx and pydantic, and of this package only the kernel.
"""

from moorage.client.artifacts import DigestMismatch
from moorage.client.drafts import Debounce, Draft
from moorage.client.jobs import FailWork, Job, Work, worker
from moorage.client.models import Claim, Held, Record
from moorage.client.moorage import Moorage
from moorage.client.problems import ClientFailure, Problem, Unanswered
from moorage.client.running import run
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
    "Job",
    "Moorage",
    "Patience",
    "Problem",
    "Record",
    "Report",
    "Unanswered",
    "Work",
    "Worker",
    "run",
    "worker",
]
