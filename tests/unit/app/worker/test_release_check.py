"""Risk of repeated releases: measured once for the same rows, parameters and number of releases."""

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.worker import release_check
from app.worker.digest_sets import draw_of, packed_digest
from app.worker.release_check import (
    SERIES,
    _message,
    composed_epsilon,
    known_risk,
    measured_risk,
    recognise,
)
from app.worker.tasks import EarlierSource, EarlierSources, ReleaseQuestion
from providers.swapping.composition import UNKNOWN_FIELDS, RunEpsilon
from providers.tables.sketches import packed, sketch

A, B = (f"sha256:{digit * 64}" for digit in "ab")

RELEASED = packed_digest(A) + packed_digest(B)

FIRST, SECOND = (draw_of(b"k", seed, b"source") for seed in (b"1", b"2"))

STREAM = draw_of(b"k", b"seed", b"DSWAP", b"2")


def income(value: float) -> RunEpsilon:
    return RunEpsilon((("income",),), (value,))


FAMILY = EarlierSource(
    "family", RELEASED, 2, "2026-01-01T00:00:00+00:00", (income(1.0), None), bytes.fromhex(FIRST)
)


def test_the_same_risk_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def measure(task: Any, key: bytes, first: Any, releases: int) -> dict[str, Any]:
        measured.append(releases)
        return {"releases": releases}

    monkeypatch.setattr(release_check, "measured_risk", measure)
    monkeypatch.setattr(release_check, "_first_rows", lambda source: None)
    monkeypatch.setattr(release_check, "_risks", type(release_check._risks)())
    monkeypatch.setattr(release_check, "_MOST_RISKS", 3)
    one, other = (
        ReleaseQuestion(
            key=b"k" * 32, source_digest=digest, policy="warn", reason=False, earlier=EarlierSources()
        )
        for digest in ("sha256:1", "sha256:2")
    )
    task, changed = (
        SimpleNamespace(service="DSWAP", revision=1, parameters={"rate": rate}) for rate in (0.5, 0.6)
    )

    def known(task: Any, question: ReleaseQuestion, *arguments: Any) -> int:
        measured.clear()
        assert known_risk(task, question, *arguments)["releases"] == min(20, arguments[-1])
        return len(measured)

    assert known(task, one, "family", None, 2) == 1
    assert known(task, one, "family", None, 2) == 0
    assert known(task, one, "family", None, 20) == 1
    assert known(task, one, "family", None, 21) == 0  # at most 20 releases are made
    assert known(changed, one, "family", None, 20) == 1
    assert known(task, one, "another", None, 20) == 1
    assert known(task, other, "family", None, 20) == 1
    assert known(task, one, "family", None, 2) == 1  # three are remembered


def test_a_sketch_leads_to_the_source_that_it_is_of() -> None:
    """Sources with one, three and no sketch, and one again."""
    tables = [pa.table({"x": np.arange(100) + 1000 * number}) for number in range(6)]
    *known, stranger = (sketch(table, b"k" * 32) for table in tables)
    each = [packed(one.document()) for one in known]
    earlier = EarlierSources(
        sources=tuple(pickle.dumps(FAMILY._replace(family=name)) for name in "abcd"),
        sketches=b"".join(each),
        sizes=np.array([len(one) for one in each]).tobytes(),
        counts=np.array([1, 3, 0, 1]).tobytes(),
        other_digests={"sha256:7": 2},
    )
    question = ReleaseQuestion(b"k" * 32, "sha256t:1", "warn", False, earlier)
    found = [recognise(question, one, lambda _: "sha256:8") for one in (*known, stranger)]
    names = [(match, source and source.family) for match, source in found]
    assert names == [*(("fields", name) for name in "abbbd"), (None, None)]
    match, source = recognise(question, stranger, lambda _: "sha256:7")
    assert match == "digest"
    assert source is not None
    assert source.family == "c"


def guarantee_of(**epsilons: float) -> dict[str, Any]:
    """Figure of a run that moves each field by an order of its own."""
    orders = {name: {"fields": [name], "epsilon": value} for name, value in epsilons.items()}
    return {"epsilon": sum(epsilons.values()), "by_field": orders}


def test_the_draws_of_before_add_no_epsilon() -> None:
    guarantee = guarantee_of(income=2.0)
    assert composed_epsilon(guarantee, FIRST, STREAM, FAMILY)["releases"] == 2
    new = composed_epsilon(guarantee, SECOND, STREAM, FAMILY)
    assert (new["releases"], new["without"], new["all_releases"]) == (3, 1, None)
    finite = composed_epsilon(guarantee, SECOND, STREAM, FAMILY._replace(epsilons=(income(1.0), income(4.0))))
    assert (finite["all_releases"], finite["draw"]) == (7.0, SECOND)
    without = composed_epsilon(guarantee, SECOND, STREAM, FAMILY._replace(epsilons=(), draws=b""))
    assert (without["releases"], without["without"]) == (3, 2)
    assert composed_epsilon(guarantee, FIRST, STREAM, None)["all_releases"] == 2.0


