"""Sets of digests as bytes."""

from hypothesis import given
from hypothesis import strategies as st

from app.worker.digest_sets import contains, has_form, packed_digest
from providers.tables.digest import DigestForm

# Few different bytes, so that an element often begins within another one.
DIGESTS = st.builds(
    lambda form, parts: f"{form.value}:{''.join(parts)}",
    st.sampled_from(DigestForm),
    st.lists(st.sampled_from(["00", "01"]), min_size=32, max_size=32),
)


def visible(digest: str) -> str:
    """The part of a digest that a set has."""
    form, _, text = digest.partition(":")
    return f"{form}:{text[:30]}"


@given(st.lists(DIGESTS, max_size=8), DIGESTS)
def test_a_set_has_what_was_put_into_it(digests: list[str], other: str) -> None:
    packed = b"".join(map(packed_digest, digests))
    assert len(packed) == 16 * len(digests)
    assert all(contains(packed, digest) for digest in digests)
    assert contains(packed, other) == (visible(other) in map(visible, digests))
    for form in DigestForm:
        assert has_form(packed, form) == any(digest.startswith(f"{form.value}:") for digest in digests)


def test_an_element_is_not_found_across_two_others() -> None:
    """Its bytes are the end of one and the beginning of the next."""
    one, other = f"sha256t:{'00' * 14}01{'00' * 17}", f"sha256:{'00' * 32}"
    between = f"sha256t:{'00' * 32}"
    packed = packed_digest(one) + packed_digest(other)
    assert packed_digest(between) in packed
    assert not contains(packed, between)
