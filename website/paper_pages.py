"""Pages of the papers' experiments, made of the stored figures: `docs/papers/`."""

import json
from pathlib import Path
from typing import Any

from website.paper_charts import chart_svg

FOLDER = Path("docs/papers")
"""Folder of the stored figures, the pages and their charts."""

_VERDICTS = ("reproduced", "differs", "cannot be reproduced")


def stored_papers() -> list[dict[str, Any]]:
    """Return the stored sources in the order of their numbers."""
    return [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("[0-9][0-9][0-9].json"))
    ]


def paper_files() -> dict[Path, bytes]:
    """Return path -> content of the pages and charts of all stored sources."""
    files: dict[Path, bytes] = {}
    for paper in stored_papers():
        files[FOLDER / f"{paper['number']}.md"] = paper_page(paper).encode()
        for experiment in paper["experiments"]:
            for chart in experiment["charts"]:
                files[FOLDER / chart_name(paper, experiment, chart)] = chart_svg(chart).encode()
    return files


def chart_name(paper: dict[str, Any], experiment: dict[str, Any], chart: dict[str, Any]) -> str:
    """Return the name of a chart's file."""
    return f"{paper['number']}-{experiment['identifier']}-{chart['name']}.svg"


def paper_page(paper: dict[str, Any]) -> str:
    """Return a source's page as Markdown."""
    experiments = paper["experiments"]
    services = ", ".join(f"[{name}](../services/{name}.md)" for name in paper["summary"])
    counts = {
        verdict: sum(each["verdict"] == verdict for each in experiments)
        for verdict in _VERDICTS
    }  # fmt: skip
    lines = ["| experiment | the paper concludes that | verdict |", "| --- | --- | --- |"]
    lines += [
        f"| [{each['place']}](#{_anchor(each)}) | {each['claim']} | {each['verdict']} |"
        for each in experiments
    ]
    minutes = sum(each["processor_seconds"] for each in experiments) / 60
    parts = [
        f"# {paper['title']}",
        f"{paper['reference']} Services: {services}.",
        f"The experiments of the paper, run again on the public tables: of {len(experiments)}, "
        f"{counts['reproduced']} {'is' if counts['reproduced'] == 1 else 'are'} reproduced, "
        f"{counts['differs']} {'differs' if counts['differs'] == 1 else 'differ'} and "
        f"{counts['cannot be reproduced']} cannot be reproduced. Each verdict follows from the numbers by "
        f"a rule "
        f"in the experiment's code (`benchmarks/papers/`). `make papers ONLY={paper['number']}` measures "
        f"them "
        f"again in {minutes:.1f} minutes of processor time; "
        f"[{paper['number']}.json]({paper['number']}.json) has "
        "all numbers. Times and memory differ from run to run; all other numbers are the same "
        f"(`python -m benchmarks.papers --check {paper['number']}`). {paper['left_out']}",
        "\n".join(lines),
    ]
    for experiment in experiments:
        parts += _section(paper, experiment)
    parts.append("*Generated from the stored figures by `make docs`.*")
    return "\n\n".join(parts) + "\n"


def paper_sentences(service: str) -> list[str]:
    """Return the section of a service's page about its paper: what it claims, what held, what did not."""
    parts = []
    for paper in stored_papers():
        if service not in paper["summary"]:
            continue
        experiments = [each for each in paper["experiments"] if service in each["services"]]
        if not experiments:
            continue
        held = [_linked(paper, each) for each in experiments if each["verdict"] == "reproduced"]
        others = [
            f"{_linked(paper, each)} ({each['verdict']})"
            for each in experiments
            if each["verdict"] != "reproduced"
        ]
        parts.append(
            f"{paper['summary'][service]} "
            f"Held when [its experiments were run again](../papers/{paper['number']}.md): "
            f"{'; '.join(held) or 'nothing'}. Did not hold: {'; '.join(others) or 'nothing'}."
        )
    return ["## The source's experiments", *parts] if parts else []


def _linked(paper: dict[str, Any], experiment: dict[str, Any]) -> str:
    place = f"../papers/{paper['number']}.md#{_anchor(experiment)}"
    return f"{experiment['claim']} ([{experiment['place']}]({place}))"


def _heading(experiment: dict[str, Any]) -> str:
    return f"{experiment['place']}: {experiment['title']}"


def _anchor(experiment: dict[str, Any]) -> str:
    """Return the anchor that GitHub and the site give to an experiment's heading."""
    kept = (each for each in _heading(experiment).lower() if each.isalnum() or each in " -_")
    return "".join(kept).replace(" ", "-")


def _section(paper: dict[str, Any], experiment: dict[str, Any]) -> list[str]:
    verdict = experiment["verdict"]
    measured = ", ".join(
        f"{service} of revision {revision}" for service, revision in experiment["revisions"].items()
    )
    parts = [
        f"## {_heading(experiment)}",
        f"The paper concludes that {experiment['claim']}. {experiment['setting']} Measured: {measured}.",
        f"**{verdict[0].upper()}{verdict[1:]}.** {experiment['reason']}",
    ]
    for table in experiment["tables"]:
        parts += [f"{table['caption']}", _table(table)]
    parts += [
        f"![{chart['title']}]({chart_name(paper, experiment, chart)})" for chart in experiment["charts"]
    ]
    return parts


def _table(table: dict[str, Any]) -> str:
    lines = [f"| {' | '.join(table['columns'])} |", "|" + " --- |" * len(table["columns"])]
    lines += [f"| {' | '.join(shown(cell) for cell in row)} |" for row in table["rows"]]
    return "\n".join(lines)


def shown(cell: Any) -> str:
    """Format a cell: four significant digits, and a dash for nothing."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        if abs(cell) >= 1000:
            return f"{cell:,.0f}"
        text = f"{cell:.4g}"
        return text if "e" not in text else f"{cell:.1e}"
    return str(cell)
