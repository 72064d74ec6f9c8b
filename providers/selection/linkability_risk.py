"""Figure of risk: how often a release links two sets of facts about one person, on a sample of rows.

It is a figure of comparisons only; the attack in `providers.attacks` has control rows and intervals.
"""

from providers.attacks import linkability
from providers.attacks.figures import AttackResult
from providers.measures.assessment import MeasureOptions, Release
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.measure import Measure, Part
from providers.progress import Progress, no_progress
from providers.randomness.chacha20 import Stream
from providers.selection.sampled_attacks import SampledRisk, risk_beyond_baseline, sampled_tables

MEASURE = Measure(
    key="linkability_risk",
    title="Linkability of known and sensitive fields beyond a guess",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="max(0, (a - b) / (1 - b)); a: share of persons for whom the known and the sensitive fields find "
    "the same nearest released row; b: the same with the sensitive fields of another person",
    source="Giomi et al. 2023, doi:10.56553/popets-2023-0055, section 4.2; pairs of different persons take "
    "the place of the control rows",
    cost="O(a n) distances, on at most 2,000 rows",
    parts=(Part(chance=lambda column: 0.0),),
    needs=("known_fields", "key_fields"),
    needs_each=("sensitive_fields",),
)


def linkability_risk(
    release: Release, options: MeasureOptions, stream: Stream, progress: Progress = no_progress
) -> SampledRisk:
    """Return the figure with its interval, and the number of sampled rows if not all were read.

    Parameters
    ----------
    release : Release
    options : MeasureOptions
        With `known_fields` or `key_fields`, and `sensitive_fields`.
    stream : Stream
        Shared by the releases that are compared, so that the same rows are attacked.

    Raises
    ------
    NotApplicable
        No field is known or sensitive alone, or one cannot be attacked, with the reason.
    """
    known = options.known_fields or options.key_fields
    secret = tuple(name for name in options.sensitive_fields if name not in known)
    if not secret:
        raise NotApplicable("no sensitive field apart from the known ones")
    tables, sampled = sampled_tables(
        release, options, stream, known=(*known, *secret), linked=(known, secret)
    )
    tables.progress = progress
    found = linkability.ATTACK.run(tables)
    assert isinstance(found, AttackResult)  # noqa: S101 - one result
    return risk_beyond_baseline([found], [tables.outcomes["linkability"]], sampled)
