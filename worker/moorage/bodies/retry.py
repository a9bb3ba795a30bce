"""When a failed step is tried again: one schedule, one decision, no other layer (clauses runs.schedule, runs.one-layer).

Nothing inside an effect retries: a transport, a credential's minting or a limiter gives its failure to the step's schedule.
Nothing is undone by the engine either: undoing is a step that the author writes (clause runs.no-compensation).
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from moorage.bodies.errors import BodyMisdeclared, RunRetryTagUnretryable
from moorage.kernel.errors import RETRYABLE_TAGS, FailureTag
from moorage.kernel.limits import RETRY_ATTEMPTS, RETRY_DELAY_MS, RETRY_FACTOR, RETRY_JITTER_MS, UPSTREAM_WAIT_SECONDS


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
        for name, most in (("base_ms", RETRY_DELAY_MS), ("clamp_ms", RETRY_DELAY_MS), ("jitter_ms", RETRY_JITTER_MS)):
            if not 0 <= getattr(self, name) <= most:
                raise BodyMisdeclared(f"a retry's {name} is 0 to {most}, not {getattr(self, name)!r}")
        if not 1 <= self.factor <= RETRY_FACTOR:
            raise BodyMisdeclared(f"a retry's factor is 1 to {RETRY_FACTOR}, not {self.factor!r}")
        if self.backoff not in ("exponential", "fixed"):
            raise BodyMisdeclared(f"a retry's backoff is 'exponential' or 'fixed', not {self.backoff!r}")
        if wrong := sorted(str(tag) for tag in self.retry_on if tag not in RETRYABLE_TAGS):
            raise RunRetryTagUnretryable(
                f"retry_on names {', '.join(wrong)}: only {' and '.join(sorted(RETRYABLE_TAGS))} failures are tried again"
            )

    def wire(self) -> dict[str, Any]:
        """As JSON, every member, as a run is started with it."""
        return {
            "attempts": self.attempts,
            "base_ms": self.base_ms,
            "factor": self.factor,
            "backoff": self.backoff,
            "clamp_ms": self.clamp_ms,
            "jitter_ms": self.jitter_ms,
            "retry_on": sorted(map(str, self.retry_on)),
        }


ONCE: Final = Retry(attempts=1)
"""The schedule without a retry (clause runs.single-attempt)."""


def opened_with(told: Mapping[str, Any] | None, default: Retry) -> Retry:
    """The schedule of steps that name none: the one that the execution was opened with, if it was with one, else the
    body's. Members that this host does not know are passed over."""
    if told is None:
        return default
    known = {one.name for one in fields(Retry)}
    return Retry(**{name: value for name, value in told.items() if name in known})


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
