# ruff: noqa: S608 - SQL made of constants, a slot's column and `compile`'s text, which holds no operand
"""How a claim keeps to a kind's `concurrency`, and skips what it may not take without reading the whole backlog.

Records that share a value at the limited path are in one *lane*. A claim notes the lane of each record that it takes, so
`records_in_lanes` tells how many of a lane are claimed; the claim's own transaction counts them, and no race can pass the
limit. A claim looks up to four times, each time in a statement of its own, which finds nothing once something was taken:

    near   the first records that match, in claim order: a few more than are asked for
    far    every value of the path, unless there are LANES or more, and the first HEAD records of each lane that is open
    wide   the first WIDE records that match
    some   the first LANES values of the path, as in the far look

So a claim reads a bounded number of rows, and takes in claim order among what a look found. Beyond the bounds it may find
nothing although something could be claimed: a record that has no value at the path, or whose lane is not among the first
LANES or begins with HEAD records that do not match, while the first WIDE that match are all in lanes that are full.

Four statements and not one, because SQLite plans a nested WITH again for each mention: one statement took a second to plan.
"""

import re
from typing import Final

from moorage.records.patterns import Compiled, claim_candidates
from moorage.records.statements import TAKEN

WIDE: Final = 250
LANES: Final = 100
HEAD: Final = 20
_MORE: Final = 16
_LONGEST_CONDITION: Final = 2_000
"""Characters of a condition that is sought by several indexes; a longer one nests too deep here for the parser."""

_LIMIT = re.compile(r":limit\b")

_ORDER: Final = "ORDER BY priority DESC, seq"
_NOTHING_YET: Final = f"NOT EXISTS ({TAKEN})"


def looks(compiled: Compiled, slot: int, limit: str = ":limit") -> list[str]:
    """SELECTs of `id` of records to claim, to be used one after the other, each for a statement of its own.

    None gives more than `limit` (SQL), nor more of a lane than `:lane_limit` lets. Needs what `claim_candidates` needs,
    `:lane_limit`, and `:claim` and `:expires_at` of the claim.
    """
    found = claim_candidates(compiled, _LONGEST_CONDITION)
    near = _LIMIT.sub(f"({limit} + {_MORE})", found)
    wide = _LIMIT.sub(f"(CASE WHEN {limit} > 0 AND {_NOTHING_YET} THEN {WIDE} ELSE 0 END)", found)
    wanted = f"{limit} > 0 AND {_NOTHING_YET} AND (SELECT count(*) FROM found) >= {limit} + {_MORE}"
    every, some = (_far(compiled, slot, near, wanted, few) for few in (f"< {LANES}", f"<= {LANES}"))
    return [_open(one, limit) for one in (_of(near, slot), every, _of(wide, slot), some)]


def _of(found: str, slot: int) -> str:
    """The CTE `source` of the records that are found."""
    return f"""found AS ({found}),
source AS (SELECT r.id, r.seq, r.priority, r.s{slot} AS lane FROM found CROSS JOIN records AS r ON r.id = found.id)"""


def _far(compiled: Compiled, slot: int, near: str, wanted: str, few: str) -> str:
    """The CTE `source` of a look by lanes, when it is `wanted` and the number of lanes is `few`."""
    return f"""found AS ({near}),
lanes (lane, number) AS MATERIALIZED (
    SELECT {_next_lane(slot)}, 1 WHERE {wanted}
    UNION ALL
    SELECT {_next_lane(slot, "lanes.lane")}, number + 1 FROM lanes WHERE lane IS NOT NULL AND number < {LANES}
),
source AS (
    SELECT r.id, r.seq, r.priority, r.s{slot} AS lane FROM lanes CROSS JOIN records AS r
    WHERE (SELECT count(lane) FROM lanes) {few} AND lanes.lane IS NOT NULL AND {_claimed("lanes.lane")} < :lane_limit
        AND r.id IN ({_head(slot)}) AND ({compiled.where})
)"""


def _open(source: str, limit: str) -> str:
    """Those of `source` that the limit of their lane lets be claimed, with those before them."""
    return f"""
WITH RECURSIVE {source},
ranked AS (SELECT id, seq, priority, lane, row_number() OVER (PARTITION BY lane {_ORDER}) AS place FROM source)
SELECT id FROM ranked
WHERE lane IS NULL OR (place <= :lane_limit AND place + {_claimed("ranked.lane")} <= :lane_limit)
{_ORDER} LIMIT CAST({limit} AS INTEGER)"""


def _claimed(lane: str) -> str:
    return f"""(SELECT count(*) FROM records AS held INDEXED BY records_in_lanes
        WHERE held.kind = :kind AND held.state = 'claimed' AND held.lane IS NOT NULL AND held.lane = {lane})"""


def _next_lane(slot: int, after: str | None = None) -> str:
    further = "" if after is None else f" AND r.s{slot} > {after}"
    return f"""(SELECT r.s{slot} FROM records AS r INDEXED BY records_by_s{slot}
        WHERE r.kind = :kind AND r.available = 1 AND r.s{slot} IS NOT NULL{further} ORDER BY r.s{slot} LIMIT 1)"""


def _head(slot: int) -> str:
    return f"""SELECT head.id FROM records AS head INDEXED BY records_by_s{slot}
        WHERE head.kind = :kind AND head.available = 1 AND head.s{slot} IS NOT NULL AND head.s{slot} = lanes.lane
        ORDER BY head.priority DESC, head.seq LIMIT {HEAD}"""
