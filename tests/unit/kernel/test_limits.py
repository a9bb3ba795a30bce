"""Limits: one constant each, with a unit and a meaning, all of them published."""

import json
import re

import pytest

from moorage.kernel import limits
from moorage.kernel.limits import Limit, published

pytestmark = pytest.mark.clause("kernel.limits")

NAMED = {name: value for name, value in vars(limits).items() if isinstance(value, Limit)}


@pytest.mark.parametrize("name", NAMED)
def test_a_limit_is_a_positive_number_with_a_unit_and_a_meaning(name: str) -> None:
    limit = NAMED[name]
    assert limit > 0
    assert re.fullmatch(r"[a-z]+s", limit.unit), "bytes, seconds, or what is counted, in the plural"
    assert limit.meaning
    assert not limit.meaning.endswith(".")
    assert re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", name)


def test_seconds_and_bytes_are_in_the_name_of_what_is_measured_in_them() -> None:
    for name, limit in NAMED.items():
        if name.endswith("_SECONDS"):
            assert limit.unit == "seconds"
        if name.endswith("_BYTES"):
            assert limit.unit == "bytes"


def test_no_two_limits_are_one_thing() -> None:
    described = [(limit.unit, limit.meaning) for limit in NAMED.values()]
    assert len(described) == len(set(described))


def test_every_limit_is_published_by_its_lower_case_name() -> None:
    listed = json.loads(json.dumps(published()))
    assert listed.keys() == {name.lower() for name in NAMED}
    assert len(listed) == len(NAMED)
    assert listed["json_depth"] == {"value": 64, "unit": "levels", "meaning": limits.JSON_DEPTH.meaning}
    assert all(entry["value"] == NAMED[name.upper()] for name, entry in listed.items())


def test_a_limit_is_an_integer_in_every_use() -> None:
    limit = Limit(5, "things", "a test")
    assert limit + 1 == 6
    assert [1] * limit == [1] * 5
    assert f"{limit}" == "5"
    assert json.dumps(limit) == "5"


def test_bounds_that_build_on_each_other_agree() -> None:
    assert limits.PAGE_DEFAULT <= limits.PAGE_ITEMS
    assert limits.PATH_VALUE_BYTES < limits.RECORD_BODY_BYTES <= limits.SQL_VALUE_BYTES
    assert limits.PUBLISH_BATCH_BYTES <= limits.SQL_VALUE_BYTES
    assert limits.PATTERN_OPERATORS < limits.SQL_PARAMETERS
    assert 6 * limits.PATTERN_BYTES < limits.SQL_VALUE_BYTES, "operands fit one parameter even when each byte is escaped"
    assert limits.REQUEST_BYTES > limits.RECORD_BODY_BYTES
