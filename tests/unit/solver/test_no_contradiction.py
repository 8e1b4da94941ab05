"""Questions over every chip, fabric, cooling, precision and file of constants: no answer contradicts an estimate, or itself.

A feasible estimate of the same parts never beats a bound nor stands beside a proof that there is none; an answer that is called
feasible is feasible by its own report, which holds no null, no utilisation above 1 and no average above the peak power.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.design.exact import ExactModel, logarithms
from hwopt.design.lattices import lattice_of
from hwopt.design.metrics import metric
from hwopt.design.problem import Budget
from hwopt.errors import UserError
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.output.answers.optimum import solution_answer, solution_document
from hwopt.solver.solution import Outcome
from tests.in_numpy import once
from tests.rotation import rotated
from tests.tiers import turn

OBJECTIVES = ("train_cost", "train_time", "train_energy", "carbon", "tokens_per_dollar", "serve_cost", "serve_latency")
PRECISIONS = ("bf16", "fp8", "fp4", "int8", "tf32", "fp32", "nvfp4", "mxfp8")
LIMITED = {
    "capex_budget_usd": "capex_usd",
    "power_budget_w": "peak_power_w",
    "rack_power_budget_w": "rack_power_w",
    "chip_power_budget_w": "chip_power_w",
    "junction_budget_k": "junction_temperature_k",
    "time_budget_s": "run_time_s",
    "ttft_budget_s": "time_to_first_token_full_batch_s",
    "tpot_budget_s": "time_per_output_token_full_batch_s",
}
NARROWED = {
    "tp": 2.0, "ep": 2.0, "pp": 2.0, "virtual_stages": 2.0, "micro_batch": 2.0, "chips": 1.4, "batch": 1.5, "replicas": 1.4,
    "scale_up_domain": 2.0, "chips_per_rack": 1.3, "global_batch_sequences": 1.2, "prefill_tp": 2.0, "prefill_pp": 1.0,
    "prefill_batch": 1.0, "prefill_replicas": 1.3, "prefill_ep": 1.0,
}  # fmt: skip
"""How far each integer of a question may be from the lower to the upper end of its box."""


def pick(rng, names, none: float = 0.0) -> str:
    return "" if rng.random() < none else str(rng.choice(list(names)))


@cache
def supported(kind: str) -> tuple[str, ...]:
    return tuple(name for name in catalog.names(kind) if "unsupported" not in catalog.record(kind, name).text)


def random_problem(rng):
    """A question whose parts exist together, in small boxes around a design of its lattice."""
    while True:
        objective = pick(rng, OBJECTIVES)
        fields = {
            "workload": pick(rng, supported("workloads")),
            "chip": pick(rng, supported("chips")),
            "cooling": pick(rng, supported("cooling"), 0.4),
            "site": pick(rng, supported("sites")),
            "fabric": pick(rng, supported("fabrics"), 0.5),
            "reliability": pick(rng, supported("reliability")),
            "precision": pick(rng, PRECISIONS),
            "constants": pick(rng, catalog.MODES),
        }
        if objective.startswith("serve"):
            fields["split"] = pick(rng, ("colocated", "disaggregated"))
            fields["requests_per_s"] = float(10 ** rng.uniform(0, 3))
        else:
            fields["tokens"] = float(10 ** rng.uniform(11, 13.2))
            fields["global_batch"] = float(2 ** rng.integers(6, 12))
            fields["sites"] = float(rng.choice([1, 1, 1, 2]))
        try:
            asked = hwopt.objective(objective, **fields)
            plain = asked.problem().continuous
            boxes = [narrowed(plain, rng) for _ in range(4)]
            return asked, fields, roomiest(boxes, rng).frozen(freezing(plain, rng))
        except UserError:  # formats a chip has no units for, a coolant too warm, a value outside its box
            continue


def roomiest(problems, rng):
    """The one whose designs come nearest to fitting: most boxes drawn at random hold none."""
    with jax.enable_x64(True):
        seen = [some_designs(each, rng, 100)[1] for each in problems]
        worst = [math.inf if x is None else np.nanmin(own_violation(p, x)) for p, x in zip(problems, seen, strict=True)]
    return problems[int(np.argmin(worst))]


def freezing(problem, rng) -> list[str]:
    categories = sorted({each.category for each in problem.variables} & {"chip", "network", "facility"})
    return [name for name in categories if rng.random() < 0.25]


def narrowed(problem, rng):
    """The question in small boxes of integers, around a point drawn from its lattice where there is one."""
    boxes = {}
    for each in problem.variables:
        if each.name in NARROWED and each.lower < each.upper:
            ratio = min(NARROWED[each.name], each.upper / each.lower)
            usual = min(
                each.upper / ratio, {"chips": 8192.0, "scale_up_domain": 64.0, "batch": 128.0}.get(each.name, 32.0)
            )
            low = math.exp(rng.uniform(math.log(each.lower), math.log(max(usual, each.lower))))
            low = max(each.lower, 2.0 ** round(math.log2(low)) if each.name.endswith(("tp", "ep")) else math.floor(low))
            boxes[each.name] = (low, min(each.upper, max(low, math.floor(low * ratio))))
    return problem.narrowed(boxes)


def with_budgets(asked, problem, rng):
    """The same with budgets near what some design of the box uses."""
    _, exact = some_designs(problem, rng)
    if exact is None:
        return problem
    at = exact.one(int(np.argmin(np.nan_to_num(own_violation(problem, exact), nan=np.inf))))
    budgets = []
    for name, limited in LIMITED.items():
        if name in asked.limited and rng.random() < 0.35:
            used = float(getattr(at.report, limited))
            if math.isfinite(used) and used > 0:
                limit = used + rng.uniform(-5, 15) if name == "junction_budget_k" else used * rng.uniform(0.8, 1.6)
                budgets.append(Budget(name, metric(limited), limit))
    return replace(problem, budgets=tuple(budgets))


def own_violation(problem, exact):
    """What breaks besides budgets, of each design."""
    return exact.constraints[:, len(problem.budgets) :].max(axis=1)


def some_designs(problem, rng, count: int = 400):
    """Designs of the box: valid integers, continuous variables anywhere; and the exact model's word on each."""
    lattice = lattice_of(problem)
    boxes = lattice.initial_boxes()
    if not len(boxes):
        return np.zeros((0, len(problem.variables))), None
    rows = rng.integers(len(boxes), size=40 * count)
    points = np.floor(np.exp(rng.uniform(np.log(boxes.low[rows]), np.log(boxes.high[rows] + 0.999)))).astype(np.int64)
    points = np.unique(points, axis=0)
    points = rng.permutation(points[lattice.valid(points)])[:count]
    if not len(points):
        return np.zeros((0, len(problem.variables))), None
    return near(
        problem, lattice, points, rng.uniform(problem.lower, problem.upper, (len(points), len(problem.variables)))
    )


