"""Reads damaged files in this process, which may take little memory: `reading parquet 5 400`.

Prints how many were still tables, were refused, and took too much memory; before each, its number to standard
error. Anything else that a reader raises ends the process with a traceback, and what a library does to memory
that is not its own ends it by a signal.
"""

import io
import json
import random
import resource
import sys
from collections import Counter
from decimal import Decimal

import pyarrow as pa

from app.formats.errors import FormatError
from app.formats.media_types import ARROW_STREAM, PARQUET
from providers.tables.digest import table_digest
from tests.whole_tables import read_table, write_table

MOST_MEMORY = 3 << 30
TYPES = {"arrow": ARROW_STREAM, "parquet": PARQUET}


def whole_file(media_type: str, rows: int = 40) -> bytes:
    """Return a file with flat, nested and encoded fields, and nulls."""
    numbers = [None if row % 7 == 0 else row for row in range(rows)]
    fields = {
        "n": pa.array(numbers),
        "x": pa.array([0.5 * row for row in range(rows)]),
        "s": pa.array([None if row % 5 == 0 else "é" * (row % 4) for row in range(rows)]),
        "c": pa.array([("u", "v", None)[row % 3] for row in range(rows)]).dictionary_encode(),
        "m": pa.array([Decimal(row) for row in range(rows)], pa.decimal128(9, 2)),
        "t": pa.array(range(rows), pa.timestamp("us", "Europe/Dublin")),
        "l": pa.array([[row, None] if row % 2 else None for row in range(rows)]),
        "r": pa.array([{"a": row, "b": [str(row)]} for row in range(rows)]),
    }
    return b"".join(write_table(media_type, pa.table(fields)))


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """Return the file with a few bytes changed, removed, repeated or inserted, half of them near its end."""
    data = bytearray(whole)
    for _ in range(chance.randint(1, 4)):
        near_end = chance.random() < 0.5
        place = len(data) - 1 - int(chance.expovariate(0.01)) if near_end else chance.randrange(len(data))
        place = max(0, place)
        length = chance.randint(1, 8)
        match chance.randrange(6):
            case 0:
                data[place] ^= 1 << chance.randrange(8)
            case 1:
                data[place : place + length] = chance.randbytes(length)
            case 2:
                del data[place : place + length]
            case 3:
                data[place:place] = data[place : place + length]
            case 4:
                data[place : place + 4] = chance.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0" * 4))
            case 5:
                del data[place:]
        if not data:
            break
    return bytes(data)


def _outcome(media_type: str, data: bytes) -> str:
    try:
        table = read_table(media_type, io.BytesIO(data))
        digest = table_digest(table)
        written = b"".join(write_table(media_type, table))
    except FormatError as error:
        return "reported in a library's words" if "arrow." in error.message.lower() else "refused"
    except (MemoryError, pa.ArrowMemoryError):
        return "too large"
    assert table_digest(read_table(media_type, written)) == digest
    return "tables"


def main(name: str, seed: str, count: str) -> None:
    """Read `count` damaged files of a type."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    chance = random.Random(int(seed))
    whole = whole_file(TYPES[name])
    seen: Counter[str] = Counter()
    for number in range(int(count)):
        data = damaged(whole, chance)
        print(number, file=sys.stderr, flush=True)
        seen[_outcome(TYPES[name], data)] += 1
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
