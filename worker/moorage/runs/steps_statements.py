"""What is kept of a journal in the run's row when the run ends: every entry without its value (column `steps`).

`STEPS` is a part of other statements, an expression for the execution that `{execution}` names. It goes into the statement
that ends the run, whatever ends it, so that no end leaves it out. `record.Step` reads it.
"""

from typing import Final

from moorage.kernel.limits import RUN_STEPS_BYTES

# One entry as the JSON text that is kept of it.
_ENTRY = """
json_object('label', label, 'input_sha256', input_sha256, 'kind', kind, 'position', position, 'state', state,
    'attempt', attempt, 'started_at', started_at, 'ended_at', ended_at, 'next_attempt_at', next_attempt_at,
    'size', CASE WHEN state = 'done' THEN size END, 'ref', ref, 'failure', json(failure))
""".strip()

_SELECTED = """
(SELECT json_object('total', count(*), 'items', json_group_array(json(told)) FILTER (WHERE bytes <= {bytes}))
FROM (SELECT told, sum(length(CAST(told AS BLOB)) + 1) OVER (ORDER BY started_at, position, label, input_sha256) AS bytes
    FROM (SELECT {entry} AS told, started_at, position, label, input_sha256 FROM journal
        WHERE execution_id = {execution} ORDER BY started_at, position, label, input_sha256)))
""".strip()

# The entries in the order in which they began, up to the bound on their text; `total` tells how many there were.
STEPS: Final = _SELECTED.replace("{entry}", _ENTRY).replace("{bytes}", str(int(RUN_STEPS_BYTES)))


def steps_of(execution: str) -> str:
    """The expression for the execution whose id the SQL text `execution` gives: a column or a parameter."""
    return STEPS.replace("{execution}", execution)
