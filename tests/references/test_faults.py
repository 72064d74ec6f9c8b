"""A destination by reference is there whole or not at all, whatever happens on the way."""

import errno
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from app.errors import InvalidRequest, ReferenceUnavailable
from app.formats import CsvStyle, stream_chunks
from app.formats.csv_output import PLAIN
from app.jobs.job_metrics import JobMetrics
from app.jobs.maintenance.takeover import Takeover
from app.jobs.recorder import Recorder
from app.jobs.reference_reader import ReferenceReader
from app.jobs.requests import SendTo
from app.jobs.service import JobService, NewJob
from app.jobs.stores import Stores
from app.jobs.transactions import JobTransactions
from app.references import ReferenceFault, parse_prefix, parse_reference
from app.settings import Settings
from app.store.reference_files import write_file
from app.store.reference_s3 import write_object
from app.store.sql import jobs
from app.store.sql.models import Job
from app.telemetry.metrics import Metrics
from providers import PROVIDERS
from tests.faults.conftest import settings_of
from tests.faults.replicas import until
from tests.faults.running import PATIENCE, Loop
from tests.references.storage import SECRET, Storage
from tests.references.tables import PARAMETERS, of_file, people

pytestmark = pytest.mark.faults


class Gate:
    """`stream_chunks` that waits after its first piece until it is let through."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.fails = self.trickles = False

    def stream(
        self,
        media_type: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        style: CsvStyle = PLAIN,
    ) -> Iterator[bytes]:
        chunks = stream_chunks(media_type, schema, batches, style)
        yield next(chunks)
        self.reached.set()
        while self.trickles and not self.open.wait(0.01):
            yield b"\n"
        assert self.open.wait(PATIENCE)
        if self.fails:
            raise OSError("the income 98765 of Ada cannot be read")
        yield from chunks


@dataclass
class Sender:
    """A job service in this process whose destinations go through a gate."""

    settings: Settings
    gate: Gate
    loop: Loop
    jobs: JobService

    def start(self, to: str) -> Job:
        """A job whose destination is being written."""
        job = self.submit(to)
        assert self.gate.reached.wait(PATIENCE)
        return job

    def submit(self, to: str) -> Job:
        """A job whose destination is to be written there."""
        return self.loop.do(self.jobs.submit(new_job(to)))

    def end(self, job: Job) -> Job:
        """The job when it has ended."""
        ended = self.loop.do(self.jobs.wait(job.id, PATIENCE))
        assert ended.ended
        return ended

    def close(self) -> None:
        self.loop.do(self.jobs.close())
        self.loop.close()


def new_job(to: str) -> NewJob:
    provider = PROVIDERS["DSWAP"]
    params = provider.check(provider.params.model_validate(PARAMETERS), people().schema)
    return NewJob("DSWAP", params, people(), send_to=SendTo(to, "text/csv"))


def begin(settings: Settings) -> Sender:
    gate, loop = Gate(), Loop()
    jobs = JobService(settings)
    loop.do(jobs.start())
    jobs._reference_writer.stream_table = gate.stream
    return Sender(settings, gate, loop, jobs)


def interrupted(settings: Settings, to: str) -> Job:
    """A job that a service has given up at its own end, while the destination was written."""
    first = begin(settings)
    first.gate.trickles = True
    job = first.start(to)
    first.close()
    return job


@pytest.fixture
def places(storage: Storage, tmp_path: Path) -> tuple[Settings, dict[str, str]]:
    """The settings of a service, and where it may write."""
    (tmp_path / "out").mkdir()
    prefixes = f"*=file://{tmp_path}/out,*=s3://released/out,*=s3://nowhere"
    to = {"s3": "s3://released/out/held.csv", "file": f"file://{tmp_path}/out/held.csv"}
    storage.s3.delete_object(Bucket="released", Key="out/held.csv")
    return settings_of(tmp_path / "home", workers=1, destination_prefixes=prefixes), to


@pytest.fixture
def sender(places: tuple[Settings, dict[str, str]]) -> Iterator[Sender]:
    sender = begin(places[0])
    yield sender
    sender.gate.open.set()
    sender.close()


def nothing_is_left(storage: Storage, folder: Path) -> bool:
    """Neither a destination, nor the beginning of one."""
    objects = [*storage.keys("released"), *storage.unfinished("released")]
    return "out/held.csv" not in objects and list(folder.iterdir()) == []


@pytest.mark.parametrize("where", ["s3", "file"])
def test_what_fails_on_the_way_leaves_nothing_and_fails_the_job(
    storage: Storage, sender: Sender, places: tuple[Settings, dict[str, str]], tmp_path: Path, where: str
) -> None:
    sender.gate.fails = True
    job = sender.start(places[1][where])
    sender.gate.open.set()
    ended = sender.end(job)
    assert ended.state == "failed"
    assert ended.error is not None
    assert "98765" not in str(ended.error)
    assert ended.destination_blob is None
    assert nothing_is_left(storage, tmp_path / "out")


@pytest.mark.parametrize("where", ["s3", "file"])
def test_a_job_is_cancelled_while_its_destination_is_written(
    storage: Storage, sender: Sender, places: tuple[Settings, dict[str, str]], tmp_path: Path, where: str
) -> None:
    sender.gate.trickles = True
    job = sender.loop.do(sender.jobs.get(sender.start(places[1][where]).id))
    assert (job.state, sender.loop.do(sender.jobs.progress(job)).stage) == ("running", "sending")
    assert sender.loop.do(sender.jobs.cancel(job.id)).state == "cancelled"
    assert nothing_is_left(storage, tmp_path / "out")


def test_a_job_is_taken_up_again_by_the_next_service(
    storage: Storage, places: tuple[Settings, dict[str, str]], tmp_path: Path
) -> None:
    """The first gives it up at its end; what a killed one would have left does not stand in the way."""
    settings, to = places
    job = interrupted(settings, to["file"])
    assert nothing_is_left(storage, tmp_path / "out")
    left = tmp_path / "out" / f".{job.id}.1.part"
    left.write_bytes(b"x" * 10**6)  # as a service that was killed leaves it

    second = begin(settings)
    second.gate.open.set()
    ended = second.end(job)
    second.close()
    assert (ended.state, ended.attempt) == ("succeeded", 2)
    assert not left.exists()
    assert of_file((tmp_path / "out" / "held.csv").read_bytes(), ".csv").num_rows == 400


@pytest.mark.parametrize("state", ["running", "queued", "of a dead replica"])
def test_a_job_that_ends_after_an_attempt_that_may_have_written_is_named(
    places: tuple[Settings, dict[str, str]], caplog: pytest.LogCaptureFixture, state: str
) -> None:
    """A first service that was killed after its write left a release that no entry of the ledger lists."""
    settings, to = places
    job = interrupted(settings, to["file"])
    assert _NOT_LISTED not in caplog.text
    if state == "running":
        second = begin(settings)
        second.gate.trickles = True
        assert second.gate.reached.wait(PATIENCE)
        assert second.loop.do(second.jobs.cancel(job.id)).state == "cancelled"
        second.close()
    else:
        loop, stores = Loop(), Stores.open(settings)
        loop.do(cancel_without_service(stores, job.id, dead=state != "queued"))
        stores.close()
        loop.close()
    named = [line.getMessage() for line in caplog.records if _NOT_LISTED in line.getMessage()]
    assert [job.id in line for line in named] == [True]


_NOT_LISTED = "a release that the ledger does not list"


async def cancel_without_service(stores: Stores, job_id: str, dead: bool) -> None:
    """Cancel a queued job, or one whose replica died while it ran."""
    metrics = JobMetrics(Metrics("0"), lambda: None)
    with stores.database.read() as session:
        row = jobs.find(session, job_id)
    assert row is not None
    if not dead:
        assert JobTransactions(stores, metrics).cancel_queued(row)
        return
    with stores.database.write() as session:
        session.execute(
            sa.update(Job)
            .where(Job.id == job_id)
            .values(state="running", claimed_by="f" * 12, cancel_requested=True)
        )
    takeover = Takeover(stores, Recorder(stores, metrics), metrics)
    assert takeover.run(end_leases=False, tracked=()) == (1, 0)


def test_an_attempt_whose_lease_expired_puts_nothing_in_place(tmp_path: Path) -> None:
    """It goes on while the next one writes: neither may take the other's half for the whole."""
    reference, prefix = parse_reference(f"file://{tmp_path}/held.csv"), parse_reference(f"file://{tmp_path}")
    begun, go_on = threading.Event(), threading.Event()

    def second() -> Iterator[bytes]:
        yield b"whole, "
        begun.set()
        assert go_on.wait(PATIENCE)
        yield b"by the second"

    with ThreadPoolExecutor(1) as threads:

        def first() -> Iterator[bytes]:
            yield b"whole, "
            successor.append(threads.submit(write_file, reference, prefix, second(), "job.2", ["job.1"]))
            assert begun.wait(PATIENCE)
            yield b"by the first"

        successor: list[Future[None]] = []
        with pytest.raises(ReferenceFault, match="no such file"):
            write_file(reference, prefix, first(), "job.1")
        assert [path.name for path in tmp_path.iterdir()] == [".job.2.part"]
        go_on.set()
        successor[0].result(PATIENCE)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "held.csv": b"whole, by the second"
    }


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_whose_write_is_cancelled_at_its_end_is_not_put_in_place(
    tmp_path: Path, overwrite: bool
) -> None:
    """A slow share may hold the flush of the file for longer than the cancellation waits."""
    reference, prefix = parse_reference(f"file://{tmp_path}/held.csv"), parse_reference(f"file://{tmp_path}")
    with pytest.raises(KeyboardInterrupt):
        write_file(reference, prefix, [b"a"], "job.1", [], overwrite, interrupt)
    assert list(tmp_path.iterdir()) == []


