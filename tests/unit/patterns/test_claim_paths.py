"""A claim reads the right index, the same answer comes by every path, and a selective pattern costs few rows."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from moorage.records import patterns
from moorage.records.patterns import access
from tests.unit.patterns.conftest import SLOTS, Shelf

BACKLOG = 20_000
MANY = [f"t{number}" for number in range(access.MERGED + 1)]


@pytest.fixture(scope="module")
def backlog() -> Iterator[Shelf]:
    shelf = Shelf({"type": "string", "size": "number", "live": "boolean", "tenant": "string", "tags": "string[]"})
    chance = random.Random(7)
    bodies = [
        {
            "type": "pdf" if number % 2 else "doc",
            "size": (number * 7919) % BACKLOG,
            "live": number % 2 == 0,
            "tenant": f"t{number % 2_000}",
            "tags": [f"g{number % 1_000}"],
        }
        for number in range(BACKLOG)
    ]
    yield shelf.fill(bodies, [chance.choice([0, 0, 0, 5]) for _ in bodies])
    shelf.close()


def plan(shelf: Shelf, match: Any) -> list[str]:
    compiled = patterns.compile(shelf.parse(match))
    statement = patterns.claim_candidates(compiled)
    rows = shelf.database.execute(f"EXPLAIN QUERY PLAN {statement}", {"kind": "k", "limit": 1, **compiled.parameters})
    return [detail for *_, detail in rows]


def steps(shelf: Shelf, match: Any, limit: int = 1) -> int:
    """Virtual machine steps of a claim, in hundreds: a machine-independent bound of what it reads."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    shelf.database.set_progress_handler(tick, 100)
    try:
        shelf.claimable(match, limit)
    finally:
        shelf.database.set_progress_handler(None, 0)
    return count


@pytest.mark.clause("records.claim")
@pytest.mark.parametrize(
    ("match", "indexes"),
    [
        ({}, ["records_ready (kind=?)"]),
        ({"tenant": "t7"}, ["records_by_s4 (kind=? AND s4=?)"]),
        ({"tenant": {"$in": ["t7"]}}, ["records_by_s4 (kind=? AND s4=?)"]),
        ({"$and": [{"tenant": "t7"}]}, ["records_by_s4 (kind=? AND s4=?)"]),
        ({"live": None}, ["records_by_s3 (kind=? AND s3=?)"]),
        ({"tags": ["g1"]}, ["records_by_s5 (kind=? AND s5=?)"]),
        ({"size": {"$gt": 5}}, ["records_by_s2 (kind=? AND s2", "records_ready (kind=?)"]),
        ({"size": {"$lt": 5}}, ["records_by_s2 (kind=? AND s2", "records_ready (kind=?)"]),
        ({"tenant": {"$lt": "t2"}}, ["records_by_s4 (kind=? AND s4", "records_ready (kind=?)"]),
        ({"tenant": {"$in": ["t1", "t2"]}}, []),
        ({"tenant": {"$in": MANY}}, ["records_by_s4 (kind=? AND s4=?)", "records_ready (kind=?)"]),
        ({"live": True, "type": "pdf"}, ["records_by_s1 (kind=? AND s1=?)", "records_by_s3 (kind=? AND s3=?)"]),
        ({"$or": [{"type": "pdf"}, {"type": "doc"}]}, []),
        ({"$or": [{"type": "pdf"}, {"live": True}]}, ["records_ready (kind=?)"]),
        ({"type": {"$ne": "pdf"}}, ["records_ready (kind=?)"]),
        ({"$nor": [{"type": "pdf"}]}, ["records_ready (kind=?)"]),
    ],
)
def test_a_claim_seeks_in_the_indexes_that_its_pattern_offers(
    backlog: Shelf, match: dict[str, Any], indexes: list[str]
) -> None:
    """A short list is merged: no index is walked, each row is sought by its id."""
    sought = [line.split("INDEX ")[1] for line in plan(backlog, match) if line.startswith("SEARCH r USING INDEX")]
    sought += [line.split("INDEX ")[1] for line in plan(backlog, match) if line.startswith("SEARCH r USING COVERING INDEX")]
    found = list(dict.fromkeys(sought))
    assert len(found) == len(indexes)
    assert all(index.startswith(expected) for index, expected in zip(found, indexes, strict=True))
    assert not [line for line in plan(backlog, match) if line.startswith("SCAN r")]


