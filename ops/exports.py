"""An export of history as a file: written, continued and verified. `docs/history.md` describes the format."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from moorage.client.seals import Broken, Link, Verified
from moorage.history import chain
from ops.failure import CommandFailed

_LINE = re.compile(rb'\{"link":"([0-9a-f]{64})","entry":(\{"position":([0-9]+),.*\})\}', re.DOTALL)
_TAIL_BYTES = 1 << 20
_MADE_ANEW = "its link is not the noted one: the chain up to here was made anew"


class Export:
    """An export being written. `position` and `link` are the last that it holds, or where it begins."""

    def __init__(self, stream: IO[bytes], position: int, link: str | None, *, begun: bool) -> None:
        self._stream = stream
        self._begun = begun
        self.position = position
        self.link = link

    def begin(self, previous: str | None) -> None:
        """Write the header, unless the file has one; `previous` is the link at `position`, None at the very start."""
        if not self._begun:
            header = {"format": chain.FORMAT, "after": self.position, "previous": previous or chain.GENESIS}
            self._put(json.dumps(header, separators=(",", ":")))
            self._begun = True

    def write(self, position: int, entry: str, link: str | None) -> None:
        """Write an entry with its link, byte for byte as it was hashed."""
        self._put(f'{{"link":{json.dumps(link)},"entry":{entry}}}')
        self.position, self.link = position, link

    def _put(self, line: str) -> None:
        self._stream.write(line.encode() + b"\n")


@contextmanager
def open_export(file: Path | None, after: int) -> Iterator[Export]:
    """A new export that begins after a position, or the one in the file, to be continued; None is standard output.

    A last line that was cut off is written anew. Raises CommandFailed when the file is something else.
    """
    if file is None:
        yield Export(sys.stdout.buffer, after, None, begun=False)
        sys.stdout.buffer.flush()
        return
    if not file.exists() or not file.stat().st_size:
        with file.open("wb") as stream:
            yield Export(stream, after, None, begun=False)
        return
    with file.open("r+b") as stream:
        begin, _ = _header(file, stream.readline())
        last = _cut_to_whole_lines(stream)
        match = _LINE.fullmatch(last)
        if match is None and not last.startswith(b'{"format"'):
            raise CommandFailed(f"{file} does not end with an entry that has a link; verify it, or export to another file")
        position, link = (int(match[3]), match[1].decode()) if match else (begin, None)
        yield Export(stream, position, link, begun=True)


def verify_file(file: Path, noted: Link | None = None) -> Verified:
    """Verify an export as a whole. Raises CommandFailed when it cannot be read or is none."""
    try:
        with file.open("rb") as stream:
            position, link = _header(file, stream.readline())
            return _verify_lines(stream, position, link, noted)
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror}") from None


def _verify_lines(stream: IO[bytes], begin: int, previous: str, noted: Link | None) -> Verified:
    position, broken = begin, None
    if noted is not None and noted.position == begin and noted.link != previous:
        return Verified(ok=False, checked=0, head=None, unsealed=0, broken=Broken(position=begin, reason=_MADE_ANEW))
    for line in stream:
        match = _LINE.fullmatch(line.rstrip(b"\n"))
        if match is None or int(match[3]) != position + 1:
            broken = Broken(position=position + 1, reason="the entry or its link is missing")
            break
        link = match[1].decode()
        if chain.link(previous, match[2].decode(errors="replace")) != link:
            broken = Broken(position=position + 1, reason="the entry is not the one that was sealed, or its link was edited")
            break
        position, previous = position + 1, link
        if noted is not None and noted.position == position and noted.link != link:
            broken = Broken(position=position, reason=_MADE_ANEW)
            break
    if broken is None and noted is not None and noted.position > position:
        broken = Broken(position=position + 1, reason="the export ends before the noted position")
    head = Link(position=position, link=previous) if position else None
    return Verified(ok=broken is None, checked=position - begin, head=head, unsealed=0, broken=broken)


def _header(file: Path, line: bytes) -> tuple[int, str]:
    """The position after which an export begins, and the link there."""
    try:
        header = json.loads(line)
        if header["format"] == chain.FORMAT:
            after, previous = int(header["after"]), str(header["previous"])
            return (after, previous) if after else (0, chain.GENESIS)
    except (ValueError, KeyError, TypeError):
        pass
    raise CommandFailed(f"{file} is not an export of history, or one of another format than {chain.FORMAT}")


def _cut_to_whole_lines(stream: IO[bytes]) -> bytes:
    """Cut off a line that has no end, go to the end of the file, and give the last line."""
    size = stream.seek(0, 2)
    start = max(0, size - _TAIL_BYTES)
    stream.seek(start)
    tail = stream.read()
    end = tail.rfind(b"\n")
    if end < 0:
        raise CommandFailed("the file holds no whole line at its end")
    stream.seek(start + end + 1)
    stream.truncate()
    return tail[:end].rpartition(b"\n")[2]
