"""Guarantee of the permutation mechanism as the report states it: epsilon, invariants, and their limits."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from providers.errors import ParameterError
from providers.params import SwapParams
from providers.swapping.permutation_law import bound, composed, epsilon, least, moving_share, smallest_rate

Counts = Sequence[Mapping[int, int]]
"""For each random order: group size -> number of groups that are exchanged."""


def with_rate(params: SwapParams, counts: Counts, rows_too_small: int) -> SwapParams:
    """Return the parameters with the smallest rate that meets `target_epsilon`; without one, unchanged.

    Parameters
    ----------
    params : SwapParams
    counts : sequence of mappings
        For each random order: group size -> number of groups that are exchanged.
    rows_too_small : int
        Rows in groups of two or more below the smallest size.

    Raises
    ------
    ParameterError
        No rate reaches the target.
    """
    if params.target_epsilon is None:
        return params
    if rows_too_small and published_fields(params):
        raise ParameterError(
            f"no rate reaches target_epsilon: rows of groups below min_group_size {params.min_group_size} "
            f"keep the values of {_listed(published_fields(params))}; let 'suppression' suppress or drop "
            "them",
            "/parameters/target_epsilon",
        )
    return params.model_copy(update={"rate": smallest_rate(_largest(counts), params.target_epsilon)})


def guarantee_figures(
    params: SwapParams, moves: Sequence[tuple[str, ...]], counts: Counts, rows_too_small: int
) -> dict[str, Any]:
    """Return the provider's figure `guarantee` of the permutation mechanism, else no figure.

    Parameters
    ----------
    params : SwapParams
        With the rate of the run.
    moves : sequence of tuple of str
        Fields of each random order: all of them if they are locked, else one.
    counts, rows_too_small
        See `with_rate`.
    """
    if params.mechanism != "permutation":
        return {}
    largest, rate = _largest(counts), params.rate
    unprotected = published_fields(params) if rows_too_small else []
    best = least(largest)
    return {
        "guarantee": {
            "mechanism": "permutation",
            "epsilon": None if unprotected else composed(largest, rate),
            "paper_bound": sum(bound(rows, rate) for rows in largest),
            "rate": rate,
            "target_epsilon": params.target_epsilon,
            "least_epsilon": best.epsilon,
            "rate_of_least_epsilon": best.rate,
            "by_field": {
                ", ".join(fields): {
                    "fields": list(fields),
                    "epsilon": None if set(fields) & set(unprotected) else epsilon(rows, rate),
                    "paper_bound": bound(rows, rate),
                    "largest_group": rows,
                }
                for fields, rows in zip(moves, largest, strict=True)
            },
            "holds_for": _holds_for(params, unprotected, rows_too_small),
            "invariants": _invariants(params, moves),
            "does_not_mean": list(_DOES_NOT_MEAN),
        }
    }


def moved_shares(params: SwapParams, sizes: Sequence[Sequence[int]]) -> list[float]:
    """Return the expected share of the rows that move, for each random order, as an intruder computes it.

    Parameters
    ----------
    params : SwapParams
    sizes : sequence of sequences of int
        Rows of each group that is exchanged, for each random order.

    Raises
    ------
    ParameterError
        No rate reaches `target_epsilon` with these groups.
    """
    rate = selection_rate(params, sizes)
    if rate is None:
        return [params.rate] * len(sizes)
    counts = [Counter(each) for each in sizes]
    return [
        sum(size * groups * moving_share(size, rate) for size, groups in each.items())
        / max(1, sum(size * groups for size, groups in each.items()))
        for each in counts
    ]


def selection_rate(params: SwapParams, sizes: Sequence[Sequence[int]]) -> float | None:
    """Return the probability of a row to be selected, as an intruder computes it; None with random pairs.

    Arguments and errors are those of `moved_shares`.
    """
    if params.mechanism == "pairs":
        return None
    return with_rate(params, [Counter(each) for each in sizes], 0).rate


def stated_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return epsilon and invariants of a report under the names that the HTTP contract gives them.

    Parameters
    ----------
    figures : mapping
        The provider's own figures of the run.

    Returns
    -------
    dict
        Empty without the permutation mechanism; without epsilon where no finite one holds.
    """
    stated = figures.get("guarantee")
    if stated is None:
        return {}
    found: dict[str, Any] = {"invariants": stated["invariants"]}
    if stated["epsilon"] is not None:
        found["epsilon"] = {name: entry["epsilon"] for name, entry in stated["by_field"].items()}
        found["epsilon_total"] = stated["epsilon"]
        found["epsilon_bound"] = stated["paper_bound"]
    return found


