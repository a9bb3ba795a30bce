"""What `moorage storage check` shows: each thing that storage needs, and whether it is well.

The schema is not among what can fail here: a request that reaches this has passed the preflight, which refuses another
schema, a missing table and a newer record format before anything else is done.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from moorage.store import schema
from moorage.store.ports import Database
from moorage.store.recovery import PROFILE, Found
from moorage.store.transaction import Reading

# Rows of the tables that hold what is under way. They are counted, which is for an operator and for no hot path.
_ROWS = """
SELECT (SELECT count(*) FROM executions) AS executions,
    (SELECT count(*) FROM guards) AS guards,
    (SELECT count(*) FROM holders WHERE exited_at IS NULL) AS holders,
    (SELECT count(*) FROM records WHERE state = 'claimed') AS claimed_records,
    (SELECT count(*) FROM due_failures) AS due_failures,
    (SELECT coalesce(max(position), 0) FROM history) AS history,
    (SELECT coalesce(max(position), 0) FROM seals) AS sealed
"""

# Guards protect what they name in guard_rows: one without a row would protect nothing, and a row without one would never
# be freed.
_TORN_GUARDS = """
SELECT (SELECT count(*) FROM guards AS g WHERE NOT EXISTS (SELECT 1 FROM guard_rows AS r WHERE r.token = g.token)) +
    (SELECT count(*) FROM guard_rows AS r WHERE NOT EXISTS (SELECT 1 FROM guards AS g WHERE g.token = r.token)) AS torn
"""

TORN: Final = "torn_guards"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


async def rows(db: Database) -> dict[str, int]:
    """How many rows there are of what is under way, and of guards that lost what they protect. One round trip."""
    reading = Reading()
    counted = reading.ask(_ROWS)
    torn = reading.ask(_TORN_GUARDS)
    await db.read(reading)
    return {**{name: int(value) for name, value in counted.one().items()}, TORN: int(torn.one()["torn"])}


def findings(found: Found | None, counted: dict[str, int], profile: str, missing: Sequence[str]) -> list[Finding]:
    """What to show, in order; `found` is None without a bucket."""
    known = profile == PROFILE
    absent = f"missing: {', '.join(missing)}; bind them in wrangler.toml" if missing else "all there"
    no_bucket = "there is no bucket to be bound to"
    return [
        Finding("profile", known, profile if known else f"{profile}; this executable knows {PROFILE}"),
        Finding("bindings", not missing, absent),
        Finding("schema", True, f"{schema.SCHEMA}, record format {schema.RECORD_FORMAT}"),
        Finding("tables", True, f"all {len(schema.TABLES)}"),
        Finding("recovery identity", found is not None and found.is_bound, no_bucket if found is None else found.detail),
        Finding("guards", not counted[TORN], _guards(counted)),
    ]


def _guards(counted: dict[str, int]) -> str:
    if counted[TORN]:
        return f"{counted[TORN]} guards and protected rows do not belong to each other: restore a backup"
    held = counted["guards"]
    return f"{held} held; `moorage storage guard` lists them" if held else "none held"
