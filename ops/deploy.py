"""`moorage deploy`: vendor, check, migrate, upload. A dry run does all that needs no account."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ops import projects, remote
from ops.bodies_folder import BodiesOption, check_bodies
from ops.bundle import VENDORED, Bundle, build_bundle, with_bodies, wrangler_env
from ops.failure import CommandFailed
from ops.setup import paths
from ops.setup.run import SetupFailed, bring_up_to_date, sole_run
from ops.setup.steps import steps

MIB = 1024 * 1024
PAID_LIMIT = 10 * MIB
FREE_LIMIT = 3 * MIB
"""What Cloudflare takes for one Worker after gzip, on the paid and on the free plan."""

PLACEHOLDER_DATABASE = "00000000-0000-4000-8000-000000000000"


def command(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Stop before anything leaves this machine.")] = False,
    bodies: BodiesOption = None,
    project: projects.ProjectName = None,
) -> None:
    """Vendor the Worker's packages, check the bundle, apply the D1 migrations and deploy.

    With --project, bind the storage of that deployment too, which a first deployment and each new schema need.
    """
    there = None if project is None else projects.load(project)
    console = Console(highlight=False)
    vendor()
    console.print("[green]✓[/green] the Worker's packages are vendored")
    checkout = paths.ROOT
    if bodies is not None:
        names = check_bodies(bodies)
        console.print(f"[green]✓[/green] {len(names)} bodies: {', '.join(names)}")
        checkout = with_bodies(paths.ROOT, bodies, paths.ROOT / "build" / "deploy")
    migrations = check_schema(paths.ROOT / "d1_schema")
    console.print(f"[green]✓[/green] {len(migrations)} migration(s), up to {migrations[-1]}")
    out = paths.ROOT / "build" / ("bundle" if bodies is None else "bundle-deploy")
    bundle = build_bundle(paths.ROOT, out, bodies=bodies)
    check_bundle(bundle, paths.ROOT, checkout / "worker")
    vendored = len(bundle.modules) - len(bundle.own_modules)
    console.print(f"[green]✓[/green] {len(bundle.own_modules)} modules of Moorage and {vendored} vendored files")
    console.print(f"[green]✓[/green] {size_line(bundle)}")
    if dry_run:
        console.print("Dry run: nothing was uploaded.")
        return
    check_account_ids(paths.ROOT / "wrangler.toml")
    _wrangler(checkout, "d1", "migrations", "apply", "DB", "--remote")
    _wrangler(checkout, "deploy")
    if there is None:
        console.print("Bind the storage, unless it is: ./moorage storage initialize --url https://… --token …")
        return
    bound = remote.call(there.url, there.token, lambda moorage: moorage.storage.initialize(), remote.DEPLOYED)
    console.print(
        f"[green]✓[/green] the storage is bound: {bound.identity.identity}, generation {bound.identity.generation}"
    )


def vendor() -> None:
    """Brings python_modules up to the lock file. Raises CommandFailed."""
    try:
        with sole_run():
            bring_up_to_date(steps()[-1])
    except SetupFailed as failure:
        raise CommandFailed(str(failure)) from failure


def check_schema(folder: Path) -> list[str]:
    """The migrations' names in order. Raises CommandFailed unless they are numbered from 0001 without a gap."""
    names = sorted(file.name for file in folder.glob("*.sql"))
    if not names:
        raise CommandFailed(f"no migrations in {folder}")
    for number, name in enumerate(names, start=1):
        if not re.fullmatch(rf"{number:04d}_[a-z0-9_]+\.sql", name):
            raise CommandFailed(f"migration {name} stands where {number:04d}_*.sql is expected")
    return names


def check_bundle(bundle: Bundle, root: Path, worker: Path | None = None) -> None:
    """Raises CommandFailed when the bundle lacks a source or a locked package, or is larger than Cloudflare takes.

    `worker` is the folder of sources it was made from, unless that is the one of `root`.
    """
    worker = worker or root / "worker"
    sources = {file.relative_to(worker).as_posix() for file in worker.rglob("*.py")}
    locked = {f"{VENDORED}/{folder}/METADATA" for folder in _locked_metadata(root / "requirements" / "worker.txt")}
    missing = sorted(({"entry.py"} | sources | locked) - set(bundle.modules))
    if missing:
        shown = ", ".join(missing[:5]) + (" and more" if len(missing) > 5 else "")
        raise CommandFailed(f"the bundle lacks {len(missing)} module(s): {shown}")
    if bundle.gzip_bytes > PAID_LIMIT:
        raise CommandFailed(f"the bundle is too large: {size_line(bundle)}")


def _locked_metadata(lock: Path) -> list[str]:
    pins = re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), re.MULTILINE)
    return [f"{name.replace('-', '_')}-{version}.dist-info" for name, version in pins]


def size_line(bundle: Bundle) -> str:
    """The bundle's size beside what the platform takes, for the reader."""
    raw, packed = bundle.raw_bytes / MIB, bundle.gzip_bytes / MIB
    free = "fits the free plan" if bundle.gzip_bytes <= FREE_LIMIT else "needs the paid plan"
    limits = f"limits: {FREE_LIMIT // MIB} MiB free, {PAID_LIMIT // MIB} MiB paid"
    return f"{raw:.2f} MiB, {packed:.2f} MiB gzip, {free} ({limits})"


def check_account_ids(config: Path) -> None:
    """Raises CommandFailed while wrangler.toml names no database of the account."""
    for database in tomllib.loads(config.read_text())["d1_databases"]:
        if database["database_id"] == PLACEHOLDER_DATABASE:
            name = database["database_name"]
            raise CommandFailed(
                f"set database_id in wrangler.toml to the id that `./moorage wrangler d1 create {name}` prints"
            )


def _wrangler(project: Path, *arguments: str) -> None:
    done = subprocess.run([*paths.wrangler(), *arguments], cwd=project, env=wrangler_env())
    if done.returncode:
        raise CommandFailed(f"wrangler {' '.join(arguments)} failed with status {done.returncode}")
