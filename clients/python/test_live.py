"""Tests of the generated client against a live service: ROWVEIL_URL, and optionally ROWVEIL_API_KEY."""

import io
import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from rowveil_api import AuthenticatedClient, Client
from rowveil_api.api.buffers import (
    create_buffer,
    create_buffer_from_form,
    delete_buffer,
    get_buffer,
    get_buffer_rows,
)
from rowveil_api.api.jobs import (
    annotate_job,
    get_job,
    get_job_report,
    get_job_rows,
    list_jobs,
    rerun_job,
    watch_job,
)
from rowveil_api.api.services import (
    run_cdswap,
    run_ddswap,
    run_dswap,
    run_locality,
    run_meds,
    run_mews,
    run_pabidot,
    run_rswap,
    run_rwn,
)
from rowveil_api.models import (
    AnnotationChange,
    Buffer,
    CdswapParams,
    CdswapRequest,
    CreateBufferFromFormBody,
    DdswapParams,
    DdswapParamsMechanism,
    DdswapRequest,
    DswapParams,
    DswapParamsOnBroken,
    DswapRequest,
    Job,
    LocalityParams,
    LocalityRequest,
    MedsParams,
    MedsRequest,
    MewsParams,
    MewsRequest,
    PabidotParams,
    PabidotRequest,
    Problem,
    Quantiles,
    Report,
    RerunRequest,
    RiskSelection,
    Rows,
    RswapParams,
    RswapRequest,
    RwnParams,
    RwnRequest,
    Source,
    SourceRowsItem,
)
from rowveil_api.types import File

url, key = os.environ["ROWVEIL_URL"], os.environ.get("ROWVEIL_API_KEY", "")


def client_that_sends(**headers: str) -> Client | AuthenticatedClient:
    """Return a client that sends these headers with each request."""
    if key:
        return AuthenticatedClient(url, key, timeout=60, headers=headers)
    return Client(url, timeout=60, headers=headers)


client = client_that_sends()

CITIES = ("Athens", "Dublin", "Zurich")
PEOPLE = [
    {"age": 18 + row * 37 % 70, "income": 20000 + row * 7919 % 50000 + 0.5, "city": CITIES[row % 3]}
    for row in range(60)
]
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"
SEED = "8f1c7a0b52e94d63"


def people() -> Source:
    return Source(rows=[SourceRowsItem.from_dict(person) for person in PEOPLE])


def call(request: Callable[..., Any], parameters: Any) -> Any:
    return request(source=people(), parameters=parameters, seed=SEED)


def ended(answer: Any) -> Job:
    assert isinstance(answer, Job), answer
    assert answer.state == "succeeded"
    assert len(answer.destination.rows) == len(PEOPLE)
    return answer


def test_all_eight_services_run() -> None:
    fields, numbers = ["income"], ["age", "income"]
    cases = [
        (run_dswap, call(DswapRequest, DswapParams(swap_fields=fields))),
        (run_cdswap, call(CdswapRequest, CdswapParams(swap_fields=fields, control_field="city"))),
        (
            run_ddswap,
            call(DdswapRequest, DdswapParams(swap_fields=fields, control_field="age", block_size=5)),
        ),
        (run_mews, call(MewsRequest, MewsParams(swap_fields=numbers, bins=3))),
        (run_meds, call(MedsRequest, MedsParams(swap_fields=numbers, k=6))),
        (run_rwn, call(RwnRequest, RwnParams(k=4))),
        (run_pabidot, call(PabidotRequest, PabidotParams(label_fields=["city"]))),
        (run_locality, call(LocalityRequest, LocalityParams(fields=["age"]))),
    ]
    for run, request in cases:
        job = ended(run.sync(client=client, body=request))
        assert f".run_{job.service.lower()}" in run.__name__


SURVEY_NAMES = ("risk", "household", "household_check", "checks", "target_epsilon", "risk_fields")


def test_the_parameters_that_surveys_need_have_types() -> None:
    """Each is sent as it is written, and the job has it."""
    fields, by_age = ["income"], RiskSelection(key_fields=["age"], k=2)
    blocks = {"control_field": "age", "block_size": 10}
    cases = [
        (run_dswap, call(DswapRequest, DswapParams(swap_fields=fields, rate=0.3, risk=by_age))),
        (run_dswap, call(DswapRequest, DswapParams(swap_fields=fields, household="age"))),
        (
            run_dswap,
            call(
                DswapRequest,
                DswapParams(
                    swap_fields=fields,
                    checks=["income >= 0 or age > 18"],
                    on_broken=DswapParamsOnBroken.REPAIR,
                ),
            ),
        ),
        (
            run_cdswap,
            call(
                CdswapRequest,
                CdswapParams(
                    swap_fields=["city"],
                    control_field="income",
                    classifier=Quantiles(quantiles=3),
                    household_check="age",
                ),
            ),
        ),
        (
            run_ddswap,
            call(
                DdswapRequest,
                DdswapParams(
                    swap_fields=fields,
                    **blocks,
                    mechanism=DdswapParamsMechanism.PERMUTATION,
                    target_epsilon=4,
                ),
            ),
        ),
        (run_meds, call(MedsRequest, MedsParams(swap_fields=fields, k=20, rate=0.3, risk=by_age))),
        (
            run_rswap,
            call(RswapRequest, RswapParams(hierarchy=["city"], similar=[["age"]], risk_fields=["income"])),
        ),
    ]
    for run, request in cases:
        job = ended(run.sync(client=client, body=request))
        given, stored = request.to_dict()["parameters"], job.parameters.to_dict()
        names = [name for name in SURVEY_NAMES if given.get(name)]
        assert names
        assert {name: stored[name] for name in names} == {name: given[name] for name in names}


