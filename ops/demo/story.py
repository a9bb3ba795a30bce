"""Tells the acts in order, and says in the end whether every claim held."""

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ops.demo.acts import arrival, awaiting, catalog, crash, in_flight, looking_back, poison, publishing, telling, working
from ops.demo.checks import Told
from ops.demo.narrator import Narrator
from ops.demo.payloads import deliveries
from ops.demo.stage import Act, Stage
from ops.demo.wire import Refused, Unanswered
from ops.failure import CommandFailed

ACTS = (
    arrival.ACT,
    catalog.ACT,
    publishing.ACT,
    working.ACT,
    poison.ACT,
    awaiting.ACT,
    telling.ACT,
    crash.ACT,
    in_flight.ACT,
    looking_back.ACT,
)


def run(acts: Sequence[Act], *, as_json: bool, keep: bool) -> int:
    """Tell `acts` in a fresh folder and return the exit status: 0 when every claim holds, 1 otherwise.

    Whatever was started is stopped before it returns or raises, Ctrl-C included. Raises CommandFailed when the payloads
    are not installed.
    """
    console = Console(quiet=as_json, highlight=False)
    payloads = deliveries()
    folder = Path(tempfile.mkdtemp(prefix="moorage-demo-"))
    began = time.monotonic()
    stage = Stage(Narrator(console), folder, payloads)
    try:
        with stage.exits:
            tell(stage, acts)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - began
    if as_json:
        print(json.dumps(document(stage, len(acts), seconds, folder if keep else None), indent=2, ensure_ascii=False))
    else:
        _end(stage, len(acts), seconds, folder if keep else None)
    return 0 if _ok(stage, len(acts)) else 1


def tell(stage: Stage, acts: Sequence[Act]) -> None:
    """Tell the acts. A false claim is kept and the story goes on; an act that breaks off ends it."""
    stage.narrator.opening(
        "Moorage: webhooks become work that is done exactly once",
        f"{len(stage.deliveries)} real GitHub webhook payloads, a real workerd, and everything over HTTP. "
        "Each ✓ below was checked, not written.",
    )
    for number, act in enumerate(acts, 1):
        told = Told(act.name, act.title)
        stage.told.append(told)
        stage.narrator.act(number, act.title, act.intro)
        began = time.monotonic()
        try:
            act.play(stage)
        except (Refused, Unanswered, CommandFailed) as error:
            told.broke_off = str(error)
        except (LookupError, TypeError, ValueError, StopIteration) as error:
            # An answer of another shape than documented is a failed story, and is told as one.
            told.broke_off = f"an answer was not as documented: {error!r}"
        finally:
            told.seconds = time.monotonic() - began
        if told.broke_off is not None:
            stage.narrator.broke_off(told.broke_off)
            return


def document(stage: Stage, acts: int, seconds: float, state: Path | None) -> dict[str, Any]:
    """The telling as one JSON document."""
    checks = [check for told in stage.told for check in told.checks]
    return {
        "ok": _ok(stage, acts),
        "seconds": round(seconds, 3),
        "checks": len(checks),
        "false": _false(stage.told),
        "state": None if state is None else str(state),
        "acts": [told.wire() for told in stage.told],
    }


def _ok(stage: Stage, acts: int) -> bool:
    return len(stage.told) == acts and all(told.ok for told in stage.told)


def _false(acts: Sequence[Told]) -> list[str]:
    """What did not hold, in words."""
    said = [f"{told.title}: {check.statement}" for told in acts for check in told.checks if not check.ok]
    return said + [f"{told.title}: broke off: {told.broke_off}" for told in acts if told.broke_off]


def _end(stage: Stage, acts: int, seconds: float, state: Path | None) -> None:
    checks = sum(len(told.checks) for told in stage.told)
    false = _false(stage.told)
    if _ok(stage, acts):
        stage.narrator.ending(f"All {checks} claims hold. {seconds:.1f} s.", ok=True)
    else:
        stage.narrator.ending(f"{len(false)} of {checks} claims do not hold. {seconds:.1f} s.", ok=False)
        for line in false:
            stage.narrator.note(f"✗ {line}")
    if state is not None:
        stage.narrator.note(f"The state is kept: ./moorage up --state {state / 'state'}")
