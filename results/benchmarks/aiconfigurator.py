"""aiconfigurator beside hwopt on plans that serve, the same plan each. From the top of a checkout:

    AICONFIGURATOR=path/to/its/python python -m results.benchmarks.aiconfigurator

aiconfigurator (NVIDIA, Apache-2.0) adds up kernels that it measured, and has no host; `systems/` of its package says on which
machines. It needs an environment of its own:

    python -m venv elsewhere && elsewhere/bin/pip install aiconfigurator==0.12.0

Seven questions of an earlier comparison (one at two batches), with plans near its own best, and 20 cases that `drawn` draws by a
fixed rule. Requests of the same length all, TensorRT-LLM 1.3; of a prompt in a pass and of the prompts that fit 8,192 tokens the
better, as its own search would. Figures are tokens a second and chip, of answers where any are generated. Then, machine by machine,
what it says of the plan that our search finds, beside its own best. Writes `results/reference/aiconfigurator.txt`.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import hwopt
from hwopt import catalog
from hwopt.calibration.intervals import machine_interval
from hwopt.plan import Disaggregated
from results.benchmarks.aiconfigurator_cases import FP8_70B, LOAD, MODELS, SEVEN, SYSTEMS, Case, asked, one, wide

OUT = Path(__file__).parents[2] / "results" / "reference" / "aiconfigurator.txt"


def drawn(count: int, seed: int = 24) -> list[Case]:
    """Cases at random: a model, a chip, a format, a phase, a length, a batch, and the fewest chips that hold it.

    Chips are the least power of two whose memory is twice the weights, at most eight; experts are spread over all of them with
    attention split or data-parallel, by turns. What does not fit our memory or has no measurement of theirs is left out.
    """
    rng = random.Random(seed)
    fitting = [case for case in (one(rng) for _ in range(4 * count)) if ours(case)["fits"]]
    return [case for case, there in zip(fitting, theirs(fitting), strict=True) if "error" not in there][:count]


def ours(case: Case) -> dict[str, float]:
    """Tokens a second and chip, with the interval, and whether the plan fits."""
    service = catalog.service(
        case.model, mode=case.mode, precision=case.precision, input_tokens=case.request[0], output_tokens=case.request[1],
        load=LOAD,
    )  # fmt: skip
    stack = catalog.serving_stack(case.chip)
    cluster = catalog.cluster(case.chip, case.chips, stack=stack)
    chips = case.chips if case.prompts is None else case.chips // 2
    plan = catalog.serving_plan(service, chips, **case.plan)
    if case.prompts is not None:
        plan = Disaggregated(prefill=catalog.serving_plan(service, chips, **case.prompts), decode=plan)
    report = hwopt.estimate(service, cluster, plan)
    around = machine_interval(service, case.chip, stack, catalog.calibration("calibrated"))
    width = math.inf if around is None else around.time
    value = float(report.tokens_per_s_per_chip)
    return {
        "value": value,
        "low": value * math.exp(-width),
        "high": value * math.exp(width),
        "fits": float(report.feasible) > 0.0,
    }


_THERE = """
import json, logging, sys, warnings
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
from aiconfigurator.cli.api import cli_estimate
found = []
for each in json.load(sys.stdin):
    try:
        done = cli_estimate(**each)
        raw = {k: float(v) for k, v in done.raw.items() if isinstance(v, (int, float)) or hasattr(v, "dtype")}
        found.append({"raw": raw, "ttft": float(done.ttft), "tpot": float(done.tpot),
                      "fallbacks": len(done.raw.get("_moe_comm_fallbacks") or ())})
    except Exception as error:
        found.append({"error": f"{type(error).__name__}: {error}"[:200]})
print("\\n@@@" + json.dumps(found))
"""


def answered(code: str, question: Any) -> Any:
    """What code that runs in aiconfigurator's environment answers to a question."""
    python = os.environ.get("AICONFIGURATOR")
    if not python or not Path(python).exists():
        raise SystemExit(
            "aiconfigurator is not here. Give it an environment of its own, and say where its Python is:\n"
            "  python -m venv elsewhere && elsewhere/bin/pip install aiconfigurator==0.12.0\n"
            "  AICONFIGURATOR=elsewhere/bin/python python -m results.benchmarks.aiconfigurator"
        )
    done = subprocess.run([python, "-c", code], input=json.dumps(question), capture_output=True, text=True)
    if "@@@" not in done.stdout:
        raise SystemExit(f"aiconfigurator did not answer: {done.stderr[-2000:]}")
    return json.loads(done.stdout.split("@@@")[1])


def theirs(cases: list[Case]) -> list[dict[str, Any]]:
    """Tokens a second and chip of aiconfigurator, or its `error`; `fallbacks`: exchanges that it measured inside one node alone."""
    questions = [asked(case) for case in cases]
    found = iter(answered(_THERE, [each for question in questions for each in question]))
    best = []
    for case, question in zip(cases, questions, strict=True):
        each = [next(found) for _ in question]
        if case.mode == "serve" and wide(case) and not any("error" in one for one in each):
            given, sequences, generated = each[0]["ttft"], case.plan["batch"], case.request[1]
            answer_s = 1e-3 * (sequences * given + (generated - sequences) * each[1]["tpot"])
            value = sequences * (generated - 1) / answer_s / case.plan["tp"]
            best.append({"value": value, "tpot": 1e3 * answer_s / (generated - 1), "fallbacks": 1})
            continue
        told = [one | {"value": _value(case, one)} for one in each if "error" not in one]
        best.append(max(told, key=lambda one: one["value"]) if told else each[0])
    return best


