"""What every test gets: the clause plugin, local edges on demand, and its place in the order of the suite."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["tests.clauses", "tests.edge.edges"]

_HOST = (Path(__file__).parent / "contract", Path(__file__).parent / "unit")
"""What takes up no edge of its own, and fails fastest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These come first, then the rest, each in the order of its files."""
    items.sort(key=lambda item: not any(item.path.is_relative_to(folder) for folder in _HOST))
