"""Certified optima of questions about serving: against every design of tiny lattices, random designs, and budgets moved."""

from __future__ import annotations

import dataclasses
import itertools
import math

import jax
import numpy as np
import pytest

import hwopt
from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of
from hwopt.errors import UserError
from hwopt.integers.counting import count
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.solver.search.solve_global import design_values
from hwopt.solver.solution import Outcome
from objectives.serve_cost import ServeCost
from objectives.serve_latency import ServeLatency
from objectives.train_and_serve import TrainAndServe
from tests.rotation import shared_out

MACHINE = ("chip", "network", "facility")

TINY = {
    "dense": (ServeCost(), {"tp": (2, 8), "pp": (1, 2), "batch": (38, 41), "replicas": (20, 40)}),
    "tails": (
        ServeCost(ttft_p99_limit_s=0.7, tpot_p99_limit_s=0.04, arrival_scv=2.0, peak_over_mean=1.2),
        {"tp": (4, 8), "pp": (1, 2), "batch": (30, 48), "replicas": (16, 64)},
    ),
    "fast": (ServeLatency(chip="h200"), {"tp": (4, 8), "pp": (1, 1), "batch": (4, 9), "replicas": (10, 20)}),
    "experts": (
        ServeCost(workload="mixtral-8x7b", requests_per_s=50.0),
        {"tp": (1, 4), "ep": (1, 8), "pp": (1, 1), "batch": (30, 33), "replicas": (4, 16)},
    ),
    "layouts": (
        ServeCost(workload="deepseek-v2-lite", layouts="redundant_experts+two_batches+cache_split", requests_per_s=50.0),
        {"tp": (1, 2), "ep": (2, 12), "expert_slots": (5, 32), "cache_split": (1, 2), "pp": (1, 1), "batch": (40, 42),
         "replicas": (5, 9)},
    ),
    "disaggregated": (
        ServeCost(split="disaggregated", requests_per_s=50.0),
        {"tp": (2, 4), "pp": (1, 1), "batch": (90, 92), "replicas": (5, 7), "prefill_tp": (1, 2), "prefill_pp": (1, 1),
         "prefill_batch": (1, 2), "prefill_replicas": (10, 24)},
    ),
}  # fmt: skip


def tiny(name: str):
    """A question with its machine as it is, and few integers."""
    question, boxes = TINY[name]
    problem = question.problem().continuous.frozen(MACHINE)
    clock = problem.upper[[each.name for each in problem.variables].index("clock_ratio")]  # frozen: the most it runs at
    fixed = {"clock_ratio": (math.exp(clock), math.exp(clock))}
    return problem.narrowed({key: (float(low), float(high)) for key, (low, high) in boxes.items()} | fixed)


