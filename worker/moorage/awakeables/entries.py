"""Awakeables that a run mints, as entries of its journal (clauses awake.mint, awake.journal).

Whoever applies a host's operations writes the entry first: kind `awakeable`, done, with `ref` and `value` as `prepare` gives
them, and only if there is none yet. `insert` then makes the awakeable if the entry is the new one, and tells which awakeable
the entry has in either case; `told` makes of that what the host is answered. All of it is one transaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.awakeables import checks, statements
from moorage.awakeables.derive import Keys, mint_token, token_for
from moorage.awakeables.derive import told as told_token
from moorage.awakeables.model import token_sha256
from moorage.catalog.access import Caller
from moorage.history.append import append_selected
from moorage.journal.model import Entry, EntryKey
from moorage.kernel import canonical, ids
from moorage.kernel.instants import Instant, render
from moorage.store.transaction import Answer, Row, Transaction


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run asks for: the entry's key, how long it waits at most, who alone may resolve, and notes for people."""

    execution_id: str
    key: EntryKey
    ttl_seconds: float
    subject: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A new awakeable that is not stored yet. `value` is what the entry holds, `id` its `ref`."""

    wanted: Wanted
    id: str
    token: str = field(repr=False)
    created_at: Instant
    deadline: Instant
    metadata: str

    @property
    def value(self) -> str:
        """The entry's recorded value: canonical JSON without the token."""
        return canonical.dumps({"id": self.id, "deadline": render(self.deadline)})


@dataclass(frozen=True, slots=True)
class Told:
    """The awakeable of an entry, new or not, with its token, which is stored nowhere."""

    id: str
    token: str = field(repr=False)
    deadline: Instant


def prepare(keys: Keys, now: Instant, wanted: Wanted) -> Prepared:
    """Check what is asked for and choose an id and a token.

    Raises RequestInvalid as minting does, and CapabilityUnwired when the deployment has no derivation key.
    """
    created_at, deadline = checks.span(wanted.ttl_seconds, None, now)
    checks.text(wanted.subject, "subject")
    metadata = checks.metadata(wanted.metadata)
    awakeable_id = ids.new("awk", now)
    return Prepared(wanted, awakeable_id, mint_token(keys, awakeable_id), created_at, deadline, metadata)


def insert(tx: Transaction, caller: Caller, prepared: Prepared) -> Answer:
    """Make the awakeable, unless the entry has one already, with its history entry; answers the row of the entry's."""
    wanted = prepared.wanted
    entry = {"execution_id": wanted.execution_id, "entry": wanted.key.label, "input_sha256": wanted.key.input_sha256}
    tx.run(
        statements.MINT_FOR_ENTRY,
        **entry,
        id=prepared.id,
        token_sha256=token_sha256(prepared.token),
        subject=wanted.subject,
        metadata=prepared.metadata,
        created_at=prepared.created_at,
        caller=caller.subject,
        deadline=prepared.deadline,
    )
    data = canonical.dumps({"deadline": render(prepared.deadline), "execution": wanted.execution_id})
    append_selected(tx, caller.subject, "awakeable.minted", statements.CHANGED_BY_ID, id=prepared.id, data=data)
    return tx.run(statements.OF_ENTRY, **entry)


def of_execution(tx: Transaction, execution_id: str) -> Answer:
    """Ask for the awakeables of an execution; `tokens` makes of the rows what its holder is answered."""
    return tx.run(statements.OF_EXECUTION, execution_id=execution_id)


def tokens(keys: Keys, entries: Iterable[Entry], rows: Sequence[Row]) -> dict[EntryKey, Told]:
    """The awakeables of the entries that minted them, with their tokens. One whose token is lost is left out: whoever asks
    for it is told so, and nobody else is."""
    by_id = {row["id"]: row for row in rows}
    found: dict[EntryKey, Told] = {}
    for entry in entries:
        row = by_id.get(entry.ref) if entry.kind == "awakeable" else None
        token = None if row is None else token_for(keys, row["token_sha256"], row["id"])
        if row is not None and token is not None:
            found[entry.key] = Told(row["id"], token, row["deadline"])
    return found


def told(keys: Keys, wanted: Wanted, row: Row) -> Told:
    """What the host is answered, from the row that `insert` gave. Raises AwakeableTokenLost."""
    token = told_token(keys, row["token_sha256"], row["id"], wanted.key.label)
    return Told(row["id"], token, row["deadline"])
