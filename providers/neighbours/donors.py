"""Draw a random neighbour per row and field.

The neighbourhood S_i of row i contains candidates j other than i, by squared distances D
(`simd_distances`):

- ties `include`: all j with ``D_ij <= max(epsilon^2, D_i(k)) (1 + 2e-9)``, D_i(k) the k-th smallest;
- ties `index`: the first k by (D, row); if epsilon is over 0, also all with
  ``D_ij <= epsilon^2 (1 + 2e-9)``;
- all candidates, if they are k or fewer.

A neighbourhood of at most `MOST_LISTED` rows is listed, and a uniform row of it is drawn in the order of row
numbers. A larger one is sampled by rejection from a cover, a set of nodes of the k-d tree (`kdtree`) that
contains the neighbourhood: uniform positions of the cover are drawn until one is a neighbour. The cover
starts as the root. Level by level each node is replaced by those of its two children that may hold
neighbours, except leaves and nodes that lie wholly within the radius. Refinement ends before the cover would
have more than `MOST_COVER_NODES` nodes.

`docs/decisions/0001-randomness.md` lists the addresses of the draws.

Arguments of kernels
--------------------
tree, queries : Tree
    Tree of the candidates, and tree of the rows that get donors.
leaf, lane : int64
    Leaf of the query in `queries`, and its lane in the leaf.
candidates : int32 array (candidates,)
    Rows of `tree` in ascending order.
is_same_tree : bool
    Whether `queries` is `tree`, so that every query is a candidate.
rule : NeighbourRule
    Definition of a neighbourhood.
lists : NearestLists
    Nearest rows of each query of the leaf, from `k_nearest.nearest`.
found : int32 array (rule.most_listed + 1,)
    List of the neighbours of one query. Written.
cover : Cover
    Scratch space of the cover of one query. Written.
state : SearchState
    Scratch space of the search. Written.
keys : uint32 array (fields, 8)
    Key of each field.
key : uint32 array (8,)
    Key of one field.
donors : uint32 array (fields, n)
    First word of each field and row, replaced by the donor. Written.
sizes : int32 array (n,)
    Size of each neighbourhood, -1 if it was not counted. Written.
buffer : WordBuffer
    Words of the stream of one row. Written.

References
----------
Perry, Matloff and Tendick 2024, arXiv:2210.06687, section 4.1: the neighbourhood S_i and its draws.
Lemire 2019, doi:10.1145/3230636: a uniform integer below a bound, without modulo bias.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from providers.arrays import Int32Array, Int64Array, UInt32Array
from providers.kernels.decorators import borrowing, inlined, within
from providers.kernels.parallel import parallel
from providers.neighbours.k_nearest import TIE, list_length, nearest, new_lists, new_search_state
from providers.neighbours.kdtree import LEAF, grow
from providers.neighbours.points import Points
from providers.neighbours.radius import cover_nodes, distance, node_positions, rows_within
from providers.neighbours.simd_distances import count_smaller_rows
from providers.numba import prange
from providers.progress import in_slices
from providers.randomness.chacha20 import LANES, Key, stream_words

MOST_LISTED = 1024
"""Maximum rows of a neighbourhood that is listed. A change of it changes the output of RWN."""

MOST_COVER_NODES = 64
"""Maximum nodes of a cover. A change of it changes the output of RWN."""

DONOR_LEVEL, _RATE_LEVEL, FURTHER_LEVEL = 0, 1, 2
"""Stream levels: first word of each row's draw, words that decide about keeping, further words of one row."""

LEAVES_PER_TASK = 8  # leaves of one parallel task

_NO_ROW = np.int32(2**31 - 1)

MOST_SORTED = 32  # longest list that is sorted once; longer ones are searched by quickselect per field


class NeighbourRule(NamedTuple):
    """Definition of a neighbourhood, in the form that kernels take."""

    k: int
    """Number of nearest rows."""
    epsilon: float
    """Distance within which all rows are neighbours."""
    include_ties: bool
    """Whether all ties at the k-th distance are neighbours."""
    count_every: int
    """Large neighbourhoods are counted only for row numbers divisible by this."""
    most_listed: int
    """Maximum rows of a listed neighbourhood: `MOST_LISTED`."""
    most_cover_nodes: int
    """Maximum nodes of a cover: `MOST_COVER_NODES`."""


