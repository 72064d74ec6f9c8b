"""PABIDOT: parameters, choice of the transform, and the contents of its report."""

import math
from dataclasses import asdict, astuple
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from pydantic import ValidationError

from app.worker.run_swap import report_of
from providers import PROVIDERS
from providers.errors import ParameterError, SourceError
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions
from providers.measures.meanings import MEANINGS
from providers.progress import no_progress
from providers.results import SwapResult
from providers.rotation.moments import BLOCK, BlockMoments, MomentsSoFar, block_moments
from providers.rotation.transform import ANGLES, choose, least_variances, rotations
from providers.selection.candidates import CandidateOptions, ranking_figures
from providers.services.pabidot import PabidotParams, check
from tests.naive import pabidot
from tests.naive.agreement import swap
from tests.naive.measures import phi

SCHEMA = pa.schema(
    [("age", pa.int64()), ("income", pa.decimal128(9, 2)), ("class", pa.int8()), ("city", pa.string())]
)


SELECTIONS = ("paper", "definition")


def correlations(fields: int, seed: int = 1) -> Any:
    """A random correlation matrix."""
    random = np.random.default_rng(seed)
    return np.corrcoef(random.normal(size=(fields, fields)) @ random.normal(size=(fields, 4 * fields)))


def table(rows: int = 500) -> pa.Table:
    random = np.random.default_rng(2)
    skewed = np.exp(random.normal(size=(4, rows)))
    skewed[1] += skewed[0]
    return pa.table(dict(zip("abcd", skewed, strict=True)))


def test_fields_default_to_all_that_are_numeric_and_no_label() -> None:
    assert check(PabidotParams(), SCHEMA).fields == ("age", "income", "class")
    assert check(PabidotParams(label_fields=("class",)), SCHEMA).fields == ("age", "income")
    assert check(PabidotParams(fields=("class", "age")), SCHEMA).fields == ("class", "age")


@pytest.mark.parametrize(
    ("parameters", "message", "pointer"),
    [
        ({"fields": ["agee", "class"]}, "unknown field 'agee'; did you mean 'age'", "/parameters/fields/0"),
        ({"fields": ["age", "age"]}, "field 'age' is named twice", "/parameters/fields/1"),
        ({"fields": ["age", "city"]}, "field 'city' has type string; PABIDOT", "/parameters/fields/1"),
        ({"fields": ["age"]}, "two or more numeric fields together; given is 1", "/parameters/fields"),
        ({"label_fields": ["age", "class"]}, "two or more .* there is 1", "/parameters/fields"),
        ({"label_fields": ["cityy"]}, "unknown field 'cityy'", "/parameters/label_fields/0"),
        (
            {"fields": ["age", "class"], "label_fields": ["class"]},
            "'class' is both to be perturbed and a label",
            "/parameters/fields/1",
        ),
    ],
)
def test_parameters_that_do_not_fit(parameters: dict[str, Any], message: str, pointer: str) -> None:
    """The message names the fault, the pointer its place."""
    with pytest.raises(ParameterError, match=message) as raised:
        check(PabidotParams.model_validate(parameters), SCHEMA)
    assert raised.value.pointer == pointer


@pytest.mark.parametrize("sigma", [-0.1, math.nan, math.inf, 1e7])
def test_sigma_has_bounds(sigma: float) -> None:
    with pytest.raises(ValidationError):
        PabidotParams(sigma=sigma)


