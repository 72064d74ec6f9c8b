"""What a request handler gets from the running service."""

from typing import Annotated

from fastapi import Depends, Request

from app.jobs.service import JobService
from app.settings import Settings


def _jobs(request: Request) -> JobService:
    jobs: JobService = request.app.state.jobs
    return jobs


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


Jobs = Annotated[JobService, Depends(_jobs)]
ServiceSettings = Annotated[Settings, Depends(_settings)]