def test_an_object_whose_write_is_cancelled_at_its_end_is_not_put_in_place(storage: Storage) -> None:
    place, size = parse_reference("s3://released/out/held.csv"), 17 * 2**20
    storage.s3.delete_object(Bucket="released", Key="out/held.csv")
    with pytest.raises(KeyboardInterrupt):
        write_object(place, sizes(size), "text/csv", "job.1", False, interrupt)
    assert not any("held.csv" in key or ".part" in key for key in storage.keys("released"))


def test_two_jobs_of_a_series_release_what_the_ledger_lists(tmp_path: Path) -> None:
    """Both ran before either had stored its pairs. The second one runs again before anything is written."""
    (tmp_path / "out").mkdir()
    settings = settings_of(tmp_path / "home", workers=2, destination_prefixes=f"*=file://{tmp_path}/out")
    sender = begin(settings)
    tables = [pa.table({"person": range(first, first + 20), "income": range(20)}) for first in (0, 10)]
    given = {"swap_fields": ["income"], "unit_id": "person", "series": "panel"}
    provider = PROVIDERS["DSWAP"]
    params = provider.check(provider.params.model_validate(given), tables[0].schema)
    jobs = []
    for number, table in enumerate(tables):
        to = SendTo(f"file://{tmp_path}/out/{number}.csv", "text/csv")
        jobs.append(sender.loop.do(sender.jobs.submit(NewJob("DSWAP", params, table, send_to=to))))
    assert sender.gate.reached.wait(PATIENCE)
    until("the other one runs again", lambda: {attempt(sender, job) for job in jobs} == {1, 2})
    sender.gate.open.set()
    ended = [sender.end(job) for job in jobs]
    assert [job.state for job in ended] == ["succeeded", "succeeded"]
    entries = sender.loop.do(sender.jobs.releases(None, 10))[0]
    assert {entry.job_id for entry in entries} == {job.id for job in jobs}
    assert sender.loop.do(sender.jobs.get_series("panel")).units == 30
    sender.close()


