"""Ten questions of drawn chips, each searched over all plans and parts: answers, gaps and seconds. From the top of a checkout:

    python -m results.benchmarks.drawn              # writes results/reference/drawn.txt; twenty minutes
    python -m results.benchmarks.drawn 0 3          # prints some of them

Each is asked as `hwopt optimize --design` asks it: no box is narrowed; area, SRAM, stacks, dies, spare units, lanes and clock of
the chip are free beside NICs, racks, domains and the whole plan. Seconds are of one machine and day: the last line has those of the
default question in the same run.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from hwopt.units import pretty
from results.benchmarks.experts import HEAD, answered

OUT = Path(__file__).parents[2] / "results" / "reference" / "drawn.txt"

DAYS = 86400.0
AT_COST = {"design": "h100-sxm", "prices": "at-cost"}
STEP = {"sequence_length": 8192.0, "global_batch": 2048.0}
EXPERTS = {"tokens": 10e12, "sequence_length": 4096.0, "global_batch": 4096.0, "time_budget_s": 60 * DAYS}
QUESTIONS = (
    ("train_cost", AT_COST | STEP | {"workload": "llama3.1-70b"}),
    ("train_cost", AT_COST | STEP | {"workload": "llama3.1-70b", "technology": "3nm"}),
    ("train_cost", AT_COST | STEP | {"workload": "gpt3-175b", "tokens": 300e9}),
    ("train_cost", AT_COST),
    ("train_time", AT_COST | STEP | {"workload": "llama3.1-70b"}),
    ("carbon", AT_COST | STEP | {"workload": "llama3.1-70b"}),
    ("train_cost", AT_COST | EXPERTS | {"workload": "gpt-oss-120b"}),
    ("train_cost", AT_COST | EXPERTS | {"workload": "qwen3-30b-a3b"}),
    ("serve_cost", AT_COST),
    ("serve_cost", AT_COST | {"workload": "llama3.1-8b"}),
)
SHOWN = ("chips", "tp", "cp", "pp", "compute_area_m2", "dies", "hbm_stacks", "sram_bytes", "clock_hz")


def row(objective: str, fields: dict) -> str:
    """One question of the table; seconds by the clock."""
    answer, words = answered(objective, fields, time.perf_counter)
    asked = f"{fields.get('workload', '')} {fields.get('technology', '')}".strip() or "as it is by default"
    shown = {name: answer.design[name] for name in SHOWN if name in answer.design}
    design = ", ".join(f"{name} {pretty(each.value, each.unit, 3)}" for name, each in shown.items())
    return f"{objective:12}{asked:20}{words}  {design}"


def table(questions) -> str:
    """Rows as text."""
    head = f"{'':12}{'':20}{HEAD}"
    return "\n".join((head, *(row(*each) for each in questions))) + "\n"


if __name__ == "__main__":
    some = [QUESTIONS[int(number)] for number in sys.argv[1:]]
    text = table(some or QUESTIONS)
    if not some:
        text += "\nby the same clock, the default question:\n" + row("train_cost", {})
        OUT.write_text(f"{text}\n", encoding="utf-8")
    print(text)
