"""Figure of risk: share of the secrets that an intruder infers beyond a guess, on a sample of rows.

It is a figure of comparisons only; the attack in `providers.attacks` has control rows and intervals.
"""

from providers.attacks import inference
from providers.measures.assessment import MeasureOptions, Release
from providers.measures.shared.measure import Measure, Part
from providers.progress import Progress, no_progress
from providers.randomness.chacha20 import Stream
from providers.selection.sampled_attacks import SampledRisk, risk_beyond_baseline, sampled_tables

MEASURE = Measure(
    key="inference_risk",
    title="Inference of the secrets beyond a guess",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="mean over the secrets of max(0, (a - b) / (1 - b)); a: share of rows whose secret the nearest "
    "released row or a model trained on the release gives, whichever is more; b: share that the best single "
    "guess from the released values gives",
    source="Giomi et al. 2023, doi:10.56553/popets-2023-0055, sections 3.2 and 4.3; the baseline takes the "
    "place of the control rows",
    cost="O(a n) distances and a model, on at most 2,000 rows",
    parts=(Part(chance=lambda column: 0.0),),
    needs=("known_fields", "key_fields"),
    needs_each=("sensitive_fields",),
)


def inference_risk(
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
        No secret can be attacked, with the reason.
    """
    known = options.known_fields or options.key_fields
    secret = tuple(name for name in options.sensitive_fields if name not in known)
    tables, sampled = sampled_tables(release, options, stream, known=known, secret=secret)
    tables.progress = progress
    found = inference.ATTACK.run(tables)
    assert isinstance(found, dict)  # noqa: S101 - an object by secret
    return risk_beyond_baseline(found.values(), [tables.outcomes[name] for name in found], sampled)
