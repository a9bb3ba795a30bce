"""Whether an input fits the schema that a body is offered with (clause runs.body-pins).

The Worker has its own bodies' types, and what is sent to a host outside it is that host's to check. The house asks the
schema where an old input meets a new build: before what it was recorded under is given up.
"""

from collections.abc import Mapping
from typing import Any

from moorage.catalog import schemas
from moorage.kernel.errors import InputInvalid, RequestInvalid


def check(schema: Mapping[str, Any] | None, value: Any) -> None:
    """Raise InputInvalid, with a JSON Pointer to each fault, when the value does not fit the schema.

    A schema that no kind could have (one with a `pattern`, say) is left to the host.
    """
    if schema is None:
        return
    try:
        schemas.check(schema)
    except RequestInvalid:
        return
    if faults := schemas.Validator(schema).problems(value):
        first = faults[0]
        where = first["pointer"] or "its root"
        raise InputInvalid(f"the input does not fit at {where}: {first['message']}", errors=faults)
