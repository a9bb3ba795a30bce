"""Who asks, and what they may do (clause catalog.grants).

A `Caller` is what authentication gives to every operation. It holds no secret but the key from which secrets minted under
an Idempotency-Key are derived.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from moorage.kernel.errors import Forbidden, Unauthenticated
from moorage.kernel.instants import Instant
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction

Action = Literal["publish", "read", "claim", "watch", "execute", "resume", "operate", "admin"]
ACTIONS: frozenset[Action] = frozenset(get_args(Action))

# The credential exists, is not revoked and has not expired: checked inside every mutation, so that revocation stops
# writes at once.
_IS_LIVE = """
SELECT 1 FROM credentials
WHERE id = :credential AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
"""


@dataclass(frozen=True, slots=True)
class Grant:
    """Actions on kinds. `kinds` are names, or prefixes ending in `*`; an empty tuple means all. `match` narrows the
    grant to records that match the pattern; None means every record. What is not about records of one kind, or is about
    records of all, a narrowed grant does not give."""

    actions: frozenset[Action]
    kinds: tuple[str, ...] = ()
    match: Mapping[str, Any] | None = None

    def covers(self, action: Action, kind: str | None) -> bool:
        """Whether the grant gives `action` on some record of `kind`; on kind None, on every record of every kind.

        admin gives all actions.
        """
        if not self.gives(action):
            return False
        if kind is None:
            return self.is_for_all_kinds and self.match is None
        return self.is_for_all_kinds or any(names(pattern, kind) for pattern in self.kinds)

    def gives(self, action: Action) -> bool:
        """Whether the grant gives `action` at all."""
        return action in self.actions or "admin" in self.actions

    @property
    def is_for_all_kinds(self) -> bool:
        return not self.kinds or "*" in self.kinds


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket: `burst` at once, `per_second` on the long run."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Caller:
    """The verified subject of a request. `credential` is None for the root credential, which may do everything.

    A `public` one is known to whoever looks at a web page that holds it: it publishes, or resolves awakeables, from
    `origins` if there are any, at `rate` if there is one, and learns nothing.
    """

    subject: str
    grants: tuple[Grant, ...] = ()
    credential: str | None = None
    bearer: bytes = field(default=b"", repr=False, compare=False)
    public: bool = False
    origins: tuple[str, ...] = ()
    rate: Rate | None = None

    @property
    def is_root(self) -> bool:
        return self.credential is None

    def may(self, action: Action, kind: str | None = None) -> bool:
        """Whether some grant gives `action` on some record of `kind`.

        On None: on every record of every kind, which a grant that a pattern narrows never gives.
        """
        return self.is_root or any(True for _ in self._covering(action, kind))

    def may_somewhere(self, actions: Iterable[Action]) -> bool:
        """Whether some grant gives one of `actions` on some record of some kind."""
        wanted = frozenset(actions) | {"admin"}
        return self.is_root or any(grant.actions & wanted for grant in self.grants)

    def demand(self, action: Action, kind: str | None = None) -> None:
        """Raise Forbidden unless `may`."""
        if not self.may(action, kind):
            where = f" on kind {kind!r}" if kind else " on every kind"
            raise Forbidden(f"the credential does not grant {action}{where}")

    def whole(self, action: Action) -> list[str] | None:
        """The names and prefixes of the kinds on whose every record the caller may do `action`; None for all kinds."""
        if self.may(action):
            return None
        given = (grant for grant in self.grants if grant.match is None and grant.gives(action))
        return sorted({pattern for grant in given for pattern in grant.kinds})

    def is_narrowed(self, action: Action) -> bool:
        """Whether it takes a record's body to tell if the caller may do `action` on it."""
        return not self.may(action) and any(grant.match is not None and grant.gives(action) for grant in self.grants)

    def narrowing(self, action: Action, kind: str) -> list[Mapping[str, Any]] | None:
        """The patterns of which a record must match one; None when some grant is not narrowed.

        An empty list means that no grant covers the action: nothing is visible.
        """
        if self.is_root:
            return None
        patterns: list[Mapping[str, Any]] = []
        for grant in self._covering(action, kind):
            if grant.match is None:
                return None
            patterns.append(grant.match)
        return patterns

    def demand_whole(self, action: Action, name: str) -> None:
        """Raise Forbidden unless a grant that no pattern narrows gives `action` on `name`: for what is granted as a kind is
        and holds no records, as namespaces of values, consumers and types of events."""
        if self.narrowing(action, name) is not None:
            raise Forbidden(f"the credential does not grant {action} on {name!r}")

    def guard(self, tx: Transaction) -> None:
        """Let the transaction commit only while the credential is alive; it aborts with Unauthenticated."""
        if self.credential is not None:
            tx.require(_IS_LIVE, Unauthenticated("the credential is revoked or has expired"), credential=self.credential)

    def _covering(self, action: Action, kind: str | None) -> Iterator[Grant]:
        return (grant for grant in self.grants if grant.covers(action, kind))


async def is_alive(db: Database, now: Instant, credential: str) -> bool:
    """Whether a credential that was admitted once still is neither revoked nor expired. One round trip."""
    reading = Reading()
    found = reading.ask(_IS_LIVE, credential=credential, now=now)
    await db.read(reading)
    return bool(found.rows)


def names(pattern: str, kind: str) -> bool:
    """Whether a name, or a prefix that ends in `*`, stands for `kind`."""
    return kind.startswith(pattern[:-1]) if pattern.endswith("*") else kind == pattern