def point_guarantee(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``guarantee`` of a compared run: its rate, and epsilon composed and by random order.

    Parameters
    ----------
    figures : mapping
        The provider's own figures of the run.

    Returns
    -------
    dict
        Empty without the permutation mechanism. An epsilon that is not finite is absent.
    """
    stated = figures.get("guarantee")
    if stated is None:
        return {}
    found: dict[str, Any] = {"rate": stated["rate"]}
    if stated["epsilon"] is not None:
        found["epsilon"] = stated["epsilon"]
    found["by_field"] = {
        name: entry["epsilon"] for name, entry in stated["by_field"].items() if entry["epsilon"] is not None
    }
    return {"guarantee": found}


def expected_rows(params: SwapParams, counts: Counts) -> list[float]:
    """Return the expected number of rows that take part, for each random order.

    Parameters
    ----------
    params : SwapParams
        With the rate of the run.
    counts
        See `with_rate`.

    Notes
    -----
    With random pairs, the rate times the rows (`rows_taking_part` in `providers.grouping.shuffle`). The
    permutation mechanism draws a selection of a single row again, which changes the mean.
    """
    share = moving_share if params.mechanism == "permutation" else _rate
    return [
        math.fsum(size * groups * share(size, params.rate) for size, groups in each.items() if size > 1)
        for each in counts
    ]


def _rate(size: int, rate: float) -> float:
    return rate


def void_guarantee(provider_figures: dict[str, Any], candidates: int) -> None:
    """Take epsilon out of the figures of a run that was chosen among several by its figures."""
    figures = provider_figures.get("guarantee")
    if figures is not None:
        figures["epsilon"] = None
        figures["holds_for"] = (
            f"No finite epsilon: the release is the best of {candidates} candidates, and the choice depends "
            "on the source. The figures by field are those of a single run."
        )


def _largest(counts: Counts) -> list[int]:
    """Return the size of the largest group of each random order; epsilon never falls with the size."""
    return [max((size for size, groups in each.items() if groups), default=0) for each in counts]


def published_fields(params: SwapParams) -> list[str]:
    """Return the swap fields whose values the suppression leaves in rows that are not permuted."""
    suppression = params.suppression
    if suppression.policy == "keep":
        return list(params.swap_fields)
    if suppression.policy in ("suppress", "replace") and suppression.fields:
        return [name for name in params.swap_fields if name not in suppression.fields]
    return []


def _holds_for(params: SwapParams, unprotected: Sequence[str], rows_too_small: int) -> str:
    if unprotected:
        return (
            f"No finite epsilon: {rows_too_small} values in groups below 'min_group_size' are published as "
            f"they are, in {_listed(unprotected)}. The figures by field hold for the permuted groups."
        )
    text = (
        "Take two people of one group and exchange their values of the swap fields in the source. Any "
        "release is at most exp(epsilon) times as probable from one of the two sources as from the other."
    )
    if params.nulls == "keep":
        text += (
            " Both people have values that took part, and are in one group in each field: rows that a null "
            "leaves out are not covered."
        )
    return text


def _invariants(params: SwapParams, moves: Sequence[tuple[str, ...]]) -> list[str]:
    found = [
        "The table of each swap field within each group is that of the source, exactly; so are its totals.",
        "All other fields, with the fields that define the groups, are those of the source, row by row.",
    ]
    if any(len(fields) > 1 for fields in moves):
        found.append("The joint table of the locked swap fields within each group is that of the source.")
    if params.nulls == "keep":
        found.append("Rows that a null leaves out of the exchange are the same in source and release.")
    if params.suppression.policy != "keep":
        found.append("Exceptions are the rows that 'suppression' handles: see the report's events.")
    return found


_DOES_NOT_MEAN = (
    "It does not hide what the invariants publish: if all rows of a group share a value, everyone knows it.",
    "It does not protect the fields that are not swapped, nor whether a person is in the table.",
    "It covers the released rows, not this report: its counts of moved and changed rows are computed from "
    "the source. Nor does it cover the digest of the source in job, report and manifest, which confirms a "
    "guess of the whole source; small groups leave few to try. Publish these only where that is acceptable.",
    "A large group has a large epsilon: 10,000 rows at rate 0.5 have 18.4, and no rate brings them below "
    "9.2. Epsilon 5 already allows one source to be 148 times as probable as the other.",
    "It holds against anyone who does not have the seed, which must be random, secret and in no other run.",
    "Every further release of the same source with the same swap fields adds its own epsilon. One that does "
    "not swap a field publishes it row by row, and no finite epsilon holds for that field any more.",
)


PERMUTATION_RELEASES = (
    "With `mechanism` set to `permutation` the epsilons of several releases with the same swap fields add "
    "up: ten releases with epsilon 2 have 20. A release that does not swap a field of another release "
    "publishes it, so that no epsilon holds for that field. The attacks above still work."
)
"""Sentence for the pages of the services about several releases by the permutation mechanism."""


def permutation_guarantee(group: str) -> str:
    """Return the guarantee of the mechanism for the page of a service; ``group``: its word for a group."""
    return (
        f"With `mechanism` set to `permutation`: if two people of one {group} exchange their values in the "
        "source, no release becomes more than exp(epsilon) times as probable as before. The report states "
        "epsilon exactly, the statistics that stay exact, and what this does not mean."
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
