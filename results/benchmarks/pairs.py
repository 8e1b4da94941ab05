"""Pairs of chips for a service, in one proof and each alone; and limits on a percentile on a pair. From the top of a checkout:

    python -m results.benchmarks.pairs  # writes results/reference/pairs.txt; ten minutes

All numbers that a row does not name are as `hwopt optimize serve_cost` has them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import hwopt
from hwopt.solver.options import SEARCH
from hwopt.solver.solution import Solution
from hwopt.units import pretty
from objectives.serve_cost import ServeCost

OUT = Path(__file__).parents[2] / "results" / "reference" / "pairs.txt"

PROMPTS, ANSWERS = ["h100-sxm", "b200"], ["h200", "h20", "gb200"]
QUESTION = ServeCost(split="disaggregated")
LIMITS_S = (0.3, 0.4, 0.6, 1.0)


def timed(question: ServeCost, choices: dict[str, list[str]] | None = None) -> tuple[Solution, float]:
    """An answer and its seconds by the clock."""
    began = time.perf_counter()
    answer = hwopt.optimize(question, choices=choices, explain=False)
    return answer, time.perf_counter() - began


def cells(answer: Solution, seconds: float) -> str:
    """What a row says of an answer: objective of a million tokens, gap, programmes, seconds, chips of each group."""
    if not answer.feasible:
        return f"no design{'':36}{seconds:7.0f}"
    gap = 100 * (answer.certificate.gap or 0.0)
    words = answer.certificate.scope.rpartition("; ")[2].split(" ")[0]
    programmes = words if answer.outcome.name == "proved" else f"{SEARCH.tree.nodes:,} and more"
    chips = f"{float(answer.plan.prefill.chips):,.0f} + {float(answer.plan.decode.chips):,.0f}"
    price = f"{1e6 * answer.objective:.5f} $"
    return f"{price:>12}{gap:9.3f} %{programmes:>18}{seconds:7.0f}   {chips}"


HEAD = f"{'a million tokens':>16}{'gap':>7}{'programmes':>20}{'s':>7}   chips"


def table() -> str:
    """The whole table as text."""
    together, seconds = timed(QUESTION, {"chip": PROMPTS, "decode_chip": ANSWERS})
    fates = {tuple(value for _, value in each.chosen): each for each in together.choices}
    unit = together.problem.objective.unit
    lines = [
        f"{together.problem.question}; or another pair",
        "",
        f"{len(fates)} pairs in one proof: {', '.join(together.chosen.values())}, {cells(together, seconds)}",
        "",
        f"{'prompts':12}{'answers':10}{HEAD:60}  in one proof",
    ]
    for chip in PROMPTS:
        for other in ANSWERS:
            answer, took = timed(replace(QUESTION, chip=chip, decode_chip=other))
            fate = fates[chip, other]
            bound = "" if fate.lower_bound is None else f", none below {pretty(fate.lower_bound, unit, 5)}"
            lines.append(f"{chip:12}{other:10}{cells(answer, took):64}  {fate.fate.value}{bound}")
    lines += ["", f"p99 of first tokens at most, h100-sxm and h200{'':3}{HEAD}"]
    for limit in LIMITS_S:
        answer, took = timed(replace(QUESTION, decode_chip="h200", ttft_p99_limit_s=limit))
        lines.append(f"{pretty(limit, 's'):49}{cells(answer, took)}")
    lines += [
        "",
        "s: by the clock, on two shared processors; whole units, all other numbers as `hwopt optimize serve_cost` has them",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = table()
    OUT.write_text(text, encoding="utf-8")
    print(text, end="")
