"""Demo of every service over HTTP, a report, a comparison of services, and a rerun: ``python -m demo``."""

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from demo.kernels import compilation_shown
from demo.people import SEED, SINGLETON_TOWN, TYPES, people
from demo.service import own_key, running_service

HOME = Path("var/demo")
PATIENCE = 1800
"""Seconds that a call may take: the first run of a service waits until its kernels are compiled."""
PATIENT = {"prefer": f"wait={PATIENCE}"}
SHOWN_EVENTS = 3
SHOWN_ROWS = 9  # row 7 is the inhabitant of the singleton town

RUNS: Mapping[str, Mapping[str, Any]] = {
    "DSWAP": {"swap_fields": ["income", "savings"], "locked": True},
    "CDSWAP": {"swap_fields": ["income", "savings"], "control_field": "town"},
    "DDSWAP": {"swap_fields": ["income"], "control_field": "age", "block_size": 10},
    "MEWS": {"swap_fields": ["income", "savings"], "degree": 100, "nulls": "keep"},
    "MEDS": {"swap_fields": ["income", "savings"], "k": 20, "nulls": "keep"},
    "RWN": {
        "perturb_fields": ["income", "savings"],
        "distance_fields": ["age", "education", "hours_per_week"],
    },
    "PABIDOT": {"fields": ["age", "hours_per_week"], "label_fields": ["town"]},
    "LOCALITY": {"fields": ["age"], "domain": {"age": [18, 95]}, "decimals": 0},
    "RSWAP": {"hierarchy": ["town"], "similar": [["education"]], "risk_fields": ["age"], "swap_rate": 0.1},
}
MOVED = ("swap_fields", "perturb_fields", "fields", "hierarchy")
"""Parameter names for the fields whose values change."""

