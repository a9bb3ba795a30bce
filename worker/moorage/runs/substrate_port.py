"""The substrate: what a host of bodies asks of Moorage, the same in the Worker and over HTTP (clause runs.substrate).

A host opens an execution, or takes one that is due, and holds it under a lease. From then on all that it records goes
through `apply`: a list of operations, committed as one transaction under the lease's fence, so that recording step n and
claiming step n + 1 is one round trip. `Suspend` or `Close` ends the list when the host lets go of the execution.

Nothing here is about a language or a transport: `docs/hosts.md` says the same in words, for hosts in other languages.
"""

from collections.abc import Sequence
from typing import Protocol

from moorage.journal.model import Entry, EntryKey, Fence, Lease, Value
from moorage.runs.model import Stop
from moorage.runs.operations import Operation, Outcome


class Substrate(Protocol):
    """What a host of bodies asks of Moorage. Every method raises what `kernel.errors` says, LeaseFenced and LeaseExpired
    above all: whoever gets one of these has lost the execution and must let go of it at once, sending nothing more."""

    async def apply(self, fence: Fence, operations: Sequence[Operation]) -> list[Outcome]:
        """Commit all operations as one transaction, and answer each. One round trip, but for values past the inline
        cutoff and for entries that somebody else has taken."""

    async def refresh(self, fence: Fence) -> list[Entry]:
        """The entries whose wait is over: awakeables and children that ended, events that came or did not. One trip."""

    async def values(self, fence: Fence, keys: Sequence[EntryKey]) -> list[Value]:
        """The values of done entries, with their text. Raises BlobMissing, BlobCorrupt."""

    async def cursor(self, fence: Fence, name: str) -> tuple[Value | None, int]:
        """A cursor of the scope, and its revision; None and 0 when there is none."""

    async def renew(self, fences: Sequence[Fence]) -> dict[str, Lease]:
        """Extend the leases by OWNER_LEASE_SECONDS from now, and with them the entities that the executions hold; by
        execution id. One that was lost is missing."""

    async def stops(self, fences: Sequence[Fence]) -> dict[str, Stop]:
        """The stops that were asked for, by execution id. One round trip, one row each."""

    async def register_holder(self, holder: str, name: str) -> None:
        """Register the identity that the host has drawn for itself (`guards.model.new_holder`), before its first guard."""

    async def exit_holder(self, holder: str, reason: str) -> None:
        """Record that the host has stopped, once nothing that it sent is under way. Nothing else makes a holder gone."""
