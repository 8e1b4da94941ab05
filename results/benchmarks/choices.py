"""All choices in one proof beside each of some solved alone: answers, bounds and seconds, in one run. From the top of a checkout:

    python -m results.benchmarks.choices            # writes results/reference/choices.txt; ten minutes

12 chips, 3 coolings and 3 fabrics of one question are searched together; then the nine branches of the chip that won, and the
winner's cooling and fabric on every other chip, each alone.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import hwopt
from hwopt.solver.solution import Solution
from hwopt.units import pretty

OUT = Path(__file__).parents[2] / "results" / "reference" / "choices.txt"

CHOICES = {
    "chip": ["h100-sxm", "h200", "b200", "b300", "gb200", "gb300", "mi300x", "mi325x", "mi355x", "tpu-v5p", "trainium2", "gaudi3"],
    "cooling": ["air", "direct-liquid", "immersion-1p"],
    "fabric": ["ndr-rail", "roce-400-fat-tree", "dragonfly-400"],
}  # fmt: skip

QUESTION = hwopt.objective(
    "train_cost", workload="llama3.1-70b", tokens=15e12, global_batch=2048.0, time_budget_s=60 * 86400.0, power_budget_w=20e6,
    capex_budget_usd=1e12,
)  # fmt: skip


def timed(**settings: object) -> tuple[Solution, float]:
    """An answer and its seconds."""
    choices, fields = settings.pop("choices", None), settings
    began = time.perf_counter()
    answer = hwopt.optimize(dataclasses.replace(QUESTION, **fields), choices=choices, explain=False)  # pyright: ignore
    return answer, time.perf_counter() - began


def table() -> str:
    """The whole table as text."""
    timed()  # kernels are compiled
    together, seconds = timed(choices=CHOICES)
    best = together.chosen
    alone = [
        best | {"cooling": cooling, "fabric": fabric} for cooling in CHOICES["cooling"] for fabric in CHOICES["fabric"]
    ]
    alone += [best | {"chip": chip} for chip in CHOICES["chip"] if chip != best["chip"]]
    answers = {tuple(each.values()): timed(**each) for each in alone}
    slowest = max(took for _, took in answers.values())
    least = min(answer.objective for answer, _ in answers.values() if answer.feasible)
    unit = together.problem.objective.unit
    lines = [
        f"{together.problem.question}; or another chip, cooling or fabric",
        "",
        f"{len(together.choices)} combinations together: {pretty(together.objective, unit, 6)} ({', '.join(best.values())}), "
        f"gap {100 * (together.certificate.gap or 0.0):.2g} %, {seconds:.0f} s",
        f"{len(answers)} of them alone: the best {pretty(least, unit, 6)}, the slowest {slowest:.0f} s, all "
        f"{sum(took for _, took in answers.values()):.0f} s; together {seconds / slowest:.1f} times the slowest",
        "",
        f"{'chip':12}{'cooling':16}{'fabric':20}{'alone':>12}{'s':>6}   together",
    ]
    fates = {tuple(value for _, value in each.chosen): each for each in together.choices}
    for name, (answer, took) in answers.items():
        fate = fates[name]
        value = pretty(answer.objective, unit, 5) if answer.feasible else "no design"
        bound = "" if fate.lower_bound is None else f", none below {pretty(fate.lower_bound, unit, 5)}"
        lines.append(f"{name[0]:12}{name[1]:16}{name[2]:20}{value:>12}{took:6.0f}   {fate.fate.value}{bound}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = table()
    OUT.write_text(text, encoding="utf-8")
    print(text, end="")
