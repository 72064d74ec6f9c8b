"""States of a job and the transitions between them, without side effects."""

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether no transition leaves this state."""
        return not any(source is self for source, _ in _TRANSITIONS)


class Step(StrEnum):
    """Event that moves a job to another state."""

    CLAIM = "claim"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    REQUEUE = "requeue"
    EXPIRE = "expire"


class Outcome(StrEnum):
    """Outcome of a job that has ended, as the Optim providers report it."""

    SUCCESS = "SUCCESS"
    SUCCESS_WITH_INFO = "SUCCESS_WITH_INFO"
    FAILURE = "FAILURE"


class StepRefused(Exception):
    """The state has no transition for this step."""

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
    """Return the state after the step. Raises StepRefused."""
    try:
        return _TRANSITIONS[state, step]
    except KeyError:
        raise StepRefused(state, step) from None


def sources(step: Step) -> tuple[State, ...]:
    """Return the states that have a transition for the step."""
    return tuple(state for state, taken in _TRANSITIONS if taken is step)


def outcome_of(state: State, event_counts: Mapping[str, int]) -> Outcome | None:
    """Return the outcome of a job that has ended, else None.

    ``SUCCESS_WITH_INFO`` means that values were suppressed, replaced, dropped, kept or left unswapped. A
    cancelled job has no result, so its outcome is a failure too; its state distinguishes the two.
    """
    if not state.ended:
        return None
    if state is not State.SUCCEEDED:
        return Outcome.FAILURE
    return Outcome.SUCCESS_WITH_INFO if any(event_counts.values()) else Outcome.SUCCESS
