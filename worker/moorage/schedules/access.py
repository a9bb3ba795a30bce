"""Who may do what with a schedule: a grant is on the body that it starts, or on the kind that it publishes.

Whoever declared a schedule, and whoever may start or operate on its target, manages it; who may read the target as well sees
it. A grant that a pattern narrows gives nothing here but the declaring of what lies inside.
"""

from moorage.catalog.access import Action, Caller
from moorage.kernel.errors import Forbidden, ScheduleUnknown
from moorage.schedules.model import BodyTarget, Schedule, Target


def manages(caller: Caller, schedule: Schedule) -> bool:
    """Whether the caller may pause, resume, trigger, backfill, replace and delete it."""
    return caller.subject == schedule.created_by or _holds(caller, _starting(schedule.target), schedule.target)


def sees(caller: Caller, schedule: Schedule) -> bool:
    """Whether the caller may look at it."""
    return manages(caller, schedule) or _holds(caller, ("read",), schedule.target)


def demand(caller: Caller, schedule: Schedule) -> None:
    """Raise ScheduleUnknown unless the caller sees the schedule, Forbidden unless it manages it."""
    if not sees(caller, schedule):
        raise ScheduleUnknown()
    if not manages(caller, schedule):
        raise Forbidden("the credential does not grant starting, or operating on, what the schedule starts")


def _starting(target: Target) -> tuple[Action, ...]:
    return ("execute", "operate") if isinstance(target, BodyTarget) else ("publish", "operate")


def _holds(caller: Caller, actions: tuple[Action, ...], target: Target) -> bool:
    name = target.body if isinstance(target, BodyTarget) else target.kind
    return caller.is_root or any(
        grant.match is None and grant.covers(action, name) for grant in caller.grants for action in actions
    )
