"""What every test gets: the clause plugin, local edges on demand, and its place where two processes share the suite."""

from pathlib import Path

import pytest

pytest_plugins = ["tests.clauses", "tests.edge.edges"]

_CONTRACT = Path(__file__).parent / "contract"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs an edge of the product runs in one process, which starts it once; the rest, D1 included, in the other."""
    for item in items:
        if item.get_closest_marker("edge") is not None or "crash" in item.path.parts:
            group = "d1" if item.path.is_relative_to(_CONTRACT) else "edge"
        else:
            group = "d1"
        item.add_marker(pytest.mark.xdist_group(group))
