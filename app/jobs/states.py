"""The life of a job as pure transitions: what may follow what, and nothing else."""

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing can follow."""
        return not any(source is self for source, _ in _TRANSITIONS)


class Step(StrEnum):
    """What happens to a job."""

    CLAIM = "claim"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    REQUEUE = "requeue"
    EXPIRE = "expire"


class Outcome(StrEnum):
    """How a job that ended went, in the words of the Optim providers."""

    SUCCESS = "SUCCESS"
    SUCCESS_WITH_INFO = "SUCCESS_WITH_INFO"
    FAILURE = "FAILURE"


class StepRefused(Exception):
    """The step does not follow the state."""

    def __init__(self, state: State, step: Step) -> None:
        super().__init__(state, step)
        self.state = state
        self.step = step

    def __str__(self) -> str:
        return f"a {self.state} job cannot take the step '{self.step}'"


_TRANSITIONS = {
    (State.QUEUED, Step.CLAIM): State.RUNNING,
    (State.QUEUED, Step.CANCEL): State.CANCELLED,
    (State.RUNNING, Step.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Step.FAIL): State.FAILED,
    (State.RUNNING, Step.CANCEL): State.CANCELLED,
    (State.RUNNING, Step.REQUEUE): State.QUEUED,
    (State.QUEUED, Step.EXPIRE): State.FAILED,
    (State.RUNNING, Step.EXPIRE): State.FAILED,
}


def after(state: State, step: Step) -> State:
    """The state that follows. Raises StepRefused."""
    try:
        return _TRANSITIONS[state, step]
    except KeyError:
        raise StepRefused(state, step) from None


def sources(step: Step) -> tuple[State, ...]:
    """The states from which the step can be taken."""
    return tuple(state for state, taken in _TRANSITIONS if taken is step)


def outcome_of(state: State, event_counts: Mapping[str, int]) -> Outcome | None:
    """The outcome of a job that ended, else None.

    Information is whatever was suppressed, replaced, dropped, kept or left unswapped. A cancelled
    job gave nothing: that is a failure too, and its state says why.
    """
    if not state.ended:
        return None
    if state is not State.SUCCEEDED:
        return Outcome.FAILURE
    return Outcome.SUCCESS_WITH_INFO if any(event_counts.values()) else Outcome.SUCCESS
