"""Phi: least variance, over the fields, of the difference that PABIDOT's reflection and rotation make.

`providers.rotation.transform` computes it when PABIDOT chooses the transform.
"""

from providers.measures.shared.measure import Measure

MEASURE = Measure(
    key="phi",
    title="Least variance of the difference (naive guessing only)",
    concerns="risk",
    goal="high",
    range="0 to 4",
    formula="min over fields i of Var(z_i - y_i), y = M F z: before translation and noise. By chance, with "
    "the rows in random order, the mean of these variances is 2",
    source="Chamikara et al. 2019, doi:10.1016/j.ins.2019.05.053, Definition 3.1, with the factor of eq. 22",
    cost="O(fields^2), of the correlations",
    cannot_rank="it is the same for every candidate",
)
