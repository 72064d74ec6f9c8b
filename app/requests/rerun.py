"""Request to rerun a job."""

from pydantic.json_schema import SkipJsonSchema

from app.requests.source import Source
from app.requests.submission import SubmissionBody


class RerunRequest(SubmissionBody):
    """Request to rerun a job. The source is needed again unless the job retained it."""

    source: Source | SkipJsonSchema[None] = None
    """Table with the same rows as the job's own source."""
    destination: Source | SkipJsonSchema[None] = None
    """For a job of `POST /v1/measures`: the same rows as in the table that it measured. For a run of a
    service: a `reference` to write the destination buffer to, and its `media_type`."""