class WordBuffer(NamedTuple):
    """Words of one stream that are drawn one by one, in the form that kernels take."""

    used: Int64Array
    """Number of words drawn so far; shape (1,)."""
    words: UInt32Array
    """Current words of the stream; shape (256,)."""
    address: UInt32Array
    """Scratch space for ChaCha20; shape (4, LANES)."""
    block: UInt32Array
    """Scratch space for ChaCha20; shape (LANES, LANES)."""


class Cover(NamedTuple):
    """Nodes of a cover, in the form that kernels take; shape (rule.most_cover_nodes,) each."""

    nodes: Int64Array
    """Numbers of the nodes."""
    spare_nodes: Int64Array
    """Scratch space of `cover_nodes`."""
    ends: Int64Array
    """Cumulative number of rows in the nodes."""


@dataclass(frozen=True)
class Donors:
    """Donor of each row in each field."""

    rows: Int32Array
    """Row number of the donor; shape (fields, n)."""
    sizes: Int32Array
    """Size of each row's neighbourhood, -1 if it was not counted; shape (n,)."""


@dataclass(frozen=True)
class PartRows:
    """Rows of one part while donors are drawn without a tree; a row is named by its index in the part."""

    points: Points
    rows: Int32Array
    """Row numbers in the table, ascending; shape (n,)."""
    keys: UInt32Array
    """Key of each field; shape (fields, 8)."""
    words: UInt32Array
    """First random word of each field and row, replaced by the index of the donor; shape (fields, n)."""
    sizes: Int32Array
    """Size of each neighbourhood, filled as donors are drawn; shape (n,)."""


# ------------------------------------------------------------------------------------------- words


