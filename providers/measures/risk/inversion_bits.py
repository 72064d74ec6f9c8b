"""Swap inversion: bits that an exhaustive search for the swap must cover."""

from providers.measures.shared.measure import Measure


def inversion_bits(bits: float, seed_bits: int) -> float:
    """Bits that an exhaustive search for the swap must cover if the seed is unknown.

    Parameters
    ----------
    bits : float
        log2 of the number of possible exchanges (`swapping.search_space.matching_bits`): summed over
        fields that are swapped independently, counted once for locked fields. For a method that chooses
        one of a few transforms, log2 of their number.
    seed_bits : int
        Length of the seed in bits, 4 for each hex digit: an intruder may try every seed instead.

    Notes
    -----
    An upper bound of the intruder's work: equal values and known rows lower it.
    """
    return min(float(seed_bits), bits)


MEASURE = Measure(
    key="inversion_bits",
    title="Swap inversion",
    concerns="risk",
    goal="high",
    range="0 to the seed's bits",
    formula="min(bits of the seed, sum over fields and groups of log2 of the group's possible exchanges); "
    "PABIDOT: log2 of the transforms to try, 172 for each field",
    source="Rowveil",
    cost="O(groups)",
    cannot_rank="it is the same for every candidate",
)
