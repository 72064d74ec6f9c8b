"""Hand-made documents of jobs and reports, in the shape that the service gives them."""

from typing import Any

Document = dict[str, Any]

HOSTILE = [
    "<script>alert(1)</script>",
    'income "net" & gross',
    "العمر عند الولادة",
    "\u202eevil\u202c age",
    "👩\u200d👩\u200d👧 household 👍🏽",
    "two  spaces ",
    "line\nbreak\x00\x1b[31m",
    "a_very_long_field_name_" * 12,
    "</style></svg><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}",
    "",
]
"""Names of fields that a page must survive."""


def job(service: str = "CDSWAP", rows: int = 4000, **more: Any) -> Document:
    """A job that has ended."""
    fields = [
        {"name": name, "type": "float64"} for name in more.pop("field_names", ["age", "income", "town"])
    ]
    return {
        "id": "01a1fedb-f029-7325-9a66-251496fcf8d6",
        "service": service,
        "revision": 1,
        "state": "succeeded",
        "outcome": "SUCCESS_WITH_INFO",
        "parameters": {"swap_fields": ["income"], "control_field": ["town"], "rate": 1.0, "locked": False},
        "seed_fingerprint": "c4c0d28f60fcbae3",
        "row_count": rows,
        "created_at": "2026-11-21T16:06:29.161881Z",
        "finished_at": "2026-11-21T16:06:29.266391Z",
        "source": {"digest": "sha256:" + "4a" * 32, "fields": fields},
        "destination": {"digest": "sha256:" + "90" * 32, "fields": fields},
        "events": [
            {"code": "suppressed", "message": "its value was suppressed", "row": 2281, "field": "income"}
        ],
        "event_counts": {"suppressed": 3, "null_kept": 1234},
    } | more


def report(rows: int = 4000, **more: Any) -> Document:
    """A report of the level `summary`."""
    return {
        "summary": {
            "rows": rows,
            "groups": 170,
            "group_size": {"smallest": 1, "median": 14.5, "largest": 1676},
            "took_part": rows - 3,
            "took_part_by_field": {"income": rows - 3},
            "changed": {"income": 3516},
            "suppressed": 3,
            "unswapped": 3,
            "unswapped_reasons": {"alone": 3},
            "achieved_rate": (rows - 3) / rows,
        },
        "measures": {
            "changed_share": measure("Changed share", "risk", "high", {"income": 0.879}),
            "pscr": measure(
                "Own row is the closest", "risk", "low", 0.0312, sample=1000, fields=["age", "income"]
            ),
            "delta_rho": measure("Change of correlations", "utility", "low", {"mean": 0.021, "sd": 0.0125}),
        },
        "provider": {"classes": 170, "singleton_classes": 3, "matching_bits": 278338.77},
        "limits": ["A small class hides little.", "Fields that are not swapped stay with their row."],
    } | more


def guarantee(**more: Any) -> Document:
    """The figure `guarantee` of a run by the permutation mechanism."""
    return {
        "mechanism": "permutation",
        "epsilon": 4.5,
        "paper_bound": 4.8,
        "rate": 0.5,
        "least_epsilon": 2.25,
        "rate_of_least_epsilon": 0.755,
        "by_field": {"income": {"epsilon": 4.5, "paper_bound": 4.8, "largest_group": 10}},
        "holds_for": "Take two people of one group and exchange their values.",
        "invariants": ["The table of each swap field within each group is that of the source."],
        "does_not_mean": ["It does not hide what the invariants publish."],
    } | more


def measure(title: str, concerns: str, goal: str, value: Any, **more: Any) -> Document:
    """One measure of a report."""
    return {
        "value": value,
        "title": title,
        "concerns": concerns,
        "goal": goal,
        "range": "0 to 1",
        "formula": "#{i : x_i < y_i} / n",
        "source": "A plain reading & its source",
    } | more


def full_report(names: list[str] | None = None, **more: Any) -> Document:
    """A report of the level `full`, with pictures of numeric fields of these names and of one category."""
    names = names or ["age", "income", "weight", "height"]
    return report(
        left_out={"il3": "it needs a target", "town": "text has no correlation"},
        pictures=pictures(names),
        **more,
    )


