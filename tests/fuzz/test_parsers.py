"""Parsers of client input with arbitrary text: rejected with a message, or accepted unambiguously."""

import json
import uuid
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from app.api.request_headers import none_match, parse_prefer
from app.errors import InvalidRequest, UnsupportedMediaType
from app.formats.csv_dialect import CsvDialect
from app.formats.errors import FormatError
from app.formats.json_input import table_from_columns, table_from_rows
from app.formats.json_output import fields_of
from app.formats.media_types import CSV, JSON, MEDIA_TYPES, negotiate
from app.ids import job_of_token, new_id, token_of_job
from app.references import ReferenceRefused, parse_reference
from app.requests.seed import SEED_INTEGER_BOUND, SeedValue
from app.requests.source import Source
from app.requests.uploads import CsvOptions, uploaded_type
from app.webhooks.addresses import AddressRefused, Reach
from app.webhooks.messages import SecretUnusable, key_of_secret
from providers import PROVIDERS
from providers.errors import ParameterError, ProviderError
from providers.params import OPTIM_OPERANDS
from providers.tables.digest import table_digest
from providers.tables.literals import literal
from providers.tables.type_names import canonical_type, parse_type, type_name
from tests.whole_tables import read_table, write_table

_SEED: TypeAdapter[Any] = TypeAdapter(SeedValue)


def pieces(*words: str, most: int = 12) -> st.SearchStrategy[str]:
    """Return a strategy of texts that mix a language's own words with strange ones."""
    strange = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    return st.lists(st.sampled_from(words) | strange, max_size=most).map("".join)


def not_quoted(text: str, message: str) -> None:
    """Check that a message never repeats a potential secret; short coincidences are allowed."""
    assert len(text) < 16 or text not in message


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | pieces(
        "1", "-", ".5", "e9", "e999999", "NaN", "2024-02-29", "T", "12:30:00", "Z", "+01:00", "AA==", most=5
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
TYPES = pieces(
    "int8", "int64", "uint64", "float16", "float64", "bool", "null", "string", "binary", "date",
    "interval", "decimal(", "decimal(5,2)", "decimal(76,-76)", "fixed_binary(2)", "time[ns]", "timestamp",
    "timestamp[us, UTC]", "timestamp[s, America]", "duration[us]", "list<", "struct<a: ", "map<string, ",
    "<", ">", "(", ")", ",", "a: ", '"', "\\ud800", "[", "]", "-", "9", "99999999", most=6,
)  # fmt: skip


# --------------------------------------------------------------------------------------- types, tables


@given(TYPES)
@example(r'struct<"\ud800": int8>')
@example("decimal(5,-999999999)")
def test_a_name_of_a_type_reads_back(name: str) -> None:
    try:
        data_type = parse_type(name)
    except ValueError:
        return
    canonical = canonical_type(data_type)
    assert canonical_type(parse_type(type_name(data_type))) == canonical


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES), max_size=5), TYPES | st.none())
@example([{"a": "1"}], "decimal(5,-999999999)")
def test_rows_are_a_table_that_reads_back_or_are_refused(
    rows: list[dict[str, Any]], name: str | None
) -> None:
    _reads_back(lambda: table_from_rows(rows, None if name is None else {"a": name}))


@given(
    st.dictionaries(st.sampled_from(["a", "b", ""]), st.lists(VALUES, max_size=3), max_size=3)
    | st.dictionaries(st.sampled_from(["a", "b"]), VALUES, max_size=2)
)
def test_columns_are_a_table_that_reads_back_or_are_refused(columns: dict[str, Any]) -> None:
    _reads_back(lambda: table_from_columns(columns))


def _reads_back(read: Any) -> None:
    try:
        table = read()
    except FormatError:
        return
    body = b"".join(write_table(JSON, table))
    assert table_digest(read_table(JSON, body)) == table_digest(table)


@given(
    pieces(
        "a,b\n", "1", "2.5", ",", ";", '"', '""', "\n", "\r\n", "\r", "\t", "NA", "true", "2024-02-29", "\0",
        most=20,
    ),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from([(), ("NA",), ("NA", "1")]),
    st.sampled_from(["utf-8", "utf-16", "cp1252", "big5"]),
)  # fmt: skip
def test_a_csv_is_a_table_that_reads_back_or_is_refused(
    text: str, delimiter: str, tokens: tuple[str, ...], encoding: str
) -> None:
    dialect = CsvDialect(delimiter, tokens, encoding)
    try:
        table = read_table(CSV, text.encode(encoding, "replace"), None, dialect)
    except FormatError:
        return
    types = {field["name"]: field["type"] for field in fields_of(table.schema)}
    try:
        body = b"".join(write_table(CSV, table))
    except FormatError:  # a name with U+0000, which CSV cannot represent
        return
    assert table_digest(read_table(CSV, body, types)) == table_digest(table)


