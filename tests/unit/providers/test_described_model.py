"""Descriptions of a model's fields, read from its source when a JSON schema is made."""

from typing import Annotated

from pydantic import BaseModel, Field, create_model

from providers.described_model import DescribedModel, field_descriptions


class Colour(DescribedModel):
    red: int = 0
    """Share of red.
    Of 255."""
    green: Annotated[int, Field(description="Share of green.")] = 0
    """A docstring that is not needed."""
    blue: int = Field(default=0, alias="b")
    """Share of blue."""
    white: int = 0

    def shown(self) -> str:
        """Text that describes no field."""
        return "#"


class Paint(Colour):
    red: int = 1
    base: Colour = Colour()
    """Colour below it."""


def test_the_schema_is_that_of_pydantics_own_docstrings() -> None:
    class Native(BaseModel):
        """The fields of `Colour`; pydantic takes a second to look for their descriptions."""

        model_config = {"use_attribute_docstrings": True}

        red: int = 0
        """Share of red.
        Of 255."""
        green: Annotated[int, Field(description="Share of green.")] = 0
        """A docstring that is not needed."""
        blue: int = Field(default=0, alias="b")
        """Share of blue."""
        white: int = 0

    assert Colour.model_json_schema()["properties"] == Native.model_json_schema()["properties"]


def test_a_field_that_is_declared_again_has_its_own_description_alone() -> None:
    assert field_descriptions(Paint) == {
        "green": "Share of green.",
        "blue": "Share of blue.",
        "base": "Colour below it.",
    }
    assert field_descriptions(create_model("Mixed", __base__=Colour, green=(str, ""))) == {
        "red": "Share of red.\nOf 255.",
        "blue": "Share of blue.",
    }


def test_a_reference_to_another_model_keeps_its_description() -> None:
    assert Paint.model_json_schema()["properties"]["base"]["description"] == "Colour below it."


def test_a_class_within_a_function_is_described() -> None:
    class Local(DescribedModel):
        size: int
        """Number of rows."""

    assert field_descriptions(Local) == {"size": "Number of rows."}


def test_a_class_without_source_has_no_descriptions() -> None:
    made = create_model("Made", __base__=DescribedModel, size=(int, 1))
    made.__module__ = "builtins"
    assert field_descriptions(made) == {}
    assert made.model_json_schema()["properties"]["size"] == {
        "default": 1,
        "title": "Size",
        "type": "integer",
    }