def pictures(names: list[str]) -> Document:
    """All pictures; the counts below the threshold are not in them."""
    bins = [40, None, 320, 700, 980, 870, 540, 310, 180, 60]
    moved = [50, 33, 300, 740, 940, 880, 560, 290, 150, 57]
    count = len(names)
    before = [
        [1.0 if i == j else round((-1) ** (i + j) * 0.9 / (1 + abs(i - j)), 3) for j in range(count)]
        for i in range(count)
    ]
    after = [[1.0 if i == j else before[i][j] * 0.94 for j in range(count)] for i in range(count)]
    if count > 2:
        before[2][1] = before[1][2] = after[2][1] = after[1][2] = None
    difference = [
        [None if a is None or b is None else b - a for a, b in zip(one, two, strict=True)]
        for one, two in zip(before, after, strict=True)
    ]
    return {
        "threshold": 5,
        "fields": [
            {
                "field": name,
                "kind": "number",
                "edges": [15.0 + 7.5 * at for at in range(11)],
                "source": bins,
                "destination": moved,
                "missing": {"source": 0, "destination": None},
            }
            for name in names
        ]
        + [
            {
                "field": "town",
                "kind": "category",
                "labels": [*(f"Town {at}" for at in range(13)), "<b>Zürich</b> " * 8, "(others)"],
                "source": [900 - 60 * at for at in range(13)] + [55, None],
                "destination": [870 - 50 * at for at in range(13)] + [7, 12],
                "missing": {"source": 10, "destination": 10},
            }
        ],
        "fields_left_out": 3,
        "correlations": {"fields": names, "source": before, "destination": after, "difference": difference},
        "changed": {"fields": names, "share": [1.0 - at / count for at in range(count)]},
        "dcr": {
            "share": [at / 20 for at in range(21)],
            "distance": [0.0, 0.0, *(round((at / 20) ** 2 * 0.6, 4) for at in range(2, 21))],
            "sample": 1000,
        },
        "risk_utility": {
            "risk": {"key": "pscr", "value": 0.0312},
            "utility": {"key": "delta_rho.mean", "value": 0.021},
        },
    }


def frontier() -> Document:
    """Additional parts of the report of a frontier."""
    points: list[Document] = [
        {
            "service": "RWN",
            "parameters": {"k": k, "q": q},
            "risk": 0.5 / k + (1 - q) / 2,
            "utility": 0.01 * k**0.5 * q,
        }
        for k in (5, 25, 50)
        for q in (0.5, 1.0)
    ]
    points += [
        {
            "service": "MEWS",
            "parameters": {"swap_fields": ["<b>income</b>"], "degree": d},
            "risk": 5 / d,
            "utility": d / 9000,
        }
        for d in (50, 100, 200)
    ]
    for one in points:
        one["dominated"] = any(
            two["risk"] <= one["risk"] and two["utility"] <= one["utility"] and two is not one
            for two in points
        )
    points.append(
        {"service": "MEDS", "parameters": {"k": 9}, "error": "'town' is text & no number", "dominated": True}
    )
    return {"risk": "pscr", "utility": "delta_rho.mean", "runs": 3, "points": points}


def candidates() -> Document:
    """Additional parts of the report of a job with several candidates."""
    return {
        "rank_by": ["pscr", "delta_rho.mean"],
        "left_out": {"il3": "it needs a target"},
        "chosen": 1,
        "table": [
            {
                "index": at,
                "seed_fingerprint": f"{at:016x}",
                "values": {"pscr": 0.03 + at / 1000, "delta_rho.mean": None if at == 4 else 0.02 - at / 2000},
                "rank": rank,
            }
            for at, rank in enumerate((2.5, 1.0, 2.5, 4.0, 5.0))
        ],
    }


def attacks(name: str = "income") -> Document:
    """Parts of a report about attacks: one of everybody, one by secret field, and advice."""

    def counted(found: int, tries: int = 200) -> Document:
        rate = found / tries
        return {
            "successes": found,
            "tries": tries,
            "rate": rate,
            "low": max(0.0, rate - 0.05),
            "high": min(1.0, rate + 0.05),
        }

    linked = {
        "attack": counted(110),
        "baseline": counted(2),
        "control": counted(1),
        "risk": {"value": 0.548, "low": 0.48, "high": 0.61},
        "details": {},
    }
    learnt = {"attack": counted(44), "details": {}, "note": "It learns numbers within 5 %."}
    states = [
        {"attack": "linkability", "state": "high", "value": 0.548, "low": 0.48, "high": 0.61},
        {"attack": "inference", "field": name, "state": "elevated", "value": 0.22, "low": 0.17, "high": 0.27},
    ]
    reasons = [
        "Linkability succeeds in 55.0 % of 200 attempts.",
        f"Inference of '{name}' succeeds in 22.0 %.",
    ]
    now = {"change": {}, "state": "high", "risk": 0.5, "attack": "linkability", "low": 0.4, "high": 0.6}
    best = now | {"change": {"rate": 1.0, "swap_fields": [name, "age"]}, "state": "low", "risk": 0.01}
    refused = {"change": {"min_group_size": 8}, "error": "the groups are too small"}
    return {
        "attacks": {"linkability": linked, "inference": {name: learnt}},
        "control": "sister",
        "sampled": {"attacks": 200},
        "verdict": {
            "state": "high",
            "reasons": reasons[:1],
            "attacks": [
                each | {"against": "control", "reason": reason}
                for each, reason in zip(states, reasons, strict=True)
            ],
            "thresholds": {
                "elevated": 0.05,
                "high": 0.09,
                "attacks": {"membership": {"elevated": 1.0, "high": 1.0}},
            },
        },
        "advice": {
            "sentence": f"With rate = 1.0 and swap_fields = {name}, age the risk is 0.010 (low).",
            "parameters": best["change"],
            "now": now,
            "best": best,
            "tries": [refused, best],
            "rows": 2700,
            "control_rows": 300,
        },
    }
