"""Duplicate names in an object are found at any depth, and nothing else is rejected."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from app.formats.errors import FormatError
from app.formats.json_text import check_text, is_doubtful, may_repeat, reason_not_json, unique_names
from tests.whole_tables import parse_json, read_json

LONG = b" " * 5000
"""White space that makes a text long enough for the array functions."""

NAMES = st.sampled_from(["a", "b", ":", '":', "{", "x y", "\\", "\N{EURO SIGN}", ""])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), NAMES)


class Pairs(list[tuple[str, Any]]):
    """Object as written: its names may repeat."""


DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.lists(st.tuples(NAMES, inner), max_size=4).map(Pairs),
    max_leaves=20,
)


def written(value: Any, comma: str, colon: str) -> str:
    if isinstance(value, Pairs):
        members = (f"{json.dumps(name)}{colon}{written(inner, comma, colon)}" for name, inner in value)
        return "{" + comma.join(members) + "}"
    if isinstance(value, list):
        return "[" + comma.join(written(inner, comma, colon) for inner in value) + "]"
    return json.dumps(value)


def repeated(value: Any, place: str = "") -> set[str]:
    """Return the pointers of all duplicate names, found by walking the written text."""
    found: set[str] = set()
    if isinstance(value, Pairs):
        names = [name for name, _ in value]
        tokens = [name.replace("~", "~0").replace("/", "~1") for name in names]
        found |= {
            f"{place}/{token}" for name, token in zip(names, tokens, strict=True) if names.count(name) > 1
        }
        for token, (_, inner) in zip(tokens, value, strict=True):
            found |= repeated(inner, f"{place}/{token}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found |= repeated(inner, f"{place}/{index}")
    return found


@settings(max_examples=400, deadline=None)
@given(
    DOCUMENTS,
    st.sampled_from([",", ", ", "\n,\t"]),
    st.sampled_from([":", ": ", " : ", "\n:"]),
    st.sampled_from([b"", LONG]),
)
def test_exactly_what_repeats_is_refused(document: Any, comma: str, colon: str, before: bytes) -> None:
    text = before + written(document, comma, colon).encode()
    expected = repeated(document)
    if not expected:
        assert parse_json(text) == json.loads(text)
        return
    with pytest.raises(FormatError) as refused:
        parse_json(text)
    assert refused.value.pointer in expected


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        (b'{"a":1,"a":1}', "/a"),
        (b'{"a":1,"\\u0061":2}', "/a"),
        (b'[{"b":[{},{"a":1, "a" :2}]}]', "/0/b/1/a"),
        # As many colons after quotes as names in the parsed document: two after a space, one in a value.
        (b'{"a" :1,"a" :2,"b":":x"}', "/a"),
        (b'{"rows":[{"when":"12:30"},{"when":"1","when":"2"}]}', "/rows/1/when"),
        (b'{"n":' + b"9" * 4300 + b',"n":1}', "/n"),
    ],
)
def test_where_the_repeated_name_is(text: bytes, pointer: str) -> None:
    for before in (b"", LONG):
        with pytest.raises(FormatError, match="is given twice in one object; give it once") as refused:
            parse_json(before + text)
        assert refused.value.pointer == pointer


def test_a_very_long_name_is_not_repeated_in_the_message() -> None:
    name = b'"' + b"n" * 100_000 + b'"'
    with pytest.raises(FormatError) as refused:
        parse_json(b'{"rows":[{' + name + b":1," + name + b":2}]}")
    assert refused.value.pointer == "/rows/0"
    assert len(refused.value.message) < 200


def test_a_common_table_is_not_read_twice() -> None:
    """The table is read once as rows and as columns, with times and addresses among its values."""
    rows = [{"id": index, "when": "12:30:00", "url": "https://x.example/{a}"} for index in range(50)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for document in ({"rows": rows}, {"columns": columns, "fields": {"id": "int64"}}):
        for separators in ((",", ":"), (", ", ": ")):
            assert not may_repeat(json.dumps(document, separators=separators).encode(), document)


def test_across_the_pieces_that_are_looked_at() -> None:
    """A colon may be the first byte of a chunk, and its quote the last of the previous chunk."""
    for padding in range(2**18 - 20, 2**18 + 5):
        text = b'{"x":"' + b"." * padding + b'","a":1,"a":2}'
        with pytest.raises(FormatError):
            parse_json(text)
        check_text(text.replace(b'"a":2', b'"b":2'))
        assert not may_repeat(text.replace(b'"a":2', b'"b":2'), {"x": 0, "a": 1, "b": 2})


@pytest.mark.parametrize(
    ("number", "lost"),
    [
        ("9007199254740993.0", True),
        ("-12345678901234567.89", True),
        ("9007199254740992.5", True),
        ("9" * 400 + ".0", True),
        ("9007199254740992.0", False),
        ("9007199254740994.00", False),
        ("12345678901234568.0", False),  # the shortest text of a float64 as R and Go write it
        ("1.2345678901234567e25", False),
        ("1234567890123456.78", True),  # the float64 is ….75
        ("-1234567890123456.780000", True),
        ("12345678901234.567", True),
        ("1234567890123.4567", True),
        ("1234567890123456.75", False),
        ("1234567890123456.8", False),  # the shortest text of the same float64
        ("12345678901234.56", False),
        ("1700000000000.123", False),
        ("0.10000000000000001", False),  # 0.1 with the 17 digits of other programs
        ("0.1234567890123456789", False),
        ('"9007199254740993.0"', False),
    ],
)
def test_a_number_whose_digits_float64_does_not_hold_is_refused(number: str, lost: bool) -> None:
    for before in (b"", LONG):
        text = before + f'{{"rows":[{{"a":1.5}},{{"a":[0.5,{number}]}}]}}'.encode()
        if not lost:
            parse_json(text)
            continue
        with pytest.raises(
            FormatError, match="the number loses digits as float64; declare the field"
        ) as refused:
            parse_json(text)
        assert refused.value.pointer == "/rows/1/a/1"


def test_a_long_number_is_found_at_every_place() -> None:
    """Its digits may begin in one chunk and end in the next."""
    for padding in (*range(40), *range(2**18 - 40, 2**18 + 40)):
        text = b'["' + b"." * padding + b'",9007199254740993.5,0.25]'
        assert is_doubtful(text, json.loads(text))
        text = b'["' + b"." * padding + b'",123456789012.3456,0.25]'
        assert is_doubtful(text, json.loads(text))
    assert not is_doubtful(b'["' + b"1234567890.5" * 50_000 + b'"]', [""])


def test_a_table_names_the_row_and_the_field() -> None:
    with pytest.raises(FormatError, match="the name 'age' is given twice") as refused:
        read_json(b'{"rows":[{"age":31},{"age":32,"age":33}]}')
    assert refused.value.pointer == "/rows/1/age"


def test_small_texts() -> None:
    assert json.loads('{"a": {"b": 1}}', object_pairs_hook=unique_names) == {"a": {"b": 1}}
    with pytest.raises(ValueError, match="'b' is given twice"):
        json.loads('{"a": {"b": 1, "b": 2}}', object_pairs_hook=unique_names)


def fault_of(text: bytes) -> str:
    """Return the parser's message about a text that is no JSON."""
    with pytest.raises(ValueError, match="at line") as found:
        from_json(text, allow_inf_nan=False)
    return str(found.value)


