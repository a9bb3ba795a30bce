"""`moorage schedules`: start bodies or publish records again and again."""

from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from moorage.client import Moorage
from moorage.client.schedules import Schedule, Trigger, Window
from moorage.kernel.limits import CATCH_UP_SECONDS, CATCH_UP_WINDOWS, EVERY_SECONDS
from ops import remote

app = remote.group("Start bodies or publish records again and again, by cron or interval.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
_Cron = Annotated[
    str | None, typer.Option(help="When: five fields of cron, or six with seconds before them; '*/5 * * * *'.")
]
_Every = Annotated[
    float | None,
    typer.Option("--every", min=1, max=int(EVERY_SECONDS), help="Instead of --cron: an interval in seconds."),
]
_Zone = Annotated[str, typer.Option("--timezone", help="The IANA time zone in which cron is meant.")]


@app.command()
def put(
    name: _Name,
    cron: _Cron = None,
    every: _Every = None,
    timezone: _Zone = "UTC",
    body: Annotated[str | None, typer.Option(help="The body that each window starts.")] = None,
    input_: Annotated[
        str | None, typer.Option("--input", help="With --body: its input as JSON, @FILE, or - for standard input.")
    ] = None,
    scope: Annotated[str | None, typer.Option(help="With --body: the scope of its runs.")] = None,
    record: Annotated[
        str | None,
        typer.Option(help="""Instead of --body: the record that each window publishes, '{"kind":…,"body":{…}}'."""),
    ] = None,
    overlap: Annotated[
        Literal["skip", "coalesce", "enqueue"],
        typer.Option(help="What becomes of a window while what the one before started goes on."),
    ] = "skip",
    catch_up: Annotated[Literal["all", "last", "none"], typer.Option(help="Which missed windows still come.")] = "last",
    catch_up_seconds: Annotated[
        float | None, typer.Option(min=0, max=int(CATCH_UP_SECONDS), help="Missed windows that are older never come.")
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Let nothing come until it is resumed.")] = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Declare a schedule, or declare it anew; it acts with the credential that declares it.

    Example: moorage schedules put nightly --cron '30 2 * * *' --timezone Europe/Paris --body report --input '{"to":"ops"}'
    """
    if (body is None) == (record is None) or (body is None and (input_ is not None or scope is not None)):
        raise typer.BadParameter("name a --body, with its --input and --scope, or a --record; not both")
    if (cron is None) == (every is None):
        raise typer.BadParameter("give either --cron or --every")
    target: dict[str, Any] = {"record": remote.json_object(record, "--record")}
    if body is not None:
        target = {"body": body, "input": remote.json_argument(input_, "--input")}
        target |= {} if scope is None else {"scope": scope}

    async def ask(moorage: Moorage) -> Schedule:
        return await moorage.schedules.put(
            name,
            target,
            cron=cron,
            every_seconds=every,
            timezone=timezone,
            overlap=overlap,
            catch_up=catch_up,
            catch_up_seconds=catch_up_seconds,
            paused=paused,
        )

    remote.print_one(remote.call(url, token, ask), as_json)


@app.command("list")
def list_(
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List schedules by name, and when each comes next.

    Example: moorage schedules list
    """

    async def ask(moorage: Moorage) -> tuple[list[Schedule], bool]:
        return await remote.first(moorage.schedules.iterate(), limit, everything)

    found, more = remote.call(url, token, ask)
    remote.print_list(
        found,
        more,
        as_json,
        ("name", "when", "what", "overlap", "next", "queued"),
        lambda one: (one.name, _when(one), _what(one), one.overlap, _next(one), one.queued),
        numbers=("queued",),
    )


@app.command()
def show(
    name: _Name, url: remote.Url = remote.DEFAULT_URL, token: remote.Token = None, as_json: remote.AsJson = False
) -> None:
    """Show one schedule.

    Example: moorage schedules show nightly
    """
    remote.print_one(remote.call(url, token, lambda moorage: moorage.schedules.get(name)), as_json)


@app.command()
def pause(
    name: _Name, url: remote.Url = remote.DEFAULT_URL, token: remote.Token = None, as_json: remote.AsJson = False
) -> None:
    """Pause a schedule: its windows pass, and those that wait go on waiting.

    Example: moorage schedules pause nightly
    """
    remote.print_one(remote.call(url, token, lambda moorage: moorage.schedules.pause(name)), as_json)


@app.command()
def resume(
    name: _Name, url: remote.Url = remote.DEFAULT_URL, token: remote.Token = None, as_json: remote.AsJson = False
) -> None:
    """Let a paused schedule go on, from the next window on.

    Example: moorage schedules resume nightly
    """
    remote.print_one(remote.call(url, token, lambda moorage: moorage.schedules.resume(name)), as_json)


@app.command()
def trigger(
    name: _Name,
    key: Annotated[str | None, typer.Option(help="An Idempotency-Key: the same one lets no second window come.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Let a window come now, paused or not; the overlap policy holds for it.

    Example: moorage schedules trigger nightly
    """
    made = remote.call(url, token, lambda moorage: moorage.schedules.trigger(name, key=key))
    remote.print_one(made, as_json)


@app.command()
def backfill(
    name: _Name,
    start: Annotated[
        datetime,
        typer.Option(help="Windows that began at this instant or later.", parser=remote.instant, metavar="INSTANT"),
    ],
    end: Annotated[
        datetime,
        typer.Option(
            help="Windows that began before this instant, which is past.", parser=remote.instant, metavar="INSTANT"
        ),
    ],
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Let the windows of a past range come that started nothing yet, one after the other.

    Example: moorage schedules backfill nightly --start 2027-01-01T00:00:00Z --end 2027-02-01T00:00:00Z
    """
    made = remote.call(url, token, lambda moorage: moorage.schedules.backfill(name, start, end))
    if as_json:
        remote.print_json(made.wire())
    else:
        print(f"{made.queued} of {made.windows} windows wait for their turn")


@app.command("next")
def next_(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The schedule's name.")] = None,
    cron: _Cron = None,
    every: _Every = None,
    timezone: _Zone = "UTC",
    count: Annotated[int | None, typer.Option(min=1, help="How many windows; 10 unless it is given.")] = None,
    after: Annotated[
        datetime | None,
        typer.Option(help="Windows past this instant; now unless it is given.", parser=remote.instant, metavar="INSTANT"),
    ] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show the windows that are to come, of a schedule or of a cadence that nobody declared.

    Example: moorage schedules next --cron '30 2 * * *' --timezone Europe/Paris --after 2027-03-27T12:00:00Z
    """
    if (name is None) == (cron is None and every is None):
        raise typer.BadParameter("name a schedule, or give --cron or --every; not both")

    async def ask(moorage: Moorage) -> list[Window]:
        if name is not None:
            return await moorage.schedules.next(name, count, after)
        cadence: dict[str, Any] = {"cron": cron, "every_seconds": every, "timezone": timezone}
        return await moorage.schedules.preview(**cadence, count=count, after=after)

    found = remote.call(url, token, ask)
    if as_json:
        for one in found:
            remote.print_json(one.wire())
    else:
        rows = [(one.local, one.wire()["window_start"], one.wire()["window_end"]) for one in found]
        remote.print_table(("local", "start", "end"), rows)


@app.command()
def triggers(
    name: _Name,
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List what became of a schedule's windows, the latest first.

    Example: moorage schedules triggers nightly --limit 10
    """

    async def ask(moorage: Moorage) -> tuple[list[Trigger], bool]:
        return await remote.first(moorage.schedules.triggers(name), limit, everything)

    found, more = remote.call(url, token, ask)
    remote.print_list(
        found,
        more,
        as_json,
        ("window", "state", "started", "why"),
        lambda one: (one.wire()["window_start"], one.state, one.run_id or one.record, _why(one)),
    )


@app.command()
def delete(
    name: _Name, url: remote.Url = remote.DEFAULT_URL, token: remote.Token = None, as_json: remote.DoneAsJson = False
) -> None:
    """Delete a schedule. What it started goes on; what waits for its turn does not.

    Example: moorage schedules delete nightly
    """
    remote.call(url, token, lambda moorage: moorage.schedules.delete(name))
    remote.print_done("deleted", name, as_json)


def _when(schedule: Schedule) -> str:
    if schedule.cron is None:
        return f"every {schedule.every_seconds:g} s"
    return schedule.cron if schedule.timezone == "UTC" else f"{schedule.cron} {schedule.timezone}"


def _what(schedule: Schedule) -> str:
    record = schedule.target.get("record")
    return f"record {record['kind']}" if record else f"body {schedule.target['body']}"


def _next(schedule: Schedule) -> str | None:
    if schedule.failing is not None:
        return f"failing, again {schedule.failing.wire()['retry_at']}"
    return "paused" if schedule.paused else schedule.wire()["next_at"]


def _why(one: Trigger) -> str | None:
    told = one.error or {}
    if told.get("reason") == "missed":
        return f"missed, {told['windows'] or f'more than {CATCH_UP_WINDOWS}'} until {told['until']}"
    return told.get("code") or told.get("reason")
