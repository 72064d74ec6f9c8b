"""Syntax of references, and the references that a prefix covers."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.references import ReferenceRefused, parse_prefixes, parse_reference, prefix_of
from app.settings import Settings


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/key.parquet",
        "s3://bucket/date=2026-01-01/part 0+ü~@[1]*.csv",
        "s3://bu.ck-et/..hidden/a..b/...",
        "file:///data/people.csv",
    ],
)
def test_a_reference_is_what_it_says(text: str) -> None:
    assert str(parse_reference(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "people.csv",
        "/data/people.csv",
        "S3://bucket/key",
        "s3:/bucket/key",
        "s3:///key",
        "s3://bucket",
        "s3://bucket/",
        "s3://bucket/folder/",
        "s3://bucket//key",
        "s3://bucket/a//b",
        "s3://bucket/../other/key",
        "s3://bucket/a/./b",
        "s3://bucket/a/..",
        "s3://bucket/%2e%2e/key",
        "s3://bucket/a%2Fb",
        "s3://bucket/key?versionId=1",
        "s3://bucket/key#part",
        "s3://Bucket/key",
        "s3://bucket:9000/key",
        "s3://user:password@bucket/key",
        "s3://b/key",
        "s3://bucket\\key",
        "s3://bucket/a\\b",
        "s3://bucket/a\nb",
        "s3://bucket/a\u0000b",
        "s3://bucket/a\u202eb",
        "s3://bucket/\ud800",
        "s3://bucket/" + "k" * 256,
        "s3://bucket/" + "k/" * 600 + "k",
        "s3a://bucket/key",
        "FILE:///data/a",
        "file://",
        "file:///",
        "file:/data/a",
        "file://host/data/a",
        "file://localhost/data/a",
        "file:////data/a",
        "file:///data/../etc/passwd",
        "file:///data/./a",
        "http://example.org/a.csv",
        "https://example.org/a.csv",
        "gs://bucket/key",
        " s3://bucket/key",
    ],
)
def test_no_other_spelling_is_taken(text: str) -> None:
    with pytest.raises(ReferenceRefused) as refused:
        parse_reference(text)
    assert "password" not in refused.value.message


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("s3://bucket/a", "s3://bucket/"),
        ("s3://other/in/a", "s3://other/in"),
        ("s3://other/in/deeper/a", "s3://other/in"),
        ("s3://other/in", None),
        ("s3://other/input/a", None),
        ("s3://other/a", None),
        ("s3://bucket-evil/a", None),
        ("file:///data/a", "file:///data"),
        ("file:///database/a", None),
        ("file:///data", None),
        ("file:///bucket/a", None),
    ],
)
def test_a_prefix_covers_whole_segments(text: str, prefix: str | None) -> None:
    allowed = parse_prefixes("*=s3://bucket, *=s3://other/in/,*=file:///data , *=s3://other/in/deeper")
    found = prefix_of(parse_reference(text), allowed, None)
    assert (None if found is None else str(found)) == prefix


@pytest.mark.parametrize(
    ("project", "expected"),
    [
        ("census", ["s3://shared", "s3://census"]),
        ("health", ["s3://shared", "s3://health"]),
        ("cens", ["s3://shared"]),
        (None, ["s3://shared"]),
        ("*", ["s3://shared"]),
    ],
)
def test_a_prefix_belongs_to_a_project(project: str | None, expected: list[str]) -> None:
    allowed = parse_prefixes("*=s3://shared, census=s3://census,health=s3://health")
    buckets = ["s3://shared", "s3://census", "s3://health"]
    found = [bucket for bucket in buckets if prefix_of(parse_reference(f"{bucket}/a"), allowed, project)]
    assert found == expected


def test_no_prefix_is_no_permission() -> None:
    assert parse_prefixes("") == parse_prefixes(" , ") == ()


@pytest.mark.parametrize("name", ["source_prefixes", "destination_prefixes", "overwrite_prefixes"])
@pytest.mark.parametrize(
    "text",
    [
        "*=/data",
        "*=s3://bucket?x",
        "*=s3://b ucket",
        "*=file://host/data",
        "*=https://x/y",
        "s3://bucket",
        "s3://bucket/date=2026",
        "=s3://bucket",
        "cen sus=s3://bucket",
        "**=s3://bucket",
    ],
)
def test_a_prefix_that_is_none_is_refused_at_the_start(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(ValidationError, match=f"ROWVEIL_{name.upper()}: "):
        Settings.model_validate({"home": tmp_path, name: text})


@pytest.mark.parametrize("folder", ["", "home", "home/blobs", "link"])
def test_the_services_own_folders_cannot_be_named(tmp_path: Path, folder: str) -> None:
    """Else a reference would read its keys, or write into its store."""
    (tmp_path / "home" / "blobs").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "home")
    for name in ("source_prefixes", "destination_prefixes", "overwrite_prefixes"):
        with pytest.raises(ValidationError, match="own folders"):
            Settings.model_validate({"home": tmp_path / "home", name: f"*=file://{tmp_path / folder}"})
    Settings.model_validate({"home": tmp_path / "home", "source_prefixes": f"*=file://{tmp_path}/homely"})
