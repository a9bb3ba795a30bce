"""Time zones of the IANA database, as the package `tzdata` has them, on every machine alike.

The system's own zone files are not asked: the Worker has none, and the host's may be of another year. A zone is read when it
is first named.
"""

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final
from zipfile import ZipFile
from zoneinfo import ZoneInfo

from moorage.kernel.refusals import refused

UTC: Final = "UTC"
_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
_CHARACTERS: Final = 64


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text().split())


@lru_cache(maxsize=64)
def _read(name: str) -> ZoneInfo:
    """From the one file into which set-up packs the zones for the Worker, or from the package as it comes."""
    package = files("tzdata")
    packed = package.joinpath("zones.zip")
    if packed.is_file():
        with packed.open("rb") as whole, ZipFile(whole) as zones, zones.open(name) as file:
            return ZoneInfo.from_file(file, key=name)
    with package.joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def zone(name: str) -> ZoneInfo:
    """The zone of this name, `Europe/Paris`, spelled as the database spells it. Raises RequestInvalid at /timezone."""
    if len(name) > _CHARACTERS or _NAME.fullmatch(name) is None or name not in _names():
        raise refused("/timezone", "must be a time zone of the IANA database, such as Europe/Paris")
    return _read(name)
