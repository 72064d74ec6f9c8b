"""Linters and client generators of others accept the contract: `make contract` installs them.

They need Node 20 and 300 megabytes, so that they run only where that target has installed them.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "openapi" / "openapi.json"
TOOLS = ROOT / "tools" / "contract"
PYTHON = ROOT / ".venv-contract" / "bin"

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (ROOT / ".venv-contract" / ".installed").exists(),
        reason="`make contract` installs the linters and generators",
    ),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with the document, and with the installed npm packages."""
    shutil.copy(CONTRACT, tmp_path / "openapi.json")
    (tmp_path / "node_modules").symlink_to(TOOLS / "node_modules")
    return tmp_path


def run(folder: Path, *command: str | Path, **variables: str) -> str:
    """Return the output of a program that must succeed; npm packages are found by name."""
    path = f"{TOOLS / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
    environment = (
        os.environ
        | variables
        | {
            "PATH": path,
            "REDOCLY_TELEMETRY": "off",
            "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true",
        }
    )
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, cwd=folder, env=environment
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_spectrals_rule_set_passes(folder: Path) -> None:
    """No error, no warning."""
    (folder / ".spectral.yaml").write_text('extends: ["spectral:oas"]\n')
    output = run(folder, "spectral", "lint", "openapi.json", "--fail-severity", "hint", "--format", "text")
    assert "openapi.json:" not in output, output


def test_redoclys_recommended_rule_set_passes(folder: Path) -> None:
    """No error, no warning."""
    (folder / "redocly.yaml").write_text("extends: [recommended]\n")
    output = run(folder, "redocly", "lint", "openapi.json", "--format", "stylish")
    assert "Your API description is valid" in output, output
    assert "You have" not in output, output  # it counts its warnings after these words


def compile_strictly(folder: Path, *files: str) -> None:
    flags = "--noEmit --strict --target es2022 --module nodenext --lib es2022,dom,dom.iterable"
    run(folder, "tsc", *flags.split(), *files)


USE_OF_HEY_API = """\
import { createBuffer, createBufferFromForm, runCdswap, type Buffer, type Job } from "./client/index.js";

const source = { rows: [{ income: 1, city: "Dublin" }] };
const parameters = { swap_fields: ["income"], control_field: "city" };
const answer = await runCdswap({ body: { source, parameters } });
export const job: Job | undefined = answer.data;

const file = new Blob(["age\\n31\\n"]);
for (const type of ["text/csv", "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"]) {
  const made = await createBuffer({ body: file, headers: { "Content-Type": type }, query: { label: type } });
  const buffer: Buffer | undefined = made.data;
  console.log(buffer?.fields);
}
await createBufferFromForm({ body: { file, header: false } });
"""


def test_hey_api_makes_a_client_that_compiles(folder: Path) -> None:
    run(
        folder,
        "openapi-ts",
        "--input",
        "openapi.json",
        "--output",
        "client",
        "--client",
        "@hey-api/client-fetch",
    )
    (folder / "use.mts").write_text(USE_OF_HEY_API)
    compile_strictly(folder, "use.mts")


USE_OF_SWAGGER_TYPESCRIPT_API = """\
import { Api, type Buffer, type Job } from "./api.js";

const source = { rows: [{ income: 1, city: "Dublin" }] };
const parameters = { swap_fields: ["income"], control_field: "city" };
const answer = await new Api({ baseUrl: "" }).v1.runCdswap({ source, parameters });
export const job: Job = answer.data;

const file = new File(["age\\n31\\n"], "people.csv");
const made = await new Api({ baseUrl: "" }).v1.createBufferFromForm({ file, header: false });
export const buffer: Buffer = made.data;
"""


def test_swagger_typescript_api_makes_a_client_that_compiles(folder: Path) -> None:
    run(
        folder,
        "swagger-typescript-api",
        "generate",
        "--path",
        "openapi.json",
        "--output",
        ".",
        "--name",
        "api.ts",
    )
    (folder / "use.mts").write_text(USE_OF_SWAGGER_TYPESCRIPT_API)
    compile_strictly(folder, "use.mts")


@pytest.fixture
def answers(folder: Path) -> Path:
    """File with the recorded JSON responses that succeed: the name of the model, and the document."""

    def recorded() -> Iterator[tuple[str, Any]]:
        for path in json.loads(CONTRACT.read_text())["paths"].values():
            for operation in path.values():
                for status, answer in operation["responses"].items():
                    content = answer.get("content", {}).get("application/json", {})
                    if status < "300" and "$ref" in content.get("schema", {}):
                        examples = [example["value"] for example in content.get("examples", {}).values()]
                        for example in examples or [content["example"]]:
                            yield content["schema"]["$ref"].rpartition("/")[2], example

    found = list(recorded())
    assert any("inference" in document.get("report", {}).get("attacks", {}) for _, document in found)
    (folder / "answers.json").write_text(json.dumps(found))
    return folder / "answers.json"


