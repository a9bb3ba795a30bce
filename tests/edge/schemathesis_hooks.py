"""Hooks for schemathesis, loaded by its own process: let every second generated call meet things that exist.

The variable MOORAGE_TEST_KNOWN holds a JSON object: for each name of a path parameter, query parameter or body field the
values that mean something in the deployment under test; for one path alone where the name is `path name`. A stream of
events and a wait are always made short, whoever asks for them.
MOORAGE_TEST_MET names a file, which gets a line for each answer.
"""

import json
import os
from itertools import count
from pathlib import Path
from typing import Any

import schemathesis

KNOWN: dict[str, list[Any]] = json.loads(os.environ["MOORAGE_TEST_KNOWN"])
MET = Path(os.environ["MOORAGE_TEST_MET"])
LONGEST_WAIT = 25
STREAMS = ("/watch", "/runs/{run_id}/stream")
_calls = count()


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: Any) -> None:
    """Put known values in the place of generated ones, taking turns."""
    turn = next(_calls)
    if case.path in STREAMS and isinstance(case.query, dict):
        case.query["max_seconds"] = 0.1
    for part in (case.query, case.body):
        if isinstance(part, dict) and _is_a_wait(part.get("wait_seconds")):
            part["wait_seconds"] = "0.01" if isinstance(part["wait_seconds"], str) else 0.01
    if turn % 2:
        return
    for part in (case.path_parameters, case.query, case.body):
        if isinstance(part, dict):
            for name in list(part):
                values = KNOWN.get(f"{case.path} {name}", KNOWN.get(name))
                if values is not None:
                    part[name] = values[turn // 2 % len(values)]


@schemathesis.hook
def after_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], response: schemathesis.Response) -> None:
    """Note which operation got which status."""
    with MET.open("a") as met:
        met.write(f"{case.method} {case.path} {response.status_code}\n")


def _is_a_wait(seconds: Any) -> bool:
    """Whether a request that asks for so long would be taken, and keep the test. In a query it stands as text."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float, str)):
        return False
    try:
        return 0.01 < float(seconds) <= LONGEST_WAIT
    except ValueError:
        return False
