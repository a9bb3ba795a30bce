"""Guards in memory: the reference model of who may send, and of what keeps changing hands from happening.

It keeps what `runs.substrate_port` and the clauses of guards say, in the plainest way: a row for each scope and each entity
lease that a guard protects, and one guard on a row.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from moorage.guards.model import EntityLease, Target
from moorage.journal.model import EntryKey, idempotency_key
from moorage.kernel.errors import (
    DestinationUnknown,
    ExecutionGuardBlocked,
    ExecutionGuardEvidenceMismatch,
    ExecutionGuardHeld,
    GuardedElsewhere,
    GuardUnknown,
    HolderUnknown,
    LeaseFenced,
    LeaseHeld,
)
from moorage.kernel.instants import Instant, after
from moorage.runs.operations import AdmitGuard, Admitted, Doubtful, EntityHeld, HoldEntity, LetEntity, ReleaseGuard


@dataclass(frozen=True)
class Standing:
    """A guard."""

    token: str
    execution: str
    epoch: int
    holder: str
    key: EntryKey
    idempotency_key: str
    publication: bool
    destination: str | None
    window: int | None
    admitted_at: Instant
    since: Instant
    rows: frozenset[str]

    @property
    def ends_at(self) -> Instant | None:
        return None if self.window is None else after(self.since, self.window)

    def covers(self, now: Instant) -> bool:
        return self.ends_at is not None and now < self.ends_at


@dataclass(frozen=True)
class Declared:
    """A destination."""

    target: Target
    window: int | None
    publication: bool


@dataclass
class Watch:
    """All guards, holders, destinations and entity leases of a house. Copied for each transaction."""

    holders: dict[str, bool] = field(default_factory=dict)
    destinations: dict[str, Declared] = field(default_factory=dict)
    guards: dict[str, Standing] = field(default_factory=dict)
    replays: dict[str, Instant] = field(default_factory=dict)
    leases: dict[str, tuple[int, str | None, Instant]] = field(default_factory=dict)
    audit: list[tuple[Standing, str]] = field(default_factory=list)
    drawn: int = 0

    def copy(self) -> "Watch":
        return replace(
            self,
            holders=dict(self.holders),
            destinations=dict(self.destinations),
            guards=dict(self.guards),
            replays=dict(self.replays),
            leases=dict(self.leases),
            audit=list(self.audit),
        )

    # --- holders and destinations -------------------------------------------------------------------------------------

    def register(self, holder: str) -> None:
        if self.holders.get(holder) is False:
            raise HolderUnknown
        self.holders[holder] = True

    def exit(self, holder: str) -> None:
        if holder not in self.holders:
            raise HolderUnknown
        self.holders[holder] = False

    def declare(
        self,
        name: str,
        url: str = "",
        window: int | None = None,
        publication: bool = False,
        secret: str | None = None,
        methods: Iterable[str] = ("POST",),
    ) -> None:
        target = Target(name, url or f"https://{name}.test/v1", tuple(methods), secret)
        self.destinations[name] = Declared(target, window, publication)

    # --- what a host does ---------------------------------------------------------------------------------------------

    def admit(self, execution: str, scope: str, epoch: int, one: AdmitGuard, now: Instant) -> Admitted | Doubtful:
        if not self.holders.get(one.holder):
            raise HolderUnknown
        if one.destination is not None and one.destination not in self.destinations:
            raise DestinationUnknown
        for lease in one.entities:
            if not self._holds(execution, lease, now):
                raise LeaseFenced
        parts = scope.split("/")
        rows = {f"scope:{'/'.join(parts[:count])}" for count in range(1, len(parts) + 1)}
        rows |= {f"lease:{key}" for key, (_, owner, until) in self.leases.items() if owner == execution and until > now}
        for standing in self.guards.values():
            if standing.rows & rows:
                mine = (execution, epoch, one.holder, one.key)
                if (standing.execution, standing.epoch, standing.holder, standing.key) == mine:
                    return self._admitted(standing)
                raise GuardedElsewhere(token=standing.token)
        key = idempotency_key(execution, one.key)
        declared = None if one.destination is None else self.destinations[one.destination]
        self.drawn += 1
        token = f"grd_{self.drawn}"
        self.guards[token] = Standing(
            token,
            execution,
            epoch,
            one.holder,
            one.key,
            key,
            one.publication or (declared is not None and declared.publication),
            one.destination,
            None if declared is None else declared.window,
            now,
            self.replays.get(key, now),
            frozenset(rows),
        )
        return self._admitted(self.guards[token])

    def _admitted(self, one: Standing) -> Admitted | Doubtful:
        target = None if one.destination is None else self.destinations[one.destination].target
        replayed = one.since < one.admitted_at
        if replayed and not one.covers(one.admitted_at):
            return Doubtful(one.token, "receipt-required" if one.publication else "unknown")
        return Admitted(one.token, one.idempotency_key, one.admitted_at, one.publication, one.ends_at, target, replayed)

    def release(self, execution: str, epoch: int, one: ReleaseGuard) -> None:
        standing = self.guards.get(one.token)
        if standing is None:
            return
        if (standing.execution, standing.epoch, standing.holder) != (execution, epoch, one.holder):
            raise GuardUnknown
        del self.guards[one.token]

    def hold(self, execution: str, one: HoldEntity, now: Instant) -> EntityHeld:
        key = f"entity:{one.namespace}:{one.key}"
        epoch, owner, until = self.leases.get(key, (0, None, now))
        mine = owner == execution and until > now
        if not mine:
            if owner is not None and until > now:
                raise LeaseHeld(retry_after=(until - now) / 1000)
            if (guard := self.protecting(f"lease:{key}")) is not None:
                raise ExecutionGuardBlocked(token=guard.token)
            epoch += 1
        self.leases[key] = (epoch, execution, after(now, 30))
        return EntityHeld(EntityLease(one.namespace, one.key, epoch), after(now, 30))

    def let(self, execution: str, one: LetEntity) -> None:
        key = f"entity:{one.namespace}:{one.key}"
        epoch, owner, until = self.leases.get(key, (0, None, Instant(0)))
        if owner != execution:
            return
        if (guard := self.protecting(f"lease:{key}")) is not None:
            raise ExecutionGuardBlocked(token=guard.token)
        self.leases[key] = (epoch, None, until)

    def renew(self, execution: str, now: Instant) -> None:
        for key, (epoch, owner, until) in self.leases.items():
            if owner == execution and until > now:
                self.leases[key] = (epoch, owner, after(now, 30))

    def _holds(self, execution: str, lease: EntityLease, now: Instant) -> bool:
        epoch, owner, until = self.leases.get(f"entity:{lease.namespace}:{lease.key}", (0, None, now))
        return epoch == lease.epoch and owner == execution and until > now

    # --- what changes hands -------------------------------------------------------------------------------------------

    def protecting(self, row: str) -> Standing | None:
        return next((guard for guard in self.guards.values() if row in guard.rows), None)

    def of(self, execution: str) -> list[Standing]:
        return [guard for guard in self.guards.values() if guard.execution == execution]

    def give_way(self, execution: str, scope: str, now: Instant) -> None:
        """Let an execution be taken whose lease is nobody's: only over a guard that a replay may take the place of."""
        guard = self.protecting(f"scope:{scope}")
        if guard is None:
            return
        if guard.execution != execution or self.holders[guard.holder] or not guard.covers(now):
            raise ExecutionGuardBlocked(token=guard.token)
        self.replays.setdefault(guard.idempotency_key, guard.since)
        del self.guards[guard.token]

    def reconcile(self, token: str, evidence: str, now: Instant, *, live: bool) -> str | None:
        """Release by hand: the receipt that the evidence names, if it names one."""
        guard = self.guards.get(token)
        if guard is None:
            raise GuardUnknown
        if live and self.holders[guard.holder]:
            raise ExecutionGuardHeld
        receipt = evidence.removeprefix(f"receipt:{guard.idempotency_key}:")
        if receipt == evidence:
            if evidence != f"idempotency:{guard.idempotency_key}" or not guard.covers(now):
                raise ExecutionGuardEvidenceMismatch
            self.replays.setdefault(guard.idempotency_key, guard.since)
        self.audit.append((guard, evidence))
        del self.guards[token]
        return receipt if receipt != evidence else None
