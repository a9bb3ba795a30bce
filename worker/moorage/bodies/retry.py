"""When a failed step is tried again: one schedule, one decision, no other layer (clauses runs.schedule, runs.one-layer).

Nothing inside an effect retries: a transport, a credential's minting or a limiter gives its failure to the step's schedule.
Nothing is undone by the engine either: undoing is a step that the author writes (clause runs.no-compensation).
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from moorage.bodies.errors import BodyMisdeclared, RunRetryTagUnretryable
from moorage.kernel.errors import RETRYABLE_TAGS, FailureTag
from moorage.kernel.limits import RETRY_ATTEMPTS, UPSTREAM_WAIT_SECONDS

MAX_BASE_MS: Final = 30_000
MAX_JITTER_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Retry:
    """A step's schedule: 100 ms, doubling, 5 attempts in all, each delay at most 30 s, and less than 250 ms of jitter.

    `attempts` counts the first try, so 1 is no retry. `backoff` "fixed" keeps `base_ms`. `retry_on` may narrow the tags
    that are tried again, Transient and RateLimited; any other tag in it raises RunRetryTagUnretryable.
    """

    attempts: int = 5
    base_ms: int = 100
    factor: float = 2
    backoff: Literal["exponential", "fixed"] = "exponential"
    clamp_ms: int = 30_000
    jitter_ms: int = 250
    retry_on: Collection[FailureTag | str] = tuple(sorted(RETRYABLE_TAGS))

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= RETRY_ATTEMPTS:
            raise BodyMisdeclared(f"a retry has 1 to {RETRY_ATTEMPTS} attempts, the first one included; not {self.attempts}")
        if not (self.base_ms >= 0 and self.factor >= 1 and self.clamp_ms >= 0 and 0 <= self.jitter_ms <= MAX_JITTER_MS):
            raise BodyMisdeclared("a retry has base_ms, clamp_ms and jitter_ms of at least 0, and a factor of at least 1")
        if self.backoff not in ("exponential", "fixed"):
            raise BodyMisdeclared(f"a retry's backoff is 'exponential' or 'fixed', not {self.backoff!r}")
        if wrong := sorted(str(tag) for tag in self.retry_on if tag not in RETRYABLE_TAGS):
            raise RunRetryTagUnretryable(
                f"retry_on names {', '.join(wrong)}: only {' and '.join(sorted(RETRYABLE_TAGS))} failures are tried again"
            )


ONCE: Final = Retry(attempts=1)
"""The schedule without a retry (clause runs.single-attempt)."""


def opened_with(config: Mapping[str, Any], default: Retry) -> Retry:
    """The schedule of steps that name none: what the execution was opened with under `retry`, else the body's.

    What a scope's configuration holds under that name and is no schedule is nobody's business here.
    """
    told = config.get("retry")
    if not isinstance(told, Mapping):
        return default
    try:
        return Retry(**told)
    except (TypeError, BodyMisdeclared):
        return default


def decide(policy: Retry, attempt: int, tag: str, seed: str, retry_after: float | None = None) -> float | None:
    """Seconds until the next attempt, or None when the failure stands; a pure function (clause runs.decision-is-pure).

    `attempt` is the one that has just failed, from 1; `seed` gives the jitter. A server's `retry_after` replaces the
    computed delay, cut to UPSTREAM_WAIT_SECONDS (clause runs.retry-after).
    """
    if attempt >= policy.attempts or tag not in RETRYABLE_TAGS or tag not in policy.retry_on:
        return None
    jitter = _jitter(policy.jitter_ms, attempt, seed)
    if retry_after is not None:
        wanted = min(max(0.0, retry_after), float(UPSTREAM_WAIT_SECONDS))
        return wanted if wanted > 0 else _computed(policy, attempt) + jitter
    return _computed(policy, attempt) + jitter


def _computed(policy: Retry, attempt: int) -> float:
    if policy.backoff == "fixed" or policy.factor == 1:
        return min(policy.base_ms, policy.clamp_ms) / 1000
    # Past this many doublings every clamp has been reached; the power itself would overflow a double.
    power = min(attempt - 1, 64)
    grown = policy.base_ms * min(policy.factor**power, 1e12)
    return min(grown, policy.clamp_ms) / 1000


def _jitter(below_ms: int, attempt: int, seed: str) -> float:
    drawn = int.from_bytes(hashlib.sha256(f"{seed}\0{attempt}".encode()).digest()[:6], "big")
    return drawn * below_ms // 2**48 / 1000