def test_a_job_of_a_series_that_is_run_again_writes_the_same_rows(tmp_path: Path) -> None:
    """Another job of the series has ended meanwhile, whose pairs it must not read."""
    (tmp_path / "out").mkdir()
    settings = settings_of(tmp_path / "home", workers=2, destination_prefixes=f"*=file://{tmp_path}/out")
    first = begin(settings)
    first.gate.trickles = True
    source = pa.table({"person": range(20), "income": range(20)})
    given = {"swap_fields": ["income"], "unit_id": "person", "series": "panel"}
    provider = PROVIDERS["DSWAP"]
    params = provider.check(provider.params.model_validate(given), source.schema)
    to = SendTo(f"file://{tmp_path}/out/a.csv", "text/csv")
    job = first.loop.do(first.jobs.submit(NewJob("DSWAP", params, source, send_to=to)))
    assert first.gate.reached.wait(PATIENCE)
    more = pa.table({"person": range(10, 40), "income": range(30)})
    other = first.loop.do(first.jobs.submit(NewJob("DSWAP", params, more)))
    assert first.end(other).state == "succeeded"
    first.close()
    second = begin(settings)
    second.gate.open.set()
    ended = second.end(job)
    assert (ended.state, ended.attempt, ended.series_base) == ("succeeded", 2, 0)
    assert second.loop.do(second.jobs.get_series("panel")).waves == 2
    second.close()