def _value(case: Case, told: dict[str, Any]) -> float:
    if case.mode == "serve":
        return told["raw"]["tokens/s/gpu"]
    each_tp = max(case.plan.get("ep", 1) * case.plan.get("expert_tp", 1) // case.plan["tp"], 1)
    per_pass = case.plan["batch"] * each_tp / (case.plan["tp"] * each_tp)  # a chip
    if case.mode == "decode":
        return per_pass / (told["tpot"] * 1e-3)
    return per_pass * case.request[0] / (told["ttft"] * 1e-3)


_BEST = """
import json, logging, sys, warnings
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
from aiconfigurator.cli import cli_default
found = []
for each in json.load(sys.stdin):
    import contextlib, io
    with contextlib.redirect_stdout(io.StringIO()):
        frames = cli_default(**each).best_configs
    rows = {mode: frame.head(1).to_dict("records")[0] for mode, frame in frames.items() if len(frame)}
    agg = rows.get("agg", {})
    found.append({"value": float(agg.get("tokens/s/gpu", float("nan"))), "tpot": float(agg.get("tpot", float("nan"))),
                  "plan": f"{agg.get('parallel')} batch {agg.get('bs')}"})
print("\\n@@@" + json.dumps(found))
"""


def bests() -> list[str]:
    """Machine by machine: its best plan that holds a limit, and what it says of ours."""
    machines = [
        (case, 0.05 if case.model == "deepseek-v3" or "405b" in case.model else 0.03) for case in SEVEN[:2] + SEVEN[3:6]
    ]
    same = [
        {"model_path": MODELS[case.model] if case.model != "llama3.1-70b" or case.precision == "bf16" else FP8_70B,
         "total_gpus": case.chips, "system": SYSTEMS[case.chip], "isl": case.request[0], "osl": case.request[1],
         "ttft": 1e6, "tpot": 1e3 * limit}
        for case, limit in machines
    ]  # fmt: skip
    own = answered(_BEST, same)
    found = []
    for case, limit in machines:
        precision = case.precision if case.model != "llama3.1-405b" else "bf16"  # what its checkpoint is
        service = catalog.service(
            case.model, precision=precision, input_tokens=case.request[0], output_tokens=case.request[1], load=LOAD
        )
        cluster = catalog.cluster(case.chip, case.chips, stack=catalog.serving_stack(case.chip))
        limits = {"time_per_output_token_s": limit}
        best = hwopt.best_plan(
            service, cluster, limits=limits, alternatives=0, layouts=()
        ).best.plan  # it has none of them
        names = {"tp": "tp", "pp": "pp", "ep": "ep", "expert_tp": "expert_tp", "batch": "micro_batch"}
        plan = {name: round(float(getattr(best, field))) for name, field in names.items()}
        found.append(case._replace(plan=plan, prompts=None, precision=precision))
    lines = []
    for case, there, its in zip(found, theirs(found), own, strict=True):
        plan = " ".join(f"{name}={value}" for name, value in case.plan.items() if value > 1)
        said = there["error"] if "error" in there else f"{there['value']:6.0f} at {there['tpot']:5.1f} ms"
        ratio = "" if "error" in there else f"   {there['value'] / its['value']:5.2f}"
        lines.append(
            f"{case.name:34} {plan:34} {said}   its own {its['plan']:32} {its['value']:6.0f} at {its['tpot']:5.1f} ms{ratio}"
        )
    return lines


def table(cases: list[Case]) -> tuple[list[str], list[float], list[bool]]:
    """Lines, our figure over theirs, and whether our interval holds theirs."""
    lines, ratios, held = [], [], []
    for case, there in zip(cases, theirs(cases), strict=True):
        here = ours(case)
        if "error" in there:
            lines.append(f"{case.name:34} {there['error']}")
            continue
        ratios.append(here["value"] / there["value"])
        held.append(here["low"] <= there["value"] <= here["high"])
        plan = " ".join(f"{name}={value}" for name, value in case.plan.items())
        notes = ("" if held[-1] else "  outside") + ("  fallback" if there["fallbacks"] else "")
        words = f"{case.mode:8}{case.request[0]:6d}/{case.request[1]:<5d}{plan:30}"
        lines.append(f"{case.name:34} {words} {here['value']:10.0f} {there['value']:10.0f}   {ratios[-1]:5.2f}{notes}")
    return lines, ratios, held


def summary(name: str, ratios: list[float], held: list[bool]) -> str:
    off = np.abs(np.log(np.array(ratios)))
    return (
        f"{name}: {sum(off <= math.log(1.25))} of {len(off)} within 25 %, median {np.exp(np.median(off)) - 1.0:.1%}, "
        f"mean ratio {np.exp(np.mean(np.log(ratios))):.2f}; our interval holds {np.mean(held):.0%}"
    )


def main() -> None:
    """Write the table."""
    head = f"{'case':34} {'phase':8}{'in':>6}/{'out':5}{'plan':30} {'hwopt':>10} {'aiconf.':>10}   ratio"
    seven, drawn_cases = table(list(SEVEN)), table(drawn(20))
    lines = [
        "Tokens a second and chip by hwopt and by aiconfigurator 0.12.0 (TensorRT-LLM 1.3), the same plan each.",
        "outside: beyond our interval (four in five). fallback: it has no measurement of this exchange between nodes, and takes",
        "that of one node.",
        "",
        head,
        *seven[0],
        "",
        *drawn_cases[0],
        "",
        summary("seven questions", *seven[1:]),
        summary("20 cases drawn", *drawn_cases[1:]),
        summary("all", [*seven[1], *drawn_cases[1]], [*seven[2], *drawn_cases[2]]),
    ]
    lines += [
        "",
        "Best plans of one group of chips under a limit of time a token: ours by its figures, beside its own.",
        "",
        *bests(),
    ]
    text = "\n".join(lines) + "\n"
    OUT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
