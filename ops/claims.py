"""`moorage claims`: claim records by hand, and settle, fail, renew or release them."""

import sys
from typing import Annotated, Any

import typer

from moorage.client import Draft, FailureTag, Held
from moorage.client.jobs import own_name
from moorage.kernel.limits import CLAIM_BATCH, LEASE_SECONDS, RETRY_SECONDS, WAIT_SECONDS
from ops import remote

app = remote.group("Claim records by hand, and settle, fail, renew or release them.")

RecordId = Annotated[str, typer.Argument(metavar="RECORD", help="The claimed record's id.")]
Epoch = Annotated[int, typer.Argument(metavar="EPOCH", help="The epoch that came with the claim.")]


@app.command()
def take(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The kind's name.")],
    match: remote.Match = None,
    worker: Annotated[str | None, typer.Option(help="The worker's name, kept in history.")] = None,
    count: Annotated[int, typer.Option("--limit", min=1, max=int(CLAIM_BATCH), help="Claim at most so many.")] = 1,
    lease_seconds: Annotated[
        float | None, typer.Option(min=0, max=int(LEASE_SECONDS), help="How long the claim lasts; else the kind's own.")
    ] = None,
    wait_seconds: Annotated[float, typer.Option(min=0, max=int(WAIT_SECONDS), help="Wait so long for a match.")] = 0,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Claim records that match, the oldest first within priority. Exits 3 when nothing matched.

    Example: moorage claims take document --match '{"type":"pdf"}' --lease-seconds 300
    """
    pattern = remote.json_object(match, "--match")
    claims = remote.call(
        url,
        token,
        lambda moorage: moorage.claims.claim(
            kind,
            worker or own_name(),
            pattern,
            limit=count,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
        ),
    )
    if as_json:
        for one in claims:
            remote.print_json(one.wire())
    elif claims:
        rows = [
            (one.record.id, one.lease.epoch, one.lease.attempt, one.lease.wire()["expires_at"], one.record.body)
            for one in claims
        ]
        remote.print_table(("record", "epoch", "attempt", "until", "body"), rows, numbers=("epoch", "attempt"))
    if not claims:
        print("nothing matches now", file=sys.stderr)
        raise typer.Exit(3)


@app.command()
def settle(
    record: RecordId,
    epoch: Epoch,
    result: Annotated[
        list[str] | None,
        typer.Option(help="""A record to publish as a result, as JSON: '{"kind":"summary","body":{}}'; repeatable."""),
    ] = None,
    kv: Annotated[
        str | None, typer.Option(help="""Values to put, as JSON: '{"importer":{"cursor":7}}'; null deletes a key.""")
    ] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Consume a claimed record, publish its results and put values, in one transaction.

    Example: moorage claims settle RECORD 1 --result '{"kind":"summary","body":{"pages":3}}'
    """
    drafts, values = [_draft(one) for one in result or []], remote.json_object(kv, "--kv")
    done = remote.call(url, token, lambda moorage: moorage.claims.settle(Held(record, epoch), drafts, kv=values))
    if as_json:
        remote.print_json(done.wire())
        return
    receipt = done.receipt.wire()
    facts = {"record": record, "state": done.record.state, "settled": receipt["settled_at"], "sha256": receipt["sha256"]}
    remote.print_facts({**facts, "results": " ".join(done.receipt.results) or None})


@app.command()
def fail(
    record: RecordId,
    epoch: Epoch,
    message: Annotated[str, typer.Option(help="Why, for people.")],
    tag: Annotated[FailureTag, typer.Option(help="Why, for programs.")] = FailureTag.PERMANENT,
    retry_after: Annotated[
        float | None, typer.Option(min=0, max=int(RETRY_SECONDS), help="Seconds until it is ready again.")
    ] = None,
    dead_letter: Annotated[bool, typer.Option("--dead-letter", help="No other attempt could succeed.")] = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """End an attempt as failed: the record is ready again after a delay, or a dead letter.

    Example: moorage claims fail RECORD 1 --tag Transient --message 'the printer is on fire' --retry-after 60
    """
    found = remote.call(
        url,
        token,
        lambda moorage: moorage.claims.fail(
            Held(record, epoch), tag, message, retry_after=retry_after, dead_letter=dead_letter
        ),
    )
    _show(found.wire(), as_json, "id", "state", "attempts", "not_before")


@app.command()
def renew(
    record: RecordId,
    epoch: Epoch,
    lease_seconds: Annotated[
        float | None, typer.Option(min=0, max=int(LEASE_SECONDS), help="How long from now; else the kind's own.")
    ] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Extend a lease that has not run out.

    Example: moorage claims renew RECORD 1 --lease-seconds 300
    """
    lease = remote.call(url, token, lambda moorage: moorage.claims.renew(Held(record, epoch), lease_seconds))
    _show(lease.wire(), as_json, "epoch", "owner", "expires_at", "attempt")


@app.command()
def release(
    record: RecordId,
    epoch: Epoch,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.DoneAsJson = False,
) -> None:
    """Give a record back unworked; the attempt is not counted.

    Example: moorage claims release RECORD 1
    """
    remote.call(url, token, lambda moorage: moorage.claims.release(Held(record, epoch)))
    remote.print_done("released", record, as_json)


def _draft(text: str) -> Draft:
    found = remote.json_object(text, "--result")
    try:
        return Draft(**found)
    except TypeError:
        raise typer.BadParameter("--result needs kind and body, and may have metadata, priority, id") from None


def _show(facts: dict[str, Any], as_json: bool, *names: str) -> None:
    if as_json:
        remote.print_json(facts)
    else:
        remote.print_facts({name: facts.get(name) for name in names})
