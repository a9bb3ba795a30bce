"""Local edges for tests, a pytest plugin: one of Moorage for the whole session, and any other Worker on demand."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ops.bodies_folder import FOLDER_VARIABLE, bundle_with
from ops.bundle import build_bundle
from ops.local.edge import EdgeConfig, LocalEdge
from ops.setup import paths

ALLOWED_ORIGIN = "https://app.example.test"
"""The one origin from which browsers may call the shared edge."""

EdgeFactory = Callable[..., LocalEdge]
"""`edge_factory(config=None, *, state=None, start=True, **options)`; see the fixture."""


def bundle_of(wrangler_config: Path) -> Path:
    """The bundle of a wrangler.toml: Moorage's own, or that of a Worker that exists for tests."""
    if wrangler_config == paths.ROOT / "wrangler.toml":
        if given := os.environ.get(FOLDER_VARIABLE):
            return bundle_with(Path(given)).path
        return build_bundle(paths.ROOT, paths.ROOT / "build" / "bundle").path
    name = f"bundle-{wrangler_config.parent.name}"
    return build_bundle(paths.ROOT, paths.ROOT / "build" / "test-bundles" / name, wrangler_config).path


@pytest.fixture(scope="session")
def edge_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeFactory]:
    """Makes local edges and stops them when the session ends.

    `config` is a wrangler.toml (default: Moorage's), `state` a folder (default: a fresh one), `bodies` a folder of bodies
    that takes the place of the Worker's own; other keywords go to EdgeConfig, for instance
    `vars={"MOORAGE_TEST_CLOCK": "1"}`. With `start=False` the edge is returned unstarted.
    An edge costs about 300 MB while it runs: share one where a test does not need its own.
    """
    with ExitStack() as stack:

        def make(
            config: Path | None = None,
            *,
            state: Path | None = None,
            bodies: Path | None = None,
            start: bool = True,
            **options: object,
        ) -> LocalEdge:
            wrangler_config = config or paths.ROOT / "wrangler.toml"
            if "bundle" not in options:
                options["bundle"] = bundle_of(wrangler_config) if bodies is None else bundle_with(bodies).path
            folder = state or tmp_path_factory.mktemp("edge")
            edge = LocalEdge(EdgeConfig(folder, wrangler_config=wrangler_config, **options))  # type: ignore[arg-type]
            stack.callback(edge.stop)
            if start:
                edge.start()
            return edge

        yield make


@pytest.fixture(scope="session")
def edge(edge_factory: EdgeFactory) -> LocalEdge:
    """Moorage itself with the test clock, shared by the session: tests keep apart by names of their own."""
    return edge_factory(vars={"MOORAGE_TEST_CLOCK": "1", "MOORAGE_ALLOWED_ORIGINS": ALLOWED_ORIGIN})
