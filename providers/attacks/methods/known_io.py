"""Known inputs and outputs on PABIDOT: least squares from some known rows gives the values of all others.

References
----------
Giannella, Liu and Kargupta 2013, Breaching Euclidean distance-preserving data perturbation using few known
inputs, arXiv:0911.2942: known inputs and outputs.
"""

import numpy as np

from providers.arrays import Float64Array, Int64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult
from providers.attacks.methods.rotation import judge, known_indices, rotated_rows
from providers.attacks.tables import AttackTables

PEOPLE = 20
"""Number of known rows of the second attack."""


def least_squares(released: Float64Array, known: Int64Array, truth: Float64Array) -> Float64Array:
    """Guess all rows by the affine map that fits the known ones best; shape (rows, fields).

    Parameters
    ----------
    released : ndarray of float64, shape (rows, fields)
    known : ndarray of int64, shape (known rows,)
    truth : ndarray of float64, shape (known rows, fields)
        True values of the known rows.
    """
    design = np.column_stack([released, np.ones(len(released))])
    coefficients = np.linalg.lstsq(design[known], truth, rcond=None)[0]
    return np.asarray(design @ coefficients, np.float64)


def _run(tables: AttackTables) -> dict[str, AttackResult]:
    rotated = rotated_rows(tables)
    found = {}
    share, noun = tables.options.known_share, rotated.known_noun
    counts = {f"{100 * share:g} % of the {noun}": (1, share), f"{PEOPLE} {noun}": (PEOPLE, 0.0)}
    for name, count in {"named rows": (0, 0.0)}.items() if tables.options.known_rows else counts.items():
        known = known_indices(tables, rotated, *count)
        guesses = least_squares(rotated.release, known, rotated.source[known])
        found[name] = judge(
            tables,
            rotated,
            guesses,
            known,
            np.median(rotated.source[known], axis=0),
            {"known_rows": len(known)},
        )
    return found


ATTACK = Attack(
    name="known_io",
    title="Known inputs and outputs",
    meaning="A linear map that fits known rows recovers the values of the others.",
    source="Giannella, Liu and Kargupta 2013, arXiv:0911.2942; Chamikara et al. 2019, section 5.3.1",
    run=_run,
    services=("PABIDOT",),
    cost="O(n p^2)",
)
