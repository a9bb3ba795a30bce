"""`moorage dead-letters`: look at records that no attempt could finish, and requeue them."""

from typing import Annotated

import typer

from moorage.client import Moorage, Record
from moorage.client.models import DeadLetter
from moorage.kernel.limits import REQUEUE_BATCH
from ops import remote

app = remote.group("Look at records that no attempt could finish, and requeue them.")


@app.command("list")
def list_(
    kind: Annotated[str | None, typer.Option(help="Only records of this kind.")] = None,
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List dead letters in the order of their publication.

    Example: moorage dead-letters list --kind document --all
    """

    async def ask(moorage: Moorage) -> tuple[list[DeadLetter], bool]:
        return await remote.first(moorage.dead_letters.iterate(kind), limit, everything)

    letters, more = remote.call(url, token, ask)
    remote.print_list(
        letters,
        more,
        as_json,
        ("record", "kind", "attempts", "tag", "why"),
        lambda one: (one.record.id, one.record.kind, one.record.attempts, *_why(one.record)),
        numbers=("attempts",),
    )


@app.command()
def show(
    record: Annotated[str, typer.Argument(metavar="RECORD", help="The record's id.")],
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show one dead letter with the attempts that led there.

    Example: moorage dead-letters show rec_01kb1y0z3w5q9v8d7c6b5a4m3n
    """
    letter = remote.call(url, token, lambda moorage: moorage.dead_letters.get(record))
    if as_json:
        remote.print_json(letter.wire())
        return
    remote.print_facts(letter.record.wire())
    print()
    rows = [(one.attempt, one.epoch, one.owner, one.wire()["claimed_at"]) for one in letter.attempts]
    remote.print_table(("attempt", "epoch", "worker", "claimed"), rows, numbers=("attempt", "epoch"))


@app.command()
def requeue(
    reason: Annotated[str, typer.Option(help="Why they get another chance; history keeps it.")],
    records: Annotated[list[str] | None, typer.Argument(metavar="RECORD", help="The records' ids.")] = None,
    kind: Annotated[str | None, typer.Option(help="Instead of ids: every dead letter of this kind.")] = None,
    match: remote.Match = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="With --kind: at most so many, oldest first.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Make dead letters ready again: those named, or with --kind those that match.

    Example: moorage dead-letters requeue --kind document --match '{"type":"pdf"}' --reason 'parser fixed'
    """
    if bool(records) == (kind is not None) or (match is not None and kind is None):
        raise typer.BadParameter("name records, or a --kind with a --match if you like; not both")
    pattern = remote.json_object(match, "--match")

    async def some(moorage: Moorage) -> int:
        done = 0
        total = len(records) if records else limit
        with remote.progress("requeueing", total, "records") as advance:
            if kind is None:
                for record in records or []:
                    with remote.telling_how_far(done, f"requeued {done} of {total}, those before {record}"):
                        _tell([await moorage.dead_letters.requeue(record, reason)], as_json)
                    done += 1
                    advance(1)
                return done
            # A batch answers fewer than it was asked for only when there are no more.
            while limit is None or done < limit:
                wanted = int(REQUEUE_BATCH) if limit is None else min(int(REQUEUE_BATCH), limit - done)
                found = await moorage.dead_letters.requeue_matching(kind, reason, pattern, limit=wanted)
                _tell(found, as_json)
                done += len(found)
                advance(len(found))
                if len(found) < wanted:
                    break
        return done

    done = remote.call(url, token, some)
    if not as_json:
        print(f"requeued {remote.counted(done, 'record')}")


def _tell(records: list[Record], as_json: bool) -> None:
    if as_json:
        for record in records:
            remote.print_json(record.wire())


def _why(record: Record) -> tuple[str | None, str | None]:
    return (None, None) if record.failure is None else (record.failure.tag.value, record.failure.message)