def every_design(problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every integer design, with its objective and violation by the exact model, both as logarithms."""
    lattice = lattice_of(problem)
    ranges = {}
    for name in lattice.names:
        low, high = lattice.column(lattice.initial_boxes(), name)
        ranges[name] = range(int(low.min()), int(high.max()) + 1)
    points = np.array(list(itertools.product(*ranges.values())))
    points = points[lattice.valid(points)]
    table = [lattice.design(point) for point in points]
    logs = np.array([[math.log(row.get(v.name, v.lower)) for v in problem.variables] for row in table])
    answers = ExactModel(problem).at(logs)
    return points, answers.objective, answers.violation


@pytest.mark.search
@pytest.mark.parametrize("name", shared_out(TINY, 2))
def test_no_design_of_a_tiny_lattice_is_better(name):
    problem = tiny(name)
    points, objective, violation = every_design(problem)
    assert len(points) == count(lattice_of(problem)).points > 20
    solution = hwopt.optimize(problem)
    held = violation <= FEASIBILITY_TOLERANCE
    assert solution.feasible == held.any()
    best = np.exp(objective[held].min())
    assert math.isclose(solution.objective, best, rel_tol=1e-4)
    assert solution.certificate.gap is not None and solution.certificate.gap <= 1e-4
    assert solution.certificate.lower_bound <= best * (1 + 1e-9)


@pytest.mark.search
def test_integers_there_and_back():
    """A design's numbers are those it was built from."""
    for name in TINY:
        problem = tiny(name)
        lattice = lattice_of(problem)
        points, *_ = every_design(problem)
        for point in points[:: max(1, len(points) // 7)]:
            design = problem.template
            for each in problem.variables:
                value = lattice.design(point).get(each.name, each.lower)
                design = each.place.put(design, np.float64(value))
            values = {each.name: float(each.place.get(design)) for each in problem.variables}
            assert (lattice.point(values) == point).all()


@pytest.fixture(scope="module")
def cheapest():
    """The default question with a few integers, hardware free."""
    problem = ServeCost().problem().continuous
    boxes = {"tp": (2, 4), "pp": (1, 1), "batch": (36, 44), "replicas": (30, 45), "chips_per_rack": (20, 26)}
    problem = problem.narrowed({key: (float(a), float(b)) for key, (a, b) in boxes.items()})
    return problem, hwopt.optimize(problem)


@pytest.mark.search
def test_no_random_design_is_better(cheapest):
    """Of thousands near the optimum none that satisfies the budgets is below the bound."""
    problem, solution = cheapest
    rng = np.random.default_rng(1)
    lattice = lattice_of(problem)
    integers = lattice.design(lattice.point(design_values(solution)))
    held = np.array([math.log(solution.design[v.name].value) if v.name in solution.design else 0.0
                     for v in problem.variables])  # fmt: skip
    free = np.array([v.name not in integers for v in problem.variables])
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    tried = np.clip(held + free * rng.normal(0.0, 0.05, (3000, len(held))), lower, upper)
    answers = ExactModel(problem).at(tried)
    good = answers.violation <= FEASIBILITY_TOLERANCE
    assert good.sum() > 10
    assert np.exp(answers.objective[good].min()) >= solution.certificate.lower_bound * (1 - 1e-9)


@pytest.mark.search
def test_the_price_of_a_budget_is_what_the_next_one_saves(cheapest):
    """One more millisecond a token: the objective falls by the shadow price, integers as they are."""
    problem, solution = cheapest
    lattice = lattice_of(problem)
    names = {each.name for each in problem.variables if each.integer}
    point = lattice.design(lattice.point(design_values(solution)))
    same = problem.narrowed({name: (value, value) for name, value in point.items() if name in names})
    at = [each.name for each in problem.budgets].index("tpot_budget_s")
    # A limit that binds at these integers.
    binding = solution.budgets[at].used * 0.99
    objectives, prices = [], []
    for factor in (0.999, 1.0, 1.001):
        budgets = list(same.budgets)
        budgets[at] = dataclasses.replace(budgets[at], limit=binding * factor)
        answer = hwopt.optimize(dataclasses.replace(same, budgets=tuple(budgets)))
        assert answer.feasible
        objectives.append(answer.objective)
        prices.append(answer.budgets[at].shadow_price)
    slope = -(objectives[2] - objectives[0]) / (0.002 * binding)
    assert prices[1] > 0.0
    assert math.isclose(prices[1], slope, rel_tol=2e-2)


@pytest.mark.search
def test_what_no_machine_can_do():
    """A token each millisecond: infeasible, proved, and it says which budget clashes and what would mend it."""
    problem = (
        dataclasses.replace(ServeCost(), tpot_budget_s=1e-3, requests_per_s=1.0).problem().continuous.frozen(MACHINE)
    )
    boxes = {"tp": (8.0, 8.0), "pp": (1.0, 1.0), "batch": (1.0, 8.0), "replicas": (1.0, 64.0)}
    solution = hwopt.optimize(problem.narrowed(boxes))
    assert not solution.feasible
    assert solution.outcome is Outcome.infeasible and "tpot_budget_s" in solution.infeasibility


@pytest.mark.search
def test_a_demand_pays_for_the_machine():
    """Half the requests on the machine of all of them cost twice as much, but for electricity."""
    problem = tiny("dense")
    with jax.enable_x64(True):
        answer = hwopt.optimize(problem)
        service, cluster, plan = answer.inputs
        half = dataclasses.replace(service, requests_per_s=0.5 * service.requests_per_s)
        full, idle = (hwopt.estimate(each, cluster, plan) for each in (service, half))
    assert 1.7 < float(idle.cost_per_token_usd / full.cost_per_token_usd) < 2.0
    assert math.isclose(float(idle.tokens_per_s), 0.5 * float(full.tokens_per_s), rel_tol=1e-9)
    assert float(idle.margins.demand) > float(full.margins.demand) >= -1e-9


@pytest.mark.search
def test_one_chip_that_trains_and_serves():
    """The best of both machines: no worse than each one's own best chip allows, and what its parts add up to."""
    boxes = {
        "tp": (8, 8), "pp": (1, 1), "virtual_stages": (1, 1), "micro_batch": (1, 2), "scale_up_domain": (8, 16),
        "chips_per_rack": (22, 25), "serve_tp": (2, 4), "serve_pp": (1, 1),
    }  # fmt: skip
    problem = (
        TrainAndServe().problem().continuous.narrowed({key: (float(a), float(b)) for key, (a, b) in boxes.items()})
    )
    solution = hwopt.optimize(problem)
    assert solution.feasible and solution.certificate.gap <= 1e-4
    report = solution.report
    parts = float(report.run_cost_usd) + 1e12 * float(report.cost_per_token_usd)
    assert math.isclose(solution.objective, parts, rel_tol=1e-9)
    lattice = lattice_of(problem)
    point = lattice.point(design_values(solution))
    integers = lattice.design(point)
    assert all(solution.design[name].value == value for name, value in integers.items() if name in solution.design)
    assert lattice.valid(point[None]).all()


def test_two_machines_are_no_sweep():
    with pytest.raises(UserError, match="two machines"):
        hwopt.sweep(TrainAndServe(), samples=16)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"split": "aside"}, "colocated or disaggregated"),
        ({"requests_per_s": -1.0}, "must not be negative"),
        ({"load": 1.0}, "below 1"),
        ({"workload": "llama-9"}, "llama"),
    ],
)
def test_what_is_no_question(fields, said):
    with pytest.raises(UserError, match=said):
        dataclasses.replace(ServeCost(), **fields).problem()


