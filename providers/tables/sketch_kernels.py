"""Kernels of the sketches: hash rows and runs of values, keep the smallest of each place, compare."""

import numpy as np

from providers.kernels.decorators import borrowing, uncounted

PLACES = 64

EMPTY = 0
"""Word of a place without an element."""

RUN = 6
"""Consecutive values that are an element of a field's sketch."""

SAME_FIELD = 0.7
"""Resemblance from which on two fields hold the same values but for a few."""

SAME_ROWS = 0.5
"""Resemblance of whole rows from which on two tables are versions of one source."""

_NAME_WORDS = 2
"""Words of the hash of a field's name, which precede those of its sketch."""

_FIELD_WORDS = _NAME_WORDS + PLACES

_NO_ELEMENT = np.uint64(2**64 - 1)

_STEP = np.uint64(0x9E3779B97F4A7C15)
"""Difference between the elements of two copies of a hash: 2**64 over the golden ratio."""

_LOW = np.uint64(2**32 - 1)


@uncounted
def add_field(hashes, named, whole, runs):
    """Add a field to the hashes of whole rows, and hash its runs of consecutive values.

    Parameters
    ----------
    hashes : uint64, shape (rows,)
        Hash of each value.
    named : uint64
        Hash of the field's name.
    whole : uint64, shape (rows,)
        Updated.
    runs : uint64, shape (max(0, rows - run + 1),)
        Receives the hash of each run.
    """
    for row in range(len(hashes)):
        whole[row] += _mixed_word(hashes[row] ^ named)
    for row in range(len(runs)):
        word = np.uint64(0)
        for place in range(RUN):
            word = _mixed_word(word + hashes[row + place])
        runs[row] = word


@uncounted
def fill_places(ordered, words):
    """Write the word of each place: of its smallest element, never 0, or 0 if it has none.

    ``ordered``: uint64, sorted hashes; ``words``: uint64, shape (PLACES,), receives numbers below 2**32.
    """
    for place in range(PLACES):
        words[place] = _NO_ELEMENT
    copies = np.uint64(0)
    for number in range(len(ordered)):
        copies = copies + np.uint64(1) if number and ordered[number] == ordered[number - 1] else np.uint64(0)
        element = _mixed_word(ordered[number] + copies * _STEP)
        place = element % np.uint64(PLACES)
        words[place] = min(words[place], element)
    for place in range(PLACES):
        if words[place] == _NO_ELEMENT:
            words[place] = EMPTY
        else:
            low = _mixed_word((words[place] >> np.uint64(32)) | np.uint64(1)) & _LOW
            words[place] = max(low, np.uint64(1))


@uncounted
def mix_all(words):
    """Mix each word in its place; ``words``: uint64, one dimension."""
    for number in range(len(words)):
        words[number] = _mixed_word(words[number])


@uncounted
def find_same(own, words, lengths):
    """Return the number of the first sketch that is of the same source as one, or -1.

    `providers.tables.sketches.same_source` is its twin.

    Parameters
    ----------
    own : uint32, one dimension
        Words of a packed sketch: `providers.tables.sketches.packed`.
    words : uint32, one dimension
        Those of several, end to end.
    lengths : int64, shape (sketches,)
        Words of each of them.
    """
    own_fields = (len(own) - PLACES) // _FIELD_WORDS
    start = 0
    for number in range(len(lengths)):
        if _resemblance(own, 0, words, start) >= SAME_ROWS:
            return number
        fields = (lengths[number] - PLACES) // _FIELD_WORDS
        alike = 0
        for field in range(fields):
            named = start + PLACES + field * _FIELD_WORDS
            for step in range(own_fields):  # most tables have the same fields in the same order
                own_named = PLACES + (field + step) % own_fields * _FIELD_WORDS
                if own[own_named] == words[named] and own[own_named + 1] == words[named + 1]:
                    alike += (
                        _resemblance(own, own_named + _NAME_WORDS, words, named + _NAME_WORDS) >= SAME_FIELD
                    )
                    break
        if 2 * alike > max(fields, own_fields):
            return number
        start += lengths[number]
    return -1


@borrowing
def _resemblance(one, one_start, two, two_start):
    """Return the share of places that agree among those that either sketch fills; 0 if there are none.

    Parameters
    ----------
    one, two : uint32, one dimension
    one_start, two_start : int64
        Where the `PLACES` words of each sketch begin.
    """
    filled = agreeing = 0
    for place in range(PLACES):
        left, right = one[one_start + place], two[two_start + place]
        filled += (left != EMPTY) | (right != EMPTY)
        agreeing += (left == right) & (left != EMPTY)
    return agreeing / max(1, filled)


@borrowing
def _mixed_word(word):
    """Mix a 64-bit word one to one (the finaliser of SplitMix64, Steele, Lea and Flood 2014)."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
