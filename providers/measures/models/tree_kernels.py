"""Kernels that grow the trees of a random forest on binned fields, and predict rows by them.

The splits of a node are found from the counts and sums of the intervals of a field, or, for classes and in
small nodes, from its rows in the order of their intervals.

Arguments of kernels
--------------------
bins : uint8 array (fields, n)
    Interval of each value of the training rows, as `Bins` numbers them.
values : float64 array (n,)
    Target of the training rows: numbers, or codes if `classes` is not 0.
classes : int
    Number of codes of the target; 0 for numbers.
weights : int32 array (n,)
    How often each row was drawn for the tree.
members : uint32 array (drawn rows,)
    Rows of the tree, those of a node next to each other.
start, stop : int
    Range of the node's rows in `members`.
left, right : int64 arrays (classes,)
    Weight of each class on both sides of a split. Scratch space, all 0 between nodes.
weight, total : int, float
    Weight of the rows of a node, and their sum of `values`, or of squared class weights.
scratch : uint32 array (n,)
    Scratch space for rows.
counts : int32 array (257,)
    Scratch space for the rows of each interval, all 0 between calls.

References
----------
Breiman, Friedman, Olshen and Stone 1984, Classification and regression trees: the Gini index, the sum of
squares.
"""

import numpy as np

from providers.kernels.decorators import within
from providers.kernels.parallel import parallel
from providers.numba import prange
from providers.randomness.word_stream import bounded, open_stream

_FEW = 32
"""Rows up to which a node is sorted by insertion instead of by counting."""


@parallel
def grow_and_vote(key, bins, values, classes, drawn, tried, smallest, tests, votes):
    """Grow the trees of a forest, and predict the test rows by each.

    Parameters
    ----------
    key : uint32, shape (8,)
    drawn : int
        Rows drawn for a tree.
    tried : int
        Fields in which a node looks for its split.
    smallest : int
        Rows up to which a node is not split.
    tests : uint8, shape (fields, t)
        Intervals of the test rows.
    votes : float64, shape (trees, t)
        Receives the prediction of each tree for each row.
    """
    for tree in prange(len(votes)):
        rows = bins.shape[1]
        weights = np.zeros(rows, np.int32)
        draws = open_stream(key, np.uint64(tree), np.uint32(0), 0)
        for _ in range(drawn):
            weights[bounded(draws, rows)] += 1
        members = np.flatnonzero(weights).astype(np.uint32)
        field_of, cut_of, child_of, value_of = _grow(
            open_stream(key, np.uint64(tree), np.uint32(1), 0),
            bins, values, classes, weights, members, tried, smallest,
        )  # fmt: skip
        for test in range(tests.shape[1]):
            node = 0
            while field_of[node] >= 0:
                node = child_of[node] + (tests[field_of[node], test] > cut_of[node])
            votes[tree, test] = value_of[node]


@within
def _grow(draws, bins, values, classes, weights, members, tried, smallest):
    """Grow one tree, node after node in the order in which they were made.

    Parameters
    ----------
    draws : uint32 array
        Random stream of the fields. Written.
    tried : int
        Fields in which a node looks for its split.
    smallest : int
        Rows, counted by weight, up to which a node is not split.

    Returns
    -------
    tuple of arrays
        For each node its field, -1 for a leaf; the last interval that goes to the left; the left child,
        before the right one; and the prediction of a leaf. `members` is reordered.
    """
    most = 2 * len(members)
    field_of, cut_of = np.full(most, -1, np.int32), np.zeros(most, np.int32)
    child_of, value_of = np.zeros(most, np.int32), np.zeros(most)
    starts, stops = np.zeros(most, np.int32), np.zeros(most, np.int32)
    stops[0] = len(members)
    nodes = 1
    order = np.arange(bins.shape[0])
    left, right = np.zeros(classes, np.int64), np.zeros(classes, np.int64)
    scratch, counts, sums = np.empty(len(members), np.uint32), np.zeros(257, np.int32), np.zeros(256)
    weighted = weights * values
    node = 0
    while node < nodes:
        start, stop = starts[node], stops[node]
        weight, total, pure = _summarise(values, classes, weights, members, start, stop, right)
        value_of[node] = _most_frequent(values, members, start, stop, right) if classes else total / weight
        if not pure and weight > smallest:
            best, best_field, best_cut = -np.inf, -1, 0
            drawn = 0
            while drawn < len(order) and (drawn < tried or best_field < 0):
                other = drawn + bounded(draws, len(order) - drawn)
                order[drawn], order[other] = order[other], order[drawn]
                field = order[drawn]
                drawn += 1
                if classes or stop - start <= _FEW:
                    _sort_rows(bins[field], members, start, stop, scratch, counts)
                    score, cut = _best_cut(
                        bins[field],
                        values,
                        classes,
                        weights,
                        scratch,
                        stop - start,
                        weight,
                        total,
                        left,
                        right,
                    )
                else:
                    score, cut = _best_cut_by_sums(
                        bins[field], weighted, weights, members, start, stop, weight, total, counts, sums
                    )
                if score > best:
                    best, best_field, best_cut = score, field, cut
            if best_field >= 0:
                middle = _partition(bins[best_field], best_cut, members, start, stop, scratch)
                field_of[node], cut_of[node], child_of[node] = best_field, best_cut, nodes
                starts[nodes], stops[nodes] = start, middle
                starts[nodes + 1], stops[nodes + 1] = middle, stop
                nodes += 2
        for place in range(start, stop if classes else start):
            right[np.int64(values[members[place]])] = 0
        node += 1
    return field_of, cut_of, child_of, value_of


