"""Planning against declarations that may change meanwhile: the transaction commits only if they did not."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moorage.kernel import canonical
from moorage.store.transaction import Transaction

if TYPE_CHECKING:
    from moorage.catalog.kinds import Kind

REPLANS = 3
"""How often an operation plans anew when a kind is redeclared between its reading and its commit."""

# Every kind that was planned with still has the revision it was planned with.
_KINDS_ARE_CURRENT = """
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:revisions) AS planned LEFT JOIN kinds ON kinds.name = planned.key
    WHERE kinds.revision IS NOT planned.value
)
"""


class KindChanged(Exception):
    """A kind was redeclared since it was read: read it again and plan anew. It never leaves the house."""


# The one kind that was planned with, for most plans.
_KIND_IS_CURRENT = "SELECT 1 FROM kinds WHERE name = :name AND revision = :revision"


def guard_kinds(tx: Transaction, kinds: Iterable["Kind"]) -> None:
    """Abort with KindChanged unless each of these kinds is still what the plan was made with."""
    revisions = {kind.name: kind.revision for kind in kinds}
    if len(revisions) == 1:
        ((name, revision),) = revisions.items()
        tx.require(_KIND_IS_CURRENT, KindChanged(), name=name, revision=revision)
    elif revisions:
        tx.require(_KINDS_ARE_CURRENT, KindChanged(), revisions=canonical.dumps(revisions))
