"""Numbers of rows that fit into a unit of work."""

from dataclasses import dataclass

from providers.storage import Source, bytes_read


@dataclass(frozen=True)
class Sizes:
    """Sizes of the pieces into which work is divided; no result depends on them."""

    unit_rows: int
    """Rows exchanged together."""
    range_rows: int
    """Rows reassembled together."""
    waiting: int
    """Bytes of rows buffered before writing."""

    @classmethod
    def of(cls, source: Source, fields: tuple[str, ...], memory: int, label_bytes: int = 0) -> "Sizes":
        """Return the sizes that fit into memory (bytes).

        Sorting and exchanging take several copies of the fields read, and of each row's labels (bytes).
        """
        rows = max(1, source.rows)
        read = bytes_read(source, fields) / rows + 8 + label_bytes
        whole = source.nbytes / rows
        unit = int(0.5 * memory / (3 * read + 64))
        together = int(0.3 * memory / (4 * whole + 24))
        return cls(max(_LEAST_ROWS, unit), max(_LEAST_ROWS, together), memory // 10)


_LEAST_ROWS = 64