@within
def _summarise(values, classes, weights, members, start, stop, right):
    """Return the weight of a node, its sum of `values` or of squared class weights, and if it is pure.

    `right` receives the weight of each class.
    """
    weight, total, pure = 0, 0.0, True
    first = values[members[start]]
    for place in range(start, stop):
        row = members[place]
        weight += weights[row]
        pure &= values[row] == first
        if classes:
            right[np.int64(values[row])] += weights[row]
        else:
            total += weights[row] * values[row]
    for place in range(start, stop if classes else start):
        total += weights[members[place]] * right[np.int64(values[members[place]])]
    return weight, total, pure


@within
def _most_frequent(values, members, start, stop, right):
    """Return the most frequent class of a node, the lowest of several, by the class weights `right`."""
    found = np.int64(values[members[start]])
    for place in range(start + 1, stop):
        other = np.int64(values[members[place]])
        if right[other] > right[found] or (right[other] == right[found] and other < found):
            found = other
    return np.float64(found)


@within
def _sort_rows(bins, members, start, stop, scratch, counts):
    """Write the rows of a node to `scratch` by interval; rows of one interval keep their order.

    `bins` are those of one field, shape (n,).
    """
    count = stop - start
    if count <= _FEW:
        for place in range(count):
            row = members[start + place]
            slot = place
            while slot > 0 and bins[scratch[slot - 1]] > bins[row]:
                scratch[slot] = scratch[slot - 1]
                slot -= 1
            scratch[slot] = row
        return
    for place in range(start, stop):
        counts[bins[members[place]] + 1] += 1
    for interval in range(256):
        counts[interval + 1] += counts[interval]
    for place in range(start, stop):
        row = members[place]
        scratch[counts[bins[row]]] = row
        counts[bins[row]] += 1
    counts[:] = 0


@within
def _best_cut(bins, values, classes, weights, scratch, count, weight, total, left, right):
    """Return the score of the best split of a node by one field, and its last interval to the left.

    Parameters
    ----------
    bins : uint8, shape (n,)
        Intervals of the field.
    scratch : uint32
        Rows of the node by interval.
    count : int
        Number of these rows.

    Notes
    -----
    The score is -inf if all rows are in one interval.
    """
    best, cut = -np.inf, np.int64(0)
    low, low_sum = 0, 0.0
    low_squares, high_squares = np.float64(0.0), total
    for place in range(count - 1):
        row = scratch[place]
        low += weights[row]
        if classes:
            code = np.int64(values[row])
            low_squares += weights[row] * (2 * left[code] + weights[row])
            high_squares -= weights[row] * (2 * right[code] - weights[row])
            left[code] += weights[row]
            right[code] -= weights[row]
        else:
            low_sum += weights[row] * values[row]
        if bins[row] == bins[scratch[place + 1]]:
            continue
        if classes:
            score = _score(low_squares, low, high_squares, weight - low)
        else:
            score = _score(low_sum**2, low, (total - low_sum) ** 2, weight - low)
        if score > best:
            best, cut = score, np.int64(bins[row])
    for place in range(count - 1 if classes else 0):
        row = scratch[place]
        left[np.int64(values[row])] -= weights[row]
        right[np.int64(values[row])] += weights[row]
    return best, cut


@within
def _best_cut_by_sums(bins, weighted, weights, members, start, stop, weight, total, counts, sums):
    """Return what `_best_cut` does, for a target of numbers, without sorting the rows.

    `bins` are those of one field, `weighted` the values times their weights, both of shape (n,). `sums`
    (float64, shape (256,)) is scratch space like `counts`.
    """
    first, last = np.uint8(255), np.uint8(0)
    for place in range(start, stop):
        row = members[place]
        interval = bins[row]
        counts[interval] += weights[row]
        sums[interval] += weighted[row]
        first, last = min(first, interval), max(last, interval)
    best, cut = -np.inf, 0
    low, low_sum = 0, 0.0
    for interval in range(first, last):
        if counts[interval]:
            low += counts[interval]
            low_sum += sums[interval]
            score = _score(low_sum**2, low, (total - low_sum) ** 2, weight - low)
            if score > best:
                best, cut = score, interval
        counts[interval], sums[interval] = 0, 0.0
    counts[last], sums[last] = 0, 0.0
    return best, cut


@within
def _score(low_squares, low, high_squares, high):
    """Return the score of a split: the larger, the more the sum of squares, or the Gini index, falls.

    It is S_l / w_l + S_r / w_r, with weights w `low` and `high` of both sides. S, `low_squares` and
    `high_squares`, is the squared sum of the values, or the sum of squared class weights.
    """
    weights = np.float64(low) * np.float64(high)
    return (low_squares * np.float64(high) + high_squares * np.float64(low)) / weights


@within
def _partition(bins, cut, members, start, stop, scratch):
    """Put rows of a node up to interval `cut` first, in their order, and return the place of the others.

    `bins` are those of one field, shape (n,).
    """
    middle, others = start, 0
    for place in range(start, stop):
        row = members[place]
        if bins[row] <= cut:
            members[middle] = row
            middle += 1
        else:
            scratch[others] = row
            others += 1
    for place in range(others):
        members[middle + place] = scratch[place]
    return middle
