"""The suite of every substrate, over HTTP against the real edge: hosts killed at every write and at every outbound call."""

import pytest

from moorage.client import Moorage
from ops.local.edge import LocalEdge
from tests.contract import conformance
from tests.contract.test_conformance import OverHttp
from tests.edge.client import fresh
from tests.edge.edges import EdgeFactory

pytestmark = pytest.mark.edge


@pytest.fixture(scope="module")
def own(edge_factory: EdgeFactory) -> LocalEdge:
    """An edge whose clock the suite moves by hours."""
    return edge_factory(vars={"MOORAGE_TEST_CLOCK": "1"})


@pytest.mark.clause("runs.substrate", "runs.step-output", "runs.idempotency-key", "runs.claim-takeover", "runs.entry-key")
async def test_a_host_killed_anywhere_is_followed_by_another(own: LocalEdge) -> None:
    async with Moorage(own.url, own.root_token) as moorage:
        await moorage.kinds.put(conformance.KIND, {})
        assert await conformance.check_every_place(OverHttp(moorage), fresh) > 20
