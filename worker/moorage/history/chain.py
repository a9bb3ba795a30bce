"""The chain of links over history (clause history.seal); `docs/history.md` describes it for those who verify it elsewhere.

Nothing here reads or writes; equal rows give equal links for ever.
"""

import json
from typing import Any, Final

from moorage.kernel import canonical
from moorage.kernel.instants import EARLIEST, LATEST, Instant, render
from moorage.store.transaction import Row

FORMAT: Final = "moorage-history-1"
"""Names what is hashed. Another text or another order of members is another format."""

LINK_CHARACTERS: Final = 64


GENESIS: Final = canonical.digest(f"{FORMAT}\n")
"""The link before the first entry."""


def text(row: Row) -> str:
    """An entry as the line of JSON that is hashed. `row` has the columns of the table.

    `data` stands in it byte for byte as it is stored, so that no edit goes unseen. Whatever a row holds has a text: what
    was edited out of all bounds must still be told from what was sealed.
    """
    members = {
        "position": json.dumps(row["position"]),
        "subject": _string(row["subject"]),
        "revision": json.dumps(row["revision"]),
        "type": _string(row["type"]),
        "kind": _string(row["kind"]),
        "actor": _string(row["actor"]),
        "at": _instant(row["at"]),
        "data": row["data"],
        "content_sha256": _string(row["content_sha256"]),
    }
    return "{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}"


def link(previous: str, entry: str) -> str:
    """The link of an entry: SHA-256 over two lines, the link before it and the entry's text."""
    return canonical.digest(f"{previous}\n{entry}\n")


def seal(position: int, sealed_at: int, last: str) -> str:
    """What binds a row of `seals` to its instant: SHA-256 over three lines."""
    return canonical.digest(f"{position}\n{sealed_at}\n{last}\n")


def _string(value: str | None) -> str:
    """As RFC 8785 writes it: no character escaped that need not be."""
    return json.dumps(value, ensure_ascii=False)


def _instant(value: Any) -> str:
    if isinstance(value, int) and EARLIEST <= value <= LATEST:
        return json.dumps(render(Instant(value)))
    return json.dumps(value)
