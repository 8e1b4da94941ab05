"""Ten questions of models with experts, each proved over the whole lattice: answers, gaps and seconds. From the top of a checkout:

    python -m results.benchmarks.experts            # writes results/reference/experts.txt; ten minutes

Each is asked as `hwopt optimize` asks it: no box is narrowed, context and expert parallelism, sharding,
recomputation, offloading and hardware are free.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import hwopt
from hwopt.solver.solution import Solution
from hwopt.units import pretty
from hwopt.validation import question_of

OUT = Path(__file__).parents[2] / "results" / "reference" / "experts.txt"

DAYS = 86400.0
LARGE = {"workload": "deepseek-v3", "tokens": 14.8e12, "sequence_length": 4096.0, "global_batch": 15360.0}
STEP = {"sequence_length": 8192.0, "global_batch": 2048.0}
MIDDLE = {"tokens": 10e12, "sequence_length": 4096.0, "global_batch": 4096.0, "time_budget_s": 60 * DAYS}
QUESTIONS = (
    ("train_cost", LARGE | {"chip": "h800", "time_budget_s": 60 * DAYS}),
    ("train_cost", LARGE | {"chip": "h200", "time_budget_s": 60 * DAYS}),
    ("train_time", LARGE | {"chip": "gb200"}),
    ("tokens_per_dollar", STEP | {"workload": "deepseek-v3", "chip": "gb200"}),
    ("train_cost", MIDDLE | {"workload": "qwen3-235b-a22b", "chip": "h800"}),
    ("tokens_per_dollar", STEP | {"workload": "qwen3-235b-a22b", "chip": "mi355x"}),
    ("train_cost", MIDDLE | {"workload": "qwen3-30b-a3b", "chip": "mi355x"}),
    ("train_cost", MIDDLE | {"workload": "gpt-oss-120b", "chip": "h200"}),
    ("train_cost", MIDDLE | {"workload": "gpt-oss-120b", "chip": "gb200"}),
    ("serve_cost", {"workload": "gpt-oss-120b", "chip": "h200"}),
)
HEAD = f"{'':18}  {'':28}{'programmes':>10}{'s':>7}"
"""Of what `answered` says."""

SHOWN = ("chips", "tp", "cp", "pp", "ep", "zero", "recompute")


def answered(objective: str, fields: dict, clock: Callable[[], float]) -> tuple[Solution, str]:
    """One question: its answer; and what it comes to, what is proved of it, in how many programmes, and in which time by a
    clock, in words.
    """
    began = clock()
    answer = hwopt.optimize(question_of(hwopt.objective(objective, **fields)), explain=False)
    seconds, gap = clock() - began, answer.certificate.gap
    ended = answer.outcome.name.replace("_", " ")
    proved = ended if gap is None else f"{ended}, gap {100 * gap:.2g} %"
    value = pretty(answer.objective, answer.problem.objective.unit, 5)
    programmes = re.search(r"([\d,]+) convex programmes", answer.certificate.scope)
    return answer, f"{value:>18}  {proved:28}{programmes[1] if programmes else '-':>10}{seconds:7.0f}"


def row(objective: str, fields: dict) -> str:
    """One question of the table."""
    answer, words = answered(objective, fields, time.perf_counter)
    design = ", ".join(f"{name} {answer.design[name].value:,.0f}" for name in SHOWN if name in answer.design)
    return f"{objective:18}{fields['workload']:16}{fields['chip']:8}{words}  {design}"


def table() -> str:
    """The whole table as text."""
    head = f"{'':18}{'':16}{'':8}{HEAD}"
    return "\n".join((head, *(row(*each) for each in QUESTIONS))) + "\n"


if __name__ == "__main__":
    text = table()
    OUT.write_text(text, encoding="utf-8")
    print(text)
