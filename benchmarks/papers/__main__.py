"""Run the papers' experiments and store their figures: ``python -m benchmarks.papers [002] [002/table-1]``.

Each source has one file, docs/papers/<number>.json, which is written after each experiment.
`python -m website` makes its page and its charts from the file.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.papers.experiments import Data, Experiment, Source, repeatable, stored
from benchmarks.papers.sources import SOURCES
from providers import PROVIDERS

FOLDER = Path("docs/papers")


def chosen(only: list[str]) -> list[tuple[Source, Experiment]]:
    """Return the experiments to run: all, those of some sources (``002``), or some (``002/table-1``)."""
    everything = [(source, each) for source in SOURCES.values() for each in source.experiments]
    known = {*SOURCES, *(f"{source.number}/{each.identifier}" for source, each in everything)}
    if unknown := sorted(set(only) - known):
        raise SystemExit(f"unknown: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    return [
        (source, each)
        for source, each in everything
        if not only or source.number in only or f"{source.number}/{each.identifier}" in only
    ]


def document(source: Source, entries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the content of a source's file, with the experiments in the order of the source."""
    return {
        "number": source.number,
        "title": source.title,
        "reference": source.reference,
        "summary": source.summary,
        "left_out": source.left_out,
        "experiments": [
            entries[each.identifier] for each in source.experiments if each.identifier in entries
        ],
    }


def stored_entries(path: Path) -> dict[str, dict[str, Any]]:
    """Return the stored experiments of a source by identifier; none if there is no file."""
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return {entry["identifier"]: entry for entry in content["experiments"]}


def judged_again(source: Source, entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return stored experiments with the texts and verdicts that today's declarations give."""
    return {
        each.identifier: stored(
            each,
            {kind: entries[each.identifier][kind] for kind in ("tables", "charts")},
            entries[each.identifier]["processor_seconds"],
            entries[each.identifier]["revisions"],
        )
        for each in source.experiments
        if each.identifier in entries
    }


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a source's file: one line for each innermost list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(content, 0) + "\n", encoding="utf-8")


def _text(value: Any, depth: int) -> str:
    plain = json.dumps(value, ensure_ascii=False)
    nested = isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(each, dict | list) for each in value)
    )
    if not nested or not value:
        return plain
    indent = "  " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{indent}{json.dumps(name)}: {_text(each, depth + 1)}" for name, each in value.items()]
        return "{\n" + ",\n".join(parts) + "\n" + "  " * depth + "}"
    return "[\n" + ",\n".join(indent + _text(each, depth + 1) for each in value) + "\n" + "  " * depth + "]"


def processor_seconds() -> float:
    """Return the processor time of this process and of its ended child processes, user and system."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def measured(experiment: Experiment, data: Data) -> dict[str, Any]:
    """Run an experiment; return its entry in the file of its source.

    Libraries of linear algebra take one thread: sums are then the same on any number of cores, and processor
    time has no waiting of threads for each other.
    """
    began = processor_seconds()
    with threadpool_limits(1):
        figures = experiment.run(data).as_json()
    revisions = {service: PROVIDERS[service].revision for service in experiment.services}
    return stored(experiment, figures, processor_seconds() - began, revisions)


def differences(kept: dict[str, Any], entry: dict[str, Any]) -> list[str]:
    """Return where two entries of an experiment differ, other than by times and memory."""
    one, other = repeatable(kept), repeatable(entry)
    found = [name for name in other if name not in ("tables", "charts") and one.get(name) != other[name]]
    for kind in ("tables", "charts"):
        by_name = {each["name"]: each for each in one[kind]}
        found += [f"{kind} {each['name']}" for each in other[kind] if by_name.get(each["name"]) != each]
        found += [f"{kind} {name}" for name in set(by_name) - {each["name"] for each in other[kind]}]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen experiments; return the exit status, which is 1 if a check finds a difference."""
    parser = argparse.ArgumentParser(prog="make papers", description="Run the papers' experiments again.")
    parser.add_argument("only", nargs="*", help="sources (002) or experiments (002/table-1); default: all")
    parser.add_argument("--judge", action="store_true", help="measure nothing: apply texts and rules again")
    parser.add_argument(
        "--check", action="store_true", help="write nothing: compare all but times and memory with the files"
    )
    given = parser.parse_args(arguments)
    runs, data, different = chosen(given.only), Data(), 0
    started, began = time.perf_counter(), processor_seconds()
    for count, (source, experiment) in enumerate(runs, 1):
        path = FOLDER / f"{source.number}.json"
        entries = stored_entries(path)
        if not given.judge:
            print(
                f"[{count}/{len(runs)}, {time.perf_counter() - started:.0f} s] "
                f"{source.number} {experiment.place}: {experiment.title}",
                flush=True,
            )
            entry = measured(experiment, data)
            print(f"    {entry['verdict']}: {entry['reason']}", flush=True)
            if given.check:
                found = differences(entries[experiment.identifier], entry)
                print(f"    {'differs in ' + ', '.join(found) if found else 'as stored'}", flush=True)
                different += bool(found)
                continue
            entries[experiment.identifier] = entry
            for other, waiting in runs[count:]:  # whose stored figures the rule may not understand any more
                entries.pop(waiting.identifier if other is source else "", None)
        write(path, document(source, judged_again(source, entries)))
    if not given.judge:
        print(
            f"{processor_seconds() - began:.0f} s of processor time in {time.perf_counter() - started:.0f} s"
        )
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