@given(st.binary(max_size=60), st.sampled_from([None, "utf-8", "utf-16", "cp1252", "shift_jis", "gb18030"]))
def test_bytes_are_a_csv_or_are_refused(data: bytes, encoding: str | None) -> None:
    try:
        table = read_table(CSV, b"a\n" + data, None, CsvDialect(encoding=encoding or "utf-8"))
    except FormatError:
        return
    assert table.num_columns == len(set(table.column_names))


# ------------------------------------------------------------------------------------- requests, headers


@given(pieces("text/csv", "application/", "json", "*/*", "/*", ";", "q=", "0", ".5", "1", ",", " ", "="))
def test_an_accept_header_chooses_what_is_offered(accept: str) -> None:
    chosen = negotiate(accept, MEDIA_TYPES)
    assert chosen is None or chosen in MEDIA_TYPES
    assert negotiate(f"{accept},text/csv;q=1,{'*/*;q=0.1'}", MEDIA_TYPES) is not None


@given(
    st.lists(
        pieces("wait", "=", "5", "99999999999", "respond-async", ",", ";", '"', " ", "-", ".", "²"),
        max_size=3,
    )
)
def test_a_preference_waits_no_longer_than_it_may(headers: list[str]) -> None:
    preference = parse_prefer(headers, 10, 60)
    assert 0 <= preference.wait_seconds <= 60
    assert parse_prefer([preference.applied], 10, 60) == preference or not preference.applied


@given(pieces('"', "W/", "*", ",", " ", "abc", '"abc"'), st.booleans())
def test_a_list_of_tags_matches_the_tag_that_is_in_it(header: str, weak: bool) -> None:
    none_match(header, '"other"')
    assert not none_match('"x", ' + ("W/" if weak else "") + '"tag"', '"tag"')


@given(
    pieces(
        "text/csv",
        "application/vnd.apache.parquet",
        ";",
        "charset=",
        "utf-8",
        '"',
        "header=",
        "absent",
        "*0*=",
    )
)
def test_a_content_type_is_one_of_an_upload_or_is_refused(content_type: str) -> None:
    try:
        upload = CsvOptions().described(uploaded_type(content_type))
    except (UnsupportedMediaType, InvalidRequest):
        return
    assert upload.media_type in MEDIA_TYPES


@given(VALUES | st.text(max_size=4), pieces("tab", ",", "é", "\n"), pieces("utf", "-8", "latin1", "_"))
def test_options_of_a_csv_are_taken_or_refused(fields: Any, delimiter: str, encoding: str) -> None:
    given_fields = fields if isinstance(fields, str) else json.dumps(fields)
    try:
        options = CsvOptions(fields=given_fields, delimiter=delimiter, encoding=encoding)
    except ValidationError:
        return
    assert len(options.delimiter) == 1


@given(SCALARS | st.integers(-3, 2**54) | st.text("0123456789abcdefABCDEF", max_size=66))
def test_a_seed_keeps_its_number(value: Any) -> None:
    try:
        seed = _SEED.validate_python(value)
    except ValidationError as error:
        not_quoted(str(value), error.errors()[0]["msg"])
        return
    number = int(value, 16) if isinstance(value, str) else value
    assert int.from_bytes(seed.secret, "big") == number
    assert isinstance(value, str) or value < SEED_INTEGER_BOUND


@given(VALUES | st.dictionaries(st.sampled_from([*Source.model_fields, "row"]), VALUES, max_size=3))
def test_a_source_is_one_thing_or_is_refused(value: Any) -> None:
    try:
        source = Source.model_validate(value)
    except ValidationError:
        return
    given_ones = (source.rows, source.columns, source.buffer, source.reference)
    assert sum(each is not None for each in given_ones) == 1


@given(st.text(max_size=60) | st.uuids().map(lambda each: token_of_job(str(each))))
def test_a_token_of_a_page_names_a_job_or_is_refused(token: str) -> None:
    try:
        job = job_of_token(token)
    except InvalidRequest as error:
        not_quoted(token, error.message)
        return
    assert str(uuid.UUID(job)) == job
    assert job_of_token(token_of_job(job)) == job


