"""Recovery of LOCALITY's source by rounding: the published value to the nearest that the field can hold."""

import numpy as np

from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult
from providers.attacks.methods.segments import attacked_rows, judge, redrawn_values
from providers.attacks.tables import AttackTables


def _run(tables: AttackTables) -> dict[str, AttackResult]:
    _, fields = redrawn_values(tables)
    found = {}
    nobody = np.zeros(tables.source.num_rows, np.bool_)
    for values in fields:
        targets = attacked_rows(tables, nobody, values)
        guesses = values.rounded(values.release[targets])
        found[values.name] = judge(tables, values, guesses, targets, nobody, {})
    return found


ATTACK = Attack(
    name="rounding",
    title="Recovery by rounding",
    meaning="A redrawn value, rounded to the nearest value that the field can hold, is the true one.",
    source="Rowveil; the relations of Xue, Karras, Raissi and Pung 2011, CIKM, section 4",
    run=_run,
    services=("LOCALITY",),
    cost="O(n)",
)
