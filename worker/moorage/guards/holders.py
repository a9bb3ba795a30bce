"""Holders: who executes, from its start until it says itself that it has stopped (clauses guards.holder-identity,
guards.holder-gone).

A holder that fell silent may still have a request on its way, so that neither a lapsed lease nor time makes it gone.
"""

from moorage.catalog.access import Caller
from moorage.guards import statements
from moorage.guards.model import Holder, HolderKind, check_holder
from moorage.history.append import append_selected
from moorage.journal.wake import wake
from moorage.kernel.errors import HolderUnknown, IdempotencyConflict
from moorage.kernel.instants import Instant
from moorage.kernel.limits import TEXT_CHARACTERS
from moorage.kernel.refusals import check_reason, refused
from moorage.store.ports import Database
from moorage.store.transaction import Transaction


async def register(
    db: Database, caller: Caller, now: Instant, holder: str, name: str, kind: HolderKind = "remote"
) -> Holder:
    """Register the holder that a host has drawn (`model.new_holder`); asked again it is answered the same.

    `name` is for people. Raises IdInvalid, RequestInvalid for the name, IdempotencyConflict for an id that is another
    subject's, HolderUnknown for one that has exited.
    """
    check_holder(holder)
    if not 1 <= len(name) <= TEXT_CHARACTERS or not name.isprintable() or name.isspace():
        raise refused("/name", f"has 1 to {TEXT_CHARACTERS} printable characters, and not only spaces")
    tx = Transaction(now)
    caller.guard(tx)
    tx.run(statements.REGISTER, holder=holder, kind=kind, name=name, subject=caller.subject)
    append_selected(tx, caller.subject, "holder.registered", statements.REGISTERED, holder=holder)
    found = tx.run(statements.HOLDER, holder=holder)
    await db.commit(tx)
    made = Holder.of(found.one())
    if (made.subject, made.kind) != (caller.subject, kind):
        raise IdempotencyConflict("a holder of this id is another's: draw one at random")
    if made.exited_at is not None:
        raise HolderUnknown("the holder has exited, and does not come back: draw another id")
    return made


async def exit_(
    db: Database, caller: Caller, now: Instant, holder: str, reason: str = "stopped", kind: HolderKind = "remote"
) -> Holder:
    """Record that a holder has stopped, which only itself may say, once nothing it sent is under way any more.

    Executions whose guards now give way to a takeover are woken. Asked again it changes nothing. Raises HolderUnknown, also
    for another subject's; RequestInvalid for the reason.
    """
    check_reason(reason)
    tx = Transaction(now)
    caller.guard(tx)
    tx.run(statements.EXIT, holder=holder, kind=kind, subject=caller.subject, reason=reason)
    append_selected(tx, caller.subject, "holder.exited", statements.EXITED, holder=holder)
    wake(tx, statements.GIVING_WAY, holder=holder)
    found = tx.run(statements.HOLDER, holder=holder)
    await db.commit(tx)
    row = found.first()
    if row is None or (row["subject"], row["kind"]) != (caller.subject, kind):
        raise HolderUnknown("no holder of yours is registered under this id")
    return Holder.of(row)
