"""The nouns of durable runs: an execution that a host holds, the body and build that it runs, its failure, its stop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from moorage.journal.model import Entry, EntryKey, Fence, Lease, Value
from moorage.kernel import canonical
from moorage.kernel.instants import EARLIEST, Instant

Status = Literal["running", "waiting", "suspended", "success", "failed", "partial_failure", "canceled"]
"""Of a run (clause runs.status-set): at work; until an instant; until something ends; and the four ends."""

TERMINAL: frozenset[Status] = frozenset({"success", "failed", "partial_failure", "canceled"})

CAPABILITIES: frozenset[str] = frozenset(
    {"steps", "fetch", "sleep", "awakeables", "events", "children", "publish", "cursors", "metadata", "guards", "entities"}
)
"""What a host can ask of this substrate, by name (clause runs.unwired)."""

Grain = Literal["run", "pipeline"]
"""What a stop stops: one run, or every run in flight under the run's scope and the scopes below it."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop that was asked for; it is not a canceled state (clause runs.cancel-race)."""

    requested_at: Instant
    scope: Grain
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """W3C trace context: 32 and 16 hexadecimal digits. `span_id` is the run's own span, `parent_span` the caller's."""

    trace_id: str
    span_id: str
    parent_span: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a step or a run failed: a tag of the closed set, a message, masked and at most 2 KiB, and what it was about."""

    tag: str
    message: str
    code: str | None = None
    step: str | None = None

    def wire(self) -> dict[str, Any]:
        """As JSON, without what is not known."""
        told = {"tag": self.tag, "code": self.code, "message": self.message, "step": self.step}
        return {name: value for name, value in told.items() if value is not None}


@dataclass(frozen=True)
class Build:
    """What executes a body: digests (SHA-256) of its implementation, of each declared dependency, and of its public
    configuration, which holds no credential (clause runs.body-pins)."""

    body: str
    implementation: str
    dependencies: Mapping[str, str] = field(default_factory=dict)
    configuration: str | None = None

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "body": self.body,
            "implementation": self.implementation,
            "dependencies": dict(self.dependencies),
            "configuration": self.configuration,
        }

    @classmethod
    def of(cls, wire: Mapping[str, Any]) -> "Build":
        """The build that `wire` gave."""
        return cls(wire["body"], wire["implementation"], dict(wire["dependencies"]), wire["configuration"])

    @cached_property
    def digest(self) -> str:
        """One digest of it all: two builds with the same are the same build."""
        return canonical.digest(canonical.dumps(self.wire()))


@dataclass(frozen=True)
class Pins:
    """What an execution is bound to before any input is read: a build, and the SHA-256 of the input."""

    build: Build
    input: str

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {**self.build.wire(), "input": self.input}

    @classmethod
    def of(cls, wire: Mapping[str, Any]) -> "Pins":
        """The pins that `wire` gave."""
        return cls(Build.of(wire), wire["input"])

    @cached_property
    def text(self) -> str:
        """The canonical JSON of all pins."""
        return canonical.dumps(self.wire())

    @property
    def reference(self) -> str:
        """The plan reference: one digest over all pins."""
        return canonical.digest(self.text)


@dataclass(frozen=True, slots=True)
class BodyInfo:
    """A registered body as others see it. `effects` is the closed list of its labels; `host` says where it runs."""

    name: str
    host: Literal["worker", "remote"]
    build: Build
    effects: Sequence[str] = ()
    description: str = ""
    input_schema: Mapping[str, Any] | None = None
    result_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Minted:
    """An awakeable of the run, with its token, which is stored nowhere."""

    id: str
    token: str = field(repr=False)
    deadline: Instant
    url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution that a host holds: its run, its lease, its input, and what was recorded before.

    `entries` has every entry; values past the first JOURNAL_REPLAY_BYTES are left out and loaded by `values`. `retry` is the
    schedule of steps that name none, with the members of `bodies.retry.Retry`; None: the body's own. `minted` are the
    awakeables that it has minted, with their tokens, so that a replay asks for none of them; one whose token is lost is
    missing, and `Mint` says why. It is for the holder alone, and is neither logged nor stored.
    """

    execution_id: str
    run_id: str
    body: str
    scope: str
    lease: Lease
    pins: Pins
    input: Value
    trace: Trace
    entries: Sequence[Entry] = ()
    stop: Stop | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    retry: Mapping[str, Any] | None = None
    capabilities: frozenset[str] = frozenset()
    started_at: Instant = EARLIEST
    minted: "Mapping[EntryKey, Minted]" = field(default_factory=dict, repr=False)

    @property
    def fence(self) -> Fence:
        """What every write shows."""
        return Fence(self.execution_id, self.lease.epoch)