@pytest.mark.clause("records.claim")
@pytest.mark.parametrize(
    "match",
    [
        {"tenant": "t77"},
        {"tenant": "nobody"},
        {"type": "pdf", "tenant": "t77"},
        {"type": "pdf", "tenant": "nobody"},
        {"type": "exe", "tenant": "t77"},
        {"live": False, "tenant": "nobody", "size": {"$gt": 5}},
        {"size": {"$gt": BACKLOG - 3}},
        {"size": {"$gt": BACKLOG}},
        {"size": {"$gt": 3}},
        {"tenant": {"$in": ["nobody", "noone"]}},
        {"type": "pdf", "size": {"$gt": BACKLOG}},
        {"type": {"$in": ["pdf", "exe"]}},
        {"tenant": {"$in": ["t1998", "t1999", "nobody"]}},
        {"$or": [{"tenant": "t1998"}, {"tenant": {"$in": ["t1999"]}}]},
        {"type": {"$in": ["pdf", "doc"]}, "size": {"$gt": BACKLOG - 3}},
        {"type": {"$in": ["pdf", "doc"]}, "tenant": "nobody"},
    ],
)
def test_a_selective_pattern_costs_the_same_whatever_the_backlog(backlog: Shelf, match: dict[str, Any]) -> None:
    assert steps(backlog, match) <= 30
    assert steps(backlog, {"type": "pdf", "live": True}) > 1_000, "the yardstick shows a claim that reads the backlog"


MATCHES: list[dict[str, Any]] = [
    {"type": "pdf", "tenant": "t77"},
    {"type": "pdf", "live": False},
    {"type": "pdf", "live": True},
    {"type": "pdf", "size": {"$gt": 100, "$lte": 900}},
    {"size": {"$lt": 40}},
    {"size": {"$gte": 19_000}, "tags": {"$any": ["g3", "g5"]}},
    {"tenant": {"$in": ["t5", "t6", "t7"]}, "size": {"$gt": 500}},
    {"type": "doc", "tenant": {"$gte": "t1", "$lt": "t2"}, "live": True},
    {"tenant": {"$gt": "t19", "$gte": "t1998"}},
    {"tenant": {"$in": ["t5", "t1999", "t5", "nobody"]}},
    {"type": {"$in": ["doc", "pdf", None]}},
    {"$or": [{"tenant": "t3"}, {"tenant": {"$in": ["t4", "t3"]}}], "live": False},
    {"type": {"$in": ["doc", "pdf"]}, "size": {"$in": [5, 7, 19_000, 3.0]}},
    {"tenant": {"$in": MANY}},
    {"$or": [{"tenant": "t3"}, {"type": "doc", "size": 4}]},
]


@pytest.mark.clause("records.claim", "records.pattern-one-meaning")
@pytest.mark.parametrize("looks", [(0,), (3,), (3, 50), (3, 50, 1000), (0, 100_000)])
@pytest.mark.parametrize("match", MATCHES)
def test_every_path_gives_the_first_matches_in_claim_order(
    backlog: Shelf, match: dict[str, Any], looks: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LOOKS", looks)
    priorities = dict(backlog.database.execute("SELECT seq, priority FROM records"))
    order = sorted(backlog.evaluated(match), key=lambda seq: (-priorities[seq], seq))
    for limit in (1, 7, 100):
        assert backlog.claimable(match, limit) == order[:limit]


@pytest.mark.clause("records.claim")
def test_only_claimable_records_of_the_kind_are_candidates() -> None:
    shelf = Shelf({"a": "number"}).fill([{"a": 1}] * 4)
    shelf.database.execute("UPDATE records SET kind = 'other' WHERE seq = 0")
    shelf.database.execute("UPDATE records SET available = 0, not_before = 1 WHERE seq = 1")
    for match in ({}, {"a": 1}, {"a": {"$gt": 0}}, {"a": {"$in": [1, 2]}}):
        assert shelf.claimable(match, 10) == [2, 3]
    shelf.close()


def test_every_slot_has_the_index_that_a_claim_names() -> None:
    shelf = Shelf({f"p{number}": "any" for number in range(16)})
    names = {name for (name,) in shelf.database.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    assert {"records_ready", *(f"records_by_{slot}" for slot in SLOTS)} <= names
    for number in range(16):
        shelf.fill([{f"p{number}": number}])
        assert shelf.claimable({f"p{number}": number}, 1) == [0]
    shelf.close()