PURPOSE = {
    "DSWAP": "income and savings move together between any two people",
    "CDSWAP": "income and savings move independently of each other, only within a town",
    "DDSWAP": "income moves only between ten people of nearly the same age",
    "MEWS": "income and savings move together between people of the same cell of a grid over both",
    "MEDS": "income and savings move together between the twenty people nearest on both",
    "RWN": "income and savings come from one of the five people nearest in age, education and hours",
    "PABIDOT": "age and hours are reflected, translated, rotated and expanded; then the rows are "
    "shuffled,\n   so that the rows shown next to each other are of two different people",
    "LOCALITY": "ages are redrawn at random in segments of twenty, and a tenth of their relations is kept",
    "RSWAP": "people whose age is rare in their town exchange towns with people of the same "
    "education,\n   and so do others, until it is a tenth of all",
}
FRONTIER: Sequence[Mapping[str, Any]] = (
    {
        "service": "DSWAP",
        "parameters": {"swap_fields": ["income", "savings"]},
        "vary": {"locked": [False, True]},
    },
    {
        "service": "DDSWAP",
        "parameters": {"swap_fields": ["income", "savings"], "control_field": "age"},
        "vary": {"block_size": [5, 50]},
    },
    {
        "service": "MEDS",
        "parameters": {"swap_fields": ["income", "savings"], "nulls": "keep"},
        "vary": {"k": [5, 100]},
    },
)
SAMPLE = 1000
"""Number of rows on which the demo computes expensive figures."""
OWN_FIGURES = {
    "MEWS": ("partition_degree", "minimal_depth", "singletons"),
    "MEDS": ("partition_degree", "minimal_depth"),
    "PABIDOT": ("phi",),
    "LOCALITY": ("relations_kept", "violations", "distortion"),
    "RSWAP": ("swapped_households", "unmatched_households", "overshoot"),
}


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def _print_side_by_side(
    source: Sequence[Mapping[str, Any]],
    destination: Sequence[Mapping[str, Any]],
    fixed: Sequence[str],
    swapped: Sequence[str],
) -> None:
    """Print the first rows: identifying fields, and each swapped field before and after."""
    header = ["row", *fixed]
    for field in swapped:
        header += [f"{field} before", f"{field} after"]
    lines = [header]
    for row, (before, after) in enumerate(zip(source, destination, strict=True)):
        line = [str(row), *(_cell(before[field]) for field in fixed)]
        for field in swapped:
            changed = "" if before[field] == after[field] else " *"
            line += [_cell(before[field]), _cell(after[field]) + changed]
        lines.append(line)
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        print("   " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_figures(job: Mapping[str, Any], report: Mapping[str, Any], seconds: float) -> None:
    figures = report["summary"]
    size = figures["group_size"]
    print(
        f"   outcome {job['outcome']} in {1000 * seconds:.0f} ms, "
        f"destination {job['destination']['digest'][:23]}..."
    )
    print(
        f"   rows {figures['rows']}, groups {figures['groups']} "
        f"(smallest {size['smallest']}, median {size['median']:g}, largest {size['largest']}), "
        f"took part {figures['took_part']}, unswapped {figures['unswapped']}, "
        f"suppressed {figures['suppressed']}"
    )
    changed = ", ".join(f"{field} in {rows} rows" for field, rows in figures["changed"].items())
    print(f"   really changed: {changed}")
    own = [f"{name} {report['provider'][name]:.4g}" for name in OWN_FIGURES.get(job["service"], ())]
    if own:
        print(f"   {', '.join(own)}")
    for event in job["events"][:SHOWN_EVENTS]:
        place = f"row {event['row']}" if "row" in event else "table"
        print(f"   event {event['code']}: {place}, {event.get('field', 'all fields')}: {event['message']}")
    counts = job.get("event_counts", {})
    if sum(counts.values()) > SHOWN_EVENTS:
        print(f"   events in all: {', '.join(f'{code} {count}' for code, count in counts.items())}")


def _run(client: httpx.Client, service: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    parameters = RUNS[service]
    call = {"source": {"rows": rows, "fields": TYPES}, "parameters": parameters, "seed": f"{SEED:x}"}
    with compilation_shown(client):
        started = time.perf_counter()
        answer = client.post(f"/v1/services/{service}", json=call, headers=PATIENT)
        seconds = time.perf_counter() - started
    answer.raise_for_status()
    job: dict[str, Any] = answer.json()
    report = client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    print(f"\n{service}: {PURPOSE[service]}")
    fixed = [parameters["control_field"]] if "control_field" in parameters else []
    shown = job["destination"]["rows"][:SHOWN_ROWS]
    moved = next(parameters[name] for name in MOVED if name in parameters)
    _print_side_by_side(rows[:SHOWN_ROWS], shown, fixed, moved)
    _print_figures(job, report, seconds)
    return job


def _show_report(client: httpx.Client, rows: Sequence[Mapping[str, Any]]) -> None:
    """Save the report page, and print a few of its figures."""
    call = {
        "source": {"rows": rows, "fields": TYPES},
        "parameters": RUNS["CDSWAP"],
        "seed": f"{SEED:x}",
        "report": "full",
        "measures": {"key_fields": ["age", "town"], "sample": SAMPLE},
    }
    with compilation_shown(client):
        job = client.post("/v1/services/CDSWAP", json=call, headers=PATIENT).raise_for_status().json()
    page = _save_page(client, job, "report.html")
    measures = client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()["measures"]
    linkage, change = measures["record_linkage"]["value"], measures["delta_rho"]["value"]
    print(f"\nCDSWAP with report 'full': {len(measures)} measures; as a page with pictures: {page}")
    print(f"   rows found again by age and town: {linkage['rate']:.3f}, by chance {linkage['chance']:.5f}")
    print(f"   mean change of the correlations: {change['mean']:.4f}")


def _show_frontier(client: httpx.Client, rows: Sequence[Mapping[str, Any]]) -> None:
    """Compare services and parameters by risk and utility."""
    call = {
        "source": {"rows": rows, "fields": TYPES},
        "services": FRONTIER,
        "seed": f"{SEED:x}",
        "measures": {"fields": ["age", "income", "savings", "hours_per_week"]},
    }
    job = client.post("/v1/frontier", json=call, headers=PATIENT).raise_for_status().json()
    found = client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()["frontier"]
    page = _save_page(client, job, "frontier.html")
    print(f"\nWhich service? Of these {len(found['points'])}, no other one beats those with a *")
    print(f"   by more than the uncertainty (in brackets: 95 % intervals); as a page: {page}")
    print(f"   risk {found['risk']}, utility {found['utility']}: of both, less is better")
    print(f"   {found['verdict']}")
    for point in found["points"]:
        varied = {
            name: point["parameters"][name]
            for name in ("locked", "block_size", "k")
            if name in point["parameters"]
        }
        mark = "" if point["dominated"] else " *"
        named = ", ".join(f"{name} {value}" for name, value in varied.items())
        risk, utility = (_with_interval(point, axis) for axis in ("risk", "utility"))
        print(f"   {point['service']:<7} {named:<14} {risk:<24}  {utility}{mark}")


def _with_interval(point: Mapping[str, Any], axis: str) -> str:
    """Return a figure of a point with its interval, which one run of some figures does not have."""
    interval = point.get(f"{axis}_interval")
    within = f" ({interval['low']:.3f} to {interval['high']:.3f})" if interval else ""
    return f"{point[axis]:.3f}{within}"


def _save_page(client: httpx.Client, job: Mapping[str, Any], name: str) -> Path:
    answer = client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"}).raise_for_status()
    page = HOME / name
    page.write_bytes(answer.content)
    return page


def main() -> int:
    """Run the demo; 0 when the rerun reproduced the first run's bytes."""
    shutil.rmtree(HOME, ignore_errors=True)
    rows = people()
    print(f"{len(rows)} people, {len(TYPES)} fields; {SINGLETON_TOWN} has one of them.")
    print("Starting the service on SQLite and local worker processes ...")
    key = own_key(HOME)
    print(f"Callers need a key; this key is for the user of this machine, and only for this demo:\n   {key}")
    headers = {"authorization": f"Bearer {key}"}
    with (
        running_service(HOME, auth="on", max_wait_seconds=str(PATIENCE)) as address,
        httpx.Client(base_url=address, timeout=PATIENCE, headers=headers) as client,
    ):
        jobs = {service: _run(client, service, rows) for service in RUNS}

        _show_report(client, rows)
        _show_frontier(client, rows)

        first = jobs["CDSWAP"]
        body = {"source": {"rows": rows, "fields": TYPES}}
        rerun = (
            client.post(f"/v1/jobs/{first['id']}/rerun", json=body, headers=PATIENT).raise_for_status().json()
        )
        print(f"\nRerun of job {first['id']} from its id; the service kept its seed sealed:")
        print(f"   first run  {first['destination']['digest']}")
        print(f"   rerun      {rerun['destination']['digest']}")
        print(f"   reproduced: {rerun['reproduced']}")
    print("\nThe service has stopped. `make serve` starts it: the console is at /, Swagger UI at /docs.")
    return 0 if rerun["reproduced"] is True else 1


if __name__ == "__main__":
    sys.exit(main())
