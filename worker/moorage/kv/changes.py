"""Planning changes of keys into any transaction, so that a value commits with what it belongs to (clause kv.ops)."""

from collections.abc import Sequence

from moorage.history.append import Event, append_many, append_selected
from moorage.kernel import canonical
from moorage.kv import statements
from moorage.kv.model import Change
from moorage.store.chunks import json_arrays
from moorage.store.transaction import Answer, Transaction


def plan(tx: Transaction, actor: str, changes: Sequence[Change]) -> list[Answer]:
    """Add puts and deletions to a transaction, with their history: a digest of each value, never the value.

    Each key may occur once. The answers hold the rows that were put. A deletion of what is absent does nothing.
    """
    return [*_plan_puts(tx, actor, changes), *_plan_deletions(tx, actor, changes)]


def _plan_puts(tx: Transaction, actor: str, changes: Sequence[Change]) -> list[Answer]:
    puts = [(one, one.text) for one in changes if one.text is not None]
    if not puts:
        return []
    append_many(tx, actor, [Event(one.subject, "kv.put", content_sha256=canonical.digest(text)) for one, text in puts])
    rows = (canonical.compact([one.namespace, one.key, text]) for one, text in puts)
    return [tx.run(statements.PUT, changes=array, actor=actor) for array in json_arrays(rows)]


def _plan_deletions(tx: Transaction, actor: str, changes: Sequence[Change]) -> list[Answer]:
    gone = canonical.compact([[one.namespace, one.key] for one in changes if one.text is None])
    if gone == "[]":
        return []
    append_selected(tx, actor, "kv.deleted", statements.DELETING, many=True, changes=gone)
    tx.run(statements.DELETE, changes=gone)
    return []
