"""`moorage backup`: take a backup, verify it, restore it."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from moorage.kernel.instants import Instant
from ops import remote
from ops.storage import manifest
from ops.storage.account import prepare as prepare_account
from ops.storage.create import create as create_backup
from ops.storage.manifest import Manifest
from ops.storage.restore import restore as restore_backup
from ops.storage.sources import LocalState, Source, Wrangler
from ops.storage.verify import verify as verify_backup

app = remote.group("Take, verify and restore backups of the database and whatever it refers to.")

State = Annotated[Path, typer.Option("--state", help="The state folder of a local edge, running or not.", file_okay=False)]
Folder = Annotated[Path, typer.Argument(metavar="BACKUP", help="The backup's folder.", file_okay=False)]


@app.command()
def create(
    to: Annotated[Path, typer.Option("--to", help="The folder to write; it is made, or empty.", file_okay=False)],
    state: State = Path(".moorage"),
    account: Annotated[
        bool, typer.Option("--account", help="Back up the account's database and bucket, with wrangler, instead of --state.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --account: print what would be run.")] = False,
    as_json: remote.AsJson = False,
) -> None:
    """Back up the database, at one instant and while it is used, with every object that it refers to.

    The manifest is written last: a folder without manifest.json is no restore point. What was acknowledged before the
    command began is in the backup.

    Example: moorage backup create --state .moorage --to backups/monday
    """
    if dry_run:
        if not account:
            raise typer.BadParameter("--dry-run is for --account")
        for line in Wrangler().commands():
            print(line)
        return
    source: Source = Wrangler() if account else LocalState(state)
    console = Console(stderr=True, highlight=False)
    made, digest = create_backup(source, to, _now(), lambda line: console.print(f"copied {line}", style="dim"))
    if as_json:
        remote.print_json({"manifest": digest, **_facts(made)})
        return
    print(f"backed up to {to}: {_summary(made)}")
    print(f"manifest {digest}; verify it with `moorage backup verify {to}`")


@app.command()
def verify(folder: Folder, as_json: remote.AsJson = False) -> None:
    """Read every byte of a backup again, and ask its database; exit status 1 with each fault by name.

    Example: moorage backup verify backups/monday
    """
    told = manifest.read(folder)
    with remote.progress("verifying", told.size, "bytes") as advance:
        verdict = verify_backup(folder, advance)
    if as_json:
        remote.print_json({"ok": verdict.holds, "faults": verdict.faults, **_facts(told)})
    elif verdict.holds:
        print(f"{folder} holds: {_summary(told)}")
    for fault in verdict.faults:
        print(f"moorage: {fault}", file=sys.stderr)
    if not verdict.holds:
        raise typer.Exit(1)


@app.command()
def restore(
    folder: Folder,
    state: Annotated[Path, typer.Option("--state", help="An empty state folder, on which nothing runs.", file_okay=False)],
    as_json: remote.AsJson = False,
) -> None:
    """Verify a backup and restore it into an empty state folder, with every old lease fenced.

    Whoever held a record, an execution or a lease when the backup was taken can do nothing with it any more; what was held
    can be taken again. Guards stay held. Never run the old deployment beside the restored one.

    Example: moorage backup restore backups/monday --state restored
    """
    told, fenced = restore_backup(folder, state, _now())
    if as_json:
        counts = {"records": fenced.records, "executions": fenced.executions, "leases": fenced.leases}
        remote.print_json(
            {"generation": fenced.identity.generation, "fenced": counts, "guards": fenced.guards, **_facts(told)}
        )
        return
    print(f"restored into {state}: {_summary(told)}")
    print(
        f"fenced {fenced.records} records, {fenced.executions} executions and {fenced.leases} leases; "
        f"{fenced.guards} guards are still held; generation {fenced.identity.generation} of {fenced.identity.identity}"
    )
    print(
        f"start it with `moorage up --state {state} --root-token …`, with the root token that it had: tokens derive from it"
    )


@app.command()
def prepare(
    folder: Folder,
    to: Annotated[Path, typer.Option("--to", help="The folder to write; it is made, or empty.", file_okay=False)],
) -> None:
    """Prepare a backup for an account: verified, fenced, as SQL, with the wrangler commands that put it there.

    Nothing leaves this machine. Run the commands in order against a new database and a new bucket, before the Worker is
    deployed to them; the database comes last.

    Example: moorage backup prepare backups/monday --to monday-fenced > restore.sh
    """
    made = prepare_account(folder, to, _now())
    for line in made.commands:
        print(line)
    records = remote.counted(made.fenced.records, "record")
    executions = remote.counted(made.fenced.executions, "execution")
    print(f"fenced {records} and {executions}", file=sys.stderr)
    if made.too_long:
        print(
            f"moorage: {made.too_long} rows make longer statements than D1 imports; see docs/operations.md", file=sys.stderr
        )
        raise typer.Exit(1)


def _now() -> Instant:
    return Instant(time.time_ns() // 1_000_000)


def _summary(told: Manifest) -> str:
    mib = told.size / 1024 / 1024
    return f"project {told.project}, history up to {told.position}, {len(told.objects)} objects, {mib:.1f} MiB"


def _facts(told: Manifest) -> dict[str, object]:
    return {
        "created_at": told.created_at,
        "project": told.project,
        "identity": told.identity,
        "schema": told.schema,
        "position": told.position,
        "head": told.head,
        "objects": len(told.objects),
        "bytes": told.size,
    }
