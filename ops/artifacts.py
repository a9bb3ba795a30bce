"""`moorage artifacts`: upload, download and shred artifacts."""

import mimetypes
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer

from moorage.client import Moorage
from moorage.client.models import Artifact
from ops import remote
from ops.failure import CommandFailed

app = remote.group("Upload, download and shred artifacts.")

ArtifactId = Annotated[str, typer.Argument(metavar="ARTIFACT", help="The artifact's id.")]


@app.command()
def upload(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to store.", exists=True, dir_okay=False)],
    media_type: Annotated[str | None, typer.Option(help="Its media type; otherwise told by its name.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Store a file as an artifact; what arrives is checked against the file's own digest.

    Example: moorage artifacts upload report.pdf
    """
    type_name = media_type or mimetypes.guess_type(file.name)[0] or "application/octet-stream"

    async def send(moorage: Moorage) -> Artifact:
        with remote.progress(file.name, file.stat().st_size, "bytes") as advance:
            return await moorage.artifacts.upload(file, type_name, progress=advance)

    _show(remote.call(url, token, send), as_json)


@app.command()
def download(
    artifact: ArtifactId,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to; otherwise standard output.")] = None,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
) -> None:
    """Fetch an artifact's bytes and check their digest. A file appears only once all of it is there and right.

    Example: moorage artifacts download rec_01kb1y0z3w5q9v8d7c6b5a4m3n -o report.pdf
    """

    async def fetch(moorage: Moorage) -> int | None:
        if output is None:
            async with aclosing(moorage.artifacts.chunks(artifact)) as pieces:
                async for piece in pieces:
                    sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return None
        record = await moorage.artifacts.get(artifact)
        with remote.progress(output.name, record.body.get("size"), "bytes") as advance:
            return await moorage.artifacts.download(artifact, output, progress=advance)

    try:
        size = remote.call(url, token, fetch)
    except OSError as error:
        if output is None:
            raise
        raise CommandFailed(f"{output}: {error.strerror}") from None
    if size is not None:
        print(f"{output}: {size:,} bytes, digest verified")


@app.command()
def show(
    artifact: ArtifactId,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show an artifact's record: digest, media type, size, state.

    Example: moorage artifacts show rec_01kb1y0z3w5q9v8d7c6b5a4m3n
    """
    _show(remote.call(url, token, lambda moorage: moorage.artifacts.get(artifact)), as_json)


@app.command()
def shred(
    artifact: ArtifactId,
    reason: Annotated[str, typer.Option(help="Why; history keeps it.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Destroy an artifact's bytes for good; its record, digest and history stay.

    Example: moorage artifacts shred rec_01kb1y0z3w5q9v8d7c6b5a4m3n --reason 'erasure request 17'
    """
    if not yes:
        typer.confirm(f"destroy the bytes of {artifact} for good?", abort=True, err=True)
    _show(remote.call(url, token, lambda moorage: moorage.artifacts.shred(artifact, reason)), as_json)


def _show(artifact: Artifact, as_json: bool) -> None:
    if as_json:
        remote.print_json(artifact.wire())
        return
    facts = {"id": artifact.id, **artifact.body, "created_at": artifact.wire()["created_at"]}
    remote.print_facts({**facts, "shredded": artifact.shredded})
