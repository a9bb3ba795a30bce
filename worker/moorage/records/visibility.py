"""What a caller may see and touch of a kind: its grants' patterns, with the one meaning that patterns have everywhere."""

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.catalog.access import Action, Caller
from moorage.catalog.kinds import Kind, Kinds, sees
from moorage.kernel.errors import Forbidden, IdInvalid, KindUnknown, PatternInvalid
from moorage.kernel.ids import check_kind
from moorage.kernel.instants import Instant
from moorage.records.model import Record
from moorage.records.patterns import EVERYTHING, Pattern, Some, both, evaluate, parse
from moorage.store.ports import Database


def narrowed(caller: Caller, action: Action, kind: Kind) -> Pattern:
    """The pattern that a record of this kind must match for the caller to do `action` on it (clause catalog.grants).

    A grant whose pattern does not fit the kind's paths grants nothing there.
    """
    matches = caller.narrowing(action, kind.name)
    if matches is None:
        return EVERYTHING
    return Some(tuple(_fitting(matches, kind)))


async def visible_kind(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    name: str,
    action: Action,
    *,
    fresh: bool = False,
    guarded: bool = False,
) -> Kind:
    """The kind, if the caller may do `action` on it; see `Kinds.get` for `fresh` and `guarded`.

    Raises KindUnknown when there is none or no grant of the caller reaches it, Forbidden when grants reach it but not
    this action. A name that no kind can have is unknown without asking.
    """
    try:
        check_kind(name)
    except IdInvalid:
        raise KindUnknown() from None
    if not caller.may(action, name):
        if not sees(caller, name):
            raise KindUnknown()
        raise Forbidden(f"the credential does not grant {action} on kind {name!r}")
    return await kinds.get(db, now, name, fresh=fresh, guarded=guarded)


async def matching(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    name: str,
    action: Action,
    match: Mapping[str, Any],
    *,
    fresh: bool = False,
    guarded: bool = False,
) -> tuple[Kind, Pattern]:
    """The kind, and the pattern of what matches `match` and is the caller's to do `action` on.

    A pattern that does not fit the kind as remembered is held against the kind as stored before it is refused: its paths
    may have been declared elsewhere a moment ago. Raises as `visible_kind` does, and PatternInvalid.
    """
    kind = await visible_kind(db, kinds, caller, now, name, action, fresh=fresh, guarded=guarded)
    try:
        wished = parse(match, kind.paths)
    except PatternInvalid:
        kind = await kinds.get(db, now, name, fresh=True)
        wished = parse(match, kind.paths)
    return kind, both(wished, narrowed(caller, action, kind))


async def visible(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, records: Iterable[Record], action: Action = "read"
) -> list[Record]:
    """Those of `records` on which the caller may do `action`, in their order."""
    if caller.is_root:
        return list(records)
    shown = []
    for record in records:
        if caller.may(action, record.kind):
            kind = await kinds.get(db, now, record.kind)
            if evaluate(narrowed(caller, action, kind), record.body):
                shown.append(record)
    return shown


def _fitting(matches: list[Mapping[str, Any]], kind: Kind) -> Iterable[Pattern]:
    for match in matches:
        try:
            yield parse(dict(match), kind.paths)
        except PatternInvalid:
            continue
