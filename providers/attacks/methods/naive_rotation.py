"""Naive guess on PABIDOT: the published value is assumed to be true."""

import numpy as np

from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult
from providers.attacks.methods.rotation import judge, rotated_rows
from providers.attacks.tables import AttackTables


def _run(tables: AttackTables) -> AttackResult:
    rotated = rotated_rows(tables)
    mean = rotated.release.mean(axis=0)  # the source's mean, too
    return judge(tables, rotated, rotated.release, np.zeros(0, np.int64), mean, {})


ATTACK = Attack(
    name="naive_guess",
    title="Naive guess",
    meaning="The published value is near the true one, as if it had not been rotated.",
    source="Chamikara et al. 2019, doi:10.1016/j.ins.2019.05.053, section 5.3.1",
    run=_run,
    services=("PABIDOT",),
    cost="O(n)",
)
