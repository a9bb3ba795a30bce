"""A nightly report: every region's sales at once, a summary of those that answered, and who did not.

moorage runs start report --scope report-2026-11-29 --input '{"night":"2026-11-29","books":"https://books.example.test",
    "regions":["north","south","west"]}'
"""

from datetime import date
from urllib.parse import quote

from pydantic import BaseModel, Field, HttpUrl

from moorage.bodies import Run, body, each


class Night(BaseModel):
    """Which night, and whose books are read where."""

    night: date
    books: HttpUrl
    regions: list[str] = Field(min_length=1, max_length=100)


class Sales(BaseModel):
    """A region's sales."""

    total: int


class Summary(BaseModel):
    """The night's sum, and the regions that are not in it."""

    night: date
    total: int
    regions: dict[str, int]
    missing: dict[str, str]


@body("report", effects=[each("sales"), "summary"])
async def report(run: Run, given: Night) -> Summary:
    """Read all regions side by side, leave out those that fail for good, and publish the summary."""
    read = [sales(run, given, region) for region in given.regions]
    found = await run.gather(*read, allow_partial=True)
    regions = {region: total for region, total in zip(given.regions, found.values, strict=True) if total is not None}
    missing = {given.regions[one.branch]: one.tag for one in found.failed}
    summary = Summary(night=given.night, total=sum(regions.values()), regions=regions, missing=missing)
    await run.publish("summary", [{"kind": "report.summary", "body": summary.model_dump(mode="json")}])
    return summary


async def sales(run: Run, given: Night, region: str) -> int:
    """One region's sales: a branch of its own, which joins the others at the gather."""
    answer = await run.fetch("sales", f"{str(given.books).rstrip('/')}/regions/{quote(region)}/sales")
    return Sales.model_validate(answer.json()).total
