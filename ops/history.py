"""`moorage history`: read what happened, and seal, verify and export the chain of links over it."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from moorage.client import Moorage
from moorage.client.models import Entry
from moorage.client.seals import Link, Verified
from ops import remote
from ops.exports import Export, open_export, verify_file
from ops.failure import CommandFailed

app = remote.group("Read history, and seal, verify and export its chain of links.")

After = Annotated[int, typer.Option("--after", min=0, help="Only what stands past this position.")]


@app.command("list")
def list_(
    subject: Annotated[str | None, typer.Option(help="Only entries of this record, awakeable or other subject.")] = None,
    after: After = 0,
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List entries, oldest first.

    Example: moorage history list --subject rec_01kb1y0z3w5q9v8d7c6b5a4m3n
    """

    async def ask(moorage: Moorage) -> tuple[list[Entry], bool]:
        return await remote.first(moorage.iterate_history(subject=subject, after=after), limit, everything)

    entries, more = remote.call(url, token, ask)
    remote.print_list(
        entries,
        more,
        as_json,
        ("position", "at", "type", "subject", "kind", "actor"),
        lambda one: (one.position, one.wire()["at"], one.type, one.subject, one.kind, one.actor),
        numbers=("position",),
    )


@app.command()
def show(
    position: Annotated[int, typer.Argument(metavar="POSITION", min=1, help="The entry's position.")],
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show one entry in full, with its link once it is sealed.

    Example: moorage history show 1042
    """

    async def ask(moorage: Moorage) -> dict[str, Any]:
        found = (await moorage.history(after=position - 1, limit=1)).items
        if not found or found[0].position != position:
            raise CommandFailed(f"there is no entry at position {position}")
        sealed = (await moorage.seals.entries(position - 1, limit=1)).items
        link = sealed[0].link if sealed and sealed[0].position == position else None
        return {**found[0].wire(), "link": link}

    facts = remote.call(url, token, ask)
    if as_json:
        remote.print_json(facts)
    else:
        remote.print_facts(facts)


@app.command()
def seal(url: remote.Url = remote.DEFAULT_URL, token: remote.Token = None, as_json: remote.AsJson = False) -> None:
    """Seal everything that has happened, without waiting for the Clock, and print the end of the chain.

    Note the end somewhere else, and give it to `moorage history verify --head` later: it finds a history that was cut off
    or made anew.

    Example: moorage history seal
    """

    async def ask(moorage: Moorage) -> tuple[int, Link | None]:
        done = 0
        while True:
            sealed = await moorage.seals.seal()
            done += sealed.sealed
            if not sealed.unsealed or not sealed.sealed:
                return done, sealed.head

    done, head = remote.call(url, token, ask)
    if as_json:
        remote.print_json({"sealed": done, "head": head and head.wire()})
    else:
        print(f"sealed {remote.counted(done, 'entry', 'entries')}; {_end(head)}")


@app.command()
def verify(
    head: Annotated[str | None, typer.Option(help="An end that was noted earlier, as POSITION:LINK.")] = None,
    after: After = 0,
    content: Annotated[bool, typer.Option("--content", help="Compare the records' bodies with their digests too.")] = False,
    file: Annotated[Path | None, typer.Option(help="Verify this export, and ask no deployment.", dir_okay=False)] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Verify the chain of links; exit status 1 with the first position that does not hold.

    Example: moorage history verify --head 1042:9f2c…
    """
    noted = _noted(head)
    if file is not None:
        if after or content:
            raise typer.BadParameter("--after and --content ask a deployment; --file is verified as a whole")
        found = verify_file(file, noted)
    else:
        found = remote.call(url, token, lambda moorage: _verify(moorage, after, noted, content))
    if as_json:
        remote.print_json(found.wire())
    elif found.broken is None:
        waiting = f", and {found.unsealed} not sealed yet" if found.unsealed else ""
        print(f"{remote.counted(found.checked, 'entry holds', 'entries hold')}{waiting}; {_end(found.head)}")
    if found.broken is not None:
        print(f"moorage: history is broken at position {found.broken.position}: {found.broken.reason}", file=sys.stderr)
        raise typer.Exit(1)


async def _verify(moorage: Moorage, after: int, noted: Link | None, content: bool) -> Verified:
    newest = await moorage.seals.head()
    total = None if newest is None else max(0, newest.position - after)
    checked = 0
    with remote.progress("verifying", total, "entries") as advance:
        while True:
            found = await moorage.seals.verify(after, head=noted, content=content)
            checked += found.checked
            advance(found.checked)
            if found.next is None:
                return found.model_copy(update={"checked": checked})
            after = found.next


@app.command()
def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Where to; an export there is continued. - is standard output.")
    ] = None,
    after: After = 0,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
) -> None:
    """Export the sealed entries with their links as NDJSON, to a file or to standard output.

    docs/history.md describes the format and how to verify an export with sha256sum alone.

    Example: moorage history export history.ndjson
    """
    if file == Path("-"):
        file = None
    if file is not None and file.exists() and after:
        raise typer.BadParameter(f"{file} is continued from where it ends; --after is for a new export")
    with open_export(file, after) as target:
        done = remote.call(url, token, lambda moorage: _export(moorage, target))
    if file is not None:
        print(f"{remote.counted(done, 'entry', 'entries')} added to {file}, which ends at position {target.position}")


async def _export(moorage: Moorage, target: Export) -> int:
    await _begin(moorage, target)
    newest = await moorage.seals.head()
    done = 0
    total = None if newest is None else max(0, newest.position - target.position)
    with remote.progress("exporting", total, "entries") as advance:
        async for entry in moorage.seals.iterate_entries(target.position):
            target.write(entry.position, entry.entry, entry.link)
            done += 1
            advance(1)
    return done


async def _begin(moorage: Moorage, target: Export) -> None:
    """Write the header of a new export, or compare the link at which an old one ended."""
    if not target.position:
        target.begin(None)
        return
    found = (await moorage.seals.entries(target.position - 1, limit=1)).items
    link = found[0].link if found and found[0].position == target.position else None
    if link is None:
        raise CommandFailed(f"position {target.position} is not sealed here; nothing can be exported after it")
    if target.link is not None and target.link != link:
        where = f"position {target.position}"
        raise CommandFailed(f"the export's link at {where} is not the deployment's: history was edited at or before {where}")
    target.begin(link)


def _noted(head: str | None) -> Link | None:
    if head is None:
        return None
    position, _, link = head.partition(":")
    well_formed = position.isdecimal() and len(link) == 64 and set(link) <= set("0123456789abcdef")
    if not well_formed or not 0 < int(position) < 2**53:
        raise typer.BadParameter("--head is POSITION:LINK, as `moorage history seal` prints it")
    return Link(position=int(position), link=link)


def _end(head: Link | None) -> str:
    return "nothing is sealed yet" if head is None else f"the chain ends with {head.position}:{head.link}"
