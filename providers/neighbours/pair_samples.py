"""Draw a random neighbour from a sample of the distance matrix (paper, section 10.3.2).

Of the n (n - 1) / 2 unordered pairs of rows, floor(n m / 2) are sampled; all such sets are equally likely. A
pair {i, j} makes j a candidate of i, and i a candidate of j. Neighbours and donors among the candidates are
those of `donors`. A row without a pair draws a private sample of k rows (`own_samples`).

Two uniform words give a pair: a row, and another row. Repeated pairs are dropped, and drawing continues until
enough distinct pairs are drawn. If the sample is more than half of all pairs, the pairs to leave out are
drawn instead. `docs/decisions/0016-random-pairs.md` gives the reasons.

References
----------
Perry, Matloff and Tendick 2024, arXiv:2210.06687, section 10.3.2.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from providers.arrays import Int32Array, Int64Array, UInt64Array
from providers.kernels.decorators import inlined
from providers.kernels.parallel import parallel
from providers.neighbours.brute_force import ROWS_PER_TASK, draw_for_row, new_scratch
from providers.neighbours.donors import MOST_SORTED, NeighbourRule, PartRows, bounded_once, insertion_sort
from providers.neighbours.own_samples import SAMPLE_BYTES, draw_from_own_samples
from providers.numba import get_num_threads, njit, prange
from providers.progress import Progress, in_slices, no_progress, sub_progress
from providers.randomness.chacha20 import LANES, Key, stream_words

_LEVEL = 3
"""Level of the streams of pairs; the level below has the words of single rows (`donors`)."""

_DRAWS = 128  # draws of two words each in one call of the generator

_REJECTED = np.uint64(2**64 - 1)  # a draw without a pair; greater than any pair

_PAIR_BYTES = 12
"""Bytes of a pair while the graph is built: a drawn pair (8) or two candidates (8), and a greater row (4)."""

_ROW_BYTES = 40  # bytes of a row in the offsets and counters of the graph

_CANDIDATE_BYTES = 24  # bytes of one candidate of a row, in each thread


class Pairs(NamedTuple):
    """Pairs of rows as an undirected graph in CSR form (compressed sparse rows)."""

    starts: Int64Array
    """Offsets: row i is paired with ``others[starts[i]:starts[i + 1]]``; shape (n + 1,)."""
    others: Int32Array
    """Paired rows, ascending for each row; shape (2 pairs,)."""
    is_left_out: bool
    """Whether the graph holds the pairs that are not in the sample."""

    @property
    def candidates(self) -> Int64Array:
        """Number of candidates of each row; shape (n,)."""
        degrees = np.diff(self.starts)
        return len(degrees) - 1 - degrees if self.is_left_out else degrees


def pair_bytes(rows: int, size: int) -> int:
    """Return the peak memory in bytes of the pairs of a part of `rows` rows."""
    _, drawn, _ = _numbers_of_pairs(rows, size)
    return _PAIR_BYTES * drawn + _ROW_BYTES * rows


def pair_work_bytes(rows: int, size: int, k: int) -> int:
    """Return the memory in bytes of a search among pairs, including the scratch space of all threads."""
    widest = min(rows, 2 * size + 64)
    of_thread = _CANDIDATE_BYTES * widest + SAMPLE_BYTES * min(k, rows)
    return pair_bytes(rows, size) + int(get_num_threads()) * of_thread


def _numbers_of_pairs(rows: int, size: int) -> tuple[int, int, bool]:
    """Return the pairs of the sample, the pairs to draw, and whether the latter are those to leave out."""
    all_pairs = rows * (rows - 1) // 2
    wanted = min(rows * size // 2, all_pairs)
    is_left_out = 2 * wanted > all_pairs
    return wanted, all_pairs - wanted if is_left_out else wanted, is_left_out


# -------------------------------------------------------------------------------------------- the draws


@parallel
def _draw_pairs(key, identity, first, rows, pairs):
    """Draw pairs number `first`, `first` + 1, ... of the sequence.

    Draw d uses words 2 d and 2 d + 1. It is `_REJECTED` if one of the words is rejected.

    Parameters
    ----------
    key : uint32, shape (8,)
    identity : int64
        Identity of the stream: the number of the part.
    first : int64
    rows : int64
        Rows of the part.
    pairs : uint64, shape (draws,)
        Receives the pairs: the lesser row in the upper 32 bits, the greater row in the lower ones.
    """
    last = first + len(pairs)
    before = first // _DRAWS
    for chunk in prange((last + _DRAWS - 1) // _DRAWS - before):
        words = np.empty(256, np.uint32)
        address = np.empty((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        start = _DRAWS * (before + chunk)
        number = start // 8  # block of 16 words; bits above the 32 of the counter go into the level
        level = np.uint32(_LEVEL + (number >> 32))
        stream_words(key, np.uint64(identity), level, np.uint32(number & 0xFFFFFFFF), address, block, words)
        for draw in range(max(first, start), min(last, start + _DRAWS)):
            one = bounded_once(np.uint64(words[2 * (draw - start)]), rows)
            other = bounded_once(np.uint64(words[2 * (draw - start) + 1]), rows - 1)
            if one < 0 or other < 0:
                pairs[draw - first] = _REJECTED
                continue
            other += other >= one  # all rows but `one`
            pairs[draw - first] = np.uint64(min(one, other)) << np.uint64(32) | np.uint64(max(one, other))


@njit(cache=True, nogil=True)
def _count_by_lesser(pairs, starts):
    """Count the pairs by lesser row; `_REJECTED` is skipped.

    Parameters
    ----------
    pairs : uint64, shape (draws,)
        Pairs, as drawn by `_draw_pairs`.
    starts : int64, shape (n + 1,)
        ``starts[lesser + 1]`` is increased by the number of pairs.
    """
    for index in range(len(pairs)):
        if pairs[index] != _REJECTED:
            starts[np.int64(pairs[index] >> np.uint64(32)) + 1] += 1


@njit(cache=True, nogil=True)
def _place_by_lesser(pairs, places, greater):
    """Write the greater row of each pair to the list of its lesser row; `_REJECTED` is skipped.

    Parameters
    ----------
    pairs : uint64, shape (draws,)
        Pairs, as drawn by `_draw_pairs`.
    places : int64, shape (n,)
        Next free place of each lesser row in `greater`; advanced.
    greater : int32, shape (pairs,)
        Receives the greater rows.
    """
    for index in range(len(pairs)):
        if pairs[index] != _REJECTED:
            lesser = np.int64(pairs[index] >> np.uint64(32))
            greater[places[lesser]] = np.int32(pairs[index] & np.uint64(0xFFFFFFFF))
            places[lesser] += 1


@parallel
def _sort_rows(starts, greater, stops):
    """Sort the greater rows of each row and drop repeated ones.

    Parameters
    ----------
    starts : int64, shape (n + 1,)
        Offsets of the rows in `greater`.
    greater : int32, shape (pairs,)
        Sorted in place; elements after the distinct ones of a row are undefined.
    stops : int64, shape (n,)
        Receives the end of the distinct elements of each row.
    """
    rows = len(stops)
    for chunk in prange((rows + ROWS_PER_TASK - 1) // ROWS_PER_TASK):
        for row in range(chunk * ROWS_PER_TASK, min(chunk * ROWS_PER_TASK + ROWS_PER_TASK, rows)):
            listed = greater[starts[row] : starts[row + 1]]
            if len(listed) <= MOST_SORTED:
                insertion_sort(listed, len(listed))
            else:
                listed.sort()
            count = 0
            for index in range(len(listed)):
                if count == 0 or listed[index] != listed[count - 1]:
                    listed[count] = listed[index]
                    count += 1
            stops[row] = starts[row] + count


@njit(cache=True, nogil=True)
def _are_new(pairs, starts, stops, greater, new):
    """Mark the `pairs` (uint64, shape (m,)) that are not in the graph, in `new` (bool, shape (m,)).

    `starts`, `stops` and `greater` are as in `_sort_rows`.
    """
    for index in range(len(pairs)):
        lesser = np.int64(pairs[index] >> np.uint64(32))
        other = np.int32(pairs[index] & np.uint64(0xFFFFFFFF))
        listed = greater[starts[lesser] : stops[lesser]]
        place = np.searchsorted(listed, other)
        new[index] = place == len(listed) or listed[place] != other


@njit(cache=True, nogil=True)
def _count_both(starts, stops, greater, more, degrees):
    """Count the pairs of each row in ``degrees[row + 1]`` (int64, shape (n + 1,)).

    `starts`, `stops` and `greater` are as in `_sort_rows`; `more` (uint64, shape (m,)) are further pairs.
    """
    for row in range(len(stops)):
        degrees[row + 1] += stops[row] - starts[row]
        for place in range(starts[row], stops[row]):
            degrees[greater[place] + 1] += 1
    for index in range(len(more)):
        degrees[np.int64(more[index] >> np.uint64(32)) + 1] += 1
        degrees[np.int64(more[index] & np.uint64(0xFFFFFFFF)) + 1] += 1


@njit(cache=True, nogil=True)
def _place_both(starts, stops, greater, more, places, others):
    """Write each row of a pair to the candidates of the other row.

    Rows are processed in ascending order. Therefore the lesser candidates of a row come first, and its list
    is ascending.

    Parameters
    ----------
    starts, stops, greater
        As for `_sort_rows`.
    more : uint64, shape (m,), ascending
        Further pairs.
    places : int64, shape (n,)
        Next free place of each row in `others`; advanced.
    others : int32, shape (2 pairs,)
        Receives the candidates.
    """
    index = 0  # position in `more`
    for row in range(len(stops)):
        place = starts[row]
        while True:
            following = np.int64(-1)
            if index < len(more) and np.int64(more[index] >> np.uint64(32)) == row:
                following = np.int64(more[index] & np.uint64(0xFFFFFFFF))
            if place < stops[row] and (following < 0 or greater[place] < following):
                following = np.int64(greater[place])
                place += 1
            elif following >= 0:
                index += 1
            else:
                break
            others[places[row]] = np.int32(following)
            places[row] += 1
            others[places[following]] = np.int32(row)
            places[following] += 1


def draw_pairs(rows: int, size: int, key: Key, identity: int, progress: Progress = no_progress) -> Pairs:
    """Draw floor(rows size / 2) distinct pairs of rows; all such sets are equally likely.

    Parameters
    ----------
    rows : int
        3 or more.
    size : int
        The paper's m, twice the average number of pairs for each row; less than rows - 1.
    key : Key
    identity : int
        Identity of the stream: the number of the part.
    progress : Progress

    Notes
    -----
    O(rows size) time and memory. The sample is the set of the first distinct pairs of one sequence of draws.
    It does not depend on the number of draws in one call.
    """
    _, wanted, is_left_out = _numbers_of_pairs(rows, size)
    starts, greater = _first_pairs(wanted, rows, key, identity, sub_progress(progress, 0.0, 0.7))
    stops = np.empty(rows, np.int64)
    _sort_rows(starts, greater, stops)
    more = _more_pairs(wanted, rows, key, identity, starts, stops, greater)
    degrees = np.zeros(rows + 1, np.int64)
    _count_both(starts, stops, greater, more, degrees)
    np.cumsum(degrees, out=degrees)
    others = np.empty(2 * wanted, np.int32)
    _place_both(starts, stops, greater, more, degrees[:-1].copy(), others)
    progress(1.0, "drawing pairs")
    return Pairs(degrees, others, is_left_out)


def _first_pairs(
    wanted: int, rows: int, key: Key, identity: int, progress: Progress
) -> tuple[Int64Array, Int32Array]:
    """Make as many draws as pairs are wanted. Return the greater rows of each row in CSR form, unsorted."""
    drawn = np.empty(wanted, np.uint64)

    def work(first: int, last: int) -> None:
        _draw_pairs(key, identity, _DRAWS * first, rows, drawn[_DRAWS * first : _DRAWS * last])

    in_slices(-(-wanted // _DRAWS), work, lambda done: progress(0.7 * done, "drawing pairs"))
    starts = np.zeros(rows + 1, np.int64)
    _count_by_lesser(drawn, starts)
    np.cumsum(starts, out=starts)
    greater = np.empty(int(starts[-1]), np.int32)
    _place_by_lesser(drawn, starts[:-1].copy(), greater)
    progress(1.0, "drawing pairs")
    return starts, greater


def _more_pairs(
    wanted: int,
    rows: int,
    key: Key,
    identity: int,
    starts: Int64Array,
    stops: Int64Array,
    greater: Int32Array,
) -> UInt64Array:
    """Draw until there are as many distinct pairs as wanted; return those not in the graph yet, ascending.

    A round makes at most as many draws as pairs are missing, so that every new pair is taken.
    """
    count = int(np.sum(stops - starts[:-1]))
    more = np.empty(0, np.uint64)
    first = wanted
    while count + len(more) < wanted:
        drawn = np.empty(wanted - count - len(more), np.uint64)
        _draw_pairs(key, identity, first, rows, drawn)
        first += len(drawn)
        drawn = _distinct(drawn[drawn != _REJECTED])
        new = np.empty(len(drawn), np.bool_)
        _are_new(drawn, starts, stops, greater, new)
        more = _distinct(np.concatenate([more, drawn[new]]))
    return more


def _distinct(pairs: UInt64Array) -> UInt64Array:
    """Sort pairs and drop repeated ones. Ten times as fast as `numpy.unique`, which hashes them."""
    pairs = np.sort(pairs)
    first_of_equals = np.ones(len(pairs), np.bool_)
    np.not_equal(pairs[1:], pairs[:-1], out=first_of_equals[1:])
    distinct: UInt64Array = pairs[first_of_equals]
    return distinct


# --------------------------------------------------------------------------------------------- the donors


@inlined
def _complement(left_out, row, rows, candidates):
    """List all rows of a part except one row and those left out, in ascending order; return their number.

    Parameters
    ----------
    left_out : int32, shape (m,), ascending
        Rows to leave out.
    row : int64
        Another row to leave out.
    rows : int64
        Rows of the part.
    candidates : int32, shape (rows - 1 - m,) or more
        Receives the list.
    """
    count, index = 0, 0
    for other in range(rows):
        if index < len(left_out) and left_out[index] == other:
            index += 1
        elif other != row:
            candidates[count] = other
            count += 1
    return count


@parallel
def _draw(points, pairs, most_candidates, identities, rule, keys, first, last, donors, sizes):
    """Draw a donor in each field for the rows from `first` to `last` that have a pair.

    Parameters
    ----------
    points, rule, keys, donors, sizes
        As for `brute_force.draw_for_row`; `donors` and `sizes` are written.
    pairs : Pairs
    most_candidates : int64
        Maximum number of candidates of a row.
    identities : int32, shape (n,)
        Row numbers in the table.
    first, last : int64
        Range of rows of the part, the last one excluded.
    """
    rows = len(points.numbers)
    for chunk in prange((last - first + ROWS_PER_TASK - 1) // ROWS_PER_TASK):
        candidates = np.empty(most_candidates, np.int32)
        scratch = new_scratch(most_candidates)
        low = first + chunk * ROWS_PER_TASK
        for row in range(low, min(low + ROWS_PER_TASK, last)):
            listed = pairs.others[pairs.starts[row] : pairs.starts[row + 1]]
            if pairs.is_left_out:
                size = _complement(listed, row, rows, candidates)
                listed = candidates[:size]
            sizes[row] = 0
            if len(listed) == 0:
                continue
            identity = np.int64(identities[row])
            draw_for_row(points, row, identity, listed, rule, keys, donors, sizes, scratch)


def draw_from_pairs(
    part: PartRows, size: int, rule: NeighbourRule, key: Key, identity: int, progress: Callable[[float], None]
) -> tuple[int, int]:
    """Draw donors for all rows of a part from their neighbourhoods among the rows they are paired with.

    Parameters
    ----------
    part : PartRows
        Its words are replaced by donors, and its sizes are filled. 3 rows or more.
    size : int
        The paper's m, as for `draw_pairs`.
    rule : NeighbourRule
    key : Key
        Key of the pairs, and of the samples of rows without a pair: stream (i, 2) for row i of the table.
    identity : int
        Number of the part.
    progress : callable
        Called with the completed fraction, 0 to 1.

    Returns
    -------
    few, none : int
        Number of rows with 1 to k - 1 candidates, and of rows without a pair, which drew a private sample.
    """
    pair_progress = sub_progress(lambda share, _: progress(share), 0.0, 0.4)
    points, rows = part.points, len(part.rows)
    pairs = draw_pairs(rows, size, key, identity, pair_progress)
    candidates = pairs.candidates
    identities = part.rows.view()
    identities.flags.writeable = False  # as some parts have them: one kernel serves all

    def work(first: int, last: int) -> None:
        _draw(
            points, pairs, int(candidates.max()), identities, rule, part.keys, first, last, part.words,
            part.sizes,
        )  # fmt: skip

    in_slices(rows, work, lambda share: progress(0.4 + 0.55 * share))
    unpaired = np.flatnonzero(candidates == 0).astype(np.int32)
    if len(unpaired):
        own = min(rule.k, rows - 1)
        draw_from_own_samples(part, own, rule, key, unpaired, lambda share: progress(0.95 + 0.05 * share))
    few = int(np.count_nonzero(candidates < rule.k)) - len(unpaired)
    return few, len(unpaired)
