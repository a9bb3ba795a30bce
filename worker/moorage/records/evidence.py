# ruff: noqa: S608 - statements are put together from constants only
"""Comparing records with what history says of them (clause history.seal).

An entry of a publication holds the digest of the record's body, and so does that of a replacement. A record that retention
has removed is not compared: its entry stands, and the chain needs nothing else.
"""

from dataclasses import dataclass
from typing import Final

from moorage.history.seals import LAST_POSITION
from moorage.history.verify import Broken
from moorage.kernel import canonical
from moorage.kernel.limits import VERIFY_CONTENT_BYTES
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row

_TOGETHER_BYTES: Final = 2 * 1024 * 1024
"""Bodies that are in memory at once; a larger one is alone."""

# What history says of the body of the record r: as it was published, or as it was last replaced while it waited.
_TOLD = """
CASE WHEN r.debounce_key IS NULL THEN h.content_sha256 ELSE coalesce(
    (SELECT d.content_sha256 FROM history AS d
        WHERE d.subject = r.id AND d.type <> 'record.published' AND d.type = 'record.debounced'
        ORDER BY d.revision DESC LIMIT 1),
    h.content_sha256
) END AS content_sha256
""".strip()

# The records whose publications stand in a stretch of positions, with the size of each body.
PUBLISHED = f"""
SELECT h.position, {_TOLD}, r.body_sha256, length(CAST(r.body AS BLOB)) AS bytes
FROM history AS h JOIN records AS r ON r.id = h.subject
WHERE h.position > :after AND h.position <= :until AND h.type = 'record.published' ORDER BY h.position
"""

# The bodies of records, by the positions of their publications.
BODIES = f"""
SELECT h.position, {_TOLD}, r.body FROM json_each(:positions) AS wanted
JOIN history AS h ON h.position = wanted.value JOIN records AS r ON r.id = h.subject ORDER BY h.position
"""


@dataclass(frozen=True, slots=True)
class Published:
    """The publications after a position, as many as can be compared at once: up to the position `until`."""

    rows: list[Row]
    until: int


async def published(db: Database, after: int, limit: int) -> Published:
    """The publications among `limit` positions, or among fewer when their bodies pass VERIFY_CONTENT_BYTES."""
    until = min(after + limit, LAST_POSITION)
    reading = Reading()
    found = reading.ask(PUBLISHED, after=after, until=until)
    await db.read(reading)
    size = 0
    for index, row in enumerate(found.rows):
        size += row["bytes"]
        if index and size > VERIFY_CONTENT_BYTES:
            return Published(found.rows[:index], row["position"] - 1)
    return Published(found.rows, until)


async def compare(db: Database, publications: Published) -> Broken | None:
    """The first record whose body, or whose digest in its own row, is not the one that its entry tells of."""
    for row in publications.rows:
        if row["body_sha256"] != row["content_sha256"]:
            until = row["position"]
            break
    else:
        until = None
    for together in _groups(publications.rows, until):
        reading = Reading()
        bodies = reading.ask(BODIES, positions=canonical.compact(together))
        await db.read(reading)
        for row in bodies.rows:
            if canonical.digest(row["body"]) != row["content_sha256"]:
                return Broken(row["position"], "the record's body is not the one that was published")
    return None if until is None else Broken(until, "the record's digest is not the one that was published")


def _groups(rows: list[Row], until: int | None) -> list[list[int]]:
    """The positions before `until`, in groups whose bodies are together small."""
    groups: list[list[int]] = []
    size = 0
    for row in rows:
        if row["position"] == until:
            break
        size += row["bytes"]
        if not groups or size > _TOGETHER_BYTES:
            groups.append([])
            size = row["bytes"]
        groups[-1].append(row["position"])
    return groups
