"""Writing and driving bodies: the decorator, the `Run` that a body gets, and the engine behind it.

from moorage.bodies import Run, body, each

@body("order", effects=["reserve", each("charge"), "approval"])
async def order(run: Run, order: Order) -> Receipt: ...
"""

from moorage.bodies.asking import Step
from moorage.bodies.declare import Body, body, each
from moorage.bodies.effects import Sent
from moorage.bodies.errors import (
    BodyMisdeclared,
    CallbackLimited,
    ChildFailed,
    EffectOutsideStep,
    EffectUndeclared,
    Failed,
    InDoubt,
    Rejected,
    ReplayDivergence,
    RunRetryTagUnretryable,
    StepFailed,
    StepLabelReused,
    StepMisuse,
    StepOverlap,
    TimedOut,
)
from moorage.bodies.events import Arrival, Event, EventWait
from moorage.bodies.fetch import Response
from moorage.bodies.handles import Cursor
from moorage.bodies.joins import BranchFailure, Partial, Won
from moorage.bodies.registry import Registry
from moorage.bodies.retry import ONCE, Retry
from moorage.bodies.run import Run
from moorage.bodies.sending import Dispatch
from moorage.bodies.waits import Awakeable, Resolution

__all__ = [
    "ONCE",
    "Arrival",
    "Awakeable",
    "Body",
    "BodyMisdeclared",
    "BranchFailure",
    "CallbackLimited",
    "ChildFailed",
    "Cursor",
    "Dispatch",
    "EffectOutsideStep",
    "EffectUndeclared",
    "Event",
    "EventWait",
    "Failed",
    "InDoubt",
    "Partial",
    "Registry",
    "Rejected",
    "ReplayDivergence",
    "Resolution",
    "Response",
    "Retry",
    "Run",
    "RunRetryTagUnretryable",
    "Sent",
    "Step",
    "StepFailed",
    "StepLabelReused",
    "StepMisuse",
    "StepOverlap",
    "TimedOut",
    "Won",
    "body",
    "each",
]
