"""Forty-nine questions and what they answer: what a change of the house must not change.

python -m results.benchmarks.questions                        every answer, a line of JSON each
python -m results.benchmarks.questions --into FOLDER          a file each
python -m results.benchmarks.questions --into FOLDER NAME     some of them
python -m results.benchmarks.questions --into FOLDER --tables A.csv B.csv    `hwopt validate` of tables instead
python -m results.benchmarks.questions --compare A B          what differs between two such folders, named mends apart

`results/reference/questions.json` holds the answers; `test_questions.py` asks again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
NOW = ROOT / "results" / "reference" / "questions.json"

_405B = "--workload llama3.1-405b --chip h100-sxm --chips 16384"
_70B = "--workload llama3.1-70b --chip h100-sxm"
_SERVE = "--precision fp8 --input-tokens 2048 --output-tokens 512"

QUESTIONS = {
    "estimate_405b": f"estimate {_405B} --plan tp=8,pp=16,vpp=8,zero=2",
    "estimate_in_memory": f"estimate {_405B} --plan tp=8,pp=16,vpp=8,zero=2 --recovery in-memory",
    "estimate_searched": "estimate --workload llama3.1-8b --chip h100-sxm --chips 8",
    "estimate_fp8_b200": "estimate --workload llama3-70b --chip b200 --chips 512 --precision fp8 --plan tp=4,pp=2,vpp=8",
    "estimate_moe": "estimate --workload deepseek-v3 --chip h800 --chips 2048 --precision fp8 --global-batch 15360 --seq-len 4096 "
    "--plan pp=16,ep=64,mbs=1",
    "estimate_recompute": "estimate --workload gpt3-175b --chip a100-80 --chips 1024 --stack megatron-2021 "
    "--plan tp=8,pp=16,recompute=full",
    "estimate_context": "estimate --workload llama3.1-70b --chip h200 --chips 256 --seq-len 131072 --global-batch 64 "
    "--plan tp=8,cp=8,pp=2,vpp=4",
    "estimate_tpu": "estimate --workload llama3.1-70b --chip tpu-v5p --chips 512 --plan tp=4,zero=3,mbs=2",
    "estimate_fabric": f"estimate {_405B} --plan tp=8,pp=16,zero=2 --fabric ndr-rail --latency-tail-s 30e-6 --bandwidth-spread 0.3",
    "estimate_sites": f"estimate {_405B} --plan tp=8,pp=16,zero=2,local_steps=100 --sites 2 --lines metro",
    "estimate_pool": "estimate --workload gpt3-175b --chip h100-sxm --chips 256 --pool cxl-ddr5 "
    "--plan tp=8,pp=4,optimizer_offloaded=1,activations_offloaded=0.5",
    "estimate_too_big": "estimate --workload llama3.1-405b --chip a100-40 --chips 64 --plan tp=8",
    "estimate_throttled": "estimate --workload llama3.1-70b --chip gb300 --chips 256 --cooling air --plan tp=4,pp=2",
    "estimate_literature": f"estimate {_405B} --plan tp=8,pp=16,vpp=8 --constants literature --prices rented",
    "estimate_speed_of_light": f"estimate {_405B} --plan tp=8,pp=16,vpp=8 --constants speed-of-light --site norway",
    "serve_70b": f"estimate {_70B} --chips 8 --mode serve {_SERVE} --plan tp=8,batch=64",
    "serve_rate": f"estimate {_70B} --chips 64 --mode serve {_SERVE} --requests-per-s 20 --plan tp=8,batch=64",
    "serve_prefill": f"estimate {_70B} --chips 8 --mode prefill {_SERVE} --plan tp=8,batch=4",
    "serve_decode": "estimate --workload deepseek-v3 --chip b200 --chips 32 --mode decode --precision fp8 --drafted-tokens 1 "
    "--plan ep=32,expert_tp=1,batch=32",
    "serve_apart": f"estimate {_70B} --chips 24 --mode serve {_SERVE} --plan tp=8,batch=64 --prefill-plan tp=4,batch=1 "
    "--prefill-chips 8",
    "serve_searched": f"estimate {_70B} --chips 8 --mode serve {_SERVE}",
    "plan_405b": f"plan {_405B}",
    "plan_moe": "plan --workload mixtral-8x22b --chip h200 --chips 256 --objective run_cost_usd --top 8",
    "plan_offloaded": "plan --workload gpt3-175b --chip a100-80 --chips 128 --any-software "
    "--hold optimizer_offloaded=1,activations_offloaded=1",
    "plan_too_small": "plan --workload llama3.1-405b --chip h100-sxm --chips 16",
    "plan_megatron": "plan --workload llama3.1-70b --chip h100-sxm --chips 512 --export megatron",
    "plan_serve": f"plan {_70B} --chips 16 --mode serve {_SERVE} --tpot-limit-s 0.03",
    "plan_apart": f"plan {_70B} --chips 16 --mode serve {_SERVE} --ttft-limit-s 0.5 --tpot-limit-s 0.03 --disaggregate",
    "train_cost": "optimize",
    "train_other_stacks": "optimize train_cost --free hbm+storage --memory hbm3-12-high-6400 --recovery in-memory",
    "train_with_spares": "optimize train_cost --recovery hot-spares --prices rented",
    "train_time": "optimize train_time --chip b200 --precision fp8 --workload llama3.1-70b --global-batch 2048",
    "train_energy": "optimize train_energy --chip h200 --site norway --workload gpt3-175b --tokens 3e11 --sequence-length 2048 "
    "--global-batch 1536",
    "carbon": "optimize carbon --workload llama3.1-70b --global-batch 2048",
    "train_frozen": "optimize train_cost --freeze chip,network --bounds tp=8:8 --workload llama3.1-70b --global-batch 2048",
    "train_moe": "optimize train_cost --workload mixtral-8x7b --chip h200 --tokens 2e12 --bounds tp=1:8,pp=1:8 "
    "--global-batch 2048 --seq-len 8192",
    "train_infeasible": "optimize train_cost --power-budget-w 20e6 --bounds tp=8:8,pp=4:16",
    "train_redesigned": "optimize train_cost --free hbm+links --workload llama3.1-70b --bounds tp=8:8,pp=1:4 --global-batch 2048",
    "train_relaxed": "optimize train_cost --regime relaxed --workload llama3.1-70b --global-batch 2048",
    "train_local": "optimize train_cost --regime local --workload llama3.1-70b --global-batch 2048",
    "loss_under_budget": "optimize loss_under_budget",
    "drawn_chip": "optimize train_cost --design h100-sxm --prices at-cost --workload llama3.1-70b --global-batch 2048",
    "serve_cost": "optimize serve_cost",
    "serve_latency_apart": "optimize serve_latency --split apart --requests-per-s 50",
    "train_and_serve": "optimize train_and_serve --global-batch 2048",
    "sensitivity": "sensitivity train_cost --workload llama3.1-70b --top 40 --global-batch 2048",
    "sweep_train": "sweep train_time --samples 65536 --choices chip=h100-sxm|b200 --no-rows",
    "sweep_serve": "sweep serve_cost --samples 65536 --no-rows",
    "sources": "sources train_cost --chip b200 --fabric ndr-rail",
}  # fmt: skip
"""Name -> the command line after `hwopt`, `--json` left out."""


class Difference(NamedTuple):
    """One place at which two answers differ."""

    question: str
    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.question}: {self.path}: {_short(self.before)} -> {_short(self.after)}"


class Mend(NamedTuple):
    """A difference that is meant: where it may stand, and why."""

    question: str  # regular expression, as the next one
    path: str
    why: str
    within: float = math.inf  # most by which a headline figure may change, relative


HEADLINES = re.compile(r"^\.(exit|feasible|feasible_count|possible|objective\.value)$")
"""What an answer comes to: a mend that excuses the design found states how far these may move."""


MENDS: tuple[Mend, ...] = ()
"""What a change alters on purpose, named while it is under way; none since machines are bought in whole units."""

NOT_COMPARED = frozenset({"evidence"})
"""Keys that are left out: counts of measured rows, which grow with every table (`results.benchmarks.evidence`)."""

EXACT = 1e-9
"""Relative difference of numbers that no search stands behind."""

WITHIN = {"optimize": 1e-4, "sensitivity": 1e-4, "sweep": 1e-6}
"""That of answers of a search, the gap to which it proves; of sweeps, which are single precision."""


def answer(command: str) -> Any:
    """The JSON of a question, asked in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "hwopt.cli", *shlex.split(command), "--json"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"hwopt {command} ended with {done.returncode}")
    return {"exit": done.returncode} | json.loads(done.stdout or "{}")


