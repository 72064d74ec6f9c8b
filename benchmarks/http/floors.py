"""Floors of a small call: FastAPI that parses and writes a table, or also swaps it in its process."""

from contextlib import AbstractContextManager
from typing import Any

import orjson
import pyarrow as pa
from fastapi import FastAPI, Request, Response

from app.formats.json_input import table_from_rows
from app.formats.json_output import json_chunks
from benchmarks.http.server import serving
from providers import PROVIDERS
from providers.progress import no_progress

app = FastAPI()


@app.post("/echo")
async def echo(request: Request) -> Response:
    """Parse the body and write it again."""
    return Response(orjson.dumps(await request.json()), media_type="application/json")


@app.post("/swap/{service}")
async def swap(service: str, request: Request) -> Response:
    """Parse the table, swap it in this process, and write the rows."""
    document: dict[str, Any] = await request.json()
    provider = PROVIDERS[service]
    table: pa.Table = table_from_rows(document["source"]["rows"])
    params = provider.check(provider.params.model_validate(document["parameters"]), table.schema)
    stream = provider.stream(bytes(32))
    swapped = provider.swap(table, params, stream, no_progress).table
    content = b"".join(json_chunks(swapped.schema, swapped.to_batches()))
    return Response(content, media_type="application/json")


def running() -> AbstractContextManager[tuple[str, int]]:
    """Run the floors in one process of uvicorn: address and process id."""
    return serving(__name__)
