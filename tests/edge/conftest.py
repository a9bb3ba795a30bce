"""Names and fixtures of the edge's own tests; the factory of edges is a plugin, because other folders use it too."""

from pathlib import Path

import pytest

from ops.local.edge import LocalEdge
from tests.edge.edges import EdgeFactory, bundle_of

__all__ = ["STRICT", "EdgeFactory", "bundle_of"]

STRICT = Path(__file__).parent / "workers" / "strict" / "wrangler.toml"


@pytest.fixture(scope="session")
def strict(edge_factory: EdgeFactory) -> LocalEdge:
    """The Worker that tries what a platform treats in its own way, shared by the session; it is killed at times."""
    return edge_factory(STRICT)
