"""Set-up packs the time zones for the Worker into one file, and schedules read them from there as from the package."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from shutil import copytree
from zoneinfo import ZoneInfo

import pytest

from moorage.schedules import zones
from ops.setup.steps import ZONES, pack_zones


@pytest.fixture
def _as_before() -> Iterator[None]:
    yield
    zones._read.cache_clear()


def offsets(where: ZoneInfo) -> list[timedelta | None]:
    """How far clocks there are from UTC, twice a week over sixty years."""
    return [datetime.fromtimestamp(second, where).utcoffset() for second in range(0, 60 * 366 * 86_400, 302_400)]


@pytest.mark.clause("schedules.dst")
@pytest.mark.usefixtures("_as_before")
def test_a_packed_zone_is_the_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "tzdata"
    copytree(Path(str(files("tzdata"))), package)
    plain = {name: zones.zone(name) for name in ("Europe/Paris", "Australia/Lord_Howe", "Etc/GMT+5", "UTC")}
    pack_zones(package)
    assert sorted(file.name for file in package.iterdir() if file.name != "__pycache__") == ["__init__.py", "zones", ZONES]
    monkeypatch.setattr(zones, "files", lambda name: package)
    zones._read.cache_clear()
    for name, before in plain.items():
        packed = zones.zone(name)
        assert packed is not before
        assert (packed.key, offsets(packed)) == (name, offsets(before))
