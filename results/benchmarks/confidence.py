"""Ten questions whose budgets are to hold together with a probability, and what draws say of it. From the top of a checkout:

    python -m results.benchmarks.confidence        # writes results/reference/confidence.txt; a quarter of an hour

Degrees and racks are in narrowed boxes, so that a search takes seconds; budgets are such that the best design without a promise
breaks them in some or most of the draws.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import hwopt
from hwopt.analysis.chance_constraints import confident
from hwopt.units import pretty

OUT = Path(__file__).parents[2] / "results" / "reference" / "confidence.txt"

CONFIDENCES = (0.5, 0.8, 0.95)

DAY = 86400.0

BOXES = {
    "tp": (4.0, 8.0), "pp": (1.0, 4.0), "virtual_stages": (1.0, 4.0), "micro_batch": (1.0, 2.0), "chips_per_rack": (8.0, 16.0),
}  # fmt: skip
SMALL = BOXES | {"tp": (1.0, 2.0), "pp": (1.0, 2.0), "virtual_stages": (1.0, 1.0)}
SERVING = {"tp": (1.0, 8.0), "pp": (1.0, 2.0), "chips_per_rack": (8.0, 32.0)}

LARGE: dict[str, Any] = {"workload": "llama3.1-70b", "tokens": 2e12}
LITTLE: dict[str, Any] = {"workload": "llama3.1-8b", "tokens": 2e12}

QUESTIONS: tuple[tuple[str, dict[str, Any], dict[str, tuple[float, float]]], ...] = (
    ("train_time", LARGE | {"chip": "h100-sxm", "capex_budget_usd": 1.2e8, "power_budget_w": 8e6}, BOXES),
    ("train_time", LARGE | {"chip": "h200", "capex_budget_usd": 2e8, "power_budget_w": 5e6}, BOXES),
    ("train_time", LARGE | {"chip": "tpu-v5p", "capex_budget_usd": 1e8, "power_budget_w": 4e6},
     BOXES | {"chips_per_rack": (64.0, 64.0)}),
    ("train_time", LITTLE | {"chip": "b200", "capex_budget_usd": 4e7, "power_budget_w": 3e6}, SMALL),
    ("train_cost", LARGE | {"chip": "h100-sxm", "time_budget_s": 40 * DAY, "capex_budget_usd": 8e7, "power_budget_w": 5e6}, BOXES),
    ("train_cost", LITTLE | {"chip": "h200", "time_budget_s": 20 * DAY, "capex_budget_usd": 4e7, "power_budget_w": 2e6}, SMALL),
    ("tokens_per_dollar", LARGE | {"chip": "h200", "time_budget_s": 30 * DAY, "power_budget_w": 4e6}, BOXES),
    ("train_energy", LARGE | {"chip": "h100-sxm", "time_budget_s": 30 * DAY, "capex_budget_usd": 1e8}, BOXES),
    ("carbon", LITTLE | {"chip": "h100-sxm", "time_budget_s": 15 * DAY, "capex_budget_usd": 4e7}, SMALL),
    ("serve_cost", {"workload": "llama3.1-70b", "chip": "h100-sxm"}, SERVING),
)  # fmt: skip


def rows(name: str, fields: dict[str, Any], boxes: dict[str, tuple[float, float]]) -> list[str]:
    """A question's lines: without a promise, then with each."""
    question = hwopt.objective(name, **fields)
    lines, objective = [question.problem().question], question.problem().objective
    for confidence in CONFIDENCES:
        began = time.perf_counter()
        answer = confident(question, confidence, bounds=boxes, explain=False)
        took = time.perf_counter() - began
        promise = answer.promise
        if promise is None:
            lines.append(
                f"  {100 * confidence:3.0f} %  {answer.outcome.value.split(',')[0].split(':')[0]}{took:37.0f} s"
            )
            continue
        if confidence == CONFIDENCES[0]:
            plain = promise.plain
            value = pretty(plain.objective, objective.unit, 6)
            lines.append(f"  none   {value:>14}          holds in {100 * plain.probability:5.1f} %")
        more = 100 * (answer.objective / promise.plain.objective - 1.0)
        tight = ", ".join(
            f"{each.name.split('_budget')[0]} {100 * (1 - each.tightened):.1f}" for each in promise.budgets
        )
        lines.append(
            f"  {100 * confidence:3.0f} %  {pretty(answer.objective, objective.unit, 6):>14} {more:+6.2f} %  holds in "
            f"{100 * promise.probability:5.1f} %  {promise.solves} searches, {took:3.0f} s  gap "
            f"{100 * (answer.certificate.gap or 0.0):.1g} %  tightened by %: {tight}"
        )
    return lines


def main() -> None:
    """Write the table, a question at a time."""
    lines = [
        "Budgets that hold together with a probability: objective, what the promise costs, and 100,000 draws of the exact model.",
        "The narrowed boxes of each question are in results/benchmarks/confidence.py; answers are proved for the tightened limits.",
    ]
    print("\n".join(lines), flush=True)
    for name, fields, boxes in QUESTIONS:
        lines += ["", *(each := rows(name, fields, boxes))]
        print("\n" + "\n".join(each), flush=True)
    OUT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
