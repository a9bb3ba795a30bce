"""`moorage kv`: read and write small values by namespace and key."""

from typing import Annotated

import typer

from moorage.client import Moorage
from moorage.client.kv import Entry
from ops import remote

app = remote.group("Read and write small values by namespace and key.")

Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key.")]

_WIDTH = 80
"""Characters of a value in a table; `get` and --json print it whole."""


@app.command(context_settings={"ignore_unknown_options": True})  # a value may be -5
def put(
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Any JSON, @FILE, or - for standard input.")],
    revision: Annotated[
        int | None, typer.Option(min=0, help="Only if the key has this revision; 0 if it is not there.")
    ] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Put a value under a key.

    Example: moorage kv put importer cursor '{"page":7}'
    """
    wished = remote.json_argument(value, "VALUE")
    made = remote.call(url, token, lambda moorage: moorage.kv.put(namespace, key, wished, revision=revision))
    if as_json:
        remote.print_json(made.wire())
    else:
        print(f"put {made.namespace}/{made.key} at revision {made.revision}")


@app.command()
def get(
    namespace: Namespace,
    key: Key,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Print the value under a key as JSON; with --json also its revision and when it was put.

    Example: moorage kv get importer cursor
    """
    found = remote.call(url, token, lambda moorage: moorage.kv.get(namespace, key))
    remote.print_json(found.wire() if as_json else found.value)


@app.command("list")
def list_(
    namespace: Namespace,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with it.")] = None,
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List a namespace's keys with their values, by key.

    Example: moorage kv list importer --prefix shop. --all
    """

    async def ask(moorage: Moorage) -> tuple[list[Entry], bool]:
        return await remote.first(moorage.kv.iterate(namespace, prefix), limit, everything)

    entries, more = remote.call(url, token, ask)
    remote.print_list(
        entries,
        more,
        as_json,
        ("key", "revision", "updated", "value"),
        lambda one: (one.key, one.revision, one.wire()["updated_at"], _short(one)),
        numbers=("revision",),
    )


@app.command()
def delete(
    namespace: Namespace,
    key: Key,
    revision: Annotated[int | None, typer.Option(min=1, help="Only if the key has this revision.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.DoneAsJson = False,
) -> None:
    """Delete a key; one that is absent already is fine.

    Example: moorage kv delete importer cursor
    """
    remote.call(url, token, lambda moorage: moorage.kv.delete(namespace, key, revision=revision))
    remote.print_done("deleted", f"{namespace}/{key}", as_json)


def _short(entry: Entry) -> str:
    text = remote.json_line(entry.value).rstrip("\n")
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