def test_the_reason_that_a_text_is_no_json_takes_no_multiple_of_its_memory() -> None:
    """A list of its lines took ten times the text, in the process that answers all requests."""
    text = b"[" + b"10,\n" * (1 << 20) + b"'x'"
    found = fault_of(text)
    tracemalloc.start()
    try:
        assert reason_not_json(text, found) == f"{found}; names and texts stand in double quotes"
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * len(text)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (b"{", "send all of it"),
        (b'{"source": {"rows": [{"a', "send all of it"),
        (b'{"a":' + b"9" * 4301 + b"}", "a number has at most 4,300 digits: send it as a string"),
        (b'{"a":' * 300, "are nested at most 200 deep"),
    ],
)
def test_a_text_that_ends_early_or_is_beyond_a_limit_has_its_remedy(text: bytes, remedy: str) -> None:
    """A text of `{` alone was said not to begin with it."""
    reason = reason_not_json(text, fault_of(text))
    assert reason.startswith(fault_of(text))
    assert reason.endswith(remedy) or f"{remedy}:" in reason
    assert "begins with" not in reason


@pytest.mark.parametrize("lines", [0, 1, 2, 50, 2**18 - 7, 2**18 - 6, 2**18 - 5, 2**19])
@pytest.mark.parametrize("end", [b"\n", b" \n", b"\r\n"])
def test_the_place_of_a_fault_is_found_in_every_line(lines: int, end: bytes) -> None:
    """Its line may begin where a chunk does."""
    for fault, remedy in ((b'{"a": NaN}', "send null"), (b"{'a': 1}", "stand in double quotes")):
        text = b'{"source": [' + end * lines + fault + b"\n]}"
        assert remedy in reason_not_json(text, fault_of(text))
