"""Pairs of chips for a service, and pairs of measured runs that differ in a word of the run. From the top of a checkout:

    python -m results.benchmarks.pairs          # writes results/reference/pairs.txt; ten minutes
    python -m results.benchmarks.pairs --words  # writes only the pairs of runs again; seconds

Pairs of chips are solved in one proof and each alone, and with limits on a percentile. All numbers that a row does not name are as
`hwopt optimize serve_cost` has them.

Each two rows of `word_pairs.csv` are runs of one source, of the same model, plan and chips. They differ in the words that the table
names (`hwopt.run_words`). No constant of a word was fitted to them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import hwopt
from hwopt import catalog
from hwopt.calibration.validation.score import Scored
from hwopt.calibration.validation.validate import score
from hwopt.run_words import BY_NAME
from hwopt.solver.options import SEARCH
from hwopt.solver.solution import Solution
from hwopt.units import pretty
from objectives.serve_cost import ServeCost

OUT = Path(__file__).parents[2] / "results" / "reference" / "pairs.txt"

RUNS = Path(__file__).parent / "word_pairs.csv"

WORDS = "Pairs of measured runs that differ in a word of the run"
"""First line of the second table."""

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


COLUMNS = {name: "host_graphs" if name == "cuda_graphs" else name for name in BY_NAME if name != "routing"}
"""Word of a run -> field of a row."""


def seconds_of(run: Scored) -> float:
    """Measured step time in an arbitrary unit: pairs state the same metric."""
    value = run.row.measured_value
    return 1.0 / value if run.metric.rate else value


def word_lines(runs: Sequence[Scored]) -> list[str]:
    """A line for each pair: the words that change, the runs, and how the step time changes."""
    lines, right = [], 0
    for one, other in zip(runs[::2], runs[1::2], strict=True):
        told = {name: tuple(getattr(each.row, column) for each in (one, other)) for name, column in COLUMNS.items()}
        changed = [f"{name} {a or '-'} -> {b or '-'}" for name, (a, b) in told.items() if a != b]
        measured = seconds_of(other) / seconds_of(one)
        predicted = other.prediction.step_s / one.prediction.step_s
        same = (measured - 1.0) * (predicted - 1.0) > 0.0
        right += same
        run = f"{one.row.model_name[:18]}, {one.row.num_gpus} {one.accelerator}, {one.stack}"
        errors = f"{one.time_ratio:9.2f}{other.time_ratio:7.2f}"
        lines.append(
            f"{'; '.join(changed):82}{run:58}{measured:9.2f}{predicted:10.2f}  {'yes' if same else 'no':5}{errors}"
        )
    return [*lines, "", f"direction as measured: {right} of {len(lines)}"]


def word_table() -> str:
    """The table of pairs of runs as text."""
    runs = score(RUNS, catalog.calibration(catalog.CALIBRATED)).scored
    head = f"{'words':82}{'run':58}{'measured':>9}{'predicted':>10}  same   first  other"
    notes = (
        "measured, predicted: step time of the second run over that of the first. same: whether both rise or both fall.",
        "first, other: predicted over measured step time of each run, with constants fitted without its source.",
        "deepep on b300, and on h100-sxm: clusters of AWS. Their network carries DeepEP's interface by other transports (UCCL, "
        "NVSHMEM on libfabric).",
        "With them an exchange of few tokens is slower than NCCL's all-to-all. The model has no such transport.",
    )
    return "\n".join([WORDS, "", head, *word_lines(runs), "", *notes]) + "\n"


if __name__ == "__main__":
    chips = OUT.read_text(encoding="utf-8").partition(f"\n{WORDS}")[0] if "--words" in sys.argv else table()
    text = f"{chips}\n{word_table()}"
    OUT.write_text(text, encoding="utf-8")
    print(text, end="")
