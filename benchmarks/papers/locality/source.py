"""The paper on LOCALITY, and its experiments."""

from benchmarks.papers.experiments import Source
from benchmarks.papers.locality.clustering import FIGURE_4
from benchmarks.papers.locality.queries import FIGURE_5
from benchmarks.papers.locality.run_time import FIGURE_3

LOCALITY = Source(
    "003",
    "LOCALITY: the paper's experiments",
    "Xue, Karras, Raissi and Pung 2011, Utility-driven anonymization in data publishing, CIKM.",
    {
        "LOCALITY": "The source claims that values redrawn by localities serve clustering and averages "
        "better than random perturbation and generalisation of equal distortion, at a reasonable run time.",
    },
    "Figures 1 and 2 are drawings of paradigms of anonymisation and of Algorithm 1.",
    (FIGURE_3, FIGURE_4, FIGURE_5),
)
"""Source 003."""
