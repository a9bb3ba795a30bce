# ruff: noqa: S608 - SQL made of constants, a slot's column and `compile`'s text, which holds no operand
"""How a claim keeps to a kind's `concurrency`, and skips what it may not take without reading the whole backlog.

Records that share a value at the limited path are in one *lane*. A claim notes the lane of each record that it takes, so
`records_in_lanes` tells how many of a lane are claimed; the claim's own transaction counts them, and no race can pass the
limit. Three looks find candidates, each taken only when the one before found nothing and did not see all there was:

    near   the first records that match, in claim order: a few more than are asked for
    wide   the first WIDE that match
    far    the values of the path one after the other, at most LANES of them, and the first HEAD records of each open lane

So a claim reads a bounded number of rows, and takes in claim order among what a look found. Beyond the bounds it may find
nothing although something could be claimed: a record behind WIDE others that match when it has no value at the path,
when more than LANES values are there, or when its lane begins with HEAD records that do not match.
"""

import re
from typing import Final

from moorage.kernel.limits import SQL_BYTES
from moorage.records.patterns import Compiled, claim_candidates

WIDE: Final = 1000
LANES: Final = 500
HEAD: Final = 20
_MORE: Final = 16
_LIMIT = re.compile(r":limit\b")
_ROOM: Final = int(SQL_BYTES) - 10_000

_ORDER: Final = "ORDER BY priority DESC, seq"


def candidates(compiled: Compiled, slot: int, limit: str = ":limit") -> str:
    """A SELECT of `id` of records to claim, at most `limit` (SQL) and no more of a lane than `:lane_limit` lets.

    Needs `:kind`, `:limit`, `:lane_limit` and the pattern's parameter.
    """
    found = claim_candidates(compiled)
    twice = 2 * len(found) + 2 * len(compiled.where) < _ROOM
    first = f"({limit} + {_MORE})" if twice else f"({limit} + {WIDE})"
    near = _LIMIT.sub(first, found)
    wide = (
        _LIMIT.sub(f"(CASE WHEN {_seek_wider(limit, first)} THEN {WIDE} ELSE 0 END)", found)
        if twice
        else "SELECT NULL AS id"
    )
    last, bound = ("wide", str(WIDE)) if twice else ("near", first)
    nothing_open = "NOT EXISTS (SELECT 1 FROM near_open UNION ALL SELECT 1 FROM wide_open)"
    seek_far = f"{nothing_open} AND (SELECT count(*) FROM {last}) >= {bound}"
    return f"""
WITH RECURSIVE
near AS MATERIALIZED ({_rows(near, slot)}),
near_open AS MATERIALIZED ({_open("near", limit)}),
wide AS MATERIALIZED ({_rows(wide, slot)}),
wide_open AS MATERIALIZED ({_open("wide", limit)}),
lanes (lane, number) AS (
    SELECT {_next_lane(slot)}, 1 WHERE {limit} > 0 AND {seek_far}
    UNION ALL
    SELECT {_next_lane(slot, "lanes.lane")}, number + 1 FROM lanes WHERE lane IS NOT NULL AND number < {LANES}
),
open_lanes AS MATERIALIZED (SELECT lane FROM lanes WHERE lane IS NOT NULL AND {_claimed("lanes.lane")} < :lane_limit),
far AS MATERIALIZED (
    SELECT r.id, r.seq, r.priority, r.s{slot} AS lane FROM open_lanes CROSS JOIN records AS r
    WHERE r.id IN ({_head(slot)}) AND ({compiled.where})
)
SELECT id FROM near_open UNION ALL SELECT id FROM wide_open UNION ALL SELECT id FROM ({_open("far", limit)})
"""


def _rows(found: str, slot: int) -> str:
    return f"SELECT r.id, r.seq, r.priority, r.s{slot} AS lane FROM records AS r WHERE r.id IN ({found})"


def _open(source: str, limit: str) -> str:
    """Those that the limit of their lane lets be claimed, with those before them."""
    return f"""
SELECT id FROM (
    SELECT id, seq, priority, lane, row_number() OVER (PARTITION BY lane {_ORDER}) AS place FROM {source}
) AS ranked
WHERE lane IS NULL OR place + {_claimed("ranked.lane")} <= :lane_limit {_ORDER} LIMIT CAST({limit} AS INTEGER)"""


def _claimed(lane: str) -> str:
    return f"""(SELECT count(*) FROM records AS held INDEXED BY records_in_lanes
        WHERE held.kind = :kind AND held.state = 'claimed' AND held.lane IS NOT NULL AND held.lane = {lane})"""


def _seek_wider(limit: str, first: str) -> str:
    return f"{limit} > 0 AND NOT EXISTS (SELECT 1 FROM near_open) AND (SELECT count(*) FROM near) >= {first}"


def _next_lane(slot: int, after: str | None = None) -> str:
    further = "" if after is None else f" AND r.s{slot} > {after}"
    return f"""(SELECT r.s{slot} FROM records AS r INDEXED BY records_by_s{slot}
        WHERE r.kind = :kind AND r.available = 1 AND r.s{slot} IS NOT NULL{further} ORDER BY r.s{slot} LIMIT 1)"""


def _head(slot: int) -> str:
    return f"""SELECT head.id FROM records AS head INDEXED BY records_by_s{slot}
        WHERE head.kind = :kind AND head.available = 1 AND head.s{slot} IS NOT NULL AND head.s{slot} = open_lanes.lane
        ORDER BY head.priority DESC, head.seq LIMIT {HEAD}"""
