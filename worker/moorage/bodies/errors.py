"""What goes wrong in a body, as the author meets it. None of these crosses the wire: the run's record holds a `Failure`.

BodyMisdeclared          at registration: the declaration is at fault
StepMisuse               the body does what no replay could repeat; it fails the run, and cannot be caught away
|- EffectUndeclared  |- StepLabelReused  |- ReplayDivergence  |- EffectOutsideStep  |- StepOverlap
`- CallbackLimited
Failed                   raised by authors, to fail a step or the run with a tag of their choice
`- InDoubt               what became of a guarded effect is not known
StepFailed               a step failed for good
|- Rejected              the awakeable was rejected
|- TimedOut              the awakeable's deadline passed
`- ChildFailed           the child run did not succeed
"""

from typing import Any

from moorage.kernel.errors import FailureTag


class BodyMisdeclared(Exception):
    """The declaration of a body cannot be registered; the message names what to write instead."""


class RunRetryTagUnretryable(BodyMisdeclared):
    """`retry_on` names a tag that is never tried again (clause runs.unretryable-tag)."""


class StepMisuse(Exception):
    """The body's own code is at fault: it would not replay faithfully (clause runs.effect-boundary).

    The run closes as failed with tag Permanent and `code`, whatever the body does with the exception.
    """

    def __init__(self, message: str, step: str | None = None) -> None:
        super().__init__(message)
        self.step = step

    @property
    def code(self) -> str:
        """The class's name, as on the run's record."""
        return type(self).__name__


class EffectUndeclared(StepMisuse):
    """The label is not among the body's declared effects."""


class StepLabelReused(StepMisuse):
    """One label was asked for with two inputs, and is not declared with `each`."""


class ReplayDivergence(StepMisuse):
    """On replay the body asks for other steps, or in another order, than it recorded."""


class EffectOutsideStep(StepMisuse):
    """Body code read a clock, chance, or the network outside a step, or made branches without `run.gather`."""


class StepOverlap(StepMisuse):
    """Two steps of one branch were under way at once, or a step was asked for inside another one's effect."""


class CallbackLimited(StepMisuse):
    """The callback of a guarded effect did more with its run than set its metadata (clause guards.callback-limits)."""


class CancellationSwallowed(StepMisuse):
    """A branch that lost a first goes on waiting, however often it is canceled."""


class Failed(Exception):
    """Raise it in a step's effect, or in a body, to fail with `tag`, one of the closed set.

    `retry_after` are seconds that the next attempt should wait, where somebody said so. Raises ValueError for another tag.
    """

    def __init__(
        self, tag: FailureTag | str, message: str, *, code: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.tag = FailureTag(tag)
        self.message = text_of(self)
        self.code = code
        self.retry_after = retry_after


class InDoubt(Failed):
    """Raise it in a guarded effect whose outcome is not known: the guard stays (clause guards.release).

    Whatever escapes from the callback of an effect counts so, but for Failed, which says that the other side has answered
    or that nothing was sent.
    """


class StepFailed(Exception):
    """A step failed for good: it names the step's label and the underlying tag (clause runs.step-failed).

    A body may catch it and go on: a replay raises the same again.
    """

    def __init__(self, label: str, tag: str, message: str, code: str | None = None) -> None:
        super().__init__(f"step {label!r} failed: {tag}: {message}")
        self.label = label
        self.tag = FailureTag(tag)
        self.message = message
        self.code = code


class Rejected(StepFailed):
    """The awakeable was rejected; `tag` and `message` are what it was rejected with."""


class TimedOut(StepFailed):
    """The awakeable was neither resolved nor rejected, or no event came, before the deadline, an RFC 3339 instant."""

    def __init__(
        self, label: str, deadline: str, what: str = "nothing resolved it", code: str = "AwakeableTimedOut"
    ) -> None:
        super().__init__(label, FailureTag.TIMED_OUT, f"{what} before {deadline}", code)
        self.deadline = deadline


class ChildFailed(StepFailed):
    """The child run ended in another way than `success`; `run_id` and `status` tell which."""

    def __init__(self, label: str, tag: str, message: str, run_id: str, status: str, code: str | None = None) -> None:
        super().__init__(label, tag, message, code)
        self.run_id = run_id
        self.status = status


def failure_members(error: BaseException) -> dict[str, Any]:
    """Tag, code and message of what a join met in a branch; anything else is Permanent."""
    if isinstance(error, (StepFailed, Failed)):
        return {"tag": error.tag.value, "code": error.code, "message": error.message}
    return {"tag": FailureTag.PERMANENT.value, "code": type(error).__name__, "message": text_of(error)}


def text_of(error: BaseException) -> str:
    """What an exception says of itself; nothing where its text cannot be made: it must not take the run's end with it."""
    try:
        return str(error)
    except Exception:
        return ""
