"""The manual of the Optim data privacy providers, and experiments on its claims."""

from benchmarks.papers.experiments import Source
from benchmarks.papers.optim.claims import CLASSES, DISTANCES, LOCKED, MASKING

OPTIM = Source(
    "001",
    "Optim: the manual's claims",
    "Optim Data Privacy Providers 11.3, module Data Swapping: a product manual, which has worked examples "
    "and no experiments of its own.",
    {
        "DSWAP": "The source claims that random swaps make it at least very hard to be certain of having "
        "identified a person, and locked ones keep correlations.",
        "CDSWAP": "The source claims that swaps within classes prevent infeasible combinations, and that "
        "rows without a partner are suppressed on request.",
        "DDSWAP": "The source claims that swaps within blocks minimise the distance between partners.",
    },
    "The worked examples of the manual, with their tables, are those of the services' tests.",
    (MASKING, LOCKED, CLASSES, DISTANCES),
)
"""Source 001."""
