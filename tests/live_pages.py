"""Live pages without a search, for tests: a question's model around some design."""

import numpy as np

import hwopt
from hwopt.design.live_model import LiveModel, live_program
from hwopt.output.html import page
from hwopt.output.html.live import live, live_model
from hwopt.solver.solution import evaluate_design

QUESTIONS = {
    "train_cost": {},
    "train_cost, chip to be designed": {"design": "h100-sxm", "free": "all"},
    "train_cost, fp8 mixture of experts": {"workload": "deepseek-v3", "chip": "gb200", "precision": "fp8"},
    "train_cost, servers": {"free": "nics+racks"},
    "train_energy": {"chip": "tpu-v5p"},
    "carbon": {},
    "loss_under_budget": {},
    "tokens_per_dollar": {"chip": "mi300x"},
    "serve_cost": {},
    "serve_cost, disaggregated": {"split": "disaggregated", "decode_chip": "h200"},
    "serve_latency": {},
    "train_and_serve": {},
}


def solution_of(name, **wanted):
    """One design of a question, evaluated: variables at their upper ends, and integers at their lower ones, but `wanted`."""
    problem = hwopt.objective(name.split(",")[0], **QUESTIONS[name]).problem()
    values = {each.name: each.lower if each.integer else each.upper for each in problem.variables} | wanted
    values |= {name: 1024.0 for name in ("chips",) if name in values and name not in wanted}
    return evaluate_design(problem, LiveModel(problem, values).stated({})[1])


def page_of(path, *names, command="hwopt optimize train_cost"):
    """Write a page with the live part alone, and return the models behind it."""
    solutions = [solution_of(name) for name in names]
    machines = [(name, each, command, {}) for name, each in zip(names, solutions, strict=True)]
    parts = [page.section("Try other settings", live(machines))]
    path.write_text(page.page("hwopt optimize", "train_cost", "A question", None, parts, command, []), encoding="utf-8")
    return [live_model(each) for each in solutions]


def reference(models, inputs):
    """Outputs of the exact model in NumPy, (setting, output), for what the page entered into its own."""
    values = live_program(models)[0].on_numbers(*np.array(inputs, float).T)
    return np.stack([np.broadcast_to(np.asarray(each, float), len(inputs)) for each in values], axis=1)
