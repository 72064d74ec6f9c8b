"""Fields that move together: the values of a row packed side by side, and moved in one go.

Where a value comes from is a random row: fetching it costs a wait for memory, whether it is one value
or the eight that lie beside each other in a line of the cache. So the fields of a locked exchange are
packed row by row first, and each row is waited for once.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numba import njit, prange

from providers.addresses import addresses_of, put_word, word_at
from providers.kernels import Pairing, sources
from providers.table import combined, is_words, words_array, words_of

_BLOCK = 512  # rows that one thread takes at a time
_AT_ONCE = 2**22  # rows that are moved without a word from Python


@njit(cache=True, nogil=True, parallel=True)
def pack_rows(addresses, start, packed):
    """Write the words of the rows from `start` on side by side; ``packed`` uint64, shape (rows, fields)."""
    for row in prange(len(packed)):
        for field in range(len(addresses)):
            packed[row, field] = word_at(addresses[field], start + row)


@njit(cache=True, nogil=True, parallel=True)
def _fetch_rows(packed, rows, start, before, after, changed):
    """Write the packed words of these rows to the fields `after`, from row `start` on.

    `changed` is int64, shape (blocks, fields): how many words differ from those of the fields `before`.
    """
    fields = len(before)
    for block in prange(len(changed)):
        first = start + block * _BLOCK
        count = min(_BLOCK, len(rows) - block * _BLOCK)
        fetched = np.empty((fields, _BLOCK), np.uint64)
        for at in range(count):
            source = np.uint64(rows[block * _BLOCK + at])  # unsigned: no test for an index from the end
            for field in range(fields):
                fetched[field, at] = packed[source, field]
        for field in range(fields):
            differing = np.int64(0)
            for at in range(count):
                word = fetched[field, at]
                differing += np.int64(word != word_at(before[field], first + at))
                put_word(after[field], first + at, word)
            changed[block, field] = differing


def permute_together(
    columns: Mapping[str, pa.ChunkedArray], pairing: Pairing
) -> dict[str, tuple[pa.ChunkedArray, int]]:
    """The columns after the exchange, and the number of rows whose value differs, as `permute` has them.

    Only of those that gain by it: two or more whose values are words of 8 bytes without a null. Takes
    the memory of these columns once more while it works.
    """
    packable = {
        name: combined(column)
        for name, column in columns.items()
        if column.null_count == 0 and is_words(column.type) and _width(column.type) == 64
    }
    if len(packable) < 2 or not len(pairing.shuffled):
        return {}
    before = {name: words_of(array) for name, array in packable.items()}
    addresses = addresses_of(list(before.values()))
    rows = sources(pairing)
    packed = np.empty((len(rows), len(before)), np.uint64)
    for start in range(0, len(rows), _AT_ONCE):
        pack_rows(addresses, start, packed[start : start + _AT_ONCE])
    after = {name: np.empty_like(words) for name, words in before.items()}
    places = addresses_of(list(after.values()))
    changed = np.zeros(len(before), np.int64)
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        differing = np.empty((-(-len(part) // _BLOCK), len(before)), np.int64)
        _fetch_rows(packed, part, start, addresses, places, differing)
        changed += differing.sum(axis=0)
    return {
        name: (pa.chunked_array([words_array(after[name], array.type, None)]), int(count))
        for (name, array), count in zip(packable.items(), changed, strict=True)
    }


def _width(kind: pa.DataType) -> int:
    return int(8 * kind.byte_width if pa.types.is_fixed_size_binary(kind) else kind.bit_width)
