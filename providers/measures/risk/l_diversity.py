"""l-diversity: variety of each sensitive field within the classes of rows that share their key fields."""

import numpy as np

from providers.arrays import Int64Array
from providers.measures.shared.columns import Column, Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.sensitive import by_sensitive_field, class_values, one_of_each_person


def l_diversity(classes: Int64Array, values: Int64Array, units: Int64Array | None = None) -> dict[str, float]:
    """Diversity of the least diverse class, and the share of rows whose class has a single value.

    Parameters
    ----------
    classes, values : ndarray of int, shape (rows,)
        Code of each row's class and of its sensitive value; at least one row.
    units : ndarray of int64, shape (rows,), optional
        Person of each row; each counts once in a class, see `one_of_each_person`.

    Returns
    -------
    dict
        ``distinct``, the least number of different values in a class; ``entropy``, the least e^H, H the
        entropy of the values of a class in nats; ``homogeneous``, the share of rows whose class has one
        value.

    References
    ----------
    Machanavajjhala, Kifer, Gehrke and Venkitasubramaniam 2007, l-diversity: privacy beyond k-anonymity, ACM
    TKDD 1(1), article 3, doi:10.1145/1217299.1217302: entropy l-diversity holds if H >= ln l in every class.
    """
    _, classes = np.unique(classes, return_inverse=True)
    found = class_values(*one_of_each_person(classes, values, units))
    distinct = np.bincount(found.classes)
    share = found.counts / found.sizes[found.classes]
    entropy = np.bincount(found.classes, weights=-share * np.log(share))
    return {
        "distinct": int(distinct.min()),
        "entropy": float(np.exp(entropy.min())),
        "homogeneous": float(np.mean((distinct == 1)[classes])),
    }


def _find(comparison: Comparison) -> Finding:
    def take(column: Column, side: Side) -> dict[str, float]:
        classes, values = comparison.key_classes[side], column.codes(side).astype(np.int64)
        return l_diversity(classes, values, comparison.units[side])

    return by_sensitive_field(comparison, take, {"distinct": min, "entropy": min, "homogeneous": max})


MEASURE = Measure(
    key="l_diversity",
    title="l-diversity",
    concerns="risk",
    goal="high",
    range="l: 1 to k; share: 0 to 1",
    formula="min over the combinations c of key fields of: the number of different sensitive values in c; "
    "e^H, H the entropy of the sensitive values in c; and the share of rows in combinations with one "
    "sensitive value. With units, each counts once in c, with the one of its values that most units of c "
    "have. Field by field, and the worst field",
    source="Machanavajjhala, Kifer, Gehrke and Venkitasubramaniam 2007, doi:10.1145/1217299.1217302",
    cost="O(n log n) for each field",
    find=_find,
    parts=(Part("after.homogeneous", goal="low"), Part("after.distinct"), Part("after.entropy")),
    needs=("key_fields",),
    needs_each=("sensitive_fields",),
    uses=("rounding",),
    words={
        f"{within}{key}": words
        for within in ("", "before.", "after.")
        for key, words in {
            "distinct": "least number of values in a class (distinct l)",
            "entropy": "least effective number of values (entropy l)",
            "homogeneous": "share of rows whose class has one value",
        }.items()
    },
)
