"""Sensitivity of every measure: one pair of tables makes it good, another one makes it bad."""

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.binning.privacy import p_meds, privacy_of_meds
from providers.measures import MEASURES
from providers.measures.assessment import Assessment, MeasureOptions, Release, assess
from providers.measures.risk.inversion_bits import inversion_bits
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.swapping.search_space import matching_bits
from tests.naive.measures import phi

ROWS = 400
OPTIONS = MeasureOptions(
    key_fields=("code", "letter"),
    known_fields=("x", "letter"),
    weight_fields=("w",),
    domain_fields=("letter",),
    sensitive_fields=("x", "half"),
    target="y",
    query_fields=("x", "y", "code", "letter"),
)
BY_RUN_ALONE = {"inversion_bits", "phi", "p_privacy"}


def source() -> pa.Table:
    random = np.random.default_rng(5)
    x = random.normal(size=ROWS)
    x[0] = 9.0
    y = 2 * x + 0.3 * random.normal(size=ROWS)
    y[0] = -9.0
    letter = np.where(x + 0.3 * random.normal(size=ROWS) > 0, "a", "b")
    code = np.where(letter == "a", 0, 200) + random.integers(0, 200, ROWS)
    half = np.where(random.random(ROWS) < 0.9, letter, "c")
    weight = np.full(ROWS, 10.0)
    return pa.table({"x": x + 20, "y": y + 30, "code": code, "letter": letter, "half": half, "w": weight})


def independent() -> pa.Table:
    """Table that is independent of the source, with other marginals."""
    random = np.random.default_rng(6)
    return pa.table(
        {
            "x": random.uniform(20, 60, ROWS),
            "y": random.uniform(0, 200, ROWS),
            "code": np.repeat(0, ROWS),
            "letter": random.choice(["a", "c", "d"], ROWS),
            "half": random.choice(["a", "b", "c"], ROWS),
            "w": np.full(ROWS, 10.0),
        }
    )


@cache
def assessed(faithful: bool) -> Assessment:
    """Assess a release of the source itself, or of an independent table."""
    table = source()

    def perturb(training: pa.Table, stream: Stream) -> pa.Table:
        return training if faithful else independent().slice(0, training.num_rows)

    released = Release(table, table if faithful else independent(), perturb=perturb)
    return assess(released, OPTIONS, Stream(bytes(32), "measures", 1))


def figure(key: str, value: Any) -> float:
    """Return one number of the value, larger if the measure is larger."""
    if key == "changed_share":
        return float(np.mean(list(value.values())))
    if isinstance(value, dict):
        if key in ("k_anonymity", "l_diversity", "t_closeness", "suda", "population_uniques"):
            part = {
                "k_anonymity": "k",
                "l_diversity": "entropy",
                "t_closeness": "mean",
                "suda": "special",
                "population_uniques": "pitman",
            }[key]
            return float(value["after"][part])
        first = {"mean_k": "after", "unique_combinations": "after", "outlier_exposure": "after",
                 "r_squared": "change", "total_correlation": "change", "interval_sd": "share",
                 "interval_ranks": "share", "interval_rmd": "source", "record_linkage": "rate",
                 "marginals": "mean_distance", "association": "cramers_v", "il2": "pc1",
                 "prediction": "destination", "regression": "change_in_errors",
                 "weighted_marginals": "mean_distance", "weighted_regression": "change_in_errors",
                 "domain_totals": "percent"}  # fmt: skip
        return float(value[first.get(key, "mean")])
    return float(value)


@pytest.mark.parametrize("key", sorted(set(MEASURES) - BY_RUN_ALONE - {"enumeration_attack"}))
def test_a_measure_distinguishes_a_faithful_release_from_a_useless_one(key: str) -> None:
    """The useless release has lower risk and lower utility, each by a margin.

    If the source's value is the goal, the number is the distance from it, and low is better.
    """
    measure = MEASURES[key]
    faithful, useless = (figure(key, assessed(which).measures[key]["value"]) for which in (True, False))
    better, worse = (useless, faithful) if measure.concerns == "risk" else (faithful, useless)
    margin = better - worse if measure.goal == "high" else worse - better
    assert margin > 0.05 * max(abs(faithful), abs(useless))


def test_the_enumeration_attack_fails_against_much_noise_alone() -> None:
    """Nearly everything is recovered at sigma 0.3, nothing at 50."""
    random = np.random.default_rng(1)
    skewed = random.gamma([1.0, 2.0, 4.0], size=(500, 3)) @ random.normal(size=(3, 3))
    table = pa.table({name: skewed[:, at] for at, name in enumerate("abc")})
    found = []
    for sigma in (0.3, 50.0):
        provider = PROVIDERS["PABIDOT"]
        params = provider.check(provider.params.model_validate({"sigma": sigma}), table.schema)
        result = provider.swap(table, params, Stream(bytes(32), "PABIDOT", 1), no_progress)
        assert result.origin is not None
        released = Release(table, result.table, result.origin, service="PABIDOT", parameters=params)
        options = MeasureOptions(only=("enumeration_attack",))
        assessment = assess(released, options, Stream(bytes(32), "measures", 1))
        found.append(assessment.measures["enumeration_attack"]["value"])
    assert found[0] > 0.9
    assert found[1] < 0.1


def test_what_a_run_alone_gives_can_be_good_and_bad() -> None:
    assert inversion_bits(matching_bits([1000], 1.0), 128) == 128
    assert inversion_bits(matching_bits([2, 2], 1.0), 128) == 0
    identity, turned = np.eye(2), np.array([[0.0, -1.0], [1.0, 0.0]])
    assert phi(identity, identity, 0) == 0
    assert phi(identity, turned, 0) == pytest.approx(2)
    few, many = p_meds(4), p_meds(100_000)
    assert few is not None
    assert many is not None
    assert few > 0.1
    assert many < 0.001
    assert privacy_of_meds(100_000, 2)["chance"] == 1
    assert privacy_of_meds(100_000, 1001)["chance"] == 0.001
