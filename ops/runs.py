"""`moorage runs`: start runs of bodies, look at them, and stop or restart them."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from moorage.client import Moorage
from moorage.client.live import View, follow
from moorage.client.models import Run, Started, Steps
from moorage.kernel import instants
from moorage.kernel.limits import EXPORT_DEFAULT, EXPORT_ITEMS, RUNS_DEFAULT, RUNS_ITEMS
from ops import picture, remote, timeline

app = remote.group("Start runs of bodies, look at them, and stop or restart them.")

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
BodyName = Annotated[str | None, typer.Option("--body", help="Only runs of this body.")]
Since = Annotated[
    str | None, typer.Option(help="Only runs that began then or later: YYYY-MM-DD, or an instant in UTC that ends in Z.")
]
_EXPORT_LIMIT = f"At most so many runs, and never more than {EXPORT_ITEMS}."
Status = Literal["running", "waiting", "suspended", "success", "failed", "partial_failure", "canceled"]


@app.command()
def start(
    body: Annotated[str, typer.Argument(metavar="BODY", help="The body's name; `moorage bodies` lists them.")],
    input_: Annotated[
        str | None, typer.Option("--input", help="Its input, any JSON value; @file reads one, - standard input.")
    ] = None,
    scope: Annotated[
        str | None, typer.Option(help="What the run is about: at most one execution of a scope is pending.")
    ] = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object beside the run.")] = None,
    retry: Annotated[
        str | None, typer.Option(help="The schedule of steps that name none, a JSON object: attempts, base_ms, factor, …")
    ] = None,
    notify: Annotated[
        list[str] | None, typer.Option(help="A destination that the run's end is told to; repeatable.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="An Idempotency-Key: the same start again is the same run.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end; exit status 1 unless it succeeds.")] = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Start a run of a body.

    Example: moorage runs start order --input '{"id":"17","amount":120}' --scope order-17 --wait
    """
    given = remote.json_argument(input_, "--input")
    more: dict[str, Any] = {} if metadata is None else {"metadata": remote.json_object(metadata, "--metadata")}
    schedule = None if retry is None else remote.json_object(retry, "--retry")
    if notify:
        more["notify"] = notify

    async def ask(moorage: Moorage) -> Started:
        return await moorage.runs.start(body, given, scope=scope, key=key, retry=schedule, **more)

    started = remote.call(url, token, ask)
    if not wait:
        _tell(started.wire(), as_json)
        return
    if not as_json:
        print(f"started {started.run_id}", file=sys.stderr)
    try:
        ended = remote.call(url, token, lambda moorage: moorage.runs.wait(started.run_id), remote.LASTING)
    except KeyboardInterrupt:
        print(f"the run goes on: moorage runs watch {started.run_id}", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        remote.print_json(ended.wire())
    else:
        _show(ended, remote.call(url, token, lambda moorage: moorage.runs.steps(ended.run_id)))
    raise typer.Exit(exit_status(ended.status))


@app.command()
def show(
    run: RunId,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Draw a run as a timeline: how it stands, what it waits for, and a line with a bar for each step.

    Example: moorage runs show run_01kb1y0z3w5q9v8d7c6b5a4m3n
    """

    async def ask(moorage: Moorage) -> tuple[Run, Steps]:
        found = await moorage.runs.get(run)
        return found, Steps([]) if as_json else await moorage.runs.steps(run)

    found, steps = remote.call(url, token, ask)
    if as_json:
        remote.print_json(found.wire())
    else:
        _show(found, steps)


@app.command("list")
def list_(
    body: BodyName = None,
    scope: Annotated[str | None, typer.Option(help="Only runs under this scope.")] = None,
    status: Annotated[Status | None, typer.Option(help="Only runs that stand so.")] = None,
    since: Since = None,
    limit: remote.Limit = int(RUNS_DEFAULT),
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List runs, the newest first.

    Example: moorage runs list --body order --status failed --since 2026-11-01
    """
    filters = {"body": body, "scope": scope, "status": status, "since": since}

    async def ask(moorage: Moorage) -> tuple[list[Run], bool]:
        if not everything and limit <= RUNS_ITEMS:
            page = await moorage.runs.list(**filters, limit=limit)
            return list(page.items), page.truncated
        return await remote.first(moorage.runs.iterate(**filters), limit, everything)

    found, more = remote.call(url, token, ask)
    now = picture.now()
    remote.print_list(
        found,
        more,
        as_json,
        ("run", "body", "status", "attempt", "started", "took", "scope"),
        lambda one: _row(one.wire(), now),
        numbers=("attempt",),
    )


@app.command()
def steps(
    run: RunId,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List a run's steps; outputs by reference, which `moorage runs output` loads.

    Example: moorage runs steps run_01kb1y0z3w5q9v8d7c6b5a4m3n --json
    """
    found = remote.call(url, token, lambda moorage: moorage.runs.steps(run))
    if as_json:
        for one in found:
            remote.print_json(one.wire())
        return
    rows = [
        (
            *(one["position"], one["label"], one["kind"], timeline.standing(one), one["attempt"]),
            one.get("started_at"),
            *_output(one),
        )
        for one in (step.wire() for step in found)
    ]
    columns = ("position", "label", "kind", "status", "attempt", "started", "bytes", "output")
    remote.print_table(columns, rows, numbers=("attempt", "bytes"))
    _say_retired(found)


@app.command()
def output(
    run: RunId,
    reference: Annotated[str, typer.Argument(metavar="OUTPUT", help="The reference that `moorage runs steps` shows.")],
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
) -> None:
    """Print what a step recorded, as JSON.

    Example: moorage runs output run_01kb1y0z3w5q9v8d7c6b5a4m3n charge@3f2a…
    """
    remote.print_json(remote.call(url, token, lambda moorage: moorage.runs.output(run, reference)))


@app.command()
def watch(
    run: RunId,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Draw a run as it happens until it ends; exit status 1 unless it succeeds.

    In a pipe, or with --json, what changes is printed line by line. A broken connection is opened again.

    Example: moorage runs watch run_01kb1y0z3w5q9v8d7c6b5a4m3n
    """
    remote.call(url, token, lambda moorage: moorage.runs.get(run))  # so that a wrong address or id is told at once

    async def ask(moorage: Moorage) -> str:
        shown = picture.Lines(as_json) if as_json or not picture.console().is_terminal else picture.Live()
        with shown:
            async with aclosing(follow(moorage.wire, run)) as views:
                return await _watched(moorage, views, shown)

    try:
        status = remote.call(url, token, ask, remote.LASTING)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if status == "success" and not as_json:
        picture.show_result(remote.call(url, token, lambda moorage: moorage.runs.get(run)).result)
    raise typer.Exit(exit_status(status))


@app.command()
def stop(
    run: RunId,
    pipeline: Annotated[bool, typer.Option("--pipeline", help="Every run in flight under its scope and below.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why; the run keeps it.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Ask that a run stop; it is canceled once it has. Exit status 1 when it had ended already.

    Example: moorage runs stop run_01kb1y0z3w5q9v8d7c6b5a4m3n --reason 'wrong customer'
    """
    grain = "pipeline" if pipeline else None
    stopped = remote.call(url, token, lambda moorage: moorage.runs.stop(run, scope=grain, reason=reason))
    if as_json:
        remote.print_json({"run_ids": list(stopped)})
    else:
        print("\n".join(f"asked {one} to stop" for one in stopped))


@app.command()
def restart(
    run: RunId,
    reason: Annotated[str, typer.Option(help="Why; history keeps it.")],
    from_step: Annotated[
        str | None, typer.Option("--from-step", help="Keep only what was recorded before this label.")
    ] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Run again from what an ended run recorded, all of it or what stands before a step, by the build registered now.

    What comes after is done again, under keys of its own. It is refused while the run is under way or waits. A run that
    succeeded has let go of what it recorded: start a new one instead.

    Example: moorage runs restart run_01kb1y0z3w5q9v8d7c6b5a4m3n --from-step charge --reason 'the card was replaced'
    """
    again = remote.call(url, token, lambda moorage: moorage.runs.restart(run, reason, from_step=from_step))
    _tell(again.wire(), as_json)


@app.command()
def export(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Where to, replaced only by a whole export; else standard output."),
    ] = None,
    body: BodyName = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help=_EXPORT_LIMIT)] = int(EXPORT_DEFAULT),
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
) -> None:
    """Export runs as NDJSON, the newest first: a line that says what the export holds, then one run a line.

    Example: moorage runs export runs.ndjson --since 2026-11-01 --limit 5000
    """

    async def ask(moorage: Moorage) -> list[dict[str, Any]]:
        async with aclosing(moorage.runs.export(body=body, since=since, limit=limit)) as lines:
            return [line async for line in lines]

    header, *runs = remote.call(url, token, ask)
    text = "".join(remote.json_line(line) for line in (header, *runs))
    if file is None or file == Path("-"):
        sys.stdout.write(text)
    else:
        remote.replace(file, text)
        print(f"exported {remote.counted(len(runs), 'run')} to {file}")
    remote.say_more(bool(header.get("truncated")))


def exit_status(status: str) -> int:
    """The exit status that a run's end gives to whoever waited for it."""
    return 0 if status == "success" else 1


def _say_retired(steps: Steps) -> None:
    """Below steps whose outputs are named, and can be read no more."""
    if steps.outputs_retired and any(step.wire().get("output") for step in steps):
        print(
            "the run is over: its result is kept, and what its steps returned is not, so no output can be read",
            file=sys.stderr,
        )


async def _watched(moorage: Moorage, views: AsyncIterator[View], shown: picture.Lines | picture.Live) -> str:
    """The run's last status, after showing each view. Why it was stopped is told by its record alone."""
    status = "running"
    async for view in views:
        status = str(view.run["status"])
        told = view.run
        if status == "canceled":
            record = (await moorage.runs.get(view.run["run_id"])).wire()
            told = {**told, "stop": record.get("stop"), "rewound_execution": record.get("rewound_execution")}
        shown.show(picture.State(told, view.steps, view.change))
    return status


def _show(run: Run, steps: Steps) -> None:
    picture.show(picture.State(run.wire(), [step.wire() for step in steps]))
    picture.show_metadata(run.wire().get("metadata") or {})
    picture.show_result(run.result)


def _tell(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        remote.print_json(facts)
    else:
        remote.print_facts(facts)


def _row(run: Mapping[str, Any], now: instants.Instant) -> tuple[Any, ...]:
    began = instants.parse(run["started_at"])
    ended = instants.parse(run["ended_at"]) if run.get("ended_at") else now
    scope = None if run["scope"] == run["run_id"] else timeline.printable(run["scope"])
    took = timeline.duration(ended - began)
    status = run["status"] + (" (rewind)" if run.get("rewound_execution") else "")
    return run["run_id"], run["body"], status, run["attempt"], run["started_at"], took, scope


def _output(step: Mapping[str, Any]) -> tuple[Any, Any]:
    """A step's bytes and reference, where it has an output."""
    found = step.get("output")
    return (found.get("bytes"), found.get("ref")) if isinstance(found, Mapping) else (None, None)