USE_OF_MODELS = """\
import json
import sys

import models
from pydantic import ValidationError

source = {"rows": [{"income": 1, "city": "Dublin"}]}
parameters = {"swap_fields": ["income"], "control_field": "city"}
request = models.CdswapRequest.model_validate({"source": source, "parameters": parameters})
assert request.parameters.control_field == "city"
try:
    models.CdswapRequest.model_validate({"source": source, "parameters": parameters | {"lockd": True}})
except ValidationError as error:
    assert "lockd" in str(error)
else:
    raise AssertionError("a misspelt parameter is accepted")

for name, answer in json.load(open(sys.argv[1])):
    read = getattr(models, name).model_validate(answer)
    attacks = read.report and read.report.attacks if name == "Job" else None
    for result in (attacks and attacks.inference or {}).values():
        assert result.attack.tries > 0
"""


def test_datamodel_code_generator_makes_models_that_read_each_answer(folder: Path, answers: Path) -> None:
    """Choices as literals: as classes they have the names of fields, and one takes that of `Report`."""
    run(
        folder,
        *(PYTHON / "datamodel-codegen", "--input", "openapi.json", "--input-file-type", "openapi"),
        *("--output", "models.py", "--output-model-type", "pydantic_v2.BaseModel", "--formatters", "builtin"),
        *("--enum-field-as-literal", "all"),
    )
    (folder / "use.py").write_text(USE_OF_MODELS)
    run(folder, PYTHON / "python", "use.py", answers)


USE_OF_OPENAPI_GENERATOR = """\
import json
import os
import sys

import openapi_client
from openapi_client import models

for name, answer in json.load(open(sys.argv[1])):
    getattr(models, name).from_dict(answer)

url, key = os.environ["ROWVEIL_URL"], os.environ["ROWVEIL_API_KEY"]
rows = [{"age": 20 + row % 40, "income": 37 * row % 500, "city": "ABC"[row % 3]} for row in range(90)]
source = {"rows": rows}
with openapi_client.ApiClient(openapi_client.Configuration(host=url, access_token=key)) as client:
    services, jobs = openapi_client.ServicesApi(client), openapi_client.JobsApi(client)
    measures = openapi_client.MeasuresApi(client)
    parameters = {"swap_fields": ["income"], "control_field": "city"}
    request = models.CdswapRequest.from_dict({"source": source, "parameters": parameters})
    job = services.run_cdswap(request, prefer="wait=60")
    assert job.state == "succeeded" and job.destination.rows[0]["city"] == "A"
    asked = {"source": source, "job": job.id, "known": ["age", "city"], "secret": ["income"], "attacks": 20}
    attack = measures.attack(models.AttackRequest.from_dict(asked), prefer="wait=60")
    report = jobs.get_job_report(attack.id)
    assert report.attacks.linkability.attack.tries > 0
    assert report.attacks.inference["income"].attack.rate <= 1
    assert report.attacks.reidentification["income"].details.exact >= 0
    misspelt = {"source": source, "parameters": parameters | {"control_field": "town"}}
    try:
        services.run_cdswap(models.CdswapRequest.from_dict(misspelt))
    except openapi_client.ApiException as error:
        assert json.loads(error.body)["code"] == "invalid_parameter"
    else:
        raise AssertionError("a field that the source does not have is accepted")
"""


def openapi_generator(folder: Path, generator: str) -> None:
    run(
        folder, PYTHON / "openapi-generator-cli", "generate", "-g", generator, "-i", "openapi.json", "-o", "."
    )


def test_openapi_generators_python_client_reads_each_answer(
    folder: Path, answers: Path, client: httpx.Client
) -> None:
    openapi_generator(folder, "python")
    (folder / "use.py").write_text(USE_OF_OPENAPI_GENERATOR)
    key = client.headers.get("authorization", "").removeprefix("Bearer ")
    run(folder, sys.executable, "use.py", answers, ROWVEIL_URL=str(client.base_url), ROWVEIL_API_KEY=key)


USE_OF_TYPESCRIPT_FETCH = """\
import { Configuration, JobsApi, ServicesApi, type Job, type Report } from "./index";

const api = new ServicesApi(new Configuration({ basePath: "", accessToken: "" }));
const source = { rows: [{ income: 1, city: "Dublin" }] };
const parameters = { swapFields: ["income"], controlField: "city" };
export const job: Job = await api.runCdswap({ cdswapRequest: { source, parameters } });
const report: Report = await new JobsApi().getJobReport({ jobId: job.id });
export const rate: number | undefined = report.attacks?.inference?.["income"]?.attack.rate;
"""


def test_openapi_generators_typescript_client_compiles(folder: Path) -> None:
    """There is no class that calls a receiver of webhooks, whose import would have no name (7.26)."""
    openapi_generator(folder, "typescript-fetch")
    assert not (folder / "apis" / "WebhooksApi.ts").exists()
    (folder / "use.ts").write_text(USE_OF_TYPESCRIPT_FETCH)
    flags = "--noEmit --strict --target es2022 --module esnext --moduleResolution bundler"
    run(folder, "tsc", *flags.split(), "--lib", "es2022,dom,dom.iterable", "use.ts")
