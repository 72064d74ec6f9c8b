"""Linkage that knows the rule of RSWAP: whole households exchanged their areas, the riskiest first.

A person's row shows the person's own area unless its household was swapped. Rows that are rare in the area
that they show were probably swapped, since households at risk must be. An intruder who knows the parameters
learns how probable it is by a run of the service on the release with a seed of the intruder's own: the share
of swapped rows among those that are at risk after the run, and among the others.

References
----------
Nin, Herranz and Torra 2008, Rethinking rank swapping to decrease disclosure risk, Data & Knowledge
Engineering 64(1), 346-364, doi:10.1016/j.datak.2007.07.006: linkage by the rule of the method.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult
from providers.attacks.methods.groups import checked_params, joint_codes
from providers.attacks.methods.linkage import link_targets
from providers.attacks.tables import AttackTables
from providers.errors import ProviderError
from providers.measures.shared.finding import NotApplicable
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.record_swapping.settings import RecordSwapSettings
from providers.record_swapping.swaps import Survey, choose_swaps, read_survey
from providers.results import Events
from providers.services import rswap
from providers.tables.codes import joined
from providers.tables.joining import arrow_take


@dataclass(frozen=True, slots=True)
class AreaRule:
    """Areas and match profiles of a release, and the probability of a swap; all of shape (rows,)."""

    group: Int64Array
    """Class of the strictest match profile."""
    cell: Int64Array
    """Combination of class and finest area that each row shows."""
    partners: Int64Array
    """Number of rows of the class in other areas."""
    rate: Float64Array
    """Probability that each row was swapped."""


def area_rule(release: pa.Table, settings: RecordSwapSettings, stream: Stream) -> AreaRule:
    """Read the areas of a release, and estimate the probability of a swap for each row.

    Parameters
    ----------
    release : pa.Table
    settings : RecordSwapSettings
        Settings of the run that made the release.
    stream : Stream
        Randomness of the simulated run.

    Raises
    ------
    ProviderError
        The release does not fit the settings.
    """
    survey = read_survey(release, settings, Events())
    plan = choose_swaps(survey, settings, stream, no_progress)
    partner = plan.partner
    moved = partner >= 0
    # The simulated release: each swapped household shows its partner's hierarchy.
    of_row = survey.households.of_row
    source = np.where(moved[of_row], survey.households.first[partner[of_row]], np.arange(release.num_rows))
    simulated = release
    for name in settings.moved:
        index = simulated.schema.get_field_index(name)
        simulated = simulated.set_column(index, name, arrow_take(release.column(name), pa.array(source)))
    risky_after = _at_risk(read_survey(simulated, settings, Events()))
    risky = _at_risk(survey)
    share = {mask: _share(moved[of_row][risky_after == mask]) for mask in (True, False)}
    rate = np.where(risky, share[True], share[False])
    group = survey.profiles[0][0][of_row]
    cell, _ = joined(group, survey.areas[-1].of_household[of_row], survey.areas[-1].count)
    return AreaRule(group, cell, np.bincount(group)[group] - np.bincount(cell)[cell], rate)


def _at_risk(survey: Survey) -> BoolArray:
    """Mask of the rows whose household must be swapped at some level."""
    mask: BoolArray = (survey.required >= 0)[survey.households.of_row]
    return mask


def _share(moved: BoolArray) -> float:
    return float(moved.mean()) if len(moved) else 0.0


def area_weights(shown: Int64Array, value: int, rule: AreaRule) -> Float64Array:
    """Return the probability of each row to come from an area that shows the given value.

    A row that was not swapped shows its own area. The area of a swapped row comes from a row of its class in
    another area; each such row is equally probable.

    Parameters
    ----------
    shown : ndarray of int64, shape (rows,)
        Code of the known moved fields that each row shows.
    value : int
        Code of the true value.
    rule : AreaRule
    """
    equal = shown == value
    holders = np.bincount(rule.group, equal)[rule.group] - np.bincount(rule.cell, equal)[rule.cell]
    found: Float64Array = equal * (1 - rule.rate) + rule.rate * holders / np.maximum(rule.partners, 1)
    return found


def _run(tables: AttackTables) -> AttackResult:
    tables.need_aligned()
    tables.need_rows(2)
    known = [name for name in tables.need_known() if name in tables.columns]
    settings = rswap.settings_of(checked_params(tables))
    moved = [name for name in settings.moved if name in known]
    if not moved:
        raise NotApplicable("no known field was exchanged: the row is found by the others")
    stream = rswap.PROVIDER.stream(tables.stream.key("simulated swaps").tobytes())
    try:
        rule = area_rule(tables.release, settings, stream)
    except ProviderError as error:
        raise NotApplicable(f"the swap cannot be simulated on the release: {error}") from error
    stayed = [name for name in known if name not in settings.moved]
    true, shown = joint_codes(tables, moved, ["source", "release"])
    fixed = joint_codes(tables, stayed, ["source", "release"]) if stayed else None

    def weigh(target: int) -> Float64Array:
        weight = area_weights(shown, int(true[target]), rule)
        if fixed is not None:
            weight *= fixed[1] == fixed[0][target]
        return weight

    def agree(target: int) -> Float64Array:
        agreeing: Float64Array = (shown == true[target]).astype(np.float64)
        if fixed is not None:
            agreeing += fixed[1] == fixed[0][target]
        return agreeing

    details = {"moved": [moved], "stayed": stayed, "rates": sorted(set(rule.rate.tolist()))}
    return link_targets(tables, weigh, agree, details)


ATTACK = Attack(
    name="area_linkage",
    title="Linkage by the rule of record swapping",
    meaning="A person's row is found, although its household may show the area of another one.",
    source="Nin, Herranz and Torra 2008, doi:10.1016/j.datak.2007.07.006",
    run=_run,
    services=("RSWAP",),
    cost="O(a n), and one run of the service",
)
