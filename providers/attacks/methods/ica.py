"""Independent component analysis on PABIDOT: it undoes a rotation of independent fields without knowing it.

References
----------
Hyvarinen and Oja 2000, Independent component analysis, Neural Networks 13, 411-430,
doi:10.1016/S0893-6080(00)00026-5: FastICA. Chen and Liu 2008, A survey of multiplicative perturbation for
privacy preserving data mining: the attack on rotated data.
"""

import warnings

import numpy as np

from providers.arrays import Float64Array, Int64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult
from providers.attacks.methods.rotation import judge, known_indices, rotated_rows
from providers.attacks.tables import AttackTables
from providers.measures.shared.sampling import random_state, sample_rows

MOST_ROWS = 20_000
"""Most rows from which components are estimated."""


def match_components(components: Float64Array, known: Int64Array, truth: Float64Array) -> Float64Array:
    """Assign each field a component, with its sign, by their correlations in the known rows.

    Parameters
    ----------
    components : ndarray of float64, shape (rows, fields)
    known : ndarray of int64, shape (known rows,)
    truth : ndarray of float64, shape (known rows, fields)
        True z-scores of the known rows.

    Returns
    -------
    ndarray of float64, shape (rows, fields)
        Guessed z-scores: the components standardised, in the order of the fields.
    """
    from scipy.optimize import linear_sum_assignment  # takes longer to import than to run

    deviation = components.std(axis=0, ddof=1)
    standard = (components - components.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    fields = truth.shape[1]
    correlation = np.nan_to_num(np.corrcoef(standard[known].T, truth.T)[:fields, fields:])
    component, field = linear_sum_assignment(-np.abs(correlation))
    guesses: Float64Array = np.zeros(standard.shape)
    guesses[:, field] = standard[:, component] * np.sign(correlation[component, field])
    return guesses


def independent_components(released: Float64Array, fitted: Int64Array, seed: int) -> Float64Array:
    """Return the independent components of all rows, estimated from some; shape (rows, fields)."""
    from sklearn.decomposition import FastICA  # takes longer to import than small attacks

    model = FastICA(whiten="unit-variance", max_iter=500, tol=1e-3, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # components that do not converge are guesses all the same
        model.fit(released[fitted])
    return np.asarray(model.transform(released), np.float64)


def _run(tables: AttackTables) -> AttackResult:
    rotated = rotated_rows(tables)
    rows = len(rotated.source)
    known = known_indices(tables, rotated, 3, tables.options.known_share)
    fitted = sample_rows(rows, MOST_ROWS, tables.stream, "components")
    tables.progress(0.1, "estimating components")
    components = independent_components(rotated.release, fitted, random_state(tables.stream, "components"))
    guesses = match_components(components, known, rotated.source[known])
    median = np.median(rotated.source[known], axis=0)
    details = {"known_rows": len(known), "fitted_rows": len(fitted)}
    return judge(tables, rotated, guesses, known, median, details)


ATTACK = Attack(
    name="ica",
    title="Independent components",
    meaning="Independent components of the release, matched to fields by known rows, are near true values.",
    source="Hyvarinen and Oja 2000, doi:10.1016/S0893-6080(00)00026-5; Chamikara et al. 2019, section 5.3.1",
    run=_run,
    services=("PABIDOT",),
    cost="O(n p^2) for each iteration of FastICA",
)