def test_a_field_named_twice_in_the_source() -> None:
    schema = pa.schema([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(SourceError, match="2 fields named 'a'"):
        check(PabidotParams(), schema)


def test_there_are_172_angles() -> None:
    assert len(ANGLES) == 172 == len(set(ANGLES))
    assert (min(ANGLES), max(ANGLES)) == (1, 179)
    assert list(ANGLES) == pabidot.ANGLES


@pytest.mark.parametrize("fields", [2, 3, 5, 28])
def test_rotations_are_rotations(fields: int) -> None:
    """They are orthogonal with determinant 1 and, for few fields, bitwise those of algorithm 1."""
    matrices = rotations(fields)
    eye = np.eye(fields)
    assert np.abs(matrices @ matrices.transpose(0, 2, 1) - eye).max() < 1e-12
    assert np.abs(np.linalg.det(matrices) - 1).max() < 1e-10
    if fields <= 5:
        for theta, matrix in zip(ANGLES, matrices, strict=True):
            assert matrix.tolist() == pabidot.rotation(theta, fields)


@pytest.mark.parametrize("fields", [2, 5, 65])
def test_phi_of_all_axes_is_phi_of_each(fields: int) -> None:
    """The formula for all axes at once agrees with single matrices, even with too many fields to cache."""
    correlation = correlations(fields)
    found = least_variances(correlation, no_progress)
    matrices = rotations(fields)
    for angle in range(0, len(ANGLES), 17):
        expected = [phi(correlation, matrices[angle], axis) for axis in range(fields)]
        assert found[angle] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("fields", [2, 3, 4])
@pytest.mark.parametrize("seed", range(5))
def test_the_choice_is_the_twins(fields: int, seed: int) -> None:
    """Both selections agree with the twin, and `definition` finds the best axis of all angles."""
    correlation = correlations(fields, seed)
    for selection in ("paper", "definition"):
        chosen = choose(correlation, selection, no_progress)
        theta, axis, least = pabidot.choose(correlation.tolist(), selection)
        assert (chosen.theta, chosen.axis) == (theta, axis)
        assert chosen.phi == pytest.approx(least, abs=1e-12)
    assert chosen.phi == pytest.approx(least_variances(correlation, no_progress).max(), abs=1e-12)


def test_ties_go_to_the_lowest_angle_and_axis() -> None:
    """Without correlation all axes are equally good at many angles."""
    for selection in ("paper", "definition"):
        chosen = choose(np.eye(2), selection, no_progress)
        found = least_variances(np.eye(2), no_progress)
        assert chosen.axis == 0
        best = [theta for theta, row in zip(ANGLES, found, strict=True) if row.max() >= found.max() - 1e-9]
        assert len(best) >= 1
        assert chosen.theta == best[0]


@pytest.mark.parametrize("rows", [2, BLOCK, 5 * BLOCK + 7])
@pytest.mark.parametrize("fields", [2, 9])
def test_moments_of_blocks_are_joined_as_those_of_rows(rows: int, fields: int) -> None:
    """After they were packed and read again, in arrays for which the kernels are compiled."""
    random = np.random.default_rng(4)
    values, absent = random.normal(size=(fields, rows)), random.random(rows) < 0.1
    whole, joined = MomentsSoFar(fields), MomentsSoFar(fields)
    whole.add(values, absent, no_progress)
    for blocks in block_moments(values, absent, no_progress):
        packed = blocks.packed()
        packed.flags.writeable = False
        found = BlockMoments.unpacked(packed, fields)
        arrays = (found.counts, found.extremes, found.products)
        assert all(array.flags.writeable and array.flags.c_contiguous for array in arrays)
        joined.join(found)
    for one, other in zip(astuple(joined.finish()), astuple(whole.finish()), strict=True):
        assert np.array_equal(one, other)


def test_without_noise_the_variance_of_the_difference_is_phi() -> None:
    """Phi is the least variance of source minus destination over the fields, in the field's units."""
    source = table()
    for selection in ("paper", "definition"):
        parameters = {"sigma": 0, "shuffle": False, "selection": selection}
        result = swap("PABIDOT", source, parameters)
        ratios = []
        for name in source.column_names:
            before, after = source[name].to_numpy(), result.table[name].to_numpy()
            ratios.append(np.var(before - after, ddof=1) / np.var(before, ddof=1))
        assert result.measures["phi"] == pytest.approx(min(ratios), rel=1e-12)


def test_phi_is_the_same_for_every_seed() -> None:
    """No remedy for a small phi is another seed, and phi cannot choose one of several candidates."""
    first, second = (swap("PABIDOT", table(), {}, bytes([seed] * 32)) for seed in (1, 2))
    assert not first.table.equals(second.table)
    assert first.measures["phi"] == second.measures["phi"]
    assert "seed" not in MEANINGS["phi"].remedy
    with pytest.raises(ParameterError, match="'phi' cannot rank candidates: it is the same for every"):
        ranking_figures(CandidateOptions(count=2, rank_by=("phi",)), MeasureOptions())


def test_the_remedy_for_a_small_phi_works() -> None:
    """Selection `definition` has a phi as large as that of `paper`, or a larger one."""
    assert "'definition'" in MEANINGS["phi"].remedy
    found = {name: swap("PABIDOT", table(), {"selection": name}).measures["phi"] for name in SELECTIONS}
    assert found["definition"] > found["paper"]


def test_the_mean_variance_of_the_difference_by_chance_is_two() -> None:
    """Rows in random order: Var(z_i) + Var(y_i), whose mean over the fields is 2, as the formula says."""
    source = table()
    for selection in SELECTIONS:
        rotated = swap("PABIDOT", source, {"sigma": 0, "shuffle": False, "selection": selection}).table
        variances = [
            1 + np.var(rotated[name].to_numpy(), ddof=1) / np.var(source[name].to_numpy(), ddof=1)
            for name in source.column_names
        ]
        assert np.mean(variances) == pytest.approx(2, rel=1e-12)
    assert "the mean of these variances is 2" in MEASURES["phi"].formula


def test_noise_goes_away_from_zero_by_half_normal_numbers() -> None:
    """The noise added to the absolute z-scores has mean and deviation of a half-normal distribution."""
    source = table(20_000)
    quiet, loud = (swap("PABIDOT", source, {"sigma": sigma, "shuffle": False}).table for sigma in (0, 0.5))
    for name in source.column_names:
        x = source[name].to_numpy()
        y, noisy = ((found[name].to_numpy() - x.mean()) / x.std(ddof=1) for found in (quiet, loud))
        added = np.abs(noisy) - np.abs(y)
        assert (np.sign(noisy) == np.sign(y)).all()
        assert added.min() > -1e-12
        assert added.mean() == pytest.approx(0.5 * math.sqrt(2 / math.pi), abs=4 * 0.5 / math.sqrt(len(x)))
        assert added.std() == pytest.approx(0.5 * math.sqrt(1 - 2 / math.pi), rel=0.05)


def report_text(result: SwapResult) -> str:
    """Everything that is published with the data, as one text."""
    parts = asdict(result.summary), result.provider, result.measures, result.events.counts
    return orjson.dumps([parts, [asdict(event) for event in result.events.listed]]).decode()


def test_the_report_reveals_no_secret() -> None:
    """The report has exactly these figures, without angle, axis, translation and order."""
    source = table()
    result = swap("PABIDOT", source, {})
    assert set(result.provider) == {"phi", "selection", "transforms", "outside_range"}
    assert set(result.measures) == {"phi", "inversion_bits"}
    assert all(word not in report_text(result) for word in ("theta", "axis", "angle", "translation", "order"))
    assert result.provider["transforms"] == 172 * 4
    assert result.table.schema.metadata is None


def test_inversion_bits_are_those_of_the_enumeration() -> None:
    """It is log2 of 172 n, or the bits of the seed if fewer, and does not count the shuffle."""
    result = swap("PABIDOT", table(), {})
    report = report_of("PABIDOT", result, 128)
    assert report["measures"]["inversion_bits"]["value"] == pytest.approx(math.log2(172 * 4))
    assert report["measures"]["phi"]["value"] == result.provider["phi"]
    assert report_of("PABIDOT", result, 4)["measures"]["inversion_bits"]["value"] == 4
    assert report["limits"] == list(PROVIDERS["PABIDOT"].limits)


def test_shares_outside_the_range_and_changed() -> None:
    """Expected counts were computed by hand."""
    source = table()
    result = swap("PABIDOT", source, {})
    for name in source.column_names:
        before, after = source[name].to_numpy(), result.table[name].to_numpy()
        outside = np.mean((after < before.min()) | (after > before.max()))
        assert result.provider["outside_range"][name] == outside
        assert result.summary.changed[name] == 500


def test_other_fields_travel_with_their_row_and_types_stay() -> None:
    """Unnamed text, lists and numbers stay with their row; rotated fields become float64."""
    source = table(50).append_column("id", pa.array(range(50), pa.int16()))
    source = source.append_column("t", pa.array([[str(row), None] for row in range(50)]))
    source = source.set_column(0, pa.field("a", pa.float32(), False, {"k": "v"}), source["a"].cast("float32"))
    result = swap("PABIDOT", source, {"fields": ["a", "b"]}).table
    plain = swap("PABIDOT", source, {"fields": ["a", "b"], "shuffle": False}).table
    order = result["id"].to_pylist()
    assert sorted(order) == list(range(50)) != order
    assert result.equals(plain.take(order))
    assert result["t"].to_pylist() == [[str(row), None] for row in order]
    assert plain.select(["c", "d", "id", "t"]).equals(source.select(["c", "d", "id", "t"]))
    assert [str(kind) for kind in result.schema.types[:2]] == ["double", "double"]
    assert result.schema.field("a").metadata == {b"k": b"v"}
    assert not result.schema.field("a").nullable


def test_plan_says_what_passes_through() -> None:
    """The plan counts rows, one group and the rows with nulls; the memory exceeds source and destination."""
    source = table().append_column("n", pa.array([None, *range(499)]))
    provider = PROVIDERS["PABIDOT"]
    plan = provider.plan(source, provider.check(PabidotParams(nulls="drop_from_fit"), source.schema))
    assert (plan.rows, plan.groups, plan.unswappable_rows, plan.unswappable_groups) == (500, 1, 1, 1)
    assert plan.estimated_memory_bytes > 2 * source.nbytes


def test_many_events_are_counted_and_few_listed() -> None:
    source = table().append_column("n", pa.array([None] * 400 + list(range(100))))
    result = swap("PABIDOT", source, {"nulls": "drop_from_fit"})
    assert result.events.counts == {"unperturbed": 400}
    assert len(result.events.listed) == 100
    assert result.summary.achieved_rate == 0.2
