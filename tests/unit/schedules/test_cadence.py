"""Where windows begin, held to a walk over every minute of the nights on which clocks change."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moorage.kernel.errors import RequestInvalid
from moorage.kernel.instants import LATEST, Instant, parse
from moorage.kernel.limits import EVERY_SECONDS
from moorage.schedules.cadence import Cron, cadence_of, local, starts, take
from moorage.schedules.zones import zone

NIGHTS = [
    ("Europe/Paris", "2027-03-28"),
    ("Europe/Paris", "2027-10-31"),
    ("America/New_York", "2027-03-14"),
    ("America/New_York", "2027-11-07"),
    ("Australia/Lord_Howe", "2027-10-03"),
    ("Australia/Lord_Howe", "2027-04-04"),
    ("Africa/Casablanca", "2026-02-15"),
    ("Africa/Casablanca", "2027-02-07"),
    ("America/St_Johns", "2027-11-07"),
    ("Antarctica/Troll", "2027-03-28"),
    ("Antarctica/Casey", "2010-03-05"),
    ("Asia/Pyongyang", "2018-05-05"),
    ("America/Caracas", "2007-12-09"),
    ("Pacific/Apia", "2011-12-30"),
    ("Pacific/Kwajalein", "1993-08-21"),
    ("Asia/Kolkata", "2027-03-28"),
]

field = st.sampled_from(["*", "0", "15", "30", "59", "*/7", "*/30", "10-40/15", "5,35"])
hour = st.sampled_from(["*", "0", "1", "2", "3", "*/2", "*/3", "1-4", "1,2,3", "2,23"])


def minutes(timezone: str, day: str) -> list[int]:
    """Every minute from before the day to after it, in seconds since 1970."""
    begin = int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()) - 16 * 3600
    return list(range(begin, begin + 44 * 3600, 60))


@lru_cache(maxsize=512)
def walked_once(text: str, timezone: str, day: str) -> list[int]:
    return walked(text, timezone, minutes(timezone, day))


def walked(text: str, timezone: str, seconds: list[int]) -> list[int]:
    """The starts among `seconds`, by looking at each: the two rules, said in another way."""
    where = zone(timezone)
    walls = [datetime.fromtimestamp(one, where).replace(tzinfo=None, fold=0) for one in seconds]
    first, last = min(walls) - timedelta(minutes=1), max(walls)
    matching = set()
    for found in CronSim(text, first):
        if found > last:
            break
        matching.add(found)
    minute, of_hour = text.split()[:2]
    if minute.startswith("*") or of_hour.startswith("*"):
        return [one for one, wall in zip(seconds, walls, strict=True) if wall in matching]
    found_at = set()
    shown = dict(reversed(list(zip(walls, seconds, strict=True))))
    for wanted in matching:
        if wanted in shown:
            found_at.add(shown[wanted])
        elif walls[0] < wanted:
            # It is skipped: the first minute that shows a later time.
            found_at.add(next(one for one, wall in zip(seconds, walls, strict=True) if wall > wanted))
    return sorted(found_at)


@pytest.mark.clause("schedules.dst", "schedules.window")
@settings(max_examples=60, deadline=None)
@given(night=st.sampled_from(NIGHTS), minute=field, at=hour, offset=st.integers(0, 40 * 60))
@example(night=("Australia/Lord_Howe", "2027-10-03"), minute="15", at="*/3", offset=0)
@example(night=("Europe/Paris", "2027-10-31"), minute="30", at="2", offset=16 * 60)
@example(night=("Pacific/Apia", "2011-12-30"), minute="30", at="2,23", offset=0)
@example(night=("Pacific/Kwajalein", "1993-08-21"), minute="*/30", at="*", offset=0)
def test_every_start_is_found_from_wherever_one_asks(night: tuple[str, str], minute: str, at: str, offset: int) -> None:
    timezone, day = night
    text = f"{minute} {at} * * *"
    seconds = minutes(timezone, day)
    expected = walked_once(text, timezone, day)
    cadence = cadence_of(text, None, timezone, Instant(0))
    asked = seconds[0] + offset * 60
    found = []
    for one in starts(cadence, Instant(asked * 1000)):
        if one // 1000 > seconds[-1]:
            break
        found.append(one // 1000)
    assert found == [one for one in expected if one > asked]
    until = Instant(seconds[-1] * 1000 + 59_999)
    if expected:
        assert [one // 1000 for one in cadence.last(until, len(expected))] == expected
        assert [one // 1000 for one in cadence.last(until, 1)] == expected[-1:]


@pytest.mark.clause("schedules.window")
def test_an_interval_counts_from_its_anchor_both_ways() -> None:
    cadence = cadence_of(None, 90_500, "UTC", Instant(1_000_000))
    assert take(cadence, Instant(1_000_000), 2) == [1_090_500, 1_181_000]
    assert take(cadence, Instant(1_090_499), 1) == [1_090_500]
    assert take(cadence, Instant(909_499), 2) == [909_500, 1_000_000]
    assert cadence.last(Instant(1_181_000), 3) == [1_000_000, 1_090_500, 1_181_000]
    assert cadence.after(Instant(LATEST - 1000)) is None


@pytest.mark.clause("schedules.window")
def test_the_last_starts_of_a_rare_cadence_are_found() -> None:
    cadence = cadence_of("0 0 29 2 *", None, "Europe/Paris", Instant(0))
    found = cadence.last(parse("2027-06-01T00:00:00Z"), 3)
    assert [local(one, "Europe/Paris")[:10] for one in found] == ["2016-02-29", "2020-02-29", "2024-02-29"]
    often = cadence_of("* * * * * *", None, "Europe/Paris", Instant(0))
    now = parse("2027-10-31T01:10:00.500Z")
    assert often.last(now, 5000) == [Instant(now - 500 - 1000 * back) for back in reversed(range(5000))]


@pytest.mark.clause("schedules.dst")
def test_an_hour_of_seconds_that_is_skipped_is_looked_past_in_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    cadence = Cron("* * 2 * * *", zone("Europe/Paris"))
    looks: list[datetime] = []
    between = Cron._between

    def counting(self: Cron, wall: datetime, now: Instant) -> list[Instant]:
        looks.append(wall)
        return between(self, wall, now)

    monkeypatch.setattr(Cron, "_between", counting)
    assert cadence.last(parse("2027-03-28T01:00:30Z"), 2) == [parse("2027-03-27T01:59:58Z"), parse("2027-03-27T01:59:59Z")]
    assert len(looks) < 20


REFUSED = ["", "* * * *", "* * * * * * *", "60 * * * *", "*/0 * * * *", "0 0 30 2 *", "1 1 */100 * MON#4", "é * * * *"]


@pytest.mark.clause("schedules.window")
@pytest.mark.parametrize("text", [*REFUSED, "0 " + "0," * 99 + "0 * * *", "soon", "@daily", "* * * * *\x00"])
def test_what_is_no_cadence_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        cadence_of(text, None, "UTC", Instant(0))
    assert (caught.value.errors or [])[0]["pointer"] == "/cron"


@pytest.mark.parametrize(
    "name", ["Europe/Atlantis", "", "../etc/passwd", "europe/paris", "/UTC", "UTC\x00", "a" * 65, "zones"]
)
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        cadence_of("* * * * *", None, name, Instant(0))
    assert (caught.value.errors or [])[0]["pointer"] == "/timezone"


def test_an_interval_has_bounds() -> None:
    for wrong in (999, int(EVERY_SECONDS) * 1000 + 1):
        with pytest.raises(RequestInvalid):
            cadence_of(None, wrong, "UTC", Instant(0))
    for right in (1000, int(EVERY_SECONDS) * 1000):
        assert cadence_of(None, right, "UTC", Instant(0)).after(Instant(0)) == right


def test_six_fields_begin_with_seconds_and_keep_the_rule_of_named_times() -> None:
    cadence = cadence_of("5 30 2 * * *", None, "Europe/Paris", Instant(0))
    found = take(cadence, parse("2027-03-27T12:00:00Z"), 2)
    assert [local(one, "Europe/Paris") for one in found] == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:05+02:00"]


def test_nothing_comes_after_the_last_year() -> None:
    cadence = cadence_of("0 0 1 1 *", None, "UTC", Instant(0))
    assert take(cadence, parse("9997-06-01T00:00:00Z"), 5) == [parse("9998-01-01T00:00:00Z"), parse("9999-01-01T00:00:00Z")]


def test_zones_come_from_the_package_and_not_from_the_system() -> None:
    where = zone("Europe/Riga")
    assert isinstance(cadence_of("* * * * *", None, "Europe/Riga", Instant(0)), Cron)
    assert datetime(2021, 3, 28, 1, 0, tzinfo=UTC).astimezone(where).isoformat() == "2021-03-28T04:00:00+03:00"
