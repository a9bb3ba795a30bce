"""Watch what happens, across every break of the connection (clause history.watch)."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from moorage.client.models import Change
from moorage.client.streams import messages
from moorage.client.wire import Wire
from moorage.kernel import canonical


async def watch(
    wire: Wire, kind: str, match: Mapping[str, Any] | None = None, *, after: int | None = None
) -> AsyncGenerator[Change, None]:
    """What happens to a kind's records that match, in the order of the commits, each once.

    It begins past the position `after`, 0 being the start of history, or with what happens from now on. A broken connection
    is opened again and goes on where it broke. Raises Problem when the watch is refused or ended for good, and Unanswered
    when the deployment cannot be reached for as long as the wire is patient.
    """
    query = {
        "kind": kind,
        "match": canonical.compact(dict(match)) if match else None,
        "after": "now" if after is None else after,
    }
    async with aclosing(messages(wire, "/watch", query)) as found:
        async for change in found:
            yield Change.model_validate(change)
