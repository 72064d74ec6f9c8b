"""Declaration of a measure: everything that the reports and the choice of runs need to know about it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from providers.measures.shared.columns import SIDES, Column, Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding

Goal = Literal["low", "high"]


@dataclass(frozen=True, slots=True)
class Part:
    """Number in a measure's value by which runs can be ranked."""

    path: str = ""
    """Keys to the number in the value, joined by points; empty if the value is the number."""
    goal: Goal | None = None
    """Better values, if they differ from the measure's."""
    words: str = ""
    """Label of the number in a comparison of runs; empty: the measure's words for the path."""
    chance: Callable[[Column], float | None] | None = None
    """Value of one field if the source's values are dealt to the rows at random; None if unknown."""
    guessing: bool = False
    """Whether its value by chance comes from guessing one of the compared rows."""
    share_of_rows: bool = False
    """Whether it is a share of rows, so that it has an interval for rows like these if all were read."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """Declaration that a few extreme values can decide a measure, whatever happened to all others."""

    criterion: Literal["squares", "range"]
    """`squares`: a few rows have most of the squared deviations from a field's mean. `range`: nearly all
    numbers of a field share one of the bins of equal width over its range."""
    sides: tuple[Side, ...] = SIDES
    """Tables whose fields are tested; one is enough."""
    target_alone: bool = False
    """Whether only the target is tested, and not the other fields that are measured."""
    instead: str = "`delta_rho.ranks`"
    """Figure that extreme values do not decide."""


class ByChance(NamedTuple):
    """Values of a measure if each field's released values are dealt to the rows at random."""

    value: dict[str, Any]
    """Parts, at their places in the measure's value."""
    interval: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """Part -> its confidence interval (95 %), if the values are means over random draws."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One risk or utility measure of a release."""

    key: str
    """Name in reports (``measures.<key>.value``) and of the module that declares the measure."""
    title: str
    concerns: Literal["risk", "utility"]
    goal: Literal["low", "high", "near"]
    """Better values of the release: low ones, high ones, or those near the source's."""
    range: str
    formula: str
    source: str
    cost: str
    """Running time in the number of rows n."""
    find: Callable[[Comparison], Finding] | None = None
    """Take the measure, or raise NotApplicable; None for a measure that only the run itself provides."""
    by_chance: Callable[[Comparison], ByChance] | None = None
    """Values by chance of parts that are not taken field by field, where `find` did not raise an error."""
    parts: Sequence[Part] = (Part(),)
    """Numbers by which runs can be ranked; the first one is meant by the measure's key alone."""
    needs: Sequence[str] = ()
    """Options of `MeasureOptions` of which one must be given; otherwise the measure does not apply."""
    needs_each: Sequence[str] = ()
    """Options that name fields, of which each must be given in addition to one of `needs`."""
    uses: Sequence[str] = ()
    """Further options that only some measures read, this one among them."""
    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """Key of a part of the value (or path, joined by points) -> its words in reports."""
    cannot_rank: str = ""
    """Reason for which the measure cannot rank runs that differ only in their seeds; empty if it can."""

    jackknife: Literal["share", "smooth"] | None = None
    """Whether a jackknife over groups of rows gives its interval in a comparison of runs: of a share of
    values, or of a figure that changes smoothly with the rows. None: it costs too much, or a few rows decide
    it."""
    extremes: Extremes | None = None
    """Criterion by which a report cautions that a few extreme values decide the measure; None: none do."""
    interval_of_draws: bool = False
    """Whether the interval in its report covers its random draws, and not the choice of rows."""
    interval_of_samples: bool = False
    """Whether an interval of its draws is that of the rows, too, if they are a sample."""

    def report(self, value: Any) -> dict[str, Any]:
        """Return the value with the texts that a reader needs to understand it."""
        return {
            "value": value,
            "title": self.title,
            "concerns": self.concerns,
            "goal": self.goal,
            "range": self.range,
            "formula": self.formula,
            "source": self.source,
        }
