"""A hundred thousand timers over an hour of driven clock, on the host."""

from collections import Counter
from pathlib import Path

import pytest

from moorage.kernel.instants import Instant
from moorage.timers import clock
from moorage.timers.fire import Timers
from tests.contract.adapters import SqliteStore, schema_statements

NUMBER = 100_000
HOUR = 3_600_000
START = Instant(1_800_000_000_000)
STEP = 1000
"""How often the driven Clock looks. A timer is late by what is left of its second, and by nothing else."""

_ENTRIES = """
INSERT INTO history (position, subject, revision, type, kind, actor, at, data, content_sha256)
WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
SELECT n, printf('timer:t%06d', n), 1, 'timer.set', NULL, 'root', ?2, '{}', NULL FROM n
"""
# A multiplication that is prime to an hour scatters them: many at some instants, none at others.
_TIMERS = """
INSERT INTO timers (id, revision, fire_at, source, type, delivery_id, created_by, created_at, updated_at)
SELECT substr(h.subject, 7), 1, ?2 + 1 + (h.position * 7919 * 31) % 3600000, '/timers', 'ping', h.subject, 'root', ?2, ?2
FROM history AS h
"""


@pytest.fixture
async def store(tmp_path: Path) -> SqliteStore:
    made = SqliteStore(tmp_path)
    await made.db().initialize(schema_statements())
    made.connection.execute(_ENTRIES, (NUMBER, START))
    made.connection.execute(_TIMERS, (NUMBER, START))
    return made


@pytest.mark.clause("timers.fire", "timers.late", "timers.alarm")
async def test_a_hundred_thousand_timers_fire_once_each_and_none_early(store: SqliteStore) -> None:
    fired = 0
    for now in range(START, START + HOUR + 1, STEP):
        drained = await clock.drain(store.db, Instant(now), [Timers()], budget=10_000)
        assert not drained.failed
        fired += drained.fired.get("timer_fired", 0)
    assert fired == NUMBER
    rows = store.connection.execute(
        "SELECT delivery_id, accepted_at, CAST(strftime('%s', envelope ->> 'time') AS INTEGER) * 1000 + "
        "CAST(substr(envelope ->> 'time', 21, 3) AS INTEGER) AS due FROM events"
    ).fetchall()
    assert Counter(row["delivery_id"] for row in rows) == Counter(f"timer:t{n:06d}" for n in range(1, NUMBER + 1))
    lateness = sorted(row["accepted_at"] - row["due"] for row in rows)
    assert lateness[0] >= 0
    assert lateness[-1] < STEP
    marks = {f"p{share:g}": lateness[min(NUMBER - 1, int(NUMBER * share / 100))] for share in (0, 50, 90, 99, 99.9, 100)}
    print(f"lateness of {NUMBER} timers in ms: {marks}")
    assert store.connection.execute("SELECT count(*) AS n FROM timers").fetchone()["n"] == 0
