"""What the test suite of a public cron library (PyPI cronsim 2.6) asks, asked of previews (case F03).

The tables hold that suite's facts: expressions, where one begins, and the next times. The suite's naive times are asked in
UTC. Its tests of what the parser keeps inside have no counterpart here, nor has iterating backwards.
"""

from collections.abc import AsyncIterator
from itertools import product

import httpx
import pytest

from moorage.api.app import build_app
from moorage.kernel.instants import parse
from moorage.store.sqlite import connect
from tests.contract.adapters import schema_files
from tests.unit.api.conftest import House, client_of

pytestmark = pytest.mark.clause("schedules.dst")

HOURS = "0 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23 * * *"
ODD = "0 1,3,5,7,9,11,13,15,17,19,21,23 * * *"

RIGA: list[tuple[str, str, list[str]]] = [
    ("0 * * * *", "2021-03-28T01:30+02:00", ["28T02:00+02:00", "28T04:00+03:00"]),
    ("0 * * * *", "2021-10-31T01:30+03:00", ["31T02:00+03:00", "31T03:00+03:00", "31T03:00+02:00", "31T04:00+02:00"]),
    ("*/30 * * * *", "2021-03-28T02:10+02:00", ["28T02:30+02:00", "28T04:00+03:00", "28T04:30+03:00"]),
    (
        "*/30 * * * *",
        "2021-10-31T02:10+03:00",
        [f"31T{one}" for one in "02:30+03:00 03:00+03:00 03:30+03:00 03:00+02:00 03:30+02:00 04:00+02:00".split()],
    ),
    ("*/15 * * * *", "2021-03-28T02:40+02:00", ["28T02:45+02:00", "28T04:00+03:00"]),
    (
        "*/15 * * * *",
        "2021-10-31T02:40+03:00",
        [
            "31T02:45+03:00",
            *(f"31T03:{minute}+03:00" for minute in ("00", "15", "30", "45")),
            *(f"31T03:{minute}+02:00" for minute in ("00", "15", "30", "45")),
            "31T04:00+02:00",
        ],
    ),
    ("0 */2 * * *", "2021-03-28T01:30+02:00", ["28T02:00+02:00", "28T04:00+03:00", "28T06:00+03:00"]),
    ("0 */2 * * *", "2021-10-31T01:30+03:00", ["31T02:00+03:00", "31T04:00+02:00", "31T06:00+02:00"]),
    ("30 */2 * * *", "2021-03-28T01:30+02:00", ["28T02:30+02:00", "28T04:30+03:00"]),
    ("30 */2 * * *", "2021-10-31T01:30+03:00", ["31T02:30+03:00", "31T04:30+02:00"]),
    ("0 */3 * * *", "2021-10-31T01:30+03:00", ["31T03:00+03:00", "31T03:00+02:00", "31T06:00+02:00"]),
    ("0 1,2,3,4,5 * * *", "2021-03-28T01:30+02:00", ["28T02:00+02:00", "28T04:00+03:00", "28T05:00+03:00"]),
    ("0 1,2,3,4,5 * * *", "2021-10-31T01:30+03:00", ["31T02:00+03:00", "31T03:00+03:00", "31T04:00+02:00"]),
    ("30 1,2,3,4,5 * * *", "2021-03-28T01:30+02:00", ["28T02:30+02:00", "28T04:00+03:00", "28T04:30+03:00"]),
    ("30 1,2,3,4,5 * * *", "2021-10-31T01:30+03:00", ["31T02:30+03:00", "31T03:30+03:00", "31T04:30+02:00"]),
    ("0 2 * * *", "2021-03-28T01:30+02:00", ["28T02:00+02:00", "29T02:00+03:00"]),
    ("0 2 * * *", "2021-10-31T01:30+03:00", ["31T02:00+03:00", "2021-11-01T02:00+02:00"]),
    ("0 3 * * *", "2021-03-27T01:30+02:00", ["27T03:00+02:00", "28T04:00+03:00", "29T03:00+03:00"]),
    ("0 3 * * *", "2021-10-31T01:30+03:00", ["31T03:00+03:00", "2021-11-01T03:00+02:00"]),
    ("0 4 * * *", "2021-03-27T01:30+02:00", ["27T04:00+02:00", "28T04:00+03:00", "29T04:00+03:00"]),
    ("0 4 * * *", "2021-10-30T01:30+03:00", ["30T04:00+03:00", "31T04:00+02:00", "2021-11-01T04:00+02:00"]),
    (HOURS, "2021-03-28T01:30+02:00", ["28T02:00+02:00", "28T04:00+03:00", "28T05:00+03:00"]),
    (HOURS, "2021-10-31T01:30+03:00", ["31T02:00+03:00", "31T03:00+03:00", "31T04:00+02:00"]),
    (ODD, "2021-03-28T00:30+02:00", ["28T01:00+02:00", "28T04:00+03:00", "28T05:00+03:00"]),
    (ODD, "2021-10-31T00:30+03:00", ["31T01:00+03:00", "31T03:00+03:00", "31T05:00+02:00"]),
    ("0 1-5 * * *", "2021-03-28T01:30+02:00", ["28T02:00+02:00", "28T04:00+03:00", "28T05:00+03:00"]),
    ("0 1-5 * * *", "2021-10-31T01:30+03:00", ["31T02:00+03:00", "31T03:00+03:00", "31T04:00+02:00"]),
    ("15 3 * * *", "2021-03-27T00:00+02:00", ["27T03:15+02:00", "28T04:00+03:00", "29T03:15+03:00"]),
    ("15 3 * * *", "2021-10-30T00:00+03:00", ["30T03:15+03:00", "31T03:15+03:00", "2021-11-01T03:15+02:00"]),
    ("* * * * *", "2021-03-28T02:58+02:00", ["28T02:59+02:00", "28T04:00+03:00"]),
    ("* * * * *", "2021-10-31T03:58+03:00", ["31T03:59+03:00", "31T03:00+02:00", "31T03:01+02:00"]),
    ("* 1-6 * * *", "2021-03-28T02:58+02:00", ["28T02:59+02:00", "28T04:00+03:00"]),
    ("* 1-6 * * *", "2021-10-31T03:58+03:00", ["31T03:59+03:00", "31T03:00+02:00", "31T03:01+02:00"]),
]
"""In Europe/Riga; the year and month of the start where only a day is written."""

