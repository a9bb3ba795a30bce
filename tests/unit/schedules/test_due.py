"""Which of the windows that were missed still come, and at what cost."""

from dataclasses import dataclass, field

import pytest

from moorage.kernel.instants import Instant, parse
from moorage.kernel.limits import CATCH_UP_WINDOWS
from moorage.schedules.cadence import Cadence, cadence_of, take
from moorage.schedules.due import caught_up
from moorage.schedules.model import CatchUp, Schedule

NOW = parse("2027-06-01T00:30:00Z")
DAY_MS = 86_400_000


@dataclass
class Counting:
    """A cadence that counts how far beyond an instant it was asked."""

    cadence: Cadence
    asked: list[Instant] = field(default_factory=list)

    def after(self, instant: Instant) -> Instant | None:
        self.asked.append(instant)
        return self.cadence.after(instant)

    def last(self, now: Instant, count: int) -> list[Instant]:
        return self.cadence.last(now, count)


def scheduled(monkeypatch: pytest.MonkeyPatch, cadence: Cadence, catch_up: CatchUp, days: float) -> Schedule:
    columns: dict[str, object] = dict.fromkeys(Schedule.__dataclass_fields__)
    monkeypatch.setattr(Schedule, "cadence", cadence)
    return Schedule(**{**columns, "catch_up": catch_up, "catch_up_ms": int(days * DAY_MS)})  # type: ignore[arg-type]


@pytest.mark.clause("schedules.window")
@pytest.mark.parametrize("text", ["0 0 1 1 *", "0 * * * *", "*/5 * * * *"])
def test_catching_up_looks_at_no_window_that_is_to_come(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    counting = Counting(cadence_of(text, None, "Europe/Paris", Instant(0)))
    schedule = scheduled(monkeypatch, counting, "all", 30)
    [first] = take(counting.cadence, Instant(NOW - 20 * DAY_MS), 1)
    wanted = caught_up(schedule, min(first, Instant(NOW - 60_000)), NOW)
    assert wanted is None or wanted <= NOW
    assert len([one for one in counting.asked if one >= NOW]) == 0
    assert len(counting.asked) <= CATCH_UP_WINDOWS + 3


@pytest.mark.clause("schedules.window")
@pytest.mark.parametrize(("every", "missed"), [(60_000, 999), (60_000, 1000), (60_000, 1001), (60_000, 5000)])
def test_of_very_many_windows_the_latest_come(monkeypatch: pytest.MonkeyPatch, every: int, missed: int) -> None:
    first = Instant(NOW - (missed - 1) * every)
    schedule = scheduled(monkeypatch, cadence_of(None, every, "UTC", first), "all", 30)
    wanted = caught_up(schedule, first, NOW)
    assert wanted == NOW - (min(missed, int(CATCH_UP_WINDOWS)) - 1) * every


def test_windows_are_taken_up_to_an_instant() -> None:
    cadence = cadence_of(None, 1000, "UTC", Instant(0))
    assert take(cadence, Instant(0), 5, Instant(2999)) == [1000, 2000]
    assert take(cadence, Instant(0), 1, Instant(2999)) == [1000]
