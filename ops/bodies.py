"""`moorage bodies`: the bodies that runs can be started of."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from moorage.client.models import Body
from moorage.kernel import canonical
from ops import remote
from ops.failure import CommandFailed

_SUMMARY = "List the bodies that runs can be started of, or show one."

app = typer.Typer(
    help=_SUMMARY,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True, help=_SUMMARY)
def bodies(
    context: typer.Context,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Without a command: the list."""
    if context.invoked_subcommand is None:
        list_(url, token, as_json)
        return
    for name in ("url", "token", "as_json"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"options stand behind {context.invoked_subcommand}")


@app.command("list")
def list_(
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List the bodies, where each runs, and its effects.

    Example: moorage bodies list --json
    """
    found = remote.call(url, token, lambda moorage: moorage.runs.bodies())
    if as_json:
        for one in found:
            remote.print_json(one.wire())
        return
    rows = [(one.name, one.host, _digest(one.build)[:12], len(one.effects), _first_line(one.description)) for one in found]
    remote.print_table(("body", "host", "build", "effects", "what it does"), rows, numbers=("effects",))


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="BODY", help="The body's name.")],
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show a body: its pins, the closed list of its effects, and the JSON Schemas of its input and result.

    Example: moorage bodies show order
    """
    one = _named(name, remote.call(url, token, lambda moorage: moorage.runs.bodies()))
    if as_json:
        remote.print_json(one.wire())
        return
    facts = one.wire()
    build = facts.pop("build")
    facts["effects"] = "\n".join(facts["effects"]) or None
    for pin, value in build.items():
        if pin != "body":
            facts[pin] = value or None
    remote.print_facts(facts)


def _named(name: str, found: Sequence[Body]) -> Body:
    for one in found:
        if one.name == name:
            return one
    known = ", ".join(sorted(one.name for one in found)) or "none"
    raise CommandFailed(f"there is no body {name!r} here that you may see; those that there are: {known}")


def _digest(build: dict[str, Any]) -> str:
    """One digest of a build: two bodies with the same are the same build."""
    found = build.get("digest")
    return found if isinstance(found, str) else canonical.digest(canonical.dumps(build))


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
