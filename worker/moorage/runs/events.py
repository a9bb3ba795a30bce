"""Waits for events among the operations of a host (clause waits.match)."""

import math
from collections.abc import Sequence

from moorage.catalog.access import Caller
from moorage.journal.model import EntryKey
from moorage.kernel.errors import Forbidden, RequestInvalid
from moorage.kernel.limits import EVENT_LOOK_BACK_SECONDS
from moorage.messages.inbox.matching import Filter
from moorage.messages.inbox.waits import Wanted
from moorage.runs.operations import AwaitEvent, GiveUp, Operation


def check(operation: AwaitEvent) -> None:
    """Raise RequestInvalid or PatternInvalid for a wait that is out of bounds; see `Filter.checked`."""
    seconds = operation.look_back_seconds
    if not (math.isfinite(seconds) and 0 <= seconds <= EVENT_LOOK_BACK_SECONDS):
        raise RequestInvalid(f"a wait for an event looks back 0 to {EVENT_LOOK_BACK_SECONDS} seconds")
    Filter.checked(operation.keys, operation.types, operation.match)


def demand(caller: Caller, operations: Sequence[Operation]) -> None:
    """Raise Forbidden unless whoever started the run may read what it waits for: who may not read events of all types has to
    name types, each of which it may read."""
    if caller.may("read"):
        return
    for one in operations:
        if isinstance(one, AwaitEvent):
            if not one.types:
                raise Forbidden("the credential does not grant reading events of every type: name types that it may read")
            for type_ in one.types:
                caller.demand_whole("read", type_)


def wanted(operations: Sequence[Operation]) -> list[Wanted]:
    """The waits that operations ask for, each once."""
    found: dict[EntryKey, Wanted] = {}
    for one in operations:
        if isinstance(one, AwaitEvent) and one.key not in found:
            filter_ = Filter.checked(one.keys, one.types, one.match)
            found[one.key] = Wanted(one.key, filter_, one.timeout_at, round(one.look_back_seconds * 1000))
    return list(found.values())


def given_up(operations: Sequence[Operation]) -> list[EntryKey]:
    """The entries that operations wait for no more."""
    return [one.key for one in operations if isinstance(one, GiveUp)]