def lines(answers: dict[str, Any]) -> str:
    """Answers as one JSON object, a line each."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in answers.items()) + "\n}"


def differences(name: str, before: Any, after: Any, mends: Sequence[Mend] = MENDS) -> Iterator[Difference]:
    """Where two answers to a question differ by more than its kind allows, named mends left out."""
    within = WITHIN.get(QUESTIONS.get(name, "").partition(" ")[0], EXACT)
    for each in _walk(name, "", before, after, within):
        if not any(_excuses(mend, each) for mend in mends):
            yield each


def _excuses(mend: Mend, seen: Difference) -> bool:
    named = re.search(mend.question, seen.question) and re.search(mend.path, seen.path)
    if not named or math.isinf(mend.within) or not HEADLINES.search(seen.path):
        return bool(named)
    return _same(seen.before, seen.after, mend.within)


def _walk(name: str, path: str, before: Any, after: Any, within: float) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys(key for key in (*before, *after) if key not in NOT_COMPARED):
            yield from _walk(name, f"{path}.{key}", before.get(key, "absent"), after.get(key, "absent"), within)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _walk(name, f"{path}[{i}]", one, other, within)
    elif not _same(before, after, within):
        yield Difference(name, path, before, after)


def _same(before: Any, after: Any, within: float) -> bool:
    if isinstance(before, (int, float)) and isinstance(after, (int, float)):
        return math.isclose(before, after, rel_tol=within, abs_tol=within)
    return before == after


def _short(value: Any, most: int = 90) -> str:
    text = json.dumps(value)
    return text if len(text) <= most else f"{text[:most]}..."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--into", type=Path)
    parser.add_argument("--tables", nargs="+", type=Path, metavar="CSV", default=())
    parser.add_argument("--compare", nargs=2, type=Path, metavar="FOLDER")
    options = parser.parse_args()
    tables = {each.stem: f"validate {shlex.quote(str(each.resolve()))}" for each in options.tables}
    asked = tables or {name: QUESTIONS[name] for name in options.names or QUESTIONS}
    if options.into:
        options.into.mkdir(parents=True, exist_ok=True)
        for name, command in asked.items():
            (options.into / f"{name}.json").write_text(json.dumps(answer(command), indent=1) + "\n")
            print(name, flush=True)
    elif not options.compare:
        print(lines({name: answer(command) for name, command in asked.items()}))
    if options.compare:
        for name in options.names or sorted(each.stem for each in options.compare[0].glob("*.json")):
            before, after = (json.loads((folder / f"{name}.json").read_text()) for folder in options.compare)
            for each in differences(name, before, after):
                print(each)


if __name__ == "__main__":
    main()
