"""Claims and whether they hold."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Check:
    """One claim that the story makes: what was expected and what was found, both JSON values."""

    statement: str
    expected: Any
    found: Any

    @property
    def ok(self) -> bool:
        """Whether it holds: equal, and of the same type."""
        return type(self.expected) is type(self.found) and bool(self.expected == self.found)

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {"statement": self.statement, "expected": self.expected, "found": self.found, "ok": self.ok}


@dataclass
class Told:
    """One act as it was told. `broke_off` says why it could not go on."""

    name: str
    title: str
    checks: list[Check] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    broke_off: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it ran to its end and all its claims hold."""
        return self.broke_off is None and all(check.ok for check in self.checks)

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "act": self.name,
            "title": self.title,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "facts": self.facts,
            "checks": [check.wire() for check in self.checks],
            "broke_off": self.broke_off,
        }
