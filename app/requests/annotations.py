"""Texts for people: name, label and notes of a job or a buffer, and the reason of a release."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from app.jobs.requests import Annotations
from providers.params import StrictModel

MOST_CHARACTERS = 120
"""Largest length of a name or a label."""

MOST_REASON = 500
"""Largest length of a reason, in characters."""

MOST_NOTES = 2000
"""Largest length of notes, in characters."""

_LINE = r"^[^\x00-\x1f\x7f]*$"
"""Text of one line, without control characters."""

_TEXT = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
"""Text with line ends and tabs, without other control characters."""

_NONBLANK = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*[^\x00-\x1f\x7f\s][^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
"""The same with a character that is no space."""


def _matching(pattern: str, hint: str) -> AfterValidator:
    """Return a validator with a message of its own; pydantic's would show the pattern."""
    allowed = re.compile(pattern)

    def check(text: str) -> str:
        if not allowed.match(text):
            raise PydanticCustomError(
                "control_characters", "the text has control characters; {hint}", {"hint": hint}
            )
        return text

    return AfterValidator(check)


Line = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=MOST_CHARACTERS),
    _matching(_LINE, "write it in one line"),
    Field(json_schema_extra={"pattern": _LINE}),
]

without_controls = _matching(_TEXT, "only line ends and tabs are taken")
"""Validator of a text of several lines."""

Notes = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=MOST_NOTES),
    without_controls,
    Field(json_schema_extra={"pattern": _TEXT}),
]

Reason = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MOST_REASON),
    without_controls,
    Field(json_schema_extra={"pattern": _NONBLANK}),
]


class AnnotationsBody(StrictModel):
    """Name, label and notes for people; the service does not interpret them.

    They are query parameters of an upload, too, which FastAPI describes by `description` alone.
    """

    name: Line | SkipJsonSchema[None] = Field(
        default=None,
        examples=["Survey 2026, second wave"],
        description="Name for people, one line. It may be found by a part of it. [up to 120 characters]",
    )
    label: Line | SkipJsonSchema[None] = Field(
        default=None,
        examples=["survey-2026"],
        description="Label that jobs and buffers which belong together share, one line. "
        "They are found by it. [up to 120 characters]",
    )
    notes: Notes | SkipJsonSchema[None] = Field(
        default=None,
        examples=["Run again with the corrected weights of May."],
        description="Notes for people. [up to 2,000 characters]",
    )

    @property
    def annotations(self) -> Annotations:
        """Name, label and notes; None: not given."""
        return Annotations(self.name, self.label, self.notes)


class AnnotationChange(AnnotationsBody):
    """Change of the name, the label or the notes: an empty text removes one; one that is left out stays."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError(
                "nothing_to_change", "give 'name', 'label' or 'notes'; an empty text removes one of them"
            )
        return self

    @property
    def changes(self) -> dict[str, str | None]:
        """Members that were given, with their new values; None removes one."""
        return {name: getattr(self, name) or None for name in sorted(self.model_fields_set)}