def test_a_table_is_uploaded_swapped_watched_and_fetched() -> None:
    sink = io.BytesIO()
    table = pa.Table.from_pylist(PEOPLE)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    sink.seek(0)
    buffer = create_buffer.sync(client=client, body=File(payload=sink))
    assert isinstance(buffer, Buffer), buffer
    assert buffer.row_count == len(PEOPLE)
    parameters = CdswapParams(swap_fields=["income"], control_field="city")
    request = CdswapRequest(source=Source(buffer=buffer.id), parameters=parameters)
    accepted = run_cdswap.sync_detailed(client=client, body=request, prefer="respond-async")
    assert accepted.status_code == 202
    job_id = accepted.parsed.id
    events = watch_job.sync_detailed(client=client, job_id=job_id).content.decode()
    assert "event: end" in events
    assert get_job.sync(client=client, job_id=job_id).outcome == "SUCCESS"
    rows = get_job_rows.sync(client=client, job_id=job_id)
    assert isinstance(rows, Rows)
    assert len(rows.rows) == len(PEOPLE)
    renamed = annotate_job.sync(
        client=client, job_id=job_id, body=AnnotationChange(name="Wave", label=job_id)
    )
    assert (renamed.name, renamed.label) == ("Wave", job_id)
    assert [job.id for job in list_jobs.sync(client=client, label=job_id).jobs] == [job_id]
    report = get_job_report.sync(client=client, job_id=job_id)
    assert isinstance(report, Report)
    assert delete_buffer.sync_detailed(client=client, buffer_id=buffer.id).status_code == 204
    gone = get_buffer.sync(client=client, buffer_id=buffer.id)
    assert isinstance(gone, Problem)


def written(media_type: str | None) -> io.BytesIO:
    """Return the people as a file of this type; None: an Arrow stream."""
    sink, table = io.BytesIO(), pa.Table.from_pylist(PEOPLE)
    if media_type == CSV:
        pa.csv.write_csv(table, sink)
    elif media_type == PARQUET:
        pa.parquet.write_table(table, sink)
    else:
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    sink.seek(0)
    return sink


def read(content: bytes, media_type: str | None) -> pa.Table:
    if media_type == CSV:
        return pa.csv.read_csv(io.BytesIO(content))
    if media_type == PARQUET:
        return pa.parquet.read_table(io.BytesIO(content))
    return pa.ipc.open_stream(content).read_all()


@pytest.mark.parametrize("media_type", [CSV, PARQUET, ARROW, None])
def test_a_file_is_uploaded_as_its_type_and_downloaded(media_type: str | None) -> None:
    """The body is the file as it is, as the `mime_type` says; without one it is an Arrow stream."""
    file = File(payload=written(media_type), mime_type=media_type)
    buffer = create_buffer.sync(client=client, body=file, label="upload")
    assert isinstance(buffer, Buffer), buffer
    assert (buffer.row_count, buffer.label) == (len(PEOPLE), "upload")
    wanted = client_that_sends(Accept=media_type or ARROW)
    answer = get_buffer_rows.sync_detailed(client=wanted, buffer_id=buffer.id)
    assert answer.status_code == 200
    assert answer.parsed is None
    assert read(answer.content, media_type).to_pylist() == PEOPLE


@pytest.mark.parametrize("media_type", [CSV, PARQUET, ARROW])
def test_a_form_uploads_a_file_of_each_type(media_type: str) -> None:
    file = File(payload=written(media_type), file_name="people", mime_type=media_type)
    body = CreateBufferFromFormBody(file=file, name="People")
    buffer = create_buffer_from_form.sync(client=client, body=body)
    assert isinstance(buffer, Buffer), buffer
    assert (buffer.row_count, buffer.name) == (len(PEOPLE), "People")
    rows = get_buffer_rows.sync(client=client, buffer_id=buffer.id)
    assert isinstance(rows, Rows)
    assert [row.to_dict() for row in rows.rows] == PEOPLE


def test_a_call_waits_for_its_job_and_a_rerun_reproduces_it() -> None:
    parameters = CdswapParams(swap_fields=["income"], control_field="city")
    first = ended(run_cdswap.sync(client=client, body=call(CdswapRequest, parameters), prefer="wait=60"))
    again = rerun_job.sync(client=client, job_id=first.id, body=RerunRequest(source=people()))
    assert ended(again).reproduced is True
    assert again.destination.digest == first.destination.digest


def test_an_error_is_a_problem_with_its_type() -> None:
    request = call(DswapRequest, DswapParams(swap_fields=["incom"]))
    problem = run_dswap.sync(client=client, body=request)
    assert isinstance(problem, Problem)
    assert (problem.status, problem.code) == (422, "invalid_parameter")
    assert problem.errors[0].pointer == "/parameters/swap_fields/0"
