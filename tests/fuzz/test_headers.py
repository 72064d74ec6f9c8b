"""Headers with arbitrary bytes: never a 500, and never a part of a credential in a response."""

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.calls import Api

MARK = "otter7f3a9c51"
SENT_WITH = (
    "authorization", "x-request-id", "accept", "if-none-match", "prefer", "idempotency-key", "traceparent",
    "content-type", "content-encoding", "origin", "host",
)  # fmt: skip
LETTERS = st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f")
WORDS = (
    "Bearer ", "rv_", "Basic ", "eyJhbGciOiJub25lIn0.", "application/", "*/*;q=", "gzip", "W/", '"', "wait=",
    "0-", "text/csv;charset=", "multipart/form-data; boundary=", ",", ";", "=",
)  # fmt: skip
HEADERS = st.dictionaries(
    st.sampled_from(SENT_WITH),
    st.lists(st.sampled_from(WORDS) | st.text(LETTERS, max_size=4), max_size=5).map("".join),
    max_size=4,
)


@settings(max_examples=80)
@given(
    HEADERS, st.sampled_from(["/v1/jobs", "/v1/services/DSWAP", "/v1/buffers", "/v1/buffers/form", "/docs"])
)
def test_no_header_is_too_strange(client: httpx.Client, headers: dict[str, str], path: str) -> None:
    coded = [(name.encode(), value.strip().encode("latin-1")) for name, value in headers.items()]
    if "authorization" in headers:
        coded = [pair for pair in coded if pair[0] != b"authorization"]
        coded.append((b"authorization", f"{headers['authorization']}{MARK}".strip().encode("latin-1")))
    method = "GET" if path in ("/v1/jobs", "/docs") else "POST"
    answer = client.request(method, path, headers=coded, content=b"" if method == "GET" else b"a,b\n1,2\n")
    assert answer.status_code < 500
    assert MARK not in answer.text
    if answer.status_code >= 400:
        Api.problem(answer, answer.status_code)
    if "authorization" in headers and path.startswith("/v1/"):
        assert answer.status_code == 401