def near(problem, lattice, points, y):
    """Designs at lattice points, continuous variables at `y` (logarithms)."""
    names = [each.name for each in problem.variables]
    columns = lattice.quantities_at({name: points[:, i].astype(float) for i, name in enumerate(lattice.names)})
    y = y.copy()
    for i, name in enumerate(names):
        if name in columns:
            y[:, i] = logarithms(np.broadcast_to(columns[name], len(points)))
    inside = ((y >= problem.lower - 1e-9) & (y <= problem.upper + 1e-9))[:, [not n.endswith("_stage") for n in names]]
    kept = inside.all(axis=1)
    return y[kept], ExactModel(problem).at(y[kept]) if kept.any() else None


ROUNDING = 1e-9
"""Relative violation of a design that satisfies its constraints."""

EXPECTED = {Outcome.proved, Outcome.best_found, Outcome.local, Outcome.infeasible, Outcome.not_found}


def check(seed: int) -> Outcome:
    """One question: asked, answered, attacked."""
    rng = np.random.default_rng(seed)
    asked, fields, problem = random_problem(rng)
    with jax.enable_x64(True):
        problem = with_budgets(asked, problem, rng)
    label = f"seed {seed}: {type(asked).name} {fields} {[(b.name, b.limit) for b in problem.budgets]}"
    solution = hwopt.optimize(problem, explain=False, seconds=25.0)
    proof, outcome = solution.certificate, solution.outcome
    assert outcome in EXPECTED, label
    document = solution_document(solution)
    assert solution_answer(solution).screen()
    bound = proof.lower_bound if proof.lower_bound is not None else 0.0
    with jax.enable_x64(True):
        lattice = lattice_of(problem)
        attacks = [some_designs(problem, rng)]
        point = lattice.point({each.name: float(each.place.get(solution.built)) for each in problem.variables})
        if lattice.valid(point[None])[0]:
            answer = logarithms([float(each.place.get(solution.built)) for each in problem.variables])
            moved = answer + rng.normal(0.0, 0.02, (200, len(answer))) * (rng.random((200, 1)) < 0.9)
            attacks.append(
                near(
                    problem, lattice, np.repeat(point[None], 200, axis=0), np.clip(moved, problem.lower, problem.upper)
                )
            )
        for _, exact in attacks:
            if exact is None:
                continue
            sound(exact.report, exact.report.feasible > 0, label)
            if (exact.violation <= FEASIBILITY_TOLERANCE).any():
                assert outcome is not Outcome.infeasible, label
            # What lies within the tolerance may beat the bound by what the tolerance is worth: 7e-4 of the objective where a
            # junction may be a thousandth of a kelvin above its coolant.
            held = exact.violation <= ROUNDING
            if held.any():
                assert np.exp(exact.objective[held]).min() >= bound * (1.0 - 3e-6), label
        again = once(hwopt.estimate)(*solution.inputs)
    assert bool(again.feasible) == document["report"]["feasible"], label
    if solution.feasible:
        assert document["report"]["feasible"] and proof.max_violation <= 1e-6, label
        assert not document["report"]["violations"], label
        assert all(budget["used"] <= budget["limit"] * (1 + 1e-6) for budget in document["budgets"]), label
        absent = {"kv_transfer_s"} if not solution.plan.disaggregated else set()
        if (
            getattr(solution.report, "busiest_load", 0.0) > 1.0 - ROUNDING
        ):  # a machine that is never idle: queues without end
            absent |= {name for name in document["report"] if re.search(r"_p\d\d_s$", name)}
            absent |= {"time_to_first_token_s", "request_time_s"}
        if not getattr(solution.inputs[0].model, "language", True):
            absent |= {"loss"}  # of what predicts no text there is no law
        nulls = {n for n, x in document["report"].items() if x is None} - {"low", "high", "constants"} - absent
        assert not nulls, (nulls, label)
        sound(solution.report, np.asarray(True), label)
        if outcome is Outcome.proved:
            assert 0.0 <= proof.gap <= 1e-4 and proof.lower_bound <= solution.objective, label
    return outcome


def sound(report, fits, label):
    """Utilisation not above 1, average power not above the peak's, no negative share."""
    for name in ("mfu", "hfu"):
        assert (np.asarray(getattr(report, name))[fits] <= 1.0 + 1e-9).all(), (name, label)
    assert (np.asarray(report.power_w)[fits] <= np.asarray(report.peak_power_w)[fits] * (1.0 + 1e-9)).all(), label
    for part, value in report.breakdown._asdict().items():
        assert (np.asarray(value)[fits] >= 0.0).all(), (part, label)


@pytest.mark.parametrize("seed", rotated(range(3), 3))
def test_a_few_random_questions(seed):
    check(seed)


@pytest.mark.search
def test_two_thousand_random_questions():
    """Fifty of them at each commit: forty commits later all are asked."""
    first = 1000 + 50 * (turn() % 40)
    outcomes = Counter(check(seed) for seed in range(first, first + 50))
    assert outcomes[Outcome.proved] + outcomes[Outcome.best_found] >= 10  # of each kind something is tested
    assert outcomes[Outcome.infeasible] >= 1
