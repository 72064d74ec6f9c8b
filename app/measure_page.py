"""The page of the measures, made from what each declares: `docs/measures.md`."""

from collections.abc import Iterable

from app.pages import parameter_table
from providers.measures import MEASURES
from providers.measures.measure import Measure
from providers.measures.options import MeasureOptions

_READING = """\
A release is defended with figures of two kinds: **risk**, what an intruder may still learn, and **utility**,
what an analyst may still find. Neither says much without the other: the source itself is of perfect utility.

`report: "summary"`, the default, holds what the run gives by itself and costs nothing. `report: "full"` takes
every measure below that applies, in the worker, after the swap; `measures` says which fields and how.
`GET /v1/jobs/{id}/report` has them under `measures.<key>`: `value`, `goal` (which way is better), `range`,
`formula`, `source`; the `fields` that were measured; and `sample`, the number of rows, where it was not all.

What does not apply is not in `measures`, but in `left_out` with its reason, and is never 0.

How to read them:

- Read `record_linkage` and `pscr` against chance, and `interval_sd` field by field: a swap leaves the other
  fields as they were, so a risk that only they make stays.
- A figure on a sample is one of the sample's rows among themselves: with fewer rows to be mistaken for,
  `pscr` and `record_linkage` are higher, and `dcr` is larger, than among all. Compare at equal samples.
- `interval_rmd.own` is what sdcMicro prints. Where a field's mean or deviation has changed it hides cells
  that were never modified; `interval_rmd.source` does not.
- `prediction` sets rows aside before the service sees the others, and changes those anew, on the sample: its
  two figures compare what may be learnt with and without the service, at the sample's size.
- `enumeration_attack` is what an intruder who knows the marginals recovers of this very table.

What is done with values that are no numbers, or not there:

- Numbers of any type, dates and times are numbers; text, bytes and booleans are categories, and so are the
  numbers named in `categorical_fields`. Lists, structs and the like are left out.
- A null, NaN or infinity is a missing number. It is the source's median beside a flag for a distance, a bin
  of its own for `total_correlation`, is left out of a correlation pair by pair, and takes its row out of a
  regression. A missing category is a level of its own.
- A field that the release makes constant or missing has lost its correlations: they count as 0.
- Categories with over 20 values, and over a tenth of the rows, name rows: they explain and associate nothing.
- A regression takes the 20 most frequent levels of a category, none below the disclosure threshold.

Means, deviations and quartiles of too few rows are not told. In `pictures` no cell counts fewer rows than
`threshold`, but none; further cells are hidden where a hidden one would follow from the sum. The ends of a
histogram are round numbers within which all but a few values lie: what lies beyond is counted in the first
and last cell (`open_ends`).

The figures follow from the seed, as the swap does: the sample and every draw are addressed. Robust
covariance, clusters and forests are scikit-learn's, so `interval_rmd`, `clustering_error` and `prediction`
may differ in another version of it; the manifest names the version."""


def measures_page() -> str:
    """Every measure, the options, and how to read them, as Markdown."""
    of = {
        concern: [measure for measure in MEASURES.values() if measure.concerns == concern]
        for concern in ("risk", "utility")
    }
    parts = [
        "# Risk and utility: what the full report measures",
        _READING,
        "## Options",
        parameter_table(MeasureOptions.model_json_schema()),
        "## Risk",
        _table(of["risk"]),
        "## Utility",
        _table(of["utility"]),
        "*Made from the code by `make docs`: change it there.*",
    ]
    return "\n\n".join(parts) + "\n"


def _table(measures: Iterable[Measure]) -> str:
    lines = [
        "| key | measure | better | range | formula | source | cost |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for measure in measures:
        cells = (measure.title, measure.goal, measure.range, measure.formula, measure.source, measure.cost)
        escaped = (cell.replace("|", "\\|").replace("*", "\\*") for cell in cells)
        lines.append(f"| `{measure.key}` | {' | '.join(escaped)} |")
    return "\n".join(lines)
