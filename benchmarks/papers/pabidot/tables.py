"""Tables of PABIDOT's experiments at hand (Table 2), and releases on the scale of z-scores."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.papers.experiments import Data
from benchmarks.papers.peers.rotation import geometric, random_rotation
from benchmarks.papers.runs import Matrix, matrix, swap

METHODS = ("RP", "GP", "PABIDOT")
FILES = {
    "LRDS": ("letter_recognition", "lettr"),
    "PBDS": ("page_blocks", "class"),
    "WCDS": ("wholesale_customers", "Channel"),
    "WQDS": ("wine_quality_white", "quality"),
}
"""Abbreviation in the paper -> file and class; the other five tables are not at hand."""
NOT_AT_HAND = "SSDS, FRDS, ELDS, HPDS and HIDS are not at hand."
SIGMA = 0.3
_RELEASED: dict[tuple[Path, str, str, int], Matrix] = {}
"""Releases that several experiments share."""


def standardised(values: Matrix) -> Matrix:
    """Return z-scores by the values' own means and standard deviations (ddof 1); shape as given."""
    scores: Matrix = (values - values.mean(axis=0)) / values.std(axis=0, ddof=1)
    return scores


@dataclass(frozen=True, slots=True)
class Labelled:
    """Table of numbers with a class."""

    folder: Path
    """Folder of the public tables from which it is read."""
    name: str
    table: pa.Table
    label: str

    @property
    def fields(self) -> list[str]:
        """Names of the numbers."""
        return [name for name in self.table.column_names if name != self.label]

    @property
    def values(self) -> Matrix:
        """The numbers; shape (rows, fields)."""
        return matrix(self.table, self.fields)

    @property
    def classes(self) -> npt.NDArray[Any]:
        """Class of each row; shape (rows,)."""
        return np.array(self.table[self.label].to_pylist())

    def pabidot(self, seed: int = 0, sigma: float = SIGMA) -> Matrix:
        """Release the numbers by PABIDOT; rows in the order of the source, in the source's units."""
        parameters = {"label_fields": [self.label], "sigma": sigma, "shuffle": False}
        return matrix(swap("PABIDOT", self.table, parameters, seed).table, self.fields)

    def released(self, method: str, seed: int = 0) -> Matrix:
        """Release the numbers by a method, in z-scores of the source; rows in the order of the source."""
        key = self.folder, self.name, method, seed
        if key not in _RELEASED:
            _RELEASED[key] = self._perturbed(method, seed)
        return _RELEASED[key]

    def _perturbed(self, method: str, seed: int) -> Matrix:
        values = self.values
        if method == "RP":
            return random_rotation(standardised(values), seed)
        if method == "GP":
            return geometric(standardised(values), seed)
        mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
        found: Matrix = (self.pabidot(seed) - mean) / deviation
        return found


def labelled(data: Data, name: str) -> Labelled:
    """Return a table by its abbreviation."""
    file, label = FILES[name]
    return Labelled(data.folder, name, data.read(file), label)
