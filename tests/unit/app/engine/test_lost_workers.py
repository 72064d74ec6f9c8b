"""A dead worker is lost if it was killed while memory sufficed; otherwise its end is the task's fault."""

import pytest

from app.engine import local_engine
from app.engine.engine import WORKER_DIED, Failure
from app.engine.outcome_message import decode_outcome, encode_outcome

KILLED = Failure(WORKER_DIED, "the worker that ran the job was killed (SIGKILL)", lost=True)
CRASHED = Failure(WORKER_DIED, "the worker that ran the job was ended by SIGSEGV")


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [(4, 4, True), (4, 5, False), (None, 4, False), (None, None, False), (4, None, False)],
)
def test_a_killed_worker_is_lost_only_if_memory_is_known_to_have_sufficed(
    monkeypatch: pytest.MonkeyPatch, before: int | None, after: int | None, lost: bool
) -> None:
    monkeypatch.setattr(local_engine, "oom_kills", lambda: after)
    judged = local_engine._judged(KILLED, before)
    assert judged.lost is lost
    assert ("ran out of memory" in judged.message) is ((before, after) == (4, 5))
    assert local_engine._judged(CRASHED, before) is CRASHED


@pytest.mark.parametrize("failure", [KILLED, CRASHED])
def test_the_loss_of_a_worker_crosses_to_the_service_as_data(failure: Failure) -> None:
    assert decode_outcome(encode_outcome(failure)) == failure


def test_a_loss_that_is_no_truth_value_is_none() -> None:
    message = encode_outcome(KILLED).replace(b"true", b'"on"')
    decoded = decode_outcome(message)
    assert isinstance(decoded, Failure)
    assert not decoded.lost
