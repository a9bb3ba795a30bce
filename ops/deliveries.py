"""`moorage deliveries`: what is told to destinations, how that goes, and telling it again."""

import json
from contextlib import aclosing
from typing import Annotated

import typer

from moorage.client import Moorage
from moorage.client.outbox import Deliveries, Delivery, DestinationSummary
from moorage.kernel.limits import REDELIVER_BATCH
from ops import remote
from ops.timeline import duration

app = remote.group("Look at what is told to destinations, follow it, and deliver again.")

_Delivery = Annotated[str, typer.Argument(metavar="DELIVERY", help="The delivery's id.")]
_State = Annotated[str | None, typer.Option(help="Only those in this state: pending, delivered, dead or canceled.")]
_Subscription = Annotated[str | None, typer.Option(help="Only those of this subscription.")]
_Destination = Annotated[str | None, typer.Option(help="Only those to this destination.")]
_COLUMNS = ("delivery", "event", "type", "destination", "state", "gen", "tries", "next or ended", "last")


@app.command("list")
def list_(
    state: _State = None,
    subscription: _Subscription = None,
    destination: _Destination = None,
    event: Annotated[str | None, typer.Option(help="Only those of this event.")] = None,
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List deliveries in the order in which they were made.

    Example: moorage deliveries list --state dead --destination crm
    """

    async def ask(moorage: Moorage) -> tuple[list[Delivery], bool]:
        found = moorage.deliveries.iterate(
            state=state, subscription=subscription, destination=destination, event_id=event, newest_first=newest
        )
        return await remote.first(found, limit, everything)

    found, more = remote.call(url, token, ask)
    remote.print_list(found, more, as_json, _COLUMNS, _row, numbers=("gen", "tries"))


@app.command()
def show(
    delivery: _Delivery,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show one delivery, with what is sent.

    Example: moorage deliveries show dlv_01kb1y0z3w5q9v8d7c6b5a4m3n
    """
    one = remote.call(url, token, lambda moorage: moorage.deliveries.get(delivery))
    if as_json:
        remote.print_json(one.wire())
        return
    facts = one.wire()
    body = facts.pop("body", None)
    remote.print_facts(facts)
    if body is not None:
        print(f"\n{json.dumps(json.loads(body), indent=2, ensure_ascii=False)}")


@app.command()
def redeliver(
    deliveries: Annotated[list[str] | None, typer.Argument(metavar="DELIVERY", help="The deliveries' ids.")] = None,
    state: Annotated[str, typer.Option(help="Instead of ids: those that are dead, delivered or canceled.")] = "dead",
    subscription: _Subscription = None,
    destination: _Destination = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Without ids: at most so many, oldest first.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why; history keeps it. It must be given without ids.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Make deliveries again that are over: those named, or those in a state. Event and bytes stay the same.

    Example: moorage deliveries redeliver --destination crm --reason 'they are back'
    """
    if deliveries and (subscription or destination or limit or state != "dead"):
        raise typer.BadParameter("name deliveries, or say which; not both")
    if not deliveries and reason is None:
        raise typer.BadParameter("say with --reason why, or name deliveries")

    async def some(moorage: Moorage) -> int:
        if not deliveries:
            return await _many(moorage.deliveries, state, subscription, destination, limit, reason or "", as_json)
        for done, one in enumerate(deliveries):
            with remote.telling_how_far(done, f"asked for {done} of {len(deliveries)} again, those before {one}"):
                _tell([await moorage.deliveries.redeliver(one, reason)], as_json)
        return len(deliveries)

    done = remote.call(url, token, some)
    if not as_json:
        print(f"asked for {remote.counted(done, 'delivery', 'deliveries')} again")


@app.command()
def cancel(
    delivery: _Delivery,
    reason: Annotated[str | None, typer.Option(help="Why; history keeps it.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Give up a delivery that is pending or dead.

    Example: moorage deliveries cancel dlv_01kb1y0z3w5q9v8d7c6b5a4m3n --reason 'they asked us to'
    """
    one = remote.call(url, token, lambda moorage: moorage.deliveries.cancel(delivery, reason))
    if as_json:
        remote.print_json(one.wire())
    else:
        remote.print_facts({name: value for name, value in one.wire().items() if name != "body"})


@app.command()
def enable(
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="The destination's name.")],
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Send to a destination again that answered 410, or whose circuit is open.

    Example: moorage deliveries enable crm
    """
    health = remote.call(url, token, lambda moorage: moorage.deliveries.enable(destination))
    remote.print_one(health, as_json)


@app.command()
def summary(
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """How far the outbox is behind, and how deliveries to each destination stand.

    Example: moorage deliveries summary
    """

    async def ask(moorage: Moorage) -> tuple[float, list[DestinationSummary]]:
        page = await moorage.deliveries.summary()
        lag, found = page.lag_seconds, list(page.items)
        while page.next_cursor is not None:
            page = await moorage.deliveries.summary(cursor=page.next_cursor)
            found += page.items
        return lag, found

    lag, found = remote.call(url, token, ask)
    if as_json:
        remote.print_json({"lag_seconds": lag, "items": [one.wire() for one in found]})
        return
    print(f"the outbox is {_took(lag) if lag else '0 s'} behind\n")
    rows = [_summary_row(one) for one in found]
    columns = ("destination", "circuit", "pending", "oldest", "tries", "dead", "delay", "longest", "blocked until", "why")
    remote.print_table(columns, rows, numbers=columns[2:8])


@app.command()
def tail(
    state: _State = None,
    subscription: _Subscription = None,
    destination: _Destination = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="End after so many.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=3600, help="How often to look.")] = 2.0,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Print the newest deliveries, and each again whenever it changes, until Ctrl-C.

    Example: moorage deliveries tail --destination crm
    """

    async def follow(moorage: Moorage) -> None:
        told = 0
        found = moorage.deliveries.follow(seconds, state=state, subscription=subscription, destination=destination)
        async with aclosing(found) as changes:
            async for one in changes:
                if as_json:
                    remote.print_json(one.wire())
                else:
                    print(_line(one), flush=True)
                told += 1
                if told == limit:
                    return

    remote.call(url, token, lambda moorage: moorage.health())  # so that a wrong address is told at once
    try:
        remote.call(url, token, follow, remote.LASTING)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _many(
    deliveries: Deliveries,
    state: str,
    subscription: str | None,
    destination: str | None,
    limit: int | None,
    reason: str,
    as_json: bool,
) -> int:
    done, after = 0, None
    while limit is None or done < limit:
        wanted = int(REDELIVER_BATCH) if limit is None else min(int(REDELIVER_BATCH), limit - done)
        found, after = await deliveries.redeliver_many(
            reason, state=state, subscription=subscription, destination=destination, after=after, limit=wanted
        )
        _tell(found, as_json)
        done += len(found)
        if after is None:
            break
    return done


def _tell(deliveries: list[Delivery], as_json: bool) -> None:
    if as_json:
        for one in deliveries:
            remote.print_json(one.wire())


def _row(one: Delivery) -> tuple[object, ...]:
    shown = one.wire()
    when = shown["next_attempt_at"] or shown["ended_at"]
    last = one.last_error or one.last_status
    return (
        one.delivery_id,
        one.event_id,
        one.type,
        one.destination,
        one.state,
        one.generation,
        one.attempts,
        when,
        last,
    )


def _line(one: Delivery) -> str:
    last = "" if one.last_error is None and one.last_status is None else f"  {one.last_error or one.last_status}"
    generation = "" if one.generation == 1 else f"  generation {one.generation}"
    stands = f"{one.state:<9}  try {one.attempts}{generation}{last}"
    when = one.wire()["ended_at"] or one.wire()["created_at"]
    return f"{when}  {one.delivery_id}  {one.type:<20}  {one.aggregate_id}  {one.destination:<12}  {stands}"


def _summary_row(one: DestinationSummary) -> tuple[object, ...]:
    delay = one.publication_delay_seconds
    return (
        one.destination,
        one.circuit,
        one.pending,
        _took(one.oldest_pending_seconds),
        one.attempts,
        one.dead,
        _took(None if delay is None else delay.mean),
        _took(None if delay is None else delay.longest),
        one.wire()["blocked_until"],
        one.reason,
    )


def _took(seconds: float | None) -> str | None:
    return None if seconds is None else duration(round(seconds * 1000))
