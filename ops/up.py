"""`moorage up`: the local edge until Ctrl-C or SIGTERM."""

import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from ops.bodies_folder import BodiesOption, bundle_with, check_bodies
from ops.bundle import build_bundle
from ops.failure import CommandFailed
from ops.local.config import read_config
from ops.local.edge import ALLOW_LOCAL, EdgeConfig, EdgeFailed, LocalEdge
from ops.setup import paths

TEST_CLOCK = "MOORAGE_TEST_CLOCK"
_SECRET = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_OWN = "MOORAGE_ROOT_TOKEN"


class _Stopped(Exception):
    """A signal asked for the end."""


def command(
    port: Annotated[int, typer.Option(help="The port on 127.0.0.1; 0 takes any free one.", min=0, max=65535)] = 8787,
    state: Annotated[Path, typer.Option(help="The folder that D1, R2 and the Durable Objects live in.")] = Path(".moorage"),
    root_token: Annotated[
        str | None, typer.Option(help="The root credential; otherwise one is made and kept in the state folder.")
    ] = None,
    test_clock: Annotated[bool, typer.Option("--test-clock", help="Serve /testing/clock, which moves time.")] = False,
    bodies: BodiesOption = None,
    allow_local: Annotated[
        bool, typer.Option("--allow-local", help="Let bodies and destinations reach this machine's own networks.")
    ] = False,
    secret: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A secret for the Worker, from this terminal's environment; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Run Moorage on this machine, on a real workerd, until Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        variables = {TEST_CLOCK: test_clock, ALLOW_LOCAL: allow_local}
        bound = {**secrets_of(secret or ()), **{name: "1" for name, wanted in variables.items() if wanted}}
        _serve(port, state, root_token, bound, bodies, as_json)
    except _Stopped:
        return


def secrets_of(names: Sequence[str]) -> dict[str, str]:
    """The secrets of these names, as the environment has them. Raises CommandFailed for one that it has not, for a name that
    `env:NAME` could not say, and for the root token, which has an option of its own."""
    found: dict[str, str] = {}
    for name in names:
        if _SECRET.fullmatch(name) is None or name == _OWN:
            raise CommandFailed(f"{name!r} is no secret's name: upper-case letters, digits and underscores, not {_OWN}")
        if not os.environ.get(name):
            raise CommandFailed(f"the environment has no {name}")
        found[name] = os.environ[name]
    return found


def _stop(_number: int, _frame: FrameType | None) -> None:
    # Once is enough: a second Ctrl-C must not interrupt the stopping itself.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise _Stopped


def _serve(
    port: int, state: Path, root_token: str | None, bound: Mapping[str, str], bodies: Path | None, as_json: bool
) -> None:
    wrangler_config = paths.ROOT / "wrangler.toml"
    read_config(wrangler_config)  # a broken file is named before wrangler words it at length
    names: list[str] = []
    if bodies is None:
        bundle = build_bundle(paths.ROOT, paths.ROOT / "build" / "bundle")
    else:
        names = check_bodies(bodies)
        bundle = bundle_with(bodies)
    config = EdgeConfig(state, bundle.path, wrangler_config, port, root_token, bound, echo=True)
    with LocalEdge(config) as edge:
        _announce(edge, state, names, as_json)
        status = edge.wait()
    raise EdgeFailed(f"Node ended with status {status}; the state is kept, start again")


def _announce(edge: LocalEdge, state: Path, bodies: list[str], as_json: bool) -> None:
    if as_json:
        facts = {
            "url": edge.url,
            "root_token": edge.root_token,
            "docs": f"{edge.url}/docs",
            "openapi": f"{edge.url}/openapi.json",
            "pid": os.getpid(),
            "state": str(state.absolute()),
            "bodies": bodies,
            "boot_ms": edge.boot_ms,
        }
        print(json.dumps(facts))
    else:
        print(f"listening on {edge.url}")
        print(f"root token   {edge.root_token}")
        print(f"docs         {edge.url}/docs and {edge.url}/openapi.json")
        if bodies:
            print(f"bodies       {', '.join(bodies)}")
        print(f"state        {state}, started in {edge.boot_ms['total']} ms; Ctrl-C stops")
    sys.stdout.flush()
