"""How near sweeps of whole questions come to the optimum: `python -m results.benchmarks.sweeps_best`.

Each question is swept as it stands, a million variants, with some seeds. The optimum is that of continuous hardware, proved by
itself to 0.009 %. Writes `results/reference/sweeps_best.txt`.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import hwopt

OUT = Path(__file__).parents[2] / "results" / "reference" / "sweeps_best.txt"

SAMPLES, SEEDS = 1_000_000, (0, 1)

QUESTIONS = {
    "train_cost": {},
    "train_time": {},
    "train_energy": {},
    "carbon": {},
    "tokens_per_dollar": {},
    "serve_cost": {},
    "train_cost, llama3.1-405b on b200": {"chip": "b200"},
    "train_time, gpt3-175b on mi300x": {
        "chip": "mi300x",
        "workload": "gpt3-175b",
        "global_batch": 2048.0,
        "sequence_length": 8192.0,
    },
}
"""Fields of each question beside its defaults."""


def line(title: str, fields: dict[str, str]) -> str:
    """A question swept with each seed, beside its optimum."""
    objective = hwopt.objective(title.partition(",")[0], **fields)
    shown, feasible, seconds = [], [], []
    optimum = hwopt.optimize(objective, regime="relaxed")
    for seed in SEEDS:
        begun = time.perf_counter()
        swept = hwopt.sweep(objective, SAMPLES, rows=False, seed=seed)
        seconds.append(time.perf_counter() - begun)
        best = float(np.ravel(swept[f"best_{swept.attrs['objective']}"].values)[0])
        held = swept.attrs["best_are"] == "feasible"
        shown.append(f"{100 * (best / optimum.objective - 1.0):+8.2f} %" if held else "    none  ")
        feasible.append(int(swept["feasible_count"]) / SAMPLES)
    gap = "not proved" if optimum.certificate.gap is None else f"{optimum.certificate.gap:.1e}"
    times = " ".join(f"{each:5.0f}" for each in seconds)
    return f"{title:36} {''.join(shown)}   {gap:>10}   {100 * np.mean(feasible):5.1f} %   {times}"


def main() -> None:
    seeds = " ".join(f"seed {seed:<4}" for seed in SEEDS)
    lines = [
        f"{SAMPLES:,} variants of each question, continuous hardware; best variant over the proved optimum",
        "",
        f"{'question':36}     {seeds}     its gap   feasible   seconds by seed",
    ]
    for title, fields in QUESTIONS.items():
        lines.append(line(title, fields))
        print(lines[-1], flush=True)
    OUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
