"""What an operation may cost, what D1 asks for it, and what was measured.

The budgets are those of ARCHITECTURE.md as numbers: they are checked by `moorage bench` and by the tests.
"""

from dataclasses import dataclass
from statistics import median

DOLLARS_PER_MILLION_ROWS_READ = 0.001
DOLLARS_PER_MILLION_ROWS_WRITTEN = 1.0
"""D1's published prices beyond what a paid plan includes."""


@dataclass(frozen=True)
class Budget:
    """The most that one operation may cost: round trips to D1, rows read and rows written."""

    trips: int
    rows_read: int
    rows_written: int


@dataclass(frozen=True)
class Cost:
    """What one request cost, as its Server-Timing header tells from D1's own counters, and how long it took."""

    trips: int
    rows_read: int
    rows_written: int
    milliseconds: float


@dataclass(frozen=True)
class Operation:
    """Something to measure: `name` says what, `budget` what it may cost."""

    name: str
    budget: Budget


@dataclass(frozen=True)
class Measured:
    """The dearest of several measurements, for the budget, and the median time."""

    operation: Operation
    trips: int
    rows_read: int
    rows_written: int
    milliseconds: float

    @classmethod
    def of(cls, operation: Operation, costs: list[Cost]) -> "Measured":
        """What `costs` show of the operation."""
        return cls(
            operation,
            max(cost.trips for cost in costs),
            max(cost.rows_read for cost in costs),
            max(cost.rows_written for cost in costs),
            median(cost.milliseconds for cost in costs),
        )

    @property
    def within_budget(self) -> bool:
        budget = self.operation.budget
        return self.trips <= budget.trips and self.rows_read <= budget.rows_read and self.rows_written <= budget.rows_written

    @property
    def dollars_per_million(self) -> float:
        """What D1 charges for a million of them."""
        read = self.rows_read * DOLLARS_PER_MILLION_ROWS_READ
        return read + self.rows_written * DOLLARS_PER_MILLION_ROWS_WRITTEN
