"""The paper on RWN and its experiments."""

from benchmarks.papers.experiments import Source
from benchmarks.papers.rwn.comparison import RISK, UTILITY
from benchmarks.papers.rwn.forests import SECTION_9_5
from benchmarks.papers.rwn.mean_k_anonymity import TABLE_1
from benchmarks.papers.rwn.neighbourhoods import FIGURE_1
from benchmarks.papers.rwn.structure import FIGURES_5_TO_8
from benchmarks.papers.rwn.tradeoff import FIGURES_2_TO_4, SECTION_9_2

RWN = Source(
    "002",
    "RWN: the paper's experiments",
    "Perry, Matloff and Tendick 2024, RWN: A novel neighborhood-based method for statistical disclosure "
    "control.",
    {
        "RWN": "The source claims that replacing each value by that of a random near row keeps relations "
        "between "
        "many fields, protects as well as rank swapping and microaggregation, and hardly harms predictions.",
    },
    "All tables and figures of section 9 are here, and so is Figure 1; the paper has no other.",
    (FIGURE_1, TABLE_1, SECTION_9_2, FIGURES_2_TO_4, FIGURES_5_TO_8, RISK, UTILITY, SECTION_9_5),
)
"""Source 002."""