def test_layouts_of_a_question():
    """Slots hold all experts and no more copies than fill ranks, 72 share 256; a question without layouts is the one it was."""
    asked = {"workload": "deepseek-v3", "chip": "h200"}
    plain, whole = ServeCost(**asked).problem(), ServeCost(**asked, layouts="two_batches+redundant_experts").problem()
    assert plain.template.plan.layout is None and float(whole.template.plan.layout.two_batches) == 1.0
    boxes = {"tp": (1, 1), "pp": (1, 1), "batch": (1, 3), "replicas": (72, 72), "ep": (1, 80), "expert_slots": (1, 256)}
    narrow = whole.continuous.frozen(MACHINE).narrowed({key: (float(a), float(b)) for key, (a, b) in boxes.items()})
    lattice = lattice_of(narrow)
    ends = [lattice.column(lattice.initial_boxes(), name) for name in lattice.names]
    ranges = [range(int(low.min()), int(high.max()) + 1) for low, high in ends]
    points = np.array(list(itertools.product(*ranges)))
    points = points[lattice.valid(points)]
    ep, slots, batch = (points[:, list(lattice.names).index(name)] for name in ("ep", "expert_slots", "batch"))
    assert set(ep) == {2, 3, 4, 6, 8, 9, 12, 18, 24, 36, 72} and set(batch) == {2, 3}
    assert (slots == np.ceil(256 / ep)).all()
    apart = ServeCost(**asked, split="disaggregated", layouts="two_batches+cache_split").problem()
    assert {"expert_slots", "prefill_expert_slots", "cache_split"} <= set(lattice_of(apart).names)
    assert not {"expert_slots", "cache_split"} & set(lattice_of(plain).names)


def test_layouts_that_a_question_cannot_have():
    with pytest.raises(UserError, match="did you mean 'two_batches'"):
        ServeCost(layouts="two_batch")
    dense = ServeCost(layouts="two_batches").problem()
    assert dense.template.plan.layout is None  # no experts, no exchanges to hide
