"""What every test gets: the clause plugin, local edges on demand, and its place where two processes share the suite."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["tests.clauses", "tests.edge.edges"]

_SHARED = (Path(__file__).parent / "contract", Path(__file__).parent / "unit")
"""What bears another process beside it: it measures no time and keeps to itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two processes share these, a file at a time; then one has the rest, which measures, in the order of its files."""
    for item in items:
        shared = any(item.path.is_relative_to(folder) for folder in _SHARED)
        item.add_marker(pytest.mark.xdist_group(item.path.stem if shared else "alone"))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group").args[0] == "alone")  # type: ignore[union-attr]
