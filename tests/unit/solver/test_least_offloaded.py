"""Only as much is offloaded as does not fit."""

import dataclasses
import math

import equinox as eqx
import numpy as np
import pytest

import hwopt
from hwopt.design.exact import ExactModel, logarithms
from hwopt.design.lattices import lattice_of
from hwopt.solver.deadline import Deadline
from hwopt.solver.search.solve_global import BestDesign, SearchProblem, least_offloaded
from hwopt.solver.solution import evaluate_design

FOUND = {
    "chips": 5256, "clock_ratio": 1, "nics_per_server": 4, "chips_per_rack": 72, "tp": 4, "cp": 2, "pp": 1,
    "virtual_stages": 1, "micro_batch": 3, "zero": 3, "recompute": 1, "optimizer_tier": 1, "activations_tier": 2,
    "weights_tier": 1, "recovery": 3, "global_batch_sequences": 1971, "fullest_stage": 1, "last_stage": 1,
    "optimizer_offloaded": 1, "activations_offloaded": 1, "weights_offloaded": 1,
}  # fmt: skip
"""Design in which all activations are offloaded although 93 % of them fit."""


def searched(problem, **others):
    """Return a problem, and a design of its lattice as the search leaves it."""
    y = logarithms([(FOUND | others)[each.name] for each in problem.variables])
    question = SearchProblem(problem, lattice_of(problem), ExactModel(problem), Deadline())
    exact = question.exact(y)
    return question, BestDesign(y, exact, np.zeros(0), math.nan, float(exact.objective))


def shares(best):
    return {name: float(getattr(best.exact.design.plan, f"{name}_offloaded")) for name in ("activations", "optimizer")}


@pytest.fixture(scope="module")
def problem():
    return hwopt.objective("train_cost", chip="gb200", time_budget_s=100 * 86400.0).problem()


def test_the_smallest_share_that_fits_is_offloaded(problem):
    question, found = searched(problem)
    least = least_offloaded(question, found)
    share = shares(least)["activations"]
    assert shares(found) == {"activations": 1.0, "optimizer": 0.0} and 0.0 < share < 0.2
    assert float(least.exact.objective) <= float(found.exact.objective) and least.violation <= found.violation == 0.0
    less = least.y.copy()
    less[[each.name for each in problem.variables].index("activations_offloaded")] = math.log(share - 0.01)
    assert question.exact(less).violation > 0.0
    report = least.exact.report
    assert float(report.memory_per_chip_bytes) > 0.95 * float(report.memory_capacity_bytes)


def test_nothing_is_offloaded_where_all_fits(problem):
    question, found = searched(problem, micro_batch=1)
    least = least_offloaded(question, found)
    names = [each.name for each in problem.variables]
    assert shares(least)["activations"] == 0.0 and math.exp(least.y[names.index("activations_tier")]) == 1.0


def test_software_without_shares_offloads_all_or_nothing(problem):
    where = lambda t: t.cluster.stack.capabilities.partial_offload
    whole = dataclasses.replace(problem, template=eqx.tree_at(where, problem.template, np.float64(0.0)))
    assert shares(least_offloaded(*searched(whole)))["activations"] == 1.0
    assert shares(least_offloaded(*searched(whole, micro_batch=1)))["activations"] == 0.0


def test_what_is_asked_to_be_offloaded_stays(problem):
    fixed = problem.narrowed({"activations_tier": (2.0, 2.0)})
    assert shares(least_offloaded(*searched(fixed)))["activations"] == 1.0


def test_a_stated_design_keeps_its_share(problem):
    stated = evaluate_design(problem, FOUND | {"activations_offloaded": 0.07})
    whole = evaluate_design(problem, {name: each for name, each in FOUND.items() if not name.endswith("_offloaded")})
    assert float(stated.plan.activations_offloaded) == 0.07 and float(whole.plan.activations_offloaded) == 1.0
    with pytest.raises(hwopt.UserError, match=r"activations_offloaded = 1\.5 is not a value"):
        evaluate_design(problem, FOUND | {"activations_offloaded": 1.5})
