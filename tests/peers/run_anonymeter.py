"""Run anonymeter's evaluators on tables and print their counts as JSON; its own environment runs this file.

Usage: ``python run_anonymeter.py FOLDER``, with ``source.csv``, ``release.csv``, ``control.csv`` and
``options.json`` (attacks, linked, known, secrets) in the folder.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from anonymeter.evaluators import InferenceEvaluator, LinkabilityEvaluator, SinglingOutEvaluator


def counts(evaluator: Any) -> dict[str, int]:
    """Success counts of an evaluator, and its number of attacks."""
    found = evaluator.results(confidence_level=0.95)
    return {
        "attack": int(found.n_success),
        "control": int(found.n_control),
        "tries": int(found.n_attacks_ori),
    }


def main(folder: Path) -> None:
    """Run all evaluators on the tables of a folder."""
    source, release, control = (
        pd.read_csv(folder / f"{name}.csv") for name in ("source", "release", "control")
    )
    options = json.loads((folder / "options.json").read_text())
    attacks = options["attacks"]
    found = {
        "linkability": counts(
            LinkabilityEvaluator(
                source, release, aux_cols=options["linked"], n_attacks=attacks, n_neighbors=1, control=control
            ).evaluate(n_jobs=1)
        )
    }
    for secret, is_number in options["secrets"].items():
        evaluator = InferenceEvaluator(
            source,
            release,
            aux_cols=options["known"],
            secret=secret,
            regression=is_number,
            n_attacks=attacks,
            control=control,
        )
        found[f"inference {secret}"] = counts(evaluator.evaluate(n_jobs=1))
    for mode in ("univariate", "multivariate"):
        evaluator = SinglingOutEvaluator(source, release, n_attacks=attacks, n_cols=3, control=control)
        found[f"singling_out_{mode}"] = counts(evaluator.evaluate(mode=mode))
    print(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
