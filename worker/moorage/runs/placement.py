"""Which Runner an execution belongs to: a Durable Object that drives it in the Worker, and where its live view is.

A scope that a client named has a Runner of its own, so that what is about one scope meets in one place. Executions whose
scope nobody named are many and short: they share a few Runners, which stay warm.
"""

import zlib
from typing import Final

RUNNERS: Final = 32
"""Shared Runners, unless the deployment's variable MOORAGE_RUNNERS says otherwise."""


def runner_of(scope: str, declared: bool, shards: int = RUNNERS) -> str:
    """The Runner's name: `s:<scope>` for a scope that a client named, else `r:<number>` by the scope's hash.

    It is stored with the execution, so that another number of `shards` moves nothing that was opened before.
    """
    if declared:
        return f"s:{scope}"
    return f"r:{zlib.crc32(scope.encode()) % max(1, shards):02d}"
