"""Two replicas on one PostgreSQL, under one fault after the other."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.faults.replicas import compiled_faults, running_pair, until
from tests.faults.rounds import Rounds
from tests.postgres import Postgres

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1500)]

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "200"))


@pytest.fixture(scope="module")
def rounds(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    folder = tmp_path_factory.mktemp("pair")
    database = postgres.new_database()
    with running_pair(folder, database, compiled_faults(folder)) as pair:
        made = Rounds(pair, postgres, database, folder / "home")
        made.prepare()
        yield made


def test_every_job_ends_once_and_right_whatever_dies(
    rounds: Rounds, capsys: pytest.CaptureFixture[str]
) -> None:
    """And when all is over, no file is there that nobody names."""
    began = time.monotonic()
    for number in range(ROUNDS):
        try:
            rounds.run(number)
        except BaseException:
            with capsys.disabled():
                print(f"\nround {number} failed after {dict(rounds.done)}")
            raise
    seconds = time.monotonic() - began
    for replica in rounds.pair:
        until("the replica is up", lambda replica=replica: replica.up)  # type: ignore[misc]
        replica.end(signal.SIGTERM)
    rounds.pair[0].start()
    until("the replica is up", lambda: rounds.pair[0].up)
    assert rounds.files() == rounds.named()
    assert rounds.progress_files() == []
    assert not list((rounds.home / "scratch").glob("*"))
    with capsys.disabled():
        print(
            f"\n{sum(rounds.done.values())} rounds of faults in {seconds:.0f} s: {dict(rounds.done)}; "
            f"jobs met in {dict(rounds.moments)}, ended {dict(rounds.states)}"
        )