FROM_2020: list[tuple[str, list[str]]] = [
    ("1 1 L * *", ["01-31"]),
    ("1 1 LW 5 *", ["05-29"]),
    (
        "1 1 * * 5L",
        "01-31 02-28 03-27 04-24 05-29 06-26 07-31 08-28 09-25 10-30 11-27 12-25".split(),
    ),
    ("1 1 * * 0L", ["01-26"]),
    ("1 1 * * 7L", ["01-26"]),
    ("1 1 * * 1#2", ["01-13"]),
    ("1 1 1-7 * */7", ["01-05", "02-02", "03-01", "04-05"]),
    ("1 1 */100,1-7 * MON", ["01-06", "02-03", "03-02", "04-06"]),
    ("1 1 * * */3", ["01-01", "01-04", "01-05", "01-08"]),
]
"""At 01:01 of these days, from the beginning of 2020 on, in UTC."""

ACCEPTED = [
    *("* * * * *", "1 * * * *", "* * * * 1", "* * * * 0", "1,2,3 * * * *", "1-3 * * * *", "1-3,7-9 * * * *"),
    *("*/15 * * * *", "0-10/2 * * * *", "5/15 * * * *", "* * L * *", "* * LW * *", "* * l * *", "* * lw * *"),
    *("* * 1 * *", "* * * * 1#2", "* * * * MON", "* * * * mon", "* * * JAN *", "* * * * 0-2", "* * * * sun-tue"),
    *("* * * * */2", "* * L/2 * *", "* * LW/2 * *", "* * * * 1,2,3#1", "* * * * 7", "* * * * 5L"),
]

PATTERNS = [
    *("%s * * * *", "* %s * * *", "* * %s * *", "* * * %s * ", "* * * * %s", "* * * * * %s", "1-%s * * * *"),
    *("%s-60 * * * *", "* * 1-%s * *", "* * 1,%s * *", "* * %s/1 * *", "* * * %s-DEC *", "* * * JAN-%s *"),
    *("* * * * %s-SUN", "* * * * MON-%s"),
]
BAD = ["-1", "61", "ABC", "2/", "/2", "2#", "#2", "1##1", "1//2", "¹", "LL", "LWX"]
REFUSED = [
    *("* * * *", "* * 5-1 * *", "1-1_0 * * * *", "*/0 * * * *", "* * * * 1#0", "* * * * 1#6", "* * 30 2 *"),
    *("* * 31 4 *", "* * * * 5L-6", "* * * * 5L#1", "* * * * 5L/3", "* * * * MONL"),
    "1 1 */100 * MON#4",  # it never matches
    *(pattern % bad for pattern, bad in product(PATTERNS, BAD)),
]


@pytest.fixture
async def api() -> AsyncIterator[httpx.AsyncClient]:
    connection = connect(":memory:")
    for file in schema_files():
        connection.executescript(file.read_text())
    async with client_of(build_app(House(connection).initialized().ports())) as client:
        yield client


def written(text: str) -> str:
    """An instant that leaves its seconds out, with them."""
    return f"{text[:16]}:00{text[16:]}"


async def test_nights_in_riga(api: httpx.AsyncClient) -> None:
    different = []
    for cron, start, expected in RIGA:
        times = [written(one if len(one) > 16 else start[:8] + one) for one in expected]
        asked = {"cron": cron, "timezone": "Europe/Riga", "after": written(start), "count": len(times)}
        found = (await api.post("/schedules/preview", json=asked)).json()["items"]
        if [one["local"] for one in found] != times:
            different.append((cron, start, times, [one["local"] for one in found]))
    assert different == []


async def test_days(api: httpx.AsyncClient) -> None:
    for cron, days in FROM_2020:
        asked = {"cron": cron, "after": "2020-01-01T00:00:00Z", "count": len(days)}
        found = (await api.post("/schedules/preview", json=asked)).json()["items"]
        assert [parse(one["window_start"]) for one in found] == [parse(f"2020-{day}T01:01:00Z") for day in days], cron


async def test_what_is_accepted_and_what_is_refused(api: httpx.AsyncClient) -> None:
    for cron in ACCEPTED:
        assert (await api.post("/schedules/preview", json={"cron": cron})).status_code == 200, cron
    for cron in REFUSED:
        answer = await api.post("/schedules/preview", json={"cron": cron})
        assert [answer.status_code, answer.json()["errors"][0]["pointer"]] == [422, "/cron"], cron
