"""P: probability that an intruder guesses a row's partner in the smallest bin, by Li and Shen.

The intruder knows the method, the published table and how bins are made, but not their width (MEWS) or
depth (MEDS). Each minimal depth N* that an admissible width or depth gives is equally likely to the
intruder; in a bin of N* rows a row's own values are those of one of N* - 1 others. With q different
minimal depths,

    P = (1 / q) sum over them of 1 / (N* - 1).

This is eq. 1 as read here, and `binning.privacy.p_of_depths` computes it. For MEDS, with the depths 2, 3,
..., n div 2, it is H_q / q (`p_meds_by_depths`). The paper's Lemma 1 prints

    P = (1 / q) (H_(q div 2) + q / (2 (q + 2)))                                                       (2)

instead (`p_meds`). Both are averages over the bins that the intruder considers possible. An intruder who
knows the width or the depth can make the bins again, and guesses with the probability 1 / (N* - 1) of the
bins that were used (`chance_in_bins`): certainty if N* is 2. The value holds this probability next to P.

References
----------
Li and Shen 2010, Multivariate equi-width data swapping for private data publication, PAKDD, LNAI 6118,
pp. 208-215: eqs. 1 to 3, as read above.
"""

from providers.binning.privacy import P_PRIVACY_KEY
from providers.measures.shared.measure import Measure, Part

MEASURE = Measure(
    key=P_PRIVACY_KEY,
    title="Chance of guessing a partner (P)",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="p, of an intruder who does not know the bins: MEWS (1 / q) sum of 1 / (N* - 1) over the q "
    "different minimal depths N* of the partitionings with cells up to `widest` that leave no row alone; "
    "MEDS (1 / q) (H_(q div 2) + q / (2 (q + 2))), q = n div 2 - 1, and p_eq1 = H_q / q. chance, of one who "
    "knows them: 1 / (minimal_depth - 1) in the smallest bin that was used, 1 where it holds 2 rows",
    source="Li and Shen 2010, PAKDD, LNAI 6118, pp. 208-215, eqs. 1 to 3",
    cost="MEWS: O(n) for each of 16 to 64 partitionings, left out beyond 2^18 values; MEDS: O(1)",
    parts=(Part("p"), Part("chance")),
    words={
        "chance": "of an intruder who knows the bins, in the smallest",
        "minimal_depth": "rows of the smallest bin",
        "p": "of one who does not (P)",
        "p_eq1": "P by equation 1",
    },
    cannot_rank="it is the same for every candidate",
)
