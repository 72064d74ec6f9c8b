"""Enumeration on PABIDOT: the transform, of all 172 per field, after whose undoing the marginals fit best."""

from dataclasses import replace

import numpy as np

from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult
from providers.attacks.methods.rotation import judge, rotated_rows
from providers.attacks.tables import AttackTables
from providers.measures.risk.enumeration_attack import GRID, enumerate_transforms
from providers.measures.shared.sampling import sample_rows

MOST_ROWS = 20_000
"""Most rows of the release on which transforms are tried."""


def _run(tables: AttackTables) -> AttackResult:
    rotated = rotated_rows(tables)
    tried = sample_rows(len(rotated.source), MOST_ROWS, tables.stream, "transforms")
    quantiles = np.quantile(rotated.source, GRID, axis=0)
    guess = enumerate_transforms(rotated.release[tried], quantiles, rotated.sigma, tables.progress)
    units = None if rotated.units is None else rotated.units[tried]
    some = replace(rotated, source=rotated.source[tried], release=rotated.release[tried], units=units)
    details = {"quantiles": len(GRID), "tried_rows": len(tried)}
    median = np.median(rotated.source, axis=0)  # known, as are the other quantiles
    return judge(tables, some, guess.values, np.zeros(0, np.int64), median, details)


ATTACK = Attack(
    name="enumeration",
    title="Enumeration of all transforms",
    meaning="An intruder who knows the fields' distributions tries all transforms and recovers the values.",
    source="Rowveil; the transforms of Chamikara et al. 2019, doi:10.1016/j.ins.2019.05.053",
    run=_run,
    services=("PABIDOT",),
    cost="O(n p^2 + p n log n) for each of 172 angles",
)
