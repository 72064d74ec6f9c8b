"""The life of a job as pure transitions."""

import itertools

import pytest

from app.jobs.states import Outcome, State, Step, StepRefused, after, outcome_of, sources
from app.store.sql.models import STATES

ALLOWED = {
    (State.QUEUED, Step.CLAIM): State.RUNNING,
    (State.QUEUED, Step.CANCEL): State.CANCELLED,
    (State.RUNNING, Step.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Step.FAIL): State.FAILED,
    (State.RUNNING, Step.CANCEL): State.CANCELLED,
    (State.RUNNING, Step.REQUEUE): State.QUEUED,
    (State.QUEUED, Step.EXPIRE): State.FAILED,
    (State.RUNNING, Step.EXPIRE): State.FAILED,
}


@pytest.mark.parametrize(("state", "step"), list(itertools.product(State, Step)))
def test_each_step_follows_the_contract_or_is_refused(state: State, step: Step) -> None:
    if (state, step) in ALLOWED:
        assert after(state, step) is ALLOWED[state, step]
    else:
        with pytest.raises(StepRefused, match=f"a {state} job cannot take the step '{step}'"):
            after(state, step)


def test_nothing_follows_an_end() -> None:
    assert {state for state in State if state.ended} == {State.SUCCEEDED, State.FAILED, State.CANCELLED}


def test_sources_are_where_a_step_can_be_taken() -> None:
    for step in Step:
        assert set(sources(step)) == {state for state, taken in ALLOWED if taken is step}


def test_every_state_is_reached_from_the_first() -> None:
    reached = {State.QUEUED}
    for _ in State:
        reached |= {target for (source, _), target in ALLOWED.items() if source in reached}
    assert reached == set(State)


def test_the_database_knows_the_same_states() -> None:
    assert tuple(STATES) == tuple(State)


@pytest.mark.parametrize(
    ("state", "counts", "outcome"),
    [
        (State.QUEUED, {}, None),
        (State.RUNNING, {"suppressed": 1}, None),
        (State.SUCCEEDED, {}, Outcome.SUCCESS),
        (State.SUCCEEDED, {"suppressed": 0}, Outcome.SUCCESS),
        (State.SUCCEEDED, {"suppressed": 2}, Outcome.SUCCESS_WITH_INFO),
        (State.FAILED, {}, Outcome.FAILURE),
        (State.CANCELLED, {}, Outcome.FAILURE),
    ],
)
def test_outcome(state: State, counts: dict[str, int], outcome: Outcome | None) -> None:
    assert outcome_of(state, counts) is outcome