def test_runs_with_one_seed_have_no_sum() -> None:
    """Another rate, or a row more, with one seed: the two releases are not independent."""
    family = FAMILY._replace(epsilons=(income(1.0), income(4.0)), streams=bytes.fromhex(STREAM))
    guarantee, another = guarantee_of(income=2.0), draw_of(b"k", b"other seed", b"DSWAP", b"2")
    found = composed_epsilon(guarantee, SECOND, STREAM, family)
    assert (found["all_releases"], found["fields"], found["stream"]) == (None, None, STREAM)
    assert found["limits"] == (
        "No sum of the epsilons of all 3 releases is stated, because they are not independent: 1 of them has "
        "the seed of another one"
    )
    assert composed_epsilon(guarantee, FIRST, STREAM, family)["all_releases"] == 5.0  # the same run again
    assert composed_epsilon(guarantee, SECOND, another, family)["all_releases"] == 7.0
    later = composed_epsilon(guarantee, SECOND, another, family._replace(dependent=1))
    assert (later["all_releases"], "1 of them has" in later["limits"]) == (None, True)


def stated(guarantee: dict[str, Any], *earlier: RunEpsilon | None) -> tuple[dict[str, Any], str]:
    """Entry of a release after others, and the end of its event."""
    family = FAMILY._replace(releases=len(earlier), epsilons=earlier)
    found = composed_epsilon(guarantee, SECOND, STREAM, family)
    message = _message("digest", family, {"not_measured": "no reason"}, found)
    return found, message.partition("no reason. ")[2]


def test_a_sum_is_stated_for_the_fields_that_all_releases_swap() -> None:
    found, message = stated(guarantee_of(income=2.0, age=4.0), income(1.0))
    assert (found["epsilon"], found["all_releases"], found["fields"]) == (6.0, 3.0, ["income"])
    assert found["orders"] == [
        {"fields": ["income"], "epsilon": 2.0},
        {"fields": ["age"], "epsilon": 4.0},
    ]
    assert message == (
        "The epsilons of all 2 releases add up to 3 for an exchange of 'income'. No finite epsilon holds for "
        "other fields: not all releases swap 'age', which the others publish row by row"
    )
    found, message = stated(guarantee_of(income=2.0), income(1.0), income(1.0))
    assert (found["all_releases"], found["fields"], found["limits"]) == (4.0, ["income"], None)
    assert message == "The epsilons of all 3 releases add up to 4 for an exchange of 'income'"


def test_no_sum_is_stated_for_releases_of_different_fields() -> None:
    found, message = stated(guarantee_of(age=2.0), income(1.0))
    assert (found["epsilon"], found["all_releases"], found["fields"]) == (2.0, None, None)
    assert (found["releases"], found["without"]) == (2, 0)
    assert (
        message
        == found["limits"]
        == (
            "No finite epsilon holds for all 2 releases: not all releases swap 'age' and 'income', which the "
            "others publish row by row"
        )
    )


def test_no_sum_is_stated_with_an_entry_that_does_not_name_its_fields() -> None:
    """One of an older version; a release without an epsilon is the stronger reason."""
    found, message = stated(guarantee_of(income=2.0), UNKNOWN_FIELDS, income(1.0))
    assert (found["all_releases"], found["releases"], found["without"]) == (None, 3, 0)
    assert (
        message
        == found["limits"]
        == (
            "No sum of the epsilons of all 3 releases is stated: entries of older versions (1) do not "
            "name their swap fields"
        )
    )
    found, _ = stated(guarantee_of(income=2.0), UNKNOWN_FIELDS, None)
    assert found["limits"] == "No finite epsilon holds for all 3 releases: 1 have none"


def test_a_release_without_a_finite_epsilon_names_no_orders() -> None:
    found, _ = stated(guarantee_of(income=2.0) | {"epsilon": None}, income(1.0))
    assert (found["epsilon"], found["all_releases"], found["without"]) == (None, None, 1)
    assert "orders" not in found


def test_the_risk_of_units_counts_units() -> None:
    """Two persons of 100 rows stay, and half of 198 persons of one row move."""
    person = np.repeat(np.arange(200), [100, 100, *[1] * 198])
    values = np.random.default_rng(1).permutation(200)[person]
    table = pa.table({"person": person, "value": values})
    parameters = {
        "swap_fields": ["value"],
        "unit_id": "person",
        "rate": 0.5,
        "suppression": {"policy": "keep"},
    }
    task: Any = SimpleNamespace(service="DSWAP", parameters=parameters)
    risk = measured_risk(task, b"k" * 32, table, 2)
    assert risk["unit"] == "person"
    assert risk["one_release"] == pytest.approx(0.5, abs=0.02)
    assert "of the units of 'person'" in _message("digest", FAMILY, risk, None)
    task.parameters = {**parameters, "series": "panel"}
    assert measured_risk(task, b"k" * 32, table, 2) == {"not_measured": SERIES}
