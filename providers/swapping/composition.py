"""Epsilon of several independent releases of one source by the permutation mechanism.

A random order moves a block of fields: one swap field, or all locked ones. Its epsilon bounds the probability
ratio of two sources that differ by the exchange of the values of the whole block between two people of one
group. Let U be a set of fields that is a union of whole blocks in each release. If two people exchange their
values of all fields in U, the blocks outside U are the same in both sources, and each block within U adds its
epsilon. The releases are independent given the source, hence their ratios multiply, and the sum over all
releases and all their blocks within U holds for the exchange of U.

No other set has a finite epsilon in general. A release that does not swap a field publishes it row by row,
and one that locks it with a field outside U publishes the pairs of their values in each group. The unions of
whole blocks include the union of two of them, so that there is a largest one, for which the sum is stated.

References
----------
Bailie, Gong and Meng 2025, arXiv:2501.08449: the permutation swapping algorithm.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class RunEpsilon(NamedTuple):
    """Finite epsilon of one run, by random order."""

    blocks: tuple[tuple[str, ...], ...]
    """Fields of each random order; empty: unknown."""
    epsilons: tuple[float, ...]
    """Epsilon of each random order."""
    unit: str | None = None
    """Field that identifies a household or unit, whose rows move as one; None: each row moves by itself."""
    member_order: str | None = None
    """Order in which the rows of two units are exchanged; None: there is none."""

    @property
    def fields(self) -> frozenset[str]:
        """Swap fields of the run."""
        return frozenset(name for block in self.blocks for name in block)

    def document(self) -> dict[str, Any]:
        """Return plain JSON: ``orders`` (each ``fields`` and ``epsilon``), ``unit`` and ``member_order``."""
        orders = zip(self.blocks, self.epsilons, strict=True)
        return {
            "orders": [{"fields": list(block), "epsilon": value} for block, value in orders],
            "unit": self.unit,
            "member_order": self.member_order,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "RunEpsilon | None":
        """Read what `document` returns, next to ``epsilon``; None: the run has no finite epsilon.

        Entries of older versions have no ``orders``.
        """
        if document.get("epsilon") is None:
            return None
        orders = document.get("orders") or ()
        blocks = tuple(tuple(order["fields"]) for order in orders)
        epsilons = tuple(order["epsilon"] for order in orders)
        return cls(blocks, epsilons, document.get("unit"), document.get("member_order"))


UNKNOWN_FIELDS = RunEpsilon((), ())
"""Epsilon of a run whose fields are unknown."""


class Composition(NamedTuple):
    """Epsilon of all runs together."""

    epsilon: float | None
    """Sum for two people, or units, that exchange their values of all `fields` at once; None: none holds."""
    fields: tuple[str, ...]
    """Largest set of fields for whose exchange a sum holds, sorted; empty without a sum."""
    reason: str
    """Clause: why no sum holds, or why it holds for no other fields. Empty: it holds for all."""


NOTHING_TOGETHER = Composition(None, (), "")


def run_epsilon(guarantee: Mapping[str, Any]) -> RunEpsilon | None:
    """Return the epsilon of a run by random order, from its figure `guarantee`; None: none is finite."""
    if guarantee["epsilon"] is None:
        return None
    orders = guarantee["by_field"].values()
    return RunEpsilon(
        tuple(tuple(order["fields"]) for order in orders),
        tuple(order["epsilon"] for order in orders),
        guarantee.get("unit"),
        guarantee.get("member_order"),
    )


def compose(runs: Sequence[RunEpsilon]) -> Composition:
    """Add up the epsilons of independent runs on one source.

    Parameters
    ----------
    runs : sequence of RunEpsilon
        One at least, each with a finite epsilon and known fields.
    """
    if len({run.unit for run in runs}) > 1:
        return Composition(None, (), "not all releases move the same rows, households or units as one")
    if len({run.member_order for run in runs}) > 1:
        return Composition(None, (), "not all releases exchange the rows of two units in the same order")
    different = {run.blocks: run for run in runs}.values()
    swapped = frozenset[str]().union(*(run.fields for run in different))
    by_all = swapped.intersection(*(run.fields for run in different))
    common = _whole_blocks(by_all, [frozenset(block) for run in different for block in run.blocks])
    reason = _reason(swapped - by_all, by_all - common)
    if not common:
        return Composition(None, (), reason)
    total = sum(
        sum(value for block, value in zip(run.blocks, run.epsilons, strict=True) if common.issuperset(block))
        for run in runs
    )
    return Composition(total, tuple(sorted(common)), reason)


def _whole_blocks(fields: frozenset[str], blocks: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the largest subset of the fields that has all or nothing of each block."""
    found, before = fields, None
    while found != before:
        before = found
        for block in blocks:
            if not block <= found:
                found -= block
    return found


def _reason(missing: frozenset[str], tied: frozenset[str]) -> str:
    """Return why no epsilon holds for some fields.

    Parameters
    ----------
    missing : frozenset of str
        Fields that some runs swap and others do not.
    tied : frozenset of str
        Fields that all runs swap, some of them locked with fields that are left out.
    """
    parts = []
    if missing:
        parts.append(f"not all releases swap {listed(missing)}, which the others publish row by row")
    if tied:
        parts.append(f"some lock {listed(tied)} with such a field")
    return ", and ".join(parts)


_MOST_NAMES = 5


def listed(names: Sequence[str] | frozenset[str]) -> str:
    """Return names in quotes, sorted, the first five of them."""
    shown = [f"'{name}'" for name in sorted(names)]
    if len(shown) > _MOST_NAMES:
        shown = [*shown[: _MOST_NAMES - 1], f"{len(shown) - _MOST_NAMES + 1} more fields"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
