"""The application: `create_app(settings)` puts the parts together; importing this does nothing."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from app import __version__
from app.api import buffers, console, frontier, health, jobs, measures, problems, services, swagger
from app.api.formats import open_table, stream_chunks
from app.api.head import HeadIsGetWithoutContent
from app.api.headers import SafeHeaders
from app.api.oidc import Tokens
from app.api.openapi import document
from app.api.slow_callers import SlowBodies
from app.api.watching import Watched
from app.errors import Unavailable
from app.jobs.service import JobService
from app.jobs.stores import HomeInUse
from app.settings import Settings
from app.store.db import DatabaseUnusable
from app.store.keys import KeyUnreadable
from app.store.replicas import ReplicasDiffer
from app.store.seal import SealBroken
from app.telemetry.metrics import Metrics
from app.telemetry.tracing import flush, set_up_tracing

_log = logging.getLogger("rowveil")
_START_REFUSED = (HomeInUse, KeyUnreadable, DatabaseUnusable, Unavailable, ReplicasDiffer, SealBroken)

DESCRIPTION = """\
Statistical disclosure control by data swapping: Rowveil moves values between the rows of a table,
so that nobody can be sure of having found a person, while the table stays useful.

Post a table to a service, such as `POST /v1/services/CDSWAP`; the answer is a job, with the
destination buffer, what happened to which row, and a manifest that a rerun can be held against.
A seed undoes a swap: it is kept sealed, and only its fingerprint is ever shown.
"""


def create_app(settings: Settings) -> FastAPI:
    """The service as an ASGI application; its lifespan migrates the database and starts the workers."""
    metrics = Metrics(__version__)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        set_up_tracing()
        job_service = JobService(settings, open_table, stream_chunks, metrics=metrics)
        try:
            await job_service.start()
        except _START_REFUSED as error:
            app.state.start_refused = True  # the message says it all; no trace has to
            _log.error("%s", error)
            raise
        app.state.jobs = job_service
        try:
            yield
        finally:
            await job_service.close()
            flush()

    app = FastAPI(
        title="Rowveil",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        separate_input_output_schemas=False,
        strict_content_type=False,  # a body without a type is read as JSON
    )
    app.state.settings = settings
    app.state.start_refused = False
    app.state.tokens = Tokens(settings) if settings.oidc_issuer else None
    problems.install(app)
    app.add_middleware(HeadIsGetWithoutContent)
    app.add_middleware(SlowBodies, patience=settings.request_patience, least_rate=settings.least_body_rate)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["*"],
        )
    app.add_middleware(SafeHeaders)
    app.add_middleware(Watched, metrics=metrics)
    for resource in (services, measures, frontier, jobs, buffers, health):
        app.include_router(resource.router)
    app.openapi = partial(document, app)  # type: ignore[method-assign]
    app.include_router(swagger.router)
    app.include_router(console.router)
    return app
