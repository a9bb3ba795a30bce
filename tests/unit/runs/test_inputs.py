"""What the schema of a host's body says of an input."""

from typing import Any

import pytest

from moorage.kernel.errors import InputInvalid
from moorage.runs import inputs

ORDER = {"type": "object", "properties": {"pieces": {"type": "integer", "minimum": 1}}, "required": ["pieces"]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (None, {"anything": 1}),
        (ORDER, {"pieces": 3}),
        # No kind could have this one: the host asks it, whatever the house would have found.
        ({**ORDER, "properties": {"name": {"pattern": "^a+$"}}}, {}),
        ({"type": "no such type"}, 1),
    ],
)
def test_what_fits_or_cannot_be_asked_is_let_through(schema: dict[str, Any] | None, value: Any) -> None:
    inputs.check(schema, value)


@pytest.mark.parametrize(
    ("value", "pointer"), [({}, ""), ({"pieces": 0}, "/pieces"), ({"pieces": "secret"}, "/pieces"), (7, "")]
)
def test_each_fault_is_pointed_at_and_nothing_of_the_value_is_told(value: Any, pointer: str) -> None:
    with pytest.raises(InputInvalid) as refused:
        inputs.check(ORDER, value)
    assert refused.value.errors is not None
    assert [one["pointer"] for one in refused.value.errors] == [pointer]
    assert "secret" not in str(refused.value.problem())
