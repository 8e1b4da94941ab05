"""Random questions, from eight chips to a gigawatt, and the rules of purchase that their answers break. From the top of a checkout:

    python -m results.benchmarks.plausible            # writes results/reference/plausible.txt; an hour
    python -m results.benchmarks.plausible 7 20       # prints the first 20 questions of seed 7
    python -m results.benchmarks.plausible --timed    # the same 60 without rules, in any older checkout too

Chips, objectives, models and budgets are drawn by a seed. The rules are those of `tests/plausibility`, which do not import hwopt.
CPU seconds are of the whole command, its helpers included, on one machine and day.
"""

from __future__ import annotations

import json
import random
import resource
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

OUT = Path(__file__).parents[1] / "reference" / "plausible.txt"
DATA = Path(__file__).parents[2] / "hwopt" / "data"
SEED, COUNT, SECONDS = 65, 60, 300
MODELS = {
    "small": ("llama3.1-8b", "mistral-7b", "gpt-oss-20b", "qwen3-30b-a3b"),
    "middle": ("llama3.1-70b", "gpt-oss-120b", "mixtral-8x22b", "qwen3-32b"),
    "large": ("llama3.1-405b", "deepseek-v3", "gpt3-175b", "kimi-k2"),
}
TRAIN = ("train_cost", "train_time", "train_energy", "carbon", "tokens_per_dollar")
SERVE = ("serve_cost", "serve_latency")
EXITS = {1: "infeasible", 2: "refused", 3: "fault"}


def drawn(chip: str, dice: random.Random) -> list[str]:
    """Return a command line that asks about a chip."""
    kind = dice.choice(("plan", "train", "train", "serve"))
    power_w = 10 ** dice.uniform(4.3, 9.0)
    size = "small" if power_w < 1e6 else dice.choice(("small", "middle")) if power_w < 1e7 else dice.choice((*MODELS,))
    model = dice.choice(MODELS[size])
    if kind == "plan":
        model, chips = dice.choice(MODELS["small"]), 8 * 2 ** dice.randrange(7)
        return ["plan", "--workload", model, "--chip", chip, "--chips", str(chips)]
    asked = ["--workload", model, "--chip", chip, "--power-budget-w", f"{power_w:.2g}W", "--capex-budget-usd", "none"]
    if kind == "serve":
        return ["optimize", dice.choice(SERVE), *asked, "--ttft-budget-s", dice.choice(("0.5s", "1s", "3s"))]
    objective = dice.choice(TRAIN)
    days = "none" if objective == "train_time" else f"{dice.randrange(30, 150)}d"
    tokens = f"{10 ** dice.uniform(10.5, 12.5 if size == 'small' else 13.2):.2g}"
    return ["optimize", objective, *asked, "--time-budget-s", days, "--tokens", tokens]


def precision(chip: str) -> list[str]:
    """Return the flag of the number format in which a chip computes, none for the defaults: bf16, and fp8 of services."""
    native = tomllib.loads((DATA / "chips" / f"{chip}.toml").read_text())["native"]
    return [] if {"bf16", "fp8"} <= {*native} else ["--precision", "bf16" if "bf16" in native else "fp16"]


def questions(seed: int, count: int) -> list[list[str]]:
    """Return command lines; every chip of the catalog comes once before any comes twice."""
    dice = random.Random(seed)
    chips = sorted(path.stem for path in (DATA / "chips").glob("*.toml"))
    order = [chip for _ in range(-(-count // len(chips))) for chip in dice.sample(chips, len(chips))]
    return [[*drawn(chip, dice), *precision(chip)] for chip in order[:count]]


def answered(line: list[str]) -> tuple[dict, float, int, str]:
    """Ask a question in a process of its own: its JSON, CPU seconds, exit code and error text."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    limit = ["--seconds", str(SECONDS)] if line[0] == "optimize" else []
    done = subprocess.run(
        [sys.executable, "-m", "hwopt", *line, *limit, "--json"], capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout or "{}"), cpu_s, done.returncode, done.stderr.strip()


def table(lines: list[list[str]], rules: bool) -> str:
    """Ask all, and return a table with a summary below it."""
    rows, seconds = [], []
    for line in lines:
        answer, cpu_s, code, error = answered(line)
        certificate = answer.get("certificate") or {}
        gap = certificate.get("gap")
        words = [f"{cpu_s:7.1f}", f"{'-' if gap is None else format(gap, '.1e'):>8}"]
        if "plan" in answer and code == 0:
            if rules:
                from tests.plausibility.rules import broken

                words.append(", ".join(broken(answer)) or "kept")
            words.append(answer.get("verdict") or answer["plan"].get("text", ""))
        else:
            words.append(f"{EXITS.get(code, f'exit {code}')}: {(error or answer.get('message', '')).partition('.')[0]}")
        seconds.append(cpu_s)
        rows.append("  ".join((*words, "|", " ".join(line))))
        print(rows[-1], flush=True)
    slow = sorted(zip(seconds, lines, strict=True), reverse=True)[:5]
    rows.append(f"\nmedian {statistics.median(seconds):.1f} CPU s; the five slowest:")
    rows.extend(f"{cpu_s:7.1f}  {' '.join(line)}" for cpu_s, line in slow)
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:] if each.isdigit()]
    seed, count = (*numbers, *(SEED, COUNT)[len(numbers) :])
    text = table(questions(seed, count), rules="--timed" not in sys.argv)
    if not sys.argv[1:]:
        OUT.write_text(text, encoding="utf-8")
    print(text.split("\n\n")[-1])