def attempt(sender: Sender, job: Job) -> int:
    return sender.loop.do(sender.jobs.get(job.id)).attempt


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_bucket_that_is_not_there_fails_the_job(sender: Sender) -> None:
    sender.gate.open.set()
    ended = sender.end(sender.submit("s3://nowhere/a.csv"))
    assert ended.error is not None
    assert (ended.error["code"], ended.error["status"]) == ("destination_not_sent", 502)
    assert "no such bucket" in ended.error["detail"]


def test_a_prefix_that_was_taken_away_fails_the_job(
    places: tuple[Settings, dict[str, str]], tmp_path: Path
) -> None:
    """The settings that count are those at the writing."""
    settings, to = places
    job = interrupted(settings, to["file"])
    second = begin(settings.model_copy(update={"destination_prefixes": "*=s3://released"}))
    ended = second.end(job)
    second.close()
    assert ended.error is not None
    assert "ROWVEIL_DESTINATION_PREFIXES" in ended.error["detail"]
    assert list((tmp_path / "out").iterdir()) == []


def sizes(total: int) -> Iterator[bytes]:
    """Chunks of a mebibyte and a rest, each with its number."""
    for number in range(total // 2**20 + 1):
        yield (bytes([number]) * 2**20)[: total - number * 2**20]


@pytest.mark.parametrize("size", [0, 1000, 16 * 2**20, 16 * 2**20 + 1, 35 * 2**20])
def test_an_object_is_written_only_if_there_is_none(storage: Storage, size: int) -> None:
    """Small by one request and large by several, of which none is left behind."""
    place, path = parse_reference("s3://released/out/new.bin"), "out/new.bin"
    storage.s3.delete_object(Bucket="released", Key=path)
    write_object(place, sizes(size), "text/csv", "job.1")
    assert storage.object("released", path) == b"".join(sizes(size))
    write_object(place, sizes(size), "text/csv", "job.2")  # an earlier attempt wrote the same
    with pytest.raises(ReferenceFault, match="already"):
        write_object(place, sizes(size + 1), "text/csv", "job.3")
    assert storage.object("released", path) == b"".join(sizes(size))
    write_object(place, sizes(size + 1), "text/csv", "job.4", overwrite=True)
    assert storage.object("released", path) == b"".join(sizes(size + 1))
    assert storage.unfinished("released") == []
    assert not any(".part" in key for key in storage.keys("released"))


@pytest.mark.parametrize("offers", ["links", "exclusive renames", "neither"])
def test_a_file_is_written_only_if_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offers: str
) -> None:
    """A file system without hard links behaves in the same way."""
    if offers != "links":
        monkeypatch.setattr(os, "link", no_link)
    if offers == "neither":
        monkeypatch.setattr("app.store.reference_files._renamed_unless_taken", lambda *names: False)
    place, prefix = parse_reference(f"file://{tmp_path}/new.csv"), parse_prefix(f"file://{tmp_path}")
    write_file(place, prefix, [b"a", b"bc"], "job.1")
    write_file(place, prefix, [b"ab", b"c"], "job.2")  # an earlier attempt wrote the same
    for other in (b"abd", b"ab"):
        with pytest.raises(ReferenceFault, match="already"):
            write_file(place, prefix, [other], "job.3")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"new.csv": b"abc"}
    write_file(place, prefix, [b"abd"], "job.4", overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"new.csv": b"abd"}


