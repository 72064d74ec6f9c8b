"""Request to rerun a job."""

from pydantic.json_schema import SkipJsonSchema

from app.requests.source import RerunDestination, Source
from app.requests.submission import SubmissionBody


class RerunRequest(SubmissionBody):
    """Request to rerun a job. The source is needed again unless the job retained it.

    Without a name or a label, the new job has the name or label of the first job.
    """

    source: Source | SkipJsonSchema[None] = None
    """Table with the same rows as the job's own source."""
    destination: RerunDestination | SkipJsonSchema[None] = None
    """For a job of `POST /v1/measures` or `POST /v1/attacks`: the same rows as in the table that it measured
    or attacked. Not needed while the release of an attacked job is stored. For a run of a service: a
    `reference` to write the destination buffer to, its `media_type`, `overwrite`, `csv_formulas`,
    `csv_delimiter` and `csv_decimal_mark`."""
    control: Source | SkipJsonSchema[None] = None
    """For a job of `POST /v1/attacks` that was given control rows: the same rows."""
