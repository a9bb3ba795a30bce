"""`moorage kinds`: declare kinds and look at them."""

from typing import Annotated, Any

import typer

from moorage.client import Moorage
from moorage.client.models import Kind
from ops import remote

app = remote.group("Declare kinds and look at them.")

KindName = Annotated[str, typer.Argument(metavar="KIND", help="The kind's name.")]


@app.command()
def declare(
    kind: KindName,
    path: Annotated[list[str] | None, typer.Option(help="A path that patterns may name, as name:type; repeatable.")] = None,
    declaration: Annotated[
        str | None, typer.Option("--from", help="The whole declaration as JSON; @file reads it, - standard input.")
    ] = None,
    schema: Annotated[str | None, typer.Option(help="A JSON Schema for bodies; @file reads it.")] = None,
    lease_seconds: Annotated[int | None, typer.Option(help="How long a claim lasts.")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Attempts before a record is a dead letter.")] = None,
    retention_seconds: Annotated[int | None, typer.Option(help="How long ended records are kept.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Declare a kind, or declare it again with more paths. Options add to what --from says.

    Types of paths: string, number, boolean, instant, any, and string[], number[], boolean[], instant[].

    Example: moorage kinds declare document --path type:string --path size:number --lease-seconds 60
    """
    sent = remote.json_object(declaration, "--from")
    for one in path or []:
        name, colon, type_name = one.rpartition(":")
        if not colon:
            raise typer.BadParameter(f"--path {one}: write it as name:type, for instance size:number")
        sent.setdefault("paths", {})[name] = type_name
    if schema is not None:
        sent["schema"] = remote.json_object(schema, "--schema")
    for member, value in (("lease_seconds", lease_seconds), ("max_attempts", max_attempts)):
        if value is not None:
            sent.setdefault("claim", {})[member] = value
    if retention_seconds is not None:
        sent["retention_seconds"] = retention_seconds
    _show(remote.call(url, token, lambda moorage: moorage.kinds.put(kind, sent)), as_json)


@app.command("list")
def list_(
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List the kinds that the credential has some grant on, by name.

    Example: moorage kinds list
    """

    async def ask(moorage: Moorage) -> tuple[list[Kind], bool]:
        return await remote.first(moorage.kinds.iterate(), limit, everything)

    kinds, more = remote.call(url, token, ask)
    remote.print_list(
        kinds,
        more,
        as_json,
        ("kind", "revision", "paths", "lease s", "attempts", "kept s"),
        lambda one: (
            one.kind,
            one.revision,
            _paths(one),
            one.claim.lease_seconds,
            one.claim.max_attempts,
            one.retention_seconds,
        ),
        numbers=("revision", "lease s", "attempts", "kept s"),
    )


@app.command()
def show(
    kind: KindName,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show one kind in full.

    Example: moorage kinds show document
    """
    _show(remote.call(url, token, lambda moorage: moorage.kinds.get(kind)), as_json)


@app.command()
def retention(
    kind: KindName,
    retention_seconds: Annotated[
        int | None, typer.Option(min=1, help="Suppose that the kind kept its ended records so long.")
    ] = None,
    limit: remote.Limit = 20,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show which ended records of a kind are old enough to be removed now; removes nothing.

    Example: moorage kinds retention document --retention-seconds 86400
    """
    found = remote.call(
        url, token, lambda moorage: moorage.kinds.retention(kind, retention_seconds=retention_seconds, limit=limit)
    )
    if as_json:
        remote.print_json(found.wire())
        return
    facts = found.wire()
    remote.print_facts({name: facts.get(name) for name in ("kind", "retention_seconds", "candidates", "held")})
    if found.oldest:
        print()
        remote.print_table(
            ("record", "state", "ended"), [(one.id, one.state, one.wire()["ended_at"]) for one in found.oldest]
        )


def _paths(kind: Kind) -> str:
    return " ".join(f"{name}:{type_name}" for name, type_name in kind.paths.items())


def _show(kind: Kind, as_json: bool) -> None:
    facts: dict[str, Any] = kind.wire()
    if as_json:
        remote.print_json(facts)
    else:
        remote.print_facts(facts)