@parallel
def _first_words(keys, words):
    """Draw the first word of every row: word i of the stream (0, 0) for row i.

    Parameters
    ----------
    words : uint32, shape (fields, n)
        Receives the words.
    """
    rows = words.shape[1]
    chunks = (rows + 255) // 256
    for task in prange(len(keys) * chunks):
        field, chunk = task // chunks, task % chunks
        address = np.empty((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        drawn = np.empty(256, np.uint32)
        level = np.uint32(DONOR_LEVEL)
        stream_words(keys[field], np.uint64(0), level, np.uint32(16 * chunk), address, block, drawn)
        first = 256 * chunk
        for index in range(min(256, rows - first)):
            words[field, first + index] = drawn[index]


def key_array(keys: Sequence[Key]) -> UInt32Array:
    """Return the keys as kernels take them; shape (keys, 8)."""
    return np.array(keys, np.uint32).reshape(-1, 8)


def first_words(keys: Sequence[Key], rows: int) -> tuple[UInt32Array, UInt32Array]:
    """Return the keys as an array, and the first word of each key and row; shape (keys, rows)."""
    words = np.empty((len(keys), rows), np.uint32)
    array = key_array(keys)
    _first_words(array, words)
    return array, words


@parallel
def mark_kept_rows(key, q, first, kept):
    """Mark the rows that keep their own value, each with probability 1 - q (section 4.1, step 3).

    Row i compares q with a uniform number of 53 bits, made of words 2 i and 2 i + 1 of the stream (0, 1).

    Parameters
    ----------
    key : uint32, shape (8,)
    q : float64
    first : int64
        Number of the first row, a multiple of 128.
    kept : bool, shape (n,)
        Receives the mask of the rows from `first` on.
    """
    for chunk in prange((len(kept) + 127) // 128):
        address = np.empty((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        drawn = np.empty(256, np.uint32)
        level = np.uint32(_RATE_LEVEL)
        first_block = np.uint32(16 * (first // 128 + chunk))
        stream_words(key, np.uint64(0), level, first_block, address, block, drawn)
        for row in range(128 * chunk, min(128 * chunk + 128, len(kept))):
            word = 2 * (row - 128 * chunk)
            high = np.uint64(drawn[word]) << np.uint64(21)
            uniform = np.float64(high | (np.uint64(drawn[word + 1]) >> np.uint64(11))) * 2.0**-53
            kept[row] = uniform >= q


@within
def new_word_buffer():
    """Allocate the buffer of a stream of which no word is drawn."""
    return WordBuffer(
        np.zeros(1, np.int64),
        np.empty(256, np.uint32),
        np.empty((4, LANES), np.uint32),
        np.empty((LANES, LANES), np.uint32),
    )


@borrowing
def restart(buffer):
    """Begin a stream: no word of it is drawn."""
    buffer.used[0] = 0


@borrowing
def next_word(key, row, buffer):
    """Return the next word of the stream (row, 2), and count it in the buffer.

    `row` (int32 or int64) is the row number in the table, which identifies the stream. The words are refilled
    before every 256 words.
    """
    used = buffer.used[0]
    if used % 256 == 0:
        first_block, level = np.uint32(used // 16), np.uint32(FURTHER_LEVEL)
        stream_words(key, np.uint64(row), level, first_block, buffer.address, buffer.block, buffer.words)
    buffer.used[0] = used + 1
    return np.uint64(buffer.words[used % 256])


@borrowing
def bounded_once(word, bound):
    """Map a word to a uniform integer below `bound`, or to -1 if it is rejected (Lemire 2019).

    `word` is a 32-bit number (uint32 or uint64), and `bound` (int32 or int64) is from 1 to 2**32.
    """
    product = np.uint64(word) * np.uint64(bound)
    low = product & np.uint64(0xFFFFFFFF)
    if low < np.uint64(bound) and low < np.uint64(0x100000000) % np.uint64(bound):
        return np.int64(-1)
    return np.int64(product >> np.uint64(32))


@borrowing
def bounded(word, bound, key, row, buffer):
    """Return a uniform integer below `bound` from `word`, or from the next words if it is rejected.

    `word` and `bound` are as for `bounded_once`, and `row` is as for `next_word`.
    """
    place = bounded_once(word, bound)
    while place < 0:
        place = bounded_once(next_word(key, row, buffer), bound)
    return place


# ------------------------------------------------------------------------------------ neighbourhoods


@borrowing
def insertion_sort(values, count):
    """Sort the first `count` elements of `values`, in place.

    `count` is an int32 or int64, and `values` any array of shape (count,) or more.
    """
    for index in range(1, count):
        value = values[index]
        to = index
        while to > 0 and values[to - 1] > value:
            values[to] = values[to - 1]
            to -= 1
        values[to] = value


@borrowing
def select_nth(values, count, nth):
    """Return the element at index `nth` in sorted order, by quickselect (Hoare's partition).

    Parameters
    ----------
    values : any dtype, shape (count,) or more
        Reordered, unless there are at most `MOST_SORTED` elements, which must be sorted already.
    count : int32 or int64
        Number of elements.
    nth : int64
        Index in sorted order.
    """
    if count <= MOST_SORTED:
        return values[nth]
    low, high = 0, count - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if nth <= right:
            high = right
        elif nth >= left:
            low = left
        else:
            break
    return values[nth]


@borrowing
def draw_from_list(listed, size, row, identity, keys, donors, buffer):
    """Draw a uniform row of a list for each field, and overwrite the row's first words by the draws.

    Parameters
    ----------
    listed : int32, shape (size,) or more
        Distinct neighbours; reordered.
    size : int32 or int64
        Number of neighbours.
    row : int32 or int64
        Column of the row in `donors`.
    identity : int32 or int64
        Number of the row in the table, which addresses further words.
    """
    if size <= MOST_SORTED:
        insertion_sort(listed, size)
    for field in range(len(keys)):
        place = bounded_once(donors[field, row], size)
        if place < 0:
            restart(buffer)
            word = next_word(keys[field], identity, buffer)
            place = bounded(word, size, keys[field], identity, buffer)
        donors[field, row] = select_nth(listed, size, place)


@borrowing
def squared_radius(rule, kth):
    """Return the squared distance within which all rows are neighbours, or -1 if only the k nearest are.

    `kth` (float64) is the k-th smallest squared distance.
    """
    squared = rule.epsilon * rule.epsilon
    if rule.include_ties:
        return max(squared, kth) * TIE
    return squared * TIE if rule.epsilon > 0.0 else -1.0


@inlined
def _list_k_nearest(lane, rule, lists, found):
    """List the k nearest rows if they are the whole neighbourhood; return k, or 0 if they are not.

    The list is in ascending order of rows if it fits in one vector.
    """
    distances, rows = lists.distances, lists.rows
    if (
        distances[lane, rule.k] <= squared_radius(rule, distances[lane, rule.k - 1])
        or rule.k > rule.most_listed
    ):
        return 0
    in_one_vector = rows.shape[1] == LEAF
    for index in range(rule.k):
        neighbour = rows[lane, index]
        # The number of smaller rows is the row's index in ascending order.
        found[count_smaller_rows(rows, lane, rule.k, neighbour) if in_one_vector else index] = neighbour
    return rule.k


@borrowing
def _neighbourhood(tree, queries, leaf, lane, row, is_candidate, candidates, rule, lists, found, state):
    """Find a neighbourhood that `_list_k_nearest` did not list: (size, is_listed, radius, last_row).

    A neighbourhood of up to ``rule.most_listed`` rows is listed in `found`. A larger one contains all rows
    at a squared distance below `radius`, and those at `radius` with row numbers up to `last_row`.

    Parameters
    ----------
    row : int32
        Number of the query.
    is_candidate : int64
        1 if the query is itself a candidate, else 0.

    Returns
    -------
    size : int64
        Number of neighbours, -1 if not counted.
    is_listed : bool
    radius : float64
    last_row : int32
    """
    others = len(candidates) - is_candidate
    if others <= rule.k:
        if others > rule.most_listed:
            return others, False, np.inf, _NO_ROW
        count = 0
        for index in range(len(candidates)):
            if candidates[index] != row:
                found[count] = candidates[index]
                count += 1
        return others, True, np.inf, _NO_ROW
    kth, next_distance = lists.distances[lane, rule.k - 1], lists.distances[lane, rule.k]
    radius = squared_radius(rule, kth)
    if next_distance > radius:
        # The k nearest are the neighbourhood, and too many to list.
        if rule.include_ties:
            return rule.k, False, radius, _NO_ROW
        return rule.k, False, kth, lists.rows[lane, rule.k - 1]
    count = rows_within(tree, queries, leaf, lane, row, radius, found[: rule.most_listed + 1], state)
    if count <= rule.most_listed:
        return count, True, radius, _NO_ROW
    size = -1
    if row % rule.count_every == 0:
        size = rows_within(tree, queries, leaf, lane, row, radius, found[:0], state) - is_candidate
    return size, False, radius, _NO_ROW


@within
def _new_cover(rule):
    """Allocate the nodes of a cover."""
    return Cover(
        np.empty(rule.most_cover_nodes, np.int64),
        np.empty(rule.most_cover_nodes, np.int64),
        np.empty(rule.most_cover_nodes, np.int64),
    )


@borrowing
def _draw_from_cover(tree, queries, leaf, lane, row, radius, last_row, cover, node_count, key, buffer):
    """Draw a uniform row of a large neighbourhood by rejection from its cover.

    Parameters
    ----------
    row : int32
        Number of the query.
    radius, last_row : float64 and int32
        Bounds of the neighbourhood, as returned by `_neighbourhood`.
    node_count : int64
        Number of nodes of the cover.
    """
    ends = cover.ends[:node_count]
    while True:
        place = bounded(next_word(key, row, buffer), ends[node_count - 1], key, row, buffer)
        index = np.searchsorted(ends, place, side="right")
        _, stop = node_positions(tree, cover.nodes[index])
        position = stop - (ends[index] - place)
        other = tree.rows[position]
        if other == row:
            continue
        squared = distance(tree, position, queries, leaf, lane)
        if squared < radius or (squared == radius and other <= last_row):
            return other


@borrowing
def _draw_leaf(tree, queries, leaf, candidates, is_same_tree, is_searched, wanted, rule, keys, donors, sizes,
               lists, state, found, cover, buffer):  # fmt: skip
    """Draw donors for the queries of one leaf: steps 2 and 3 of section 4.1.

    Parameters
    ----------
    is_searched : bool
        Whether there are more than k candidates, without the query if `is_same_tree`. Only then the nearest
        rows are searched.
    wanted : int64
        Number of nearest rows to find.
    lists : NearestLists
        Scratch space of `k_nearest.nearest`; written.
    """
    query_rows = queries.rows
    candidate_count = len(candidates)
    # Step 2: the k + 1 nearest rows of all queries of the leaf; one more than k shows if there are ties.
    if is_searched:
        floor = rule.epsilon * rule.epsilon * TIE
        nearest(tree, queries, leaf, is_same_tree, True, wanted, floor, lists, state)
    start = queries.starts[leaf]
    for lane in range(queries.starts[leaf + 1] - start):
        row = query_rows[start + lane]
        size = _list_k_nearest(lane, rule, lists, found) if is_searched else 0
        is_listed, radius, last_row = True, 0.0, _NO_ROW
        if size == 0:
            is_candidate = is_same_tree
            if not is_same_tree:
                index = np.searchsorted(candidates, row)
                is_candidate = index < candidate_count and candidates[index] == row
            size, is_listed, radius, last_row = _neighbourhood(
                tree, queries, leaf, lane, row, np.int64(is_candidate), candidates, rule, lists, found, state
            )  # fmt: skip
        sizes[row] = size
        # Step 3: a uniform row of the neighbourhood for each field.
        if is_listed:
            draw_from_list(found, size, row, row, keys, donors, buffer)
            continue
        node_count = cover_nodes(tree, queries, leaf, lane, radius, cover.nodes, cover.spare_nodes)
        total = 0
        for index in range(node_count):
            first, stop = node_positions(tree, cover.nodes[index])
            total += stop - first
            cover.ends[index] = total
        for field in range(len(keys)):
            restart(buffer)
            donors[field, row] = _draw_from_cover(
                tree, queries, leaf, lane, row, radius, last_row, cover, node_count, keys[field], buffer
            )  # fmt: skip


@parallel
def _draw_by_tree(tree, queries, candidates, is_same_tree, rule, keys, first_leaf, last_leaf, donors, sizes):
    """Draw a donor in each field for the queries of some leaves.

    Parameters
    ----------
    first_leaf, last_leaf : int64
        Range of leaves of `queries`, the last one excluded.
    """
    candidate_count = len(candidates)
    wanted = min(rule.k + 1, candidate_count)
    is_searched = candidate_count > rule.k if not is_same_tree else candidate_count - 1 > rule.k
    length = list_length(wanted) if is_searched else 1
    for chunk in prange((last_leaf - first_leaf + LEAVES_PER_TASK - 1) // LEAVES_PER_TASK):
        lists, state = new_lists(length), new_search_state(tree)
        found = np.empty(rule.most_listed + 1, np.int32)
        cover = _new_cover(rule)
        buffer = new_word_buffer()
        low = first_leaf + chunk * LEAVES_PER_TASK
        for leaf in range(low, min(low + LEAVES_PER_TASK, last_leaf)):
            _draw_leaf(
                tree, queries, leaf, candidates, is_same_tree, is_searched, wanted, rule, keys, donors, sizes,
                lists, state, found, cover, buffer,
            )  # fmt: skip


class DonorDraw:
    """Donors of the rows of a table, drawn part by part."""

    def __init__(self, points: Points, rule: NeighbourRule, keys: Sequence[Key]) -> None:
        """Draw the first words. ``keys``: one for each field, because fields draw independently."""
        self.points = points
        self.rule = rule
        self.keys, self.words = first_words(keys, len(points.numbers))
        """Keys, and for each field and row its first word, replaced by its donor."""
        self.sizes = np.full(len(points.numbers), -1, np.int32)

    @property
    def donors(self) -> Donors:
        """Donors of all rows, after all parts have been drawn."""
        return Donors(self.words.view(np.int32), self.sizes)

    def draw_by_tree(
        self, queried: Int32Array, candidates: Int32Array, progress: Callable[[float], None]
    ) -> None:
        """Draw donors for some rows from their neighbourhoods among the candidates.

        Parameters
        ----------
        queried, candidates : ndarrays of int32, ascending
            Row numbers; the same object if the rows draw from each other.
        progress : callable
            Called with the completed fraction, 0 to 1.

        Notes
        -----
        O(n log n) time in few dimensions; towards O(n^2) beyond about twenty, where bounds exclude few rows.
        """
        tree = grow(self.points, candidates)
        is_same_tree = queried is candidates
        queries = tree if is_same_tree else grow(self.points, queried)

        def work(first: int, last: int) -> None:
            _draw_by_tree(
                tree, queries, candidates, is_same_tree, self.rule, self.keys, first, last, self.words,
                self.sizes,
            )  # fmt: skip

        in_slices(1 << queries.depth, work, progress)
