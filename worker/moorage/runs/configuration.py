"""The configuration that an execution is opened with: that of its scope in the catalog (clause catalog.scopes).

A run's scope names its place in the catalog by its first segment: a run of `acme/orders/17` has the configuration of the
scope `acme`, laid over those of its parents, member by member. References to secrets stay references.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.kernel.limits import KIND_CACHE_SECONDS
from moorage.runs import scopes
from moorage.store.ports import Database
from moorage.store.transaction import Reading

_CACHED: Final = 1000

# The configurations of a scope and of those above it, the uppermost first.
_CONFIGS: Final = """
WITH RECURSIVE above (id, parent, config, depth) AS (
    SELECT id, parent, config, 0 FROM scopes WHERE id = :scope
    UNION ALL
    SELECT s.id, s.parent, s.config, a.depth + 1 FROM above AS a JOIN scopes AS s ON s.id = a.parent
)
SELECT config FROM above ORDER BY depth DESC
"""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration as it stood at an opening. `revision` is the beginning of its digest; None where there is none."""

    values: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None


class Configurations:
    """What one isolate has read, for KIND_CACHE_SECONDS at most."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Instant, Configuration]] = {}

    async def of(self, db: Database, now: Instant, scope: str | None) -> Configuration:
        """The configuration of a run's scope; none for one that nobody named. One round trip, or none."""
        if scope is None or scopes.is_derived(scope):
            return Configuration()
        place = scope.partition("/")[0]
        at, known = self._known.get(place, (None, None))
        if at is not None and known is not None and 0 <= now - at < int(KIND_CACHE_SECONDS) * 1000:
            return known
        reading = Reading()
        rows = reading.ask(_CONFIGS, scope=place)
        await db.read(reading)
        values: dict[str, Any] = {}
        for row in rows.rows:
            values |= canonical.stored(row["config"])
        found = Configuration(values, canonical.digest(canonical.dumps(values))[:16]) if rows.rows else Configuration()
        if len(self._known) >= _CACHED:
            self._known.clear()
        self._known[place] = (now, found)
        return found
