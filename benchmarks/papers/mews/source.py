"""The paper on MEWS and MEDS, and its experiments."""

from benchmarks.papers.experiments import Source
from benchmarks.papers.mews.correlations import TABLE_2
from benchmarks.papers.mews.privacy import TABLE_1
from benchmarks.papers.mews.scaling import SCALING

MEWS_AND_MEDS = Source(
    "000",
    "MEWS and MEDS: the paper's experiments",
    "Li and Shen 2010, Multivariate equi-width data swapping for private data publication, PAKDD, LNAI 6118.",
    {
        "MEWS": "The source claims that swapping within cells of equal width protects large tables about "
        "as well as "
        "MEDS, in linear time, and keeps correlations better.",
        "MEDS": "The source claims that swapping within bins of equal depth protects every row alike, but "
        "takes "
        "cubic time and keeps correlations less well than MEWS.",
    },
    "The paper has no other table, and no figure.",
    (TABLE_1, TABLE_2, SCALING),
)
"""Source 000."""
