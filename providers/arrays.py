"""Array type aliases (IndexArray, Float64Array, ...) and the row index type."""

from typing import Any

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]

Int32Array = npt.NDArray[np.int32]

Int64Array = npt.NDArray[np.int64]

UInt32Array = npt.NDArray[np.uint32]

UInt64Array = npt.NDArray[np.uint64]

Float64Array = npt.NDArray[np.float64]

IndexArray = npt.NDArray[np.signedinteger[Any]]
"""Row numbers: int32 below 2**31 rows, else int64."""

Words = npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
"""Values of a column as unsigned integers of the width of its type."""


def row_index_type(rows: int) -> type[np.int32] | type[np.int64]:
    """Return the narrowest type for row numbers: the index is half of the memory traffic of a gather."""
    return np.int32 if rows < 2**31 else np.int64
