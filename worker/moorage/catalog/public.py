"""Public credentials: tokens that a web page may hold, and so everybody who looks at it (clause catalog.credentials).

Such a credential publishes records of the kinds it names, or resolves awakeables whose token a page was given, and does
nothing else: it reads nothing, not even what it published. It may be bound to web origins, which keeps other people's pages
out, and to a rate of its own, which all who hold the token share. Neither keeps out a program that writes its own Origin
header: whoever takes in what comes this way treats it as a stranger's.
"""

import re
from typing import Any, Final

from moorage.catalog import statements
from moorage.catalog.access import Action, Grant, Rate
from moorage.catalog.model import CredentialDeclaration
from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.kernel.refusals import refused
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction

EVERY_ORIGIN: Final = "*"
"""How a public credential without origins stands among the origins."""

_ORIGIN = re.compile(r"https?://(?:[a-z0-9](?:[a-z0-9.-]{0,252})|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?")


def check(declaration: CredentialDeclaration, grants: tuple[Grant, ...]) -> None:
    """Raise RequestInvalid unless what is declared of a public credential is said of one, and asks for no more than one
    may have."""
    if not declaration.public:
        for name in ("origins", "rate"):
            if getattr(declaration, name) is not None:
                raise refused(f"/{name}", "is for public credentials")
        return
    for number, grant in enumerate(grants):
        if grant.actions not in ({"publish"}, {"resume"}):
            raise refused(f"/grants/{number}/actions", "must be publish alone or resume alone")
        if grant.actions == {"resume"}:
            _check_resume(grant, number)
        elif not grant.kinds or any(name.endswith("*") or name.startswith("_") for name in grant.kinds):
            raise refused(f"/grants/{number}/kinds", "must name the kinds one by one")
    for number, origin in enumerate(declaration.origins or ()):
        if _ORIGIN.fullmatch(origin) is None:
            raise refused(f"/origins/{number}", "must be an origin as browsers send it, such as https://app.example.com")


def _check_resume(grant: Grant, number: int) -> None:
    """The token is what tells which awakeable: a kind or a pattern would narrow nothing, and is not taken for a bound."""
    for name, value in (("kinds", grant.kinds), ("match", grant.match)):
        if value:
            raise refused(f"/grants/{number}/{name}", "does not go with resume: an awakeable is of no kind")


def rate_of(declaration: CredentialDeclaration) -> Rate | None:
    """The rate that is declared."""
    return None if declaration.rate is None else Rate(declaration.rate.per_second, declaration.rate.burst)


def rate_data(rate: Rate | None) -> dict[str, Any] | None:
    """The rate as JSON."""
    return None if rate is None else {"per_second": rate.per_second, "burst": rate.burst}


def admit_origins(tx: Transaction, credential: str, origins: tuple[str, ...]) -> None:
    """Let pages of these origins, or of every one, ask whether they may publish."""
    listed = canonical.compact(list(origins) or [EVERY_ORIGIN])
    tx.run(statements.ADMIT_ORIGINS, credential=credential, origins=listed)


async def is_admitted(db: Database, now: Instant, origin: str, action: Action) -> bool:
    """Whether some public credential that is alive may be used for `action` by pages of this origin."""
    reading = Reading()
    found = reading.ask(statements.ORIGIN_IS_ADMITTED, origin=origin, action=action, now=now)
    await db.read(reading)
    return bool(found.rows)
