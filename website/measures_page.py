"""Page of the measures, made from their declarations: `docs/measures.md`."""

from collections.abc import Iterable

from providers.measures import MEASURES
from providers.measures.shared.measure import Measure
from providers.measures.shared.options import MeasureOptions
from website.service_pages import parameter_table

_READING = """\
Measures of two kinds judge a release: **risk** is the information that an intruder may still
learn, and **utility** is the information that an analyst may still find. Neither says much
without the other: the source itself has perfect utility.

`report: "summary"`, the default, contains the values that the run provides at no further cost.
`report: "full"` adds every measure below that applies; the worker computes them after the swap. The object
`measures` selects fields and settings. `GET /v1/jobs/{id}/report` returns each measure under `measures.<key>`
with its `value`, `goal` (better values: `low`, `high`, or `near` the source's), `range`, `formula` and
`source`, the `fields` that were measured, and `sample`, the number of sampled rows if not all were used. A
value that depends on chance is the mean of several `draws` and has the 95 % `interval` of that mean, for each
part of the value if it has parts. `interval_rmd`, and each other value on a sample, has a 95 % `interval` for
rows like those measured.

A measure that does not apply is listed in `left_out` with the reason. It never appears as 0.

How to read the measures:

- Compare each risk with its value by `chance`: that of a release whose fields have the released values,
  dealt to the rows at random and independently, so that no row has a relation to its source. A `dcr` near
  its `chance` is as far from the rows as the fields' values allow; in a table of few categories many rows
  are at distance 0 by chance. Read `interval_sd` field by field: a swap leaves the other fields unchanged,
  so that a risk that comes from them remains.
- A measure on a sample compares the sampled rows only with each other. There are fewer rows
  with which a row can be confused, so `pscr` and `record_linkage` are higher, and `dcr` is
  larger, than on all rows. Compare values of equal samples. The ranges and medians that scale
  distances and clusters are taken from all rows of the source.
- `interval_sd` counts a row if every field is within its interval, as `dRisk` of sdcMicro 5.5.2 and later
  does. Earlier versions allow one field of a row to be outside, and print a larger share.
- `interval_sd.robust` counts a number as near within a twentieth of the source's interquartile range / 1.349,
  the standard deviation of normal numbers. If the quartiles are equal, it takes the range of the middle nine
  tenths / 3.290; if these are equal, too, only an equal number is near. One extreme value makes the standard
  deviation so large that all other numbers are near: with one in a field, `narrow` was 0.9996 for a swap of
  all rows, and `robust` 0.04. Comparisons and candidates rank by `robust`.
- `delta_rho.ranks` is the change of Spearman's rank correlations. A rank is counted among all
  numbers of the field, equal numbers have the mean of their ranks, and two fields are
  correlated over the rows that have both numbers. Like `delta_rho.mean` it is unweighted;
  `weighted_correlations` are Pearson's. One extreme value decides Pearson's correlations of
  its field. For example, with one extreme value in 2,000 rows, a swap left no relation of the
  field (Spearman's correlation .95 before, .04 after). Its `mean` was 0.015, but its
  `ranks.mean` was 0.600, as without the extreme value. Comparisons, candidates and the
  headline use `ranks.mean`.
- `caution` is in the report of a measure that a few extreme values decide. It names the
  fields, by one of two criteria. First, the extreme values have **more than half of the
  squared deviations from the mean**: the four most extreme rows, at most 1 % of the rows and
  at least one, weighted in the weighted measures. Second, they **stretch the range**: more
  than 95 % of the numbers are in one of floor(n^(1/3)) bins of equal width, and no single
  value is as frequent.
- The first criterion is tested for `delta_rho.mean` and `sd`, `association`, `il2`, `il3`,
  `r_squared`, `weighted_correlations` and `weighted_regression` in both tables, and for the
  target of `prediction`. All other rows together then contribute at most sqrt(1 - s) to a
  correlation, where s is the share of the few rows in the squares.
- The second criterion is tested for `total_correlation` in both tables, and for
  `clustering_error`, `pscr` and `dcr` in the source, whose range scales their distances.
  `record_linkage` then also searches by ranks, and has `by_ranks` if this search finds more
  rows. Skewed numbers below this limit also hide a part of the differences: `record_linkage`
  found .51 of 2,000 lognormal rows, and ranks would have found .54.
- With a caution, read `delta_rho.ranks`, or `interval_sd.robust` for a risk. Or bound the
  extreme values (top coding) before the run and measure again.
- `distortion` covers all measured fields of numbers, changed or not, so that services can be compared.
    `provider.distortion` is LOCALITY's own value, which covers only the redrawn fields.
- `changed_share.per_row` covers the swap fields of the run: `mean` is the mean share of these
  fields that differ in a row, and `none` is the share of rows in which none differs. If only
  two tables are known, it covers the fields of the option `fields`, or else all fields that
  differ.
- `interval_rmd.own` is the value that sdcMicro prints (`risk1` of `dRiskRMD`), except for the random start of
  the search for the covariance and for factors of small samples. If a field's mean or
  deviation has changed, it misses cells that were never modified; `interval_rmd.source` does
  not miss them. Compare it with `chance`. The `interval` assumes that the measured rows are a
  random sample of many. It includes the error of the covariance, which can be as large as the
  error from the choice of rows. It needs five rows for each field, and fewer than 300 fields
  of numbers: name those to measure in `fields`. From 150 fields on, the subsets of 300 rows in
  which it searches are too small: outliers are no longer kept out of the covariance.
- `prediction` sets test rows aside before the service changes the other rows of the sample, again for each
  split. Its two values compare what can be learnt with and without the service, at the size of the sample.
  PABIDOT rotates the axes, so that a forest grown on its release cannot be applied to the
  source's rows. Therefore both training and test rows are released rows for PABIDOT. The
  interval allows for splits that share rows. A tree is grown on at most 4,096 draws, so that
  both values are slightly lower than for a forest that uses more rows.
- The interval of `clustering_error` on all rows covers the starts of k-means. On a sample it covers other
  samples of the same size, too: ten random halves of the sample are clustered. It was tested
  on 25 to 85 samples of 600 of 3,000 rows of four tables. It covered the mean over the samples
  in .92 to .97 of the cases; an interval of the starts alone covered this mean in .07 to .61.
  It covered the error of all rows, which differs from this mean, in .87 to .96.
- The intervals of `query_error` and `range_averages` cover the choice of queries; both read all rows. No
  interval of draws covers the swap's own seed: `candidates`, and the `runs` of a comparison, show the values
  of other seeds.
- `query_error` evaluates the three queries of its source on the fields that you name in
  `query_fields`: three numbers and a category. Name the fields by which your analysts select
  rows. `range_averages` evaluates queries on all fields of numbers.
- Read the median and the quartiles of both. An error is divided by the true average, so that one
  query whose true average is near 0 decides the mean: on one public table it was 0.2 to 126 with 120 seeds
  of the queries. The mean has no interval, because no interval of 1,000 queries covers it. The
  median is 0 if a run changes neither field in half of the queries. `bounded`, the mean of the
  errors with larger errors counted as 1, ranks runs.
- `regression` compares the coefficients that an analyst would publish, in the fields' units, with their
  standard errors. Name the fields that matter in `term_fields`; all other fields stay in the model. With an
  `overlap` near 1 an analyst of the release draws the same conclusion; at 0 the intervals only touch. The
  standard errors assume independent rows, and ignore that values were
  exchanged. With weights, strata or clusters read `weighted_regression`.
- `il2.variance_shares` are the heights of a scree plot. An exchange of values between unlike rows spreads
  the variance evenly over the components.
- `dcr.ranks` and `interval_ranks` measure nearness in rows and not in units, so that extreme
  values do not decide them. Values dealt at random are near with a chance of about a fifth in
  `interval_ranks`, and of about a fiftieth in its `narrow` part. The chance is larger if a
  field has few values.
- Compare `relations_kept` with its `chance`, which is 1/2 only if the released values have no
  ties: for a field of few values, or of mostly one value, it is far lower. A tie keeps no
  relation. Definition 2 of the source allows equal distances, but then a release that makes a
  field constant would keep all relations. A LOCALITY run reports its own constraints, without
  `chance`.
- `total_correlation` and `r_squared` are best near the source's value. A release with a larger
  value has relations that the source does not have, which is as wrong as having lost some.
  Therefore `change` ranks releases.
- `entropy_increase` is a measure of risk in its source: the more uncertain the released values, the better.
  It is 0 for a method that keeps the values of every field.
- `p_privacy.p` is the probability for an intruder who knows neither the width nor the depth of
  the bins, as an average over all possible widths or depths. `chance` is the probability for
  an intruder who knows the bins, in the smallest bin: 1 if it has two rows.
- If a person may have several rows, name the field that identifies a person in `unit_field`; a
  run with `unit_id` names it already. Without this field, a person's rows count as persons: a
  single person with five equal rows looks like one of five persons in `k_anonymity`. With it,
  `record_linkage`, `unique_combinations`, `mean_k`, `k_anonymity`, `l_diversity`,
  `t_closeness` and `suda` count persons (`unit` in the report): a class of one person with
    three diagnoses is not diverse. `prediction` sets whole persons aside. Intervals count
    persons, and count the members of a household as one unit (decisions
    [80](decisions/0080-persons-of-several-rows.md) and
    [81](decisions/0081-persons-of-the-remaining-figures.md)).
- `k_anonymity`, `l_diversity` and `t_closeness` describe the classes of rows that share their `key_fields`
  (numbers in steps of `rounding`), in the source (`before`) and in the release (`after`), each table by its
  own rows. They assume that the key fields of the release are true. After a swap of the key
  fields a class holds rows of several people, so that a small class is a smaller risk than the
  value says; read `record_linkage`, too. A method that leaves key and sensitive fields
  unchanged leaves these measures unchanged.
- `suda` searches sets of up to three key fields on which a row is unique. It never searches
  the set of all key fields. `contribution` shows which key field to make coarser; the shares
  add up to more than 1, because a set has several fields. Scores depend on the number of key
  fields: compare them with the source's only.
- `population_uniques.household_risk` is the expected share of households of which at least one member is
  re-identified: anyone who finds one person of a household knows the others. Name the field of
  the households in `household_field`; a run with `household` names it already.
- `population_uniques` needs one survey weight in `weight_fields`, all above 0; the sum of the weights is the
  size of the population. `pitman` and `zayatz` assume a random sample of it and read only the sizes of the
  classes. `benedetti_franconi` and `reidentified` read the weights class by class; if all weights are equal,
  both are too low, because nothing distinguishes a rare unique row from a common one. If all rows are unique,
  no row is evidence of a larger class: `zayatz` is 1 and `pitman` is not defined. Compare the estimators;
  none is right for every table.
- `weighted_marginals`, `weighted_correlations`, `weighted_regression` and `domain_totals` are the
  estimates that an analyst of a sample survey makes. They need one survey weight in `weight_fields`, 0
  or more in each row. `before` is the source with its weights, `after` the release with the release's.
  If weights have moved to other rows, `after_source_weights` is the release with the weights
  that its rows have in the source, and so shows the effect of the values alone. These measures
  do not apply if a weight is missing or negative.
- Their standard errors (`..._error`) are linearised, for a sample of primary sampling units
  drawn with replacement within strata ([decision 40](decisions/0040-survey-weights.md)). Name
  the strata in `stratum_field` and the units in `cluster_field`, such as whole households;
  otherwise each person of `unit_field`, or else each row, is a unit of one stratum, and the
  errors of a clustered sample are too small. `change_in_errors` is a change in standard errors
  of the source: below 1 it is smaller than the sampling error.
- The total of the weight's own field in `domain_totals` is the estimated number of persons. A missing
  number adds nothing to a total. Domains of few rows are added up as `(others)`; `withheld` counts the
  totals that are not shown, because they, or their change, would show the number of a few rows.
- A null in a key field is a value of its own, as is NaN: suppressed rows form classes with each other. In a
  rounded field null and NaN are one value. Floats are compared bit by bit: 0.0 and -0.0 are two values, which
  makes a class smaller and not larger. Rows that the release drops are in no class of it.
- `l_diversity.homogeneous` counts each class of one row, which has one value. For l-diversity a missing
  sensitive value is a value like any other. For `t_closeness` a missing number, which has no rank, is left
  out of both distributions; a missing category is a category. Numbers in `categorical_fields` have no order.
- The smaller a class, the larger its distance from the table by chance alone: compare `t_closeness` with the
  source's value and with `k_anonymity.by_size`.
- `enumeration_attack` is the share of this table's variance that an intruder who knows the marginals
  recovers.

Fields that take no part:

- Identifiers, household ids and survey weights would link every row to itself, or distort distances and
  correlations by numbers that describe nobody. They take no part in distances, linkage, relations, models and
  queries; `changed_share` and `marginals` include them. Name them in `identifier_fields` and `weight_fields`.
- Others are recognised in tables of over 20 rows: numbers with the name of a survey weight
  (`sampling_weight`, `fnlwgt`); text and whole numbers with the name of an identifier (`person_id`,
  `customerId`), over 20 values, and more values than a tenth of the rows; text that differs in every row;
  whole numbers that number the rows. A float is never an identifier. A field that `fields`, `key_fields`,
  `known_fields` or `target` names always takes part.
- Each of these fields is listed in `left_out` as `fields.<name>` with the reason.

Types and missing values:

- Numbers of any type, dates and times are numbers. Text, bytes and booleans are categories, and so are the
  numbers named in `categorical_fields`. Lists, structs and other types are left out.
- A null, NaN or infinity is a missing number. For a distance it becomes the source's median and sets a flag;
  for `total_correlation` it has its own bin; a correlation leaves it out pair by pair; a regression leaves
  out its row. A missing category is a level.
- Integers of any two widths compare exactly. If one of two numeric types is a float or a decimal, values of
  both compare as the nearest float64. An integer beyond 2**53 that LOCALITY or PABIDOT made float64 thus
  counts as unchanged if it lost only digits that no float64 has.
- A measure is left out if float64 cannot represent its squares or sums, which happens with
  numbers from about 1e154 on.
- A field that the release makes constant or missing has lost its correlations: they count as 0.
- Categories with over 20 values, and more values than a tenth of the rows, identify rows. They
  are left out of models and of associations.
- A regression takes the 20 most frequent levels of a category, none below the disclosure threshold.

Means, deviations and quartiles of too few rows are withheld. In `pictures` every cell has no rows or at least
`threshold` rows; other cells are hidden, and further ones if a hidden count would follow from the sum. The
ends of a histogram are round numbers that leave out a few extreme values, which are counted in the first and
last cell (`open_ends`). `categories` is the number of values of a category that occur; values without a label
are counted together, as `(others)`.

All values follow from the seed, as the swap does: the sample and every draw are addressed. No value depends
on the number of threads. The clusters are scikit-learn's, so that `clustering_error` may differ with another
version of it; the manifest names the version."""


def measures_page() -> str:
    """Build the page: how to read the measures, their options, and all declarations, as Markdown."""
    by_concern = {
        concern: [measure for measure in MEASURES.values() if measure.concerns == concern]
        for concern in ("risk", "utility")
    }
    parts = [
        "# Risk and utility: what the full report measures",
        _READING,
        "## Options",
        parameter_table(MeasureOptions.model_json_schema()),
        "## Risk",
        _table(by_concern["risk"]),
        "## Utility",
        _table(by_concern["utility"]),
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
