"""Meaning of each measure in one line, and the remedy for a bad value, for readers of a report."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Group = Literal["risk", "utility", "happened"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """Texts about a measure for readers of a report."""

    group: Group
    """Section of the report: risk, utility, or changes of the values."""
    meaning: str
    """Meaning of the value, as a sentence."""
    remedy: str
    """Remedy if the value is bad, as a sentence."""


_KEYS = "Change some of the key fields, publish them more coarsely, or suppress small classes before the run."
_GENTLER = (
    "Exchange values between more similar rows: more control fields, smaller groups, or another service."
)
_TOGETHER = "Exchange related fields together ('locked'), or exchange values between more similar rows."

MEANINGS: Mapping[str, Meaning] = MappingProxyType(
    {
        "changed_share": Meaning(
            "happened",
            "Share of the rows whose value really is another one than before.",
            "Raise 'rate', or make the groups larger: equal values that are exchanged protect nobody.",
        ),
        "unique_combinations": Meaning(
            "risk", "Share of the rows whose key fields no other row shares.", _KEYS
        ),
        "mean_k": Meaning("risk", "Mean number of rows with the same key fields as a row.", _KEYS),
        "k_anonymity": Meaning(
            "risk",
            "Number of rows that share the key fields of the rarest person, k, before and after.",
            _KEYS,
        ),
        "l_diversity": Meaning(
            "risk",
            "Number of different sensitive values among rows with equal key fields; 1 reveals the value.",
            "Change the sensitive field as well, over wider groups, or publish the key fields more coarsely.",
        ),
        "t_closeness": Meaning(
            "risk",
            "How far the sensitive values of rows with equal key fields are from those of the whole table.",
            "Change the sensitive field over wider groups, or publish the key fields more coarsely.",
        ),
        "suda": Meaning("risk", "Rows that stand out by only a few of their key fields.", _KEYS),
        "population_uniques": Meaning(
            "risk",
            "Share of the rows that are likely to be unique among all people, not only in this sample.",
            _KEYS,
        ),
        "pscr": Meaning(
            "risk",
            "Share of the rows that somebody finds who knows every value of the row.",
            "Change more fields, raise 'rate', or exchange values between less similar rows.",
        ),
        "dcr": Meaning(
            "risk",
            "How far each row is from the closest released row; at distance 0 it is published unchanged.",
            "Change more fields, or raise 'rate', so that fewer rows are at distance 0.",
        ),
        "interval_sd": Meaning(
            "risk",
            "Share of the rows whose numbers are published close to the true ones.",
            "Change more of the numbers, or exchange values between less similar rows.",
        ),
        "interval_ranks": Meaning(
            "risk",
            "Share of the rows whose published numbers are neighbours of the true numbers in rank order.",
            "Change more of the numbers, or exchange values between less similar rows.",
        ),
        "interval_rmd": Meaning(
            "risk",
            "Share of the rows with a number published very close to the true one; outliers count more.",
            "Change more of the numbers, and suppress or group extreme values before the run.",
        ),
        "record_linkage": Meaning(
            "risk",
            "Share of the rows that an intruder finds by the known fields of a person.",
            "Change some of the known fields; if they must stay, protect the values that a found row shows.",
        ),
        "outlier_exposure": Meaning(
            "risk",
            "How much one single row pulls the model of the target: an outlier that can be recognised.",
            "Suppress or group extreme values before the run.",
        ),
        "inversion_bits": Meaning(
            "risk",
            "Bits that an intruder must guess to undo the whole run; each bit doubles the work.",
            "Make the groups larger, and let the service draw the seed (128 bits).",
        ),
        "phi": Meaning(
            "risk",
            "Least difference between a field before and after, for somebody who takes it as published.",
            "Set 'selection' to 'definition', and see the attacks: a high value stops no better intruder.",
        ),
        "enumeration_attack": Meaning(
            "risk",
            "Share of the variation that an intruder who tries every transform recovers.",
            "Do not publish the table with this service: exchange values instead.",
        ),
        "p_privacy": Meaning(
            "risk",
            "Chance of guessing the row that a value was exchanged with.",
            "Make the bins larger: raise 'k' of MEDS or 'width' of MEWS, or lower 'bins' or 'degree'.",
        ),
        "entropy_increase": Meaning(
            "happened",
            "How much more evenly the values of a field are spread after the run, in bits.",
            "Nothing needs to be done: 0 is right where a field keeps its values.",
        ),
        "marginals": Meaning(
            "utility",
            "Whether each field, looked at alone, still has the same values as often.",
            "Suppress fewer rows, or take a service that only exchanges values, such as CDSWAP.",
        ),
        "delta_rho": Meaning(
            "utility",
            "How much the correlations between two fields of numbers change, on average.",
            _TOGETHER,
        ),
        "association": Meaning(
            "utility",
            "How much the relations of categories to each other and to numbers change, on average.",
            _TOGETHER,
        ),
        "il2": Meaning(
            "utility", "How much the main directions of the numbers turn: 0 is not at all.", _TOGETHER
        ),
        "il3": Meaning(
            "utility",
            "How much the coefficients of a linear model of the target change.",
            _GENTLER,
        ),
        "regression": Meaning(
            "utility",
            "How much the coefficients of a model of the target change, relative to their standard errors.",
            _GENTLER,
        ),
        "r_squared": Meaning(
            "utility", "How well the other fields still explain the target in a linear model.", _GENTLER
        ),
        "total_correlation": Meaning(
            "utility",
            "How much information all fields have about each other; a loss means that relations are gone.",
            _TOGETHER,
        ),
        "distortion": Meaning(
            "utility", "Mean distance of a number from the true one, relative to the true one.", _GENTLER
        ),
        "clustering_error": Meaning(
            "utility",
            "Share of the rows that fall into another group of similar rows than before.",
            _GENTLER,
        ),
        "query_error": Meaning(
            "utility",
            "How far averages of a field, over rows that meet conditions on others, are from the true ones.",
            _TOGETHER,
        ),
        "range_averages": Meaning(
            "utility",
            "How far averages of a field over ranges of another one are from the true ones.",
            _TOGETHER,
        ),
        "prediction": Meaning(
            "utility",
            "How well a model trained on the release predicts true rows, compared with one trained on the "
            "source.",
            _GENTLER,
        ),
        "relations_kept": Meaning(
            "utility",
            "Share of the statements 'this row is nearer to that one' that still hold, compared with chance.",
            _GENTLER,
        ),
        "weighted_marginals": Meaning(
            "utility",
            "How far each field's distribution in the population moves, as the survey weights estimate it.",
            "Exchange values between rows of similar weight only: a control field of weight classes.",
        ),
        "weighted_correlations": Meaning(
            "utility",
            "How much the weighted correlations between two fields of numbers change, on average.",
            _TOGETHER,
        ),
        "weighted_regression": Meaning(
            "utility",
            "How much the coefficients of a weighted model of the target change, in standard errors.",
            _GENTLER,
        ),
        "domain_totals": Meaning(
            "utility",
            "How much the estimated totals of the domains change, relative to their sampling errors.",
            "Keep values within the domains (as control field), and exchange them between similar weights.",
        ),
    }
)
"""Key of a measure -> its texts."""
