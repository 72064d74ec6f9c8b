"""Sources with experiments, by number."""

from benchmarks.papers.experiments import Source
from benchmarks.papers.locality.source import LOCALITY
from benchmarks.papers.mews.source import MEWS_AND_MEDS
from benchmarks.papers.optim.source import OPTIM
from benchmarks.papers.pabidot.source import PABIDOT
from benchmarks.papers.rwn.source import RWN

SOURCES: dict[str, Source] = {
    source.number: source for source in (MEWS_AND_MEDS, OPTIM, RWN, LOCALITY, PABIDOT)
}
"""Number of the source -> source."""
