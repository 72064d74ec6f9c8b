"""Words for the console: the glossary, and measures and figures with their meaning, as one JSON document."""

import json
import re
from collections.abc import Iterator

from app.help.documents import Documents, plain

_GLOSSARY = "glossary.md"
_ROW = re.compile(r"^\| (?P<term>[^|]+) \| (?P<meaning>[^|]+) \|", re.MULTILINE)
_USES = {
    "marginals": "Distributions of single fields",
    "correlations": "Correlations between fields",
    "model": "A model that predicts the target",
    "queries": "Averages over ranges of another field",
}
"""Use of a release, which the options of a comparison take in place of a figure of utility -> its words."""


def words(documents: Documents) -> bytes:
    """Return the words as JSON.

    `glossary` lists terms with their meaning; `measures` has key, title, meaning, goal and kind of each
    measure; `figures` has name, words, meaning, goal and kind of each figure by which runs are ranked, and
    the uses of a release, which have no goal.
    """
    from providers.measures import MEASURES
    from providers.measures.meanings import MEANINGS
    from providers.selection.figures import FIGURES

    measures = [
        {
            "key": key,
            "title": measure.title,
            "meaning": MEANINGS[key].meaning,
            "goal": measure.goal,
            "kind": measure.concerns,
        }
        for key, measure in MEASURES.items()
    ]
    figures = [
        {
            "name": name,
            "words": figure.words,
            "meaning": MEANINGS[figure.measure.key].meaning if figure.measure.key in MEANINGS else "",
            "goal": figure.goal,
            "kind": figure.measure.concerns,
        }
        for name, figure in FIGURES.items()
    ]
    figures += [{"name": name, "words": use, "meaning": "", "kind": "use"} for name, use in _USES.items()]
    content = {"glossary": list(_terms(documents)), "measures": measures, "figures": figures}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _terms(documents: Documents) -> Iterator[dict[str, str]]:
    """Yield each term of the glossary with its meaning; a row with several terms has one entry for each."""
    for row in _ROW.finditer(documents.text(_GLOSSARY)):
        if row["term"] == "term" or set(row["term"]) == {"-"}:
            continue
        for term in plain(row["term"]).split(", "):
            yield {"term": term, "meaning": plain(row["meaning"])}
