"""`moorage records`: publish, list, read and trace records."""

import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from moorage.client import Draft, Moorage, Record
from moorage.client.models import State
from moorage.client.paging import every
from moorage.kernel import canonical
from moorage.kernel.errors import JsonInvalid
from moorage.kernel.limits import PAGE_ITEMS, PUBLISH_BATCH, PUBLISH_BATCH_BYTES
from ops import remote
from ops.failure import CommandFailed

app = remote.group("Publish, list, read and trace records.")

RecordId = Annotated[str, typer.Argument(metavar="RECORD", help="The record's id.")]
KindName = Annotated[str, typer.Argument(metavar="KIND", help="The kind's name.")]
_COLUMNS = ("record", "seq", "state", "attempts", "created", "body")
_BODY_CHARACTERS = 80
_FIELDS = frozenset({"kind", "body", "metadata", "parents", "priority", "not_before", "id"})


@app.command()
def publish(
    kind: KindName,
    body: Annotated[str, typer.Argument(metavar="BODY", help="A JSON object; @file reads one, - standard input.")],
    metadata: Annotated[str | None, typer.Option(help="A JSON object beside the body.")] = None,
    parent: Annotated[list[str] | None, typer.Option(help="A record that this one came from; repeatable.")] = None,
    priority: Annotated[int, typer.Option(help="Larger is claimed earlier.")] = 0,
    not_before: Annotated[
        datetime | None,
        typer.Option(help="Not claimed before this instant.", parser=remote.instant, metavar="INSTANT"),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="An id of your own choice, never reused.")] = None,  # noqa: A002
    key: Annotated[str | None, typer.Option(help="An Idempotency-Key: the same again publishes nothing new.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Publish one record.

    Example: moorage records publish document '{"type":"pdf","size":120}'
    """
    draft = Draft(
        kind,
        remote.json_object(body, "BODY"),
        remote.json_object(metadata, "--metadata"),
        parent or [],
        priority,
        not_before,
        id,
    )
    record = remote.call(url, token, lambda moorage: moorage.records.publish_draft(draft, key=key))
    _show(record, as_json)


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(metavar="FILE", help="NDJSON, one record or body a line; - is standard input.")],
    kind: Annotated[
        str | None, typer.Option(help='The lines are bodies of this kind; otherwise each is {"kind","body",…}.')
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=int(PUBLISH_BATCH), help="Records in one transaction.")] = 100,
    key: Annotated[
        str | None,
        typer.Option(help="Names this import: the same file again under the same name publishes nothing twice."),
    ] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Publish many records from NDJSON, in batches that are each all or none.

    Each batch has an Idempotency-Key made of --key and its number, so an import that broke off is simply run again with
    the same --key and --batch. Without --key one is made and told when the import breaks off.

    Example: moorage records import events.ndjson --kind event --key import-2026-11
    """
    named = key or f"import-{uuid.uuid4().hex[:16]}"
    total = Path(source).stat().st_size if source != "-" and Path(source).is_file() else None
    done = 0

    async def send(moorage: Moorage) -> None:
        nonlocal done
        with ExitStack() as stack:
            lines = _lines(source, stack)
            advance = stack.enter_context(remote.progress("publishing", total, "bytes"))
            for number, (drafts, size) in enumerate(_batches(_drafts(lines, kind), batch)):
                published = await moorage.records.publish_batch(drafts, key=f"{named}-{number}")
                done += len(published)
                advance(size)
                if as_json:
                    for record in published:
                        remote.print_json(record.wire())

    try:
        remote.call(url, token, send)
    except (CommandFailed, typer.Exit, KeyboardInterrupt, OSError):
        Console(stderr=True, highlight=False).print(
            f"{remote.counted(done, 'record')} published; --key {named} with the same file and --batch {batch} goes on",
            soft_wrap=True,
        )
        raise
    if not as_json:
        print(f"published {remote.counted(done, 'record')}")


@app.command("list")
def list_(
    kind: KindName,
    match: remote.Match = None,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List a kind's records that match a pattern, in the order of their publication.

    Example: moorage records list document --match '{"type":"pdf"}' --state ready
    """
    pattern = remote.json_object(match, "--match")
    order: Literal["asc", "desc"] = "desc" if newest else "asc"

    async def ask(moorage: Moorage) -> tuple[list[Record], bool]:
        page = int(PAGE_ITEMS) if everything else min(limit, int(PAGE_ITEMS))
        found = moorage.records.iterate(kind, pattern, state=state, order=order, page=page)
        return await remote.first(found, limit, everything)

    records, more = remote.call(url, token, ask)
    print_records(records, as_json)
    remote.say_more(more)


@app.command()
def show(
    record: RecordId,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show one record in full.

    Example: moorage records show rec_01kb1y0z3w5q9v8d7c6b5a4m3n
    """
    _show(remote.call(url, token, lambda moorage: moorage.records.get(record)), as_json)


@app.command()
def lineage(
    record: RecordId,
    descendants: Annotated[bool, typer.Option("--descendants", help="What came from it, not what it came from.")] = False,
    depth: Annotated[int | None, typer.Option(min=1, help="At most so many generations.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show what a record came from, or what came from it.

    Example: moorage records lineage rec_01kb1y0z3w5q9v8d7c6b5a4m3n --descendants
    """
    way: Literal["ancestors", "descendants"] = "descendants" if descendants else "ancestors"
    found = remote.call(url, token, lambda moorage: moorage.records.lineage(record, way, depth))
    if as_json:
        remote.print_json(found.wire())
        return
    rows = [(one.depth, one.record.id, one.record.kind, one.record.state, _short(one.record.body)) for one in found.items]
    remote.print_table(("depth", "record", "kind", "state", "body"), rows, numbers=("depth",))
    if found.truncated:
        Console(stderr=True, highlight=False).print(
            "there is more than an answer holds: look from one of these", style="dim"
        )


@app.command()
def history(
    record: RecordId,
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show what happened to a record, oldest first.

    Example: moorage records history rec_01kb1y0z3w5q9v8d7c6b5a4m3n
    """

    async def ask(moorage: Moorage) -> tuple[list[Any], bool]:
        told = every(lambda cursor: moorage.records.history(record, limit=int(PAGE_ITEMS), cursor=cursor))
        return await remote.first(told, limit, everything)

    entries, more = remote.call(url, token, ask)
    remote.print_list(
        entries,
        more,
        as_json,
        ("position", "at", "what", "who", "more"),
        lambda one: (one.position, one.wire()["at"], one.type, one.actor, one.data or None),
        numbers=("position",),
    )


@app.command("dry-run")
def dry_run(
    kind: KindName,
    body: Annotated[str, typer.Argument(metavar="BODY", help="A JSON object; @file reads one, - standard input.")],
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Say which workers would receive such a record; nothing is written.

    Example: moorage records dry-run document '{"type":"pdf"}'
    """
    sent = remote.json_object(body, "BODY")
    found = remote.call(url, token, lambda moorage: moorage.records.dry_run(kind, sent))
    if as_json:
        remote.print_json(found.wire())
        return
    rows = [(one.worker, one.subject, one.wire()["expires_at"]) for one in found.matches]
    remote.print_table(("worker", "subject", "until"), rows)
    if found.truncated:
        print("the kind has more interests than were looked at", file=sys.stderr)


@app.command()
def cancel(
    record: RecordId,
    reason: Annotated[str, typer.Option(help="Why; history keeps it.")],
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """End a record that has not ended yet as dead; whoever holds it is fenced.

    Example: moorage records cancel rec_01kb1y0z3w5q9v8d7c6b5a4m3n --reason 'sent by mistake'
    """
    _show(remote.call(url, token, lambda moorage: moorage.records.cancel(record, reason)), as_json)


def print_records(records: Iterable[Record], as_json: bool) -> None:
    """Records as a table, or one JSON object a line."""
    if as_json:
        for record in records:
            remote.print_json(record.wire())
        return
    rows = [(one.id, one.seq, one.state, one.attempts, one.wire()["created_at"], _short(one.body)) for one in records]
    remote.print_table(_COLUMNS, rows, numbers=("seq", "attempts"))


def _show(record: Record, as_json: bool) -> None:
    remote.print_one(record, as_json)


def _short(body: dict[str, Any]) -> str:
    text = canonical.compact(body)
    return text if len(text) <= _BODY_CHARACTERS else text[: _BODY_CHARACTERS - 1] + "…"


def _lines(source: str, stack: ExitStack) -> Iterator[bytes]:
    if source == "-":
        yield from sys.stdin.buffer
        return
    try:
        file = stack.enter_context(Path(source).open("rb"))  # noqa: SIM115 - the stack is the context manager
    except OSError as error:
        raise CommandFailed(f"{source}: {error.strerror}") from None
    yield from file


def _drafts(lines: Iterable[bytes], kind: str | None) -> Iterator[tuple[Draft, int]]:
    """A draft of each line that is not blank, with the line's bytes. Raises CommandFailed naming the line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = canonical.loads(line)
            if not isinstance(found, dict):
                raise ValueError("is not a JSON object")
            yield (Draft(kind, found) if kind is not None else _draft(found)), len(line)
        except (JsonInvalid, ValueError) as error:
            raise CommandFailed(f"line {number}: {error}") from None


def _draft(found: dict[str, Any]) -> Draft:
    if not isinstance(found.get("kind"), str) or not isinstance(found.get("body"), dict):
        raise ValueError('needs "kind" and "body"; with --kind each line is a body')
    if unknown := found.keys() - _FIELDS:
        raise ValueError(f"has members that a record is not published with: {', '.join(sorted(unknown))}")
    waits = found.pop("not_before", None)
    return Draft(**found, not_before=None if waits is None else datetime.fromisoformat(waits))


def _batches(drafts: Iterable[tuple[Draft, int]], count: int) -> Iterator[tuple[list[Draft], int]]:
    """Batches of so many drafts, or fewer where their lines together would pass what one request may hold."""
    batch: list[Draft] = []
    size = 0
    for draft, more in drafts:
        if batch and size + more > PUBLISH_BATCH_BYTES:
            yield batch, size
            batch, size = [], 0
        batch.append(draft)
        size += more
        if len(batch) == count:
            yield batch, size
            batch, size = [], 0
    if batch:
        yield batch, size