def test_a_jobs_own_token_is_taken() -> None:
    job = new_id()
    assert job_of_token(token_of_job(job)) == job


# ------------------------------------------------------------------------------ references, addresses


@given(
    pieces("s3://", "file://", "bucket", "/", "..", ".", "%2e", "?", "#", "\\", "a.csv", "@", ":", "é", " ")
)
def test_a_reference_has_one_spelling(text: str) -> None:
    try:
        reference = parse_reference(text)
    except ReferenceRefused as error:
        not_quoted(text, error.message)
        return
    assert str(reference) == text
    assert not {"", ".", ".."} & set(reference.path)


@given(
    pieces(
        "https://", "http://", "hooks.test.org", "127.0.0.1", "10.1", "[::1]", "[::ffff:10.0.0.1]",
        "[fe80::1%25e]", "0x7f.1", "2130706433", "localhost", ".", "@", ":", "443", "99999", "/", "#",
        "?", "\\", "\uff11", "[", "]", most=6,
    )
)  # fmt: skip
def test_an_address_of_a_webhook_is_public_or_is_refused(url: str) -> None:
    try:
        Reach().check_url(url)
    except AddressRefused as error:
        not_quoted(url, str(error))
        return
    parts = urlsplit(url)
    assert parts.scheme == "https"
    assert parts.hostname is not None
    assert parts.username is None
    try:
        literal = ip_address(parts.hostname)
    except ValueError:
        return
    assert literal.is_global


@given(pieces("whsec_", "AAAA", "=", "é", " ", most=20))
def test_a_webhooks_secret_is_of_the_right_length_or_is_refused(secret: str) -> None:
    try:
        key = key_of_secret(secret)
    except SecretUnusable:
        return
    assert 24 <= len(key) <= 64


# ------------------------------------------------------------------- literals, parameters, classifiers


@given(VALUES, TYPES)
@example("1e5000", "decimal(5,2)")
@example("2024-02-29", "timestamp[us, America]")
def test_a_literal_is_a_value_of_its_field_or_is_refused(value: Any, name: str) -> None:
    try:
        field = pa.field("f", parse_type(name))
    except ValueError:
        return
    try:
        scalar = literal(value, field, "replacement", "/f")
    except ParameterError:
        return
    assert scalar.type == field.type
    assert scalar.is_valid


SCHEMA = pa.schema(
    {"n": pa.int64(), "x": pa.float64(), "s": pa.string(), "d": pa.date32(), "t": pa.timestamp("us", "UTC"),
     "b": pa.bool_(), "m": pa.decimal128(9, 2)}
)  # fmt: skip
_NAMES = st.sampled_from([*SCHEMA.names, "other", "", "n, x", " n ", "1"])
_PLACES = _NAMES | st.integers(-1, 9) | st.lists(_NAMES | st.integers(0, 8), max_size=3)
_CLASSIFIERS = st.recursive(
    st.sampled_from(["identity", "other", None])
    | st.dictionaries(
        st.sampled_from(["breaks", "prefix", "groups", "other"]),
        SCALARS
        | st.lists(SCALARS, max_size=3)
        | st.dictionaries(st.text(max_size=2), st.lists(SCALARS, max_size=2)),
        max_size=2,
    ),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=3,
)
_OPERANDS = st.fixed_dictionaries(
    {},
    optional={
        "SWAP_FIELD_NAMES": _PLACES, "SWAP_FIELD_INDICES": _PLACES, "SWAP_LOCKED": SCALARS,
        "SWAP_RATE": SCALARS, "SWAP_CONTROL_ATTR": _PLACES, "SWAP_CLASSIFIER": _CLASSIFIERS,
        "SWAP_BLOCK_SIZE": SCALARS,
        "swap_fields": _PLACES, "control_field": _PLACES, "classifier": _CLASSIFIERS, "block_size": SCALARS,
    },
)  # fmt: skip


@pytest.mark.parametrize("service", ["DSWAP", "CDSWAP", "DDSWAP"])
@given(operands=_OPERANDS)
def test_operands_are_parameters_that_survive_json_or_are_refused(
    service: str, operands: dict[str, Any]
) -> None:
    provider: Any = PROVIDERS[service]
    try:
        params = provider.check(provider.params.model_validate(operands), SCHEMA)
    except (ValidationError, ProviderError):
        return
    stored = json.loads(json.dumps(params.model_dump(mode="json")))
    assert not stored.keys() & OPTIM_OPERANDS.keys()
    assert provider.params.model_validate(stored) == params
