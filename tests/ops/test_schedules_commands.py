"""`moorage schedules` against the application."""

import asyncio

import pytest

from moorage.api.assembly import due_works
from moorage.kernel.instants import after, render
from moorage.timers import clock
from tests.ops.test_commands import Run, docs, house, lines, run, schema, transport
from tests.unit.api.conftest import House

__all__ = ["docs", "house", "run", "schema", "transport"]

RECORD = '{"kind":"doc","body":{"n":1}}'


def test_the_whole_way_of_a_schedule(docs: Run, house: House) -> None:
    shown = docs("schedules", "put", "s", "--every", "60", "--record", RECORD, "--overlap", "enqueue").stdout
    assert "every_seconds" in shown
    [made] = lines(docs("schedules", "show", "s", "--json"))
    assert [made["every_seconds"], made["overlap"], made["target"]["record"]["body"]] == [60, "enqueue", {"n": 1}]
    listed = docs("schedules", "list").stdout
    assert "every 60 s" in listed
    assert "record doc" in listed
    house.now = after(house.now, 1)
    assert "started" in docs("schedules", "trigger", "s").stdout
    [trigger] = lines(docs("schedules", "triggers", "s", "--json"))
    assert trigger["trigger_id"] == f"s@{render(house.now)}"
    assert trigger["record"] in docs("schedules", "triggers", "s").stdout
    assert "paused" in docs("schedules", "pause", "s").stdout
    assert "paused" in docs("schedules", "list").stdout
    range_ = ("--start", render(after(house.now, -121)), "--end", render(house.now))
    assert docs("schedules", "backfill", "s", *range_).stdout == "3 of 3 windows wait for their turn\n"
    [resumed] = lines(docs("schedules", "resume", "s", "--json"))
    [coming] = lines(docs("schedules", "next", "s", "--count", "1", "--json"))
    assert coming["window_start"] == resumed["next_at"]
    assert docs("schedules", "delete", "s").stdout == "deleted s\n"
    assert "ScheduleUnknown" in docs("schedules", "show", "s", status=1).stderr


@pytest.mark.parametrize(("every", "told"), [("60", "59"), ("1", "more than 1000")])
def test_what_was_missed_is_told_with_how_much_it_was(docs: Run, house: House, every: str, told: str) -> None:
    docs("schedules", "put", "s", "--every", every, "--record", RECORD, "--catch-up", "none")
    late, house.now = house.now, after(house.now, 3600.5)
    asyncio.run(clock.drain(house.database, house.now, due_works(house.blobs)))
    until = render(after(late, 3600))
    assert f"missed, {told} until {until}\n" in docs("schedules", "triggers", "s").stdout


def test_what_the_clock_cannot_fire_is_seen_in_the_lists(docs: Run, house: House) -> None:
    docs("schedules", "put", "s", "--every", "60", "--record", RECORD)
    docs("timers", "put", "t", "--type", "ping", "--in", "1")
    again = render(after(house.now, 9))
    house.connection.execute(
        "INSERT INTO due_failures (work, item, attempts, retry_at, error) VALUES ('timer_fired', 't@1', 4, :at, 'KeyError'),"
        " ('schedule_fired', 's@' || :now, 4, :at, 'KeyError')",
        {"at": after(house.now, 9), "now": house.now},
    )
    for group, name in (("timers", "t"), ("schedules", "s")):
        assert f"failing, again {again}" in docs(group, "list").stdout
        [shown] = lines(docs(group, "show", name, "--json"))
        assert shown["failing"] == {"attempts": 4, "error": "KeyError", "retry_at": again}


def test_the_windows_of_a_cadence_that_nobody_declared(docs: Run) -> None:
    asked = ("--cron", "30 2 * * *", "--timezone", "Europe/Paris", "--after", "2027-03-27T12:00:00Z", "--count", "2")
    told = docs("schedules", "next", *asked).stdout
    assert "2027-03-28T03:00:00+02:00" in told
    assert "2027-03-29T02:30:00+02:00" in told
    assert "/cron" in docs("schedules", "next", "--cron", "soon", status=1).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("put", "s", "--every", "60"),
        ("put", "s", "--every", "60", "--body", "b", "--record", RECORD),
        ("put", "s", "--every", "60", "--record", RECORD, "--input", "1"),
        ("put", "s", "--body", "b"),
        ("put", "s", "--body", "b", "--every", "nan"),
        ("put", "s", "--body", "b", "--every", "inf"),
        ("put", "s", "--body", "b", "--every", "0"),
        ("put", "s", "--body", "b", "--every", "60", "--catch-up-seconds", "nan"),
        ("put", "s", "--body", "b", "--every", "60", "--catch-up-seconds", "-1"),
        ("next", "--every", "nan"),
        ("put", "s", "--body", "b", "--every", "60", "--cron", "* * * * *"),
        ("next",),
        ("next", "s", "--every", "60"),
        ("next", "s", "--after", "soon"),
        ("backfill", "s", "--start", "2027-01-01T00:00:00", "--end", "2027-01-02T00:00:00Z"),
    ],
)
def test_wrong_usage_is_an_exit_status_of_two(docs: Run, arguments: tuple[str, ...]) -> None:
    docs("schedules", *arguments, status=2)
