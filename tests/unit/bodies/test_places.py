"""Where a body failed is told in the log, without what it worked with."""

import linecache
import re

import pytest

from moorage.bodies import Failed, Run, body
from tests.unit.bodies.world import World


@body("clumsy", effects=["look"])
async def clumsy(run: Run, how: str) -> str:
    def look() -> str:
        if how == "foreseen":
            raise Failed("Permanent", "sk-live-secret", code="Refused")
        return {}["sk-live-secret"]  # type: ignore[index]

    if how == "body":
        raise ValueError("sk-live-secret")
    return await run.step("look", look)


@pytest.mark.parametrize(
    ("how", "what", "source"), [("body", "ValueError", "raise ValueError"), ("step", "KeyError", "return {}")]
)
async def test_the_line_that_failed_is_logged_and_not_the_value(
    how: str, what: str, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await World(clumsy).run("clumsy", how) == "failed"
    (told,) = [record.getMessage() for record in caplog.records]
    found = re.fullmatch(rf"run run_1: {what} at test_places\.py:(\d+) in (clumsy|look)", told)
    assert found is not None
    assert source in linecache.getline(__file__, int(found[1]))


async def test_a_failure_that_the_body_raised_on_purpose_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert await World(clumsy).run("clumsy", "foreseen") == "failed"
    assert caplog.records == []
