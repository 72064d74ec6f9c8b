"""Uniform and normal draws compared with their twins, with scipy, and with their distributions."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from scipy import stats

from providers.randomness.chacha20 import Stream
from providers.randomness.distributions import (
    PIECE,
    _centred,
    _logarithm,
    _normal_centre,
    _normal_far_tail,
    _normal_tail,
    _put_tails,
    normals,
    uniform,
)
from tests.naive import chacha20, draws

WORD = st.integers(0, 2**32 - 1)
EDGES = [0, 1, 2**11 - 1, 2**11, 2**31 - 1, 2**31, 2**32 - 2**11, 2**32 - 1]
KEY = Stream(bytes(range(32)), "PABIDOT", 1).key("noise/x")


@njit(cache=False, error_model="numpy")
def normal(high, low):  # type: ignore[no-untyped-def]
    """A single standard normal number of two words, which `normals` computes in vectors."""
    q = _centred(high, low)
    if abs(q) <= 0.425:
        return _normal_centre(q)
    r = math.sqrt(-_logarithm(0.5 - abs(q)))
    return math.copysign(_normal_tail(r) if r <= 5.0 else _normal_far_tail(r), q)


@njit(cache=False)
def _normals_of(highs, lows, out):  # type: ignore[no-untyped-def]
    for at in range(len(out)):
        out[at] = normal(highs[at], lows[at])


def normals_of(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Normal numbers of some integers of 53 bits."""
    out = np.empty(len(bits))
    words = bits << np.uint64(11)
    _normals_of((words >> np.uint64(32)).astype(np.uint32), words.astype(np.uint32), out)
    return out


def sample(draws_wanted: int, identity: int = 0) -> npt.NDArray[np.float64]:
    """First draws of a stream."""
    out = np.empty(draws_wanted)
    normals(KEY, np.uint64(identity), np.uint32(0), 0, out)
    return out


@given(WORD, WORD)
def test_draws_are_their_twins(high: int, low: int) -> None:
    """Every bit of a uniform and of a normal number."""
    words = np.uint32(high), np.uint32(low)
    assert uniform(*words) == draws.uniform(high, low)
    assert normal(*words) == draws.normal(high, low)


@pytest.mark.parametrize("high", EDGES)
@pytest.mark.parametrize("low", EDGES)
def test_extreme_words(high: int, low: int) -> None:
    """Finite at both ends, and symmetric bit by bit."""
    words = np.uint32(high), np.uint32(low)
    assert 0 <= uniform(*words) == draws.uniform(high, low) < 1
    value = normal(*words)
    assert value == draws.normal(high, low)
    assert 0 < abs(value) < 8.3
    assert normal(np.uint32(high ^ 0xFFFFFFFF), np.uint32(low ^ 0xFFFFFFFF)) == -value


def test_normal_is_the_inverse_of_the_distribution_function() -> None:
    """Equal scipy's quantiles to 1e-14 everywhere, near the middle, and down to p = 2**-54."""
    random = np.random.default_rng(1)
    below = np.unique((2.0 ** random.uniform(0, 52, 100_000)).astype(np.uint64))  # p < 1/2, to the far tail
    found = normals_of(below)
    p = (below.astype(np.float64) + 0.5) * 2.0**-53
    assert (np.diff(found) >= 0).all()
    assert found == pytest.approx(stats.norm.ppf(p), rel=1e-14, abs=1e-14)
    assert normals_of(np.array([0], np.uint64))[0] == pytest.approx(stats.norm.ppf(2.0**-54), rel=1e-14)
    offset = np.arange(1, 1000).astype(np.float64)  # k - 2**52: x is q sqrt(2 pi) to the first order
    near = normals_of((offset + 2.0**52).astype(np.uint64))
    assert near == pytest.approx((offset + 0.5) * 2.0**-53 * math.sqrt(2 * math.pi), rel=1e-14)


@given(st.floats(2.0**-54, 0.5))
def test_logarithm(x: float) -> None:
    """The series is the logarithm, and its twin bit by bit."""
    assert _logarithm(x) == draws.logarithm(x)
    assert _logarithm(x) == pytest.approx(math.log(x), rel=4e-16)


@pytest.mark.parametrize("length", [0, 1, 7, 8, PIECE - 1, PIECE, PIECE + 9, 3 * PIECE])
@pytest.mark.parametrize("first", [0, 8, 1_000_000 * 8])
def test_a_draw_is_two_words_of_its_stream(first: int, length: int) -> None:
    """Draw d is of words 2d and 2d + 1, wherever one begins to look."""
    identity, level = 0x0123456789ABCDEF, 7
    out = np.full(length, np.nan)
    normals(KEY, np.uint64(identity), np.uint32(level), first, out)
    nonce = [0x89ABCDEF, 0x01234567, level]
    words = [
        word
        for number in range(first // 8, (first + length + 7) // 8)
        for word in chacha20.block(KEY.tolist(), number, nonce)
    ]
    assert out.tolist() == [draws.normal(words[2 * at], words[2 * at + 1]) for at in range(length)]


def test_all_branches_agree_in_vectors() -> None:
    """The fill is the single draw, the far tail included."""
    rows = 40_000
    out = sample(rows)
    words = chacha20.blocks(
        KEY.tolist(), np.arange(rows // 8, dtype=np.uint32), np.zeros((rows // 8, 3), np.uint32)
    ).reshape(-1, 2)
    assert (np.abs(out) > stats.norm.ppf(0.925)).mean() == pytest.approx(0.15, abs=0.01)
    single = np.empty(rows)
    _normals_of(np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1]), single)
    assert (out == single).all()


def test_far_tail_in_vectors() -> None:
    """One far draw in a vector of others: each by its own rational function."""
    p = [0.05, 2.0**-54, 1e-13, 1.4e-11, 1e-8]
    tail = np.sqrt(-np.log(p))
    assert (tail > 5).sum() == 2
    _put_tails(tail)
    assert tail == pytest.approx(-stats.norm.ppf(p), rel=1e-14)


def test_normals_look_normal() -> None:
    """Kolmogorov-Smirnov and the moments of a million draws; consecutive draws are uncorrelated."""
    values = sample(1_000_000)
    assert stats.kstest(values, "norm").pvalue > 1e-3
    n = len(values)
    assert abs(values.mean()) < 4 / math.sqrt(n)
    assert abs(values.var() - 1) < 4 * math.sqrt(2 / n)
    assert abs((values**3).mean()) < 4 * math.sqrt(15 / n)
    assert abs((values**4).mean() - 3) < 4 * math.sqrt(96 / n)
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 4 / math.sqrt(n)
    assert abs(np.corrcoef(values, sample(n, identity=1))[0, 1]) < 4 / math.sqrt(n)
