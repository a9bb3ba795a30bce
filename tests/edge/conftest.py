"""Names that the tests of the edge share; the fixtures are a plugin, because other folders use them too."""

from tests.edge.edges import EdgeFactory, bundle_of

__all__ = ["EdgeFactory", "bundle_of"]
