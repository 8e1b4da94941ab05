"""Model families of 2026, whose layers are of several kinds: parameters, and certified clusters to train and to serve them.

    python -m results.benchmarks.families            # from the top of a checkout; ten minutes

Each question is asked as `hwopt optimize` asks it: plan, software and hardware as sold are free.
"""

from __future__ import annotations

import hwopt
from hwopt import catalog
from hwopt.solver.solution import Solution
from hwopt.units import pretty
from hwopt.validation import question_of
from hwopt.workload.transformer import active_parameters, shapes_of_kinds, total_parameters

FAMILIES = (
    "qwen3.5-122b-a10b", "qwen3.6-35b-a3b", "nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b", "deepseek-v3.2", "minimax-m3",
    "gemma4-26b-a4b", "step-3.7-flash", "kimi-linear-48b-a3b",
)  # fmt: skip
TRAINING = {
    "tokens": 1e12,
    "sequence_length": 4096.0,
    "global_batch": 2048.0,
    "time_budget_s": 60 * 86400.0,
    "chip": "h200",
}
SERVING = {"chip": "h200"}
SHOWN = ("chips", "tp", "pp", "ep")


def proved(answer: Solution) -> str:
    """The value, what is proved of it, and the main degrees of the plan."""
    gap = answer.certificate.gap
    unit = answer.problem.objective.unit
    per_token = unit == "USD/token"
    value = f"{1e6 * answer.objective:.4g} $ per million tokens" if per_token else pretty(answer.objective, unit, 4)
    shown = " ".join(f"{name} {answer.design[name].value:,.0f}" for name in SHOWN if name in answer.design)
    return f"{value:>28}  gap {100 * gap:.2g} %, {shown}" if gap is not None else f"{value:>28}  {answer.outcome.name}"


def main() -> None:
    print("Parameters in billions, of the model as hwopt counts it and of its card; certified answers.\n")
    print(f"{'family':<28}{'kinds':>5}{'total':>9}{'card':>8}{'active':>9}{'card':>8}")
    for name in FAMILIES:
        model, entry = catalog.transformer(name), catalog.record("workloads", name)
        counts = float(total_parameters(model)), float(active_parameters(model))
        cards = entry.si("parameters", float("nan")), entry.si("active_parameters", float("nan"))
        said = (f"{1e-9 * card:.3g}" if card == card else "-" for card in cards)
        billions = "".join(f"{1e-9 * ours:9.2f}{card:>8}" for ours, card in zip(counts, said, strict=True))
        print(f"{name:<28}{len(shapes_of_kinds(model)):>5}{billions}")
    for objective, fields in (("train_cost", TRAINING), ("serve_cost", SERVING)):
        said = ", ".join(
            f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in fields.items()
        )
        print(f"\n{objective}: {said}")
        for name in FAMILIES:
            question = question_of(hwopt.objective(objective, workload=name, **fields))
            print(f"  {name:<28}{proved(hwopt.optimize(question, explain=False))}", flush=True)


if __name__ == "__main__":
    main()
