"""`moorage storage`: whether a deployment's storage is whole, binding it, and the guards of what may be in flight."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from moorage.client import Moorage, Problem
from moorage.client.guards import Summary
from ops import remote
from ops.projects import ProjectName, where
from ops.storage import guard_view, guards

app = remote.group("Look after a deployment's storage: database and bucket, and guards of what may be in flight.")
for _command in (guards.guard, guards.reconcile_guard, guards.audit, guards.holders):
    app.command()(_command)

SCHEMA_CODES = ("ExecutionSchemaIncompatible", "StorageCapabilityMissing")
"""Refusals that are themselves what `check` is to find."""


@dataclass(frozen=True)
class _Checked:
    ok: bool
    told: dict[str, Any]
    findings: list[tuple[str, bool, str]]
    guards: Summary | None = None


@app.command()
def check(
    project: ProjectName = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Check bindings, schema, tables, the recovery identity and the guards; exit status 1 when something is not well.

    Guards are counted by class, and one that stays open for a minute is marked LOOK; that alone is not unwell.

    Example: moorage storage check --project shop
    """
    address, secret = where(project, url, token)
    found = remote.call(address, secret, _check)
    if as_json:
        remote.print_json(found.told)
    else:
        rows = [(name, "ok" if ok else "NOT WELL", detail) for name, ok, detail in found.findings]
        if found.guards is not None:
            rows.append(guards.finding(found.guards, guard_view.flags_of(project, url)))
        remote.print_table(("what", "is", "detail"), rows)
    if not found.ok:
        raise typer.Exit(1)


async def _check(moorage: Moorage) -> _Checked:
    try:
        told = await moorage.storage.check()
    except Problem as problem:
        if problem.code not in SCHEMA_CODES:
            raise
        # The preflight refuses every request, this one too, and says why.
        name = "schema" if problem.code == "ExecutionSchemaIncompatible" else "bindings"
        finding = {"name": name, "ok": False, "detail": problem.detail}
        return _Checked(False, {"ok": False, "findings": [finding]}, [(name, False, problem.detail)])
    findings = [(one.name, one.ok, one.detail) for one in told.findings]
    try:
        summary = await moorage.guards.summary()
    except Problem:
        if told.ok:
            raise
        return _Checked(False, told.wire(), findings)  # a database in pieces cannot count them
    return _Checked(told.ok, {**told.wire(), "guards": summary.wire()}, findings, summary)


@app.command()
def initialize(
    give_up: Annotated[
        str | None, typer.Option("--give-up", metavar="IDENTITY", help="The identity that shall count no longer.")
    ] = None,
    project: ProjectName = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Bind database, bucket and project to one another, where they are bound to nothing; may be repeated.

    It is part of setting a deployment up, and follows each change of the schema. Storage that a restore left in halves is
    refused: restore the rest, or say with --give-up which identity is to count no longer.

    Example: moorage storage initialize --project shop
    """
    url, token = where(project, url, token)
    done = remote.call(url, token, lambda moorage: moorage.storage.initialize(give_up))
    if as_json:
        remote.print_json(done.wire())
        return
    found = done.identity
    print(
        f"{'bound' if done.initialized else 'already bound'}: {found.identity}, generation {found.generation}, "
        f"project {found.project}, schema {found.schema_number}"
    )
