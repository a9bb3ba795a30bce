"""What bounds claims and publications: rates, depth limits, and how many of a lane are claimed (clause records.claim).

Every bound is checked inside the transaction that it bounds, so that no race can pass it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from moorage.catalog.access import Caller, Rate
from moorage.catalog.kinds import Kind
from moorage.kernel import canonical
from moorage.kernel.errors import KindFull, RateLimited
from moorage.kernel.instants import Instant
from moorage.kernel.limits import RETRY_AFTER_SECONDS
from moorage.records import bound_statements, lanes, statements
from moorage.records.patterns import Compiled, claim_candidates
from moorage.store.transaction import Answer, Scalar, Transaction

_LIMIT: Final = re.compile(r":limit\b")
_WHOLE: Final = 0.999999
_ALLOWED: Final = "min(:limit, (SELECT CAST(tokens + 0.000001 AS INTEGER) FROM rates WHERE key = :rate_key))"
_FITTING: Final = statements.WITHIN_BYTES.replace("{order}", "r.priority DESC, r.seq").replace("{chosen}", "{candidates}")


@dataclass(frozen=True, slots=True)
class BoundClaim:
    """The statements that claim within a kind's bounds, one after the other until one takes something; what they bind
    beside what every claim does; and the bucket that they draw from, filled."""

    statements: list[str]
    parameters: dict[str, Scalar]
    rate: Rate | None
    bucket: Answer | None

    def spend(self, tx: Transaction, claim: str, expires_at: Instant) -> None:
        """Pay for what the claim has taken."""
        if self.bucket is not None:
            key = self.parameters["rate_key"]
            tx.run(bound_statements.SPEND_TAKEN, rate_key=key, claim=claim, expires_at=expires_at)

    def retry_after(self) -> float | None:
        """Seconds until the bucket has a token again; None while it has one."""
        if self.bucket is None or self.rate is None:
            return None
        tokens = float(self.bucket.one()["tokens"])
        return None if tokens >= _WHOLE else wait(1 - tokens, self.rate.per_second)


def wait(tokens: float, per_second: float) -> float:
    """Seconds in which a bucket gains so many tokens, RETRY_AFTER_SECONDS at most."""
    return min(tokens / per_second, float(RETRY_AFTER_SECONDS))


def bind_claim(tx: Transaction, kind: Kind, compiled: Compiled, *, many: bool) -> BoundClaim:
    """The claim's statement for a kind; a bucket that it draws from is filled before.

    A claim of `many` takes no more than the bodies that one answer holds.
    """
    fitting = _FITTING if many else "{candidates}"
    parameters: dict[str, Scalar] = {**compiled.parameters}
    rate = None if kind.rate is None else Rate(kind.rate.per_second, kind.rate.burst)
    bucket, limit = None, ":limit"
    if rate is not None:
        parameters["rate_key"] = f"kind:{kind.name}"
        bucket, limit = _fill(tx, f"kind:{kind.name}", rate), _ALLOWED
    if kind.concurrency is None:
        found = claim_candidates(compiled) if rate is None else _LIMIT.sub(limit, claim_candidates(compiled))
        return BoundClaim([_claim(statements.CLAIM, fitting, found)], parameters, rate, bucket)
    slot = kind.paths[kind.concurrency.path].slot
    parameters["lane_limit"] = kind.concurrency.limit
    template = bound_statements.CLAIM_IN_LANES[slot - 1]
    looks = [_claim(template, fitting, look) for look in lanes.looks(compiled, slot, limit)]
    return BoundClaim(looks, parameters, rate, bucket)


def _claim(template: str, fitting: str, found: str) -> str:
    return template.replace("{candidates}", fitting).replace("{candidates}", found)


def draw(tx: Transaction, caller: Caller, count: int) -> None:
    """Take `count` tokens from the caller's own bucket, if it has one; the commit raises RateLimited when it is empty."""
    if caller.rate is None:
        return
    key = f"credential:{caller.credential}"
    _fill(tx, key, caller.rate)
    seconds = wait(min(count, caller.rate.burst), caller.rate.per_second)
    tx.require(bound_statements.HAS_TOKENS, RateLimited(retry_after=seconds), rate_key=key, count=count)
    tx.run(bound_statements.SPEND, rate_key=key, count=count)


def require_depth(tx: Transaction, kinds: Iterable[Kind]) -> None:
    """Let the transaction commit only if no kind has passed its depth limit; to be asked after the records are stored."""
    limits = {kind.name: kind.depth_limit for kind in kinds if kind.depth_limit is not None}
    if limits:
        named = f"the kind {next(iter(limits))!r} holds" if len(limits) == 1 else "a kind of the batch holds"
        full = KindFull(
            f"{named} as many ready records as it may; publish again when workers have taken some", retry_after=1
        )
        tx.require(bound_statements.DEPTHS_HOLD, full, limits=canonical.dumps(limits))


def _fill(tx: Transaction, key: str, rate: Rate) -> Answer:
    return tx.run(bound_statements.FILL, rate_key=key, burst=rate.burst, per_second=rate.per_second)
