"""Bar charts of real categories: the values, their rows and their number are those that pandas counts."""

from pathlib import Path

import pandas
import pytest

from app.report.distributions import BARS, distributions
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.randomness.chacha20 import Stream
from tests.data.test_real_tables import read
from tests.reports.reading import read as read_drawing

pytestmark = pytest.mark.realdata

FIELDS = {
    "adult.csv": ["native-country", "education", "occupation", "workclass", "sex", "income"],
    "EIA.csv": ["UTILNAME", "STATE"],
}


@pytest.mark.parametrize("name", FIELDS)
def test_bars_count_their_categories_right(data_dir: Path, name: str) -> None:
    """Every bar is a value with its rows; the rest has one bar, and none is lost."""
    table = read(data_dir / name).select(FIELDS[name])
    measures = MeasureOptions(only=(), fields=tuple(FIELDS[name]), sample=100)
    found = assess(Release(table, table), measures, Stream(bytes(32), "measures", 1)).pictures["fields"]
    pictures = {each["field"]: picture for each, picture in zip(found, distributions(found, 5), strict=True)}
    for field in found:
        counted = table[field["field"]].to_pandas().astype(str).value_counts()
        check(field, counted)
        picture = pictures[field["field"]]
        drawn = [text.text for text in read_drawing(picture.drawings[0]).all("text", "name")]
        shown = min(BARS, int((counted >= 5).sum()))
        has_rest = shown < len(counted)
        assert len(drawn) == shown + has_rest
        assert (drawn[-1] == "(others)") == has_rest
        said = f"{shown} of {len(counted)} values have bars of their own."
        assert (said in picture.caption) == has_rest


def check(field: dict[str, object], counted: "pandas.Series[int]") -> None:
    labels, rows = field["labels"], field["source"]
    assert isinstance(labels, list)
    assert isinstance(rows, list)
    assert field["categories"] == {"source": len(counted), "destination": len(counted)}
    for label, count in zip(labels[:-1], rows[:-1], strict=True):
        assert count == counted[label]
    assert rows[-1] == counted.sum() - sum(rows[:-1])
