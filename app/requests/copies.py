"""Request to copy a buffer with other fields or types."""

from typing import Annotated

from pydantic import Field

from app.requests.annotations import AnnotationsBody


class CopyRequest(AnnotationsBody):
    """Changes to the copy of a buffer.

    Without a name or a label, the copy has the name or label of the first buffer.
    """

    drop: list[str] = Field(default=[], max_length=100_000, examples=[["name", "phone"]])
    """Fields to leave out, such as names of persons."""
    types: dict[str, Annotated[str, Field(max_length=1000)]] = Field(
        default={}, max_length=100_000, examples=[{"postcode": "string", "born": "date"}]
    )
    """Field -> its new type, with the type names of a buffer's `fields`. Each value must fit the new type
    exactly; only a float is rounded to the nearest float of fewer bits. Text is read in the forms of a
    CSV."""
    null_tokens: list[Annotated[str, Field(max_length=100)]] = Field(
        default=[], max_length=100, examples=[["NA", "?"]]
    )
    """Texts that become null in every field of text, before its type is changed."""