def test_a_kill_without_hard_links_leaves_no_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt writes the file: an empty one of unknown origin would make it fail."""

    class Killed(BaseException):
        pass

    def killed(*arguments: object, **options: object) -> None:
        raise Killed

    monkeypatch.setattr(os, "link", no_link)
    place, prefix = parse_reference(f"file://{tmp_path}/new.csv"), parse_prefix(f"file://{tmp_path}")
    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(os, "rename", killed)
        write_file(place, prefix, [b"abc"], "job.1")
    write_file(place, prefix, [b"abc"], "job.2", ["job.1"])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"new.csv": b"abc"}


def no_link(*arguments: object, **options: object) -> None:
    raise OSError(errno.EPERM, "no links here")


def test_of_two_writers_at_once_one_wins(tmp_path: Path) -> None:
    place, prefix = parse_reference(f"file://{tmp_path}/new.csv"), parse_prefix(f"file://{tmp_path}")
    barrier = threading.Barrier(2)

    def chunks(content: bytes) -> Iterator[bytes]:
        barrier.wait(PATIENCE)
        yield content

    with ThreadPoolExecutor(2) as threads:
        done = [
            threads.submit(write_file, place, prefix, chunks(content), content.decode())
            for content in (b"one", b"two")
        ]
    failures = [future.exception() for future in done]
    assert sum(failure is None for failure in failures) == 1
    assert (tmp_path / "new.csv").read_bytes() == (b"one" if failures[0] is None else b"two")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_job_fails_whose_destination_was_written_meanwhile(
    storage: Storage, sender: Sender, places: tuple[Settings, dict[str, str]], tmp_path: Path
) -> None:
    """The file or object that came first stays."""
    for where in ("file", "s3"):
        sender.gate.reached.clear()
        sender.gate.open.clear()
        job = sender.start(places[1][where])
        (tmp_path / "out" / "held.csv").write_bytes(b"first")
        storage.s3.put_object(Bucket="released", Key="out/held.csv", Body=b"first")
        sender.gate.open.set()
        ended = sender.end(job)
        assert ended.error is not None
        assert (ended.error["code"], ended.error["status"]) == ("destination_not_sent", 502)
        assert "already" in ended.error["detail"]
        assert storage.object("released", "out/held.csv") == b"first"
        assert [path.read_bytes() for path in (tmp_path / "out").iterdir()] == [b"first"]


def test_more_than_one_part_is_given_up_as_well(storage: Storage) -> None:
    """An upload that has begun on the server is aborted there."""

    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield bytes(2**20)
        raise KeyError

    with pytest.raises(KeyError):
        write_object(parse_reference("s3://released/out/parts.bin"), chunks(), "text/csv", "draft")
    assert "out/parts.bin" not in [*storage.keys("released"), *storage.unfinished("released")]


def test_a_storage_that_does_not_answer_is_reported_without_its_address(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    settings = Settings(home=tmp_path, source_prefixes="*=s3://silent-bucket")

    async def read() -> None:
        async for _ in ReferenceReader(settings).chunks("s3://silent-bucket/a.csv", None):
            pass

    loop = Loop()
    with pytest.raises(ReferenceUnavailable) as caught:
        loop.do(read())
    loop.close()
    assert "127.0.0.1" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").touch(mode=0)
    settings = Settings(home=tmp_path / "home", source_prefixes=f"*=file://{tmp_path}/data")

    async def read() -> None:
        async for _ in ReferenceReader(settings).chunks(f"file://{tmp_path}/data/a.csv", None):
            pass

    loop = Loop()
    with pytest.raises(InvalidRequest, match="may not"):
        loop.do(read())
    loop.close()
