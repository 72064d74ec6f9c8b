"""What a request handler gets from the running service."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from app.jobs.service import JobService
from app.settings import Settings
from app.store.models import ANONYMOUS


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls."""

    owner: str = ANONYMOUS
    """What jobs and buffers are counted under."""


def _jobs(request: Request) -> JobService:
    jobs: JobService = request.app.state.jobs
    return jobs


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def _caller(request: Request) -> Identity:
    """Nobody in particular: callers have no identities in this version."""
    return Identity()


Caller = Annotated[Identity, Depends(_caller)]
Jobs = Annotated[JobService, Depends(_jobs)]
ServiceSettings = Annotated[Settings, Depends(_settings)]
