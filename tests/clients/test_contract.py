"""Linters and client generators of others accept the contract: `make contract` installs them.

They need Node 20 and a hundred megabytes, so that they run only where that target has installed them.
"""

import os
import shutil
import subprocess
from pathlib import Path

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


def run(folder: Path, *command: str | Path) -> str:
    """Return the output of a program that must succeed; npm packages are found by name."""
    path = f"{TOOLS / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {
        "PATH": path,
        "REDOCLY_TELEMETRY": "off",
        "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true",
    }
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


USE_OF_MODELS = """\
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
"""


def test_datamodel_code_generator_makes_models_that_load(folder: Path) -> None:
    run(
        folder,
        *(PYTHON / "datamodel-codegen", "--input", "openapi.json", "--input-file-type", "openapi"),
        *("--output", "models.py", "--output-model-type", "pydantic_v2.BaseModel", "--formatters", "builtin"),
    )
    (folder / "use.py").write_text(USE_OF_MODELS)
    run(folder, PYTHON / "python", "use.py")
