"""`moorage clock`: what failed when it fell due, and trying it again."""

from typing import Annotated

import typer

from moorage.client import Moorage
from moorage.client.clock import Failure
from moorage.kernel.limits import CLOCK_RETRY_BATCH
from ops import remote

app = remote.group("Look at what failed when it fell due, and have it tried again.")

_Work = Annotated[str | None, typer.Option(help="Only those of this class, as lease_expired.")]


@app.command()
def failures(
    work: _Work = None,
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List what failed when the Clock fired it, by class and item, and when it is tried again.

    Example: moorage clock failures --work outbox_fan_out
    """

    async def ask(moorage: Moorage) -> tuple[list[Failure], bool]:
        return await remote.first(moorage.clock.iterate(work), limit, everything)

    found, more = remote.call(url, token, ask)
    remote.print_list(
        found,
        more,
        as_json,
        ("work", "item", "tries", "error", "again at"),
        lambda one: (one.work, one.item, one.attempts, one.error, one.wire()["retry_at"]),
        numbers=("tries",),
    )


@app.command()
def retry(
    work: _Work = None,
    item: Annotated[str | None, typer.Option(help="With --work: only this item.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Have what failed tried at once, where its cause is mended: everything, a class, or one item.

    Example: moorage clock retry --work timer_fired --item reminder-7@3
    """
    if item is not None and work is None:
        raise typer.BadParameter("--item takes the --work of which it is one")

    async def some(moorage: Moorage) -> int:
        done = 0
        while True:
            retried = await moorage.clock.retry(work, item)
            done += retried
            # What fails anew meanwhile may be found again: an answer that is not full ends it.
            if retried < CLOCK_RETRY_BATCH:
                return done

    done = remote.call(url, token, some)
    if as_json:
        remote.print_json({"retried": done})
    else:
        print(f"{done} tried again now" if done else "nothing waits to be tried again")
