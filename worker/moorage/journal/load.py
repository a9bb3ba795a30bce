"""Reading entries."""

import json
from collections.abc import Iterable, Sequence

from moorage.journal import statements
from moorage.journal.model import Entry, EntryKey, Value
from moorage.kernel import canonical
from moorage.store.transaction import Answer, Batch, Reading, Row, Transaction


def of_keys(batch: Reading, execution_id: str, keys: Sequence[EntryKey]) -> Answer:
    """Ask for the entries of these keys, in the order of the keys, each once."""
    return batch.ask(statements.OF_KEYS, execution=execution_id, keys=keys_text(keys))


def all_of(batch: Batch, execution_id: str) -> Answer:
    """Ask for every entry, with values up to JOURNAL_REPLAY_BYTES."""
    if isinstance(batch, Transaction):
        return batch.run(statements.ALL, execution=execution_id)
    if isinstance(batch, Reading):
        return batch.ask(statements.ALL, execution=execution_id)
    raise TypeError("neither a reading nor a transaction")


def keys_text(keys: Iterable[EntryKey]) -> str:
    """Keys as a statement's parameter."""
    return canonical.compact([[key.label, key.input_sha256] for key in keys])


def entry_of(row: Row) -> Entry:
    """The entry that a row with ENTRY_COLUMNS and `value` holds."""
    done = row["state"] == "done"
    return Entry(
        key=EntryKey(row["label"], row["input_sha256"]),
        kind=row["kind"],
        position=row["position"],
        state=row["state"],
        attempt=row["attempt"],
        epoch=row["epoch"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        ref=row["ref"],
        next_attempt_at=row["next_attempt_at"],
        value=Value(row["value"], row["size"], row["blob"]) if done else None,
        failure=json.loads(row["failure"]) if row["failure"] else None,
    )


def entries_of(rows: Iterable[Row]) -> list[Entry]:
    """The entries of several rows."""
    return [entry_of(row) for row in rows]
