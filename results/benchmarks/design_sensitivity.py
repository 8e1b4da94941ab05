"""What a drawn chip's optimum does when a number moves: by its elasticity, and solved again. From the top of a checkout:

    python -m results.benchmarks.design_sensitivity > results/reference/design_sensitivity.txt     # a quarter of an hour

The question is that of `reference/designed_chip.txt` with a pipelined plan, stacks, lanes and racks held. Solved again twice:
dies and units held, as elasticities hold them, areas, SRAM and clock free; and by the search, dies and units free as well, to
0.01 %, its answer then taken to the optimum beside it.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np

import hwopt
from hwopt.analysis.sensitivity.improvement import part_of
from hwopt.design.problem import Problem
from hwopt.design.template_inputs import Input
from hwopt.errors import UserError
from hwopt.solver.optimum_sensitivity import optimum_sensitivity, point_of
from hwopt.solver.search.solve_global import design_values
from tests.unit.solver.test_parametric_chips import PLAN_BOXES, SIZES, UNITS, question

BOXES = SIZES | PLAN_BOXES | {"enabled_fraction": (0.95, 1.0), "dies": (2.0, 4.0)}

NUMBERS = (
    "project.process.defects_per_m2",
    "project.process.wafer_usd",
    "project.technology.logic_density_per_m2",
    "project.technology.sram_m2_per_byte",
    "project.technology.matrix_energy_j_per_flop",
    "project.technology.threshold_voltage_fraction",
    "project.technology.hbm_bandwidth_bytes_per_s",
    "project.process.hbm_usd_per_byte",
    "project.process.substrate_usd_per_m2",
    "project.technology.package_limit_m2",
    "cluster.cooling.sink_resistance_k_per_w",
    "cluster.cooling.area_resistance_k_m2_per_w",
)
"""Of each technology one or two; the voltage that a clock needs is `v + (1 - v) f/f0`, whose v is the threshold's fraction."""

MOVES = (0.9, 0.99, 1.01, 1.1)
SEARCHED = (0.9, 1.1)
"""Moves for which the search is asked as well: a hundredth moves less than it may leave."""


def moved(problem: Problem, each: Input, factor: float) -> Problem:
    """The question with one number times a factor."""
    leaves, tree = jax.tree.flatten(problem.template)
    leaves = [np.array(leaf, np.float64) for leaf in leaves]
    leaves[each.leaf].reshape(-1)[each.element] *= factor
    return dataclasses.replace(problem, template=jax.tree.unflatten(tree, leaves))


def held_again(problem: Problem, point: np.ndarray, design: dict[str, float]) -> float:
    """The optimum with all integers held; NaN where none is found beside the answer."""
    try:
        return optimum_sensitivity(problem, point, (), start=design).objective
    except UserError:
        return math.nan


def searched_again(problem: Problem, point: np.ndarray) -> tuple[float, str]:
    """The optimum with dies and units free, and what these are."""
    solution = hwopt.optimize(problem, designs=[point], explain=False)
    if not solution.feasible:
        return math.nan, "no design"
    values = design_values(solution)
    best = min(solution.objective, held_again(problem, point_of(solution), values))
    return best, f"{values['dies']:.0f} x {UNITS * values['enabled_fraction']:.0f}"


def percent(share: float) -> str:
    return f"{'none':>9}" if math.isnan(share) else f"{100 * share:+9.4f}"


def main() -> None:
    problem = question().problem().narrowed(BOXES)
    answer = hwopt.sensitivity(problem)
    point = point_of(hwopt.optimize(problem))
    assert answer.optimum is not None
    design, base = answer.optimum.design, answer.objective
    found = {each.input.name: each for each in answer.parameters}
    print(
        f"{problem.question}\n{answer.proof}\nrun_cost_usd = {base:,.0f} $ at the optimum beside the answer; change of it, %\n"
    )
    print(f"{'':<52}{'% by %':>9}  {'times':>5}{'slope':>9}{'held':>9}{'searched':>9}  dies x units on")
    worst = {0.01: 0.0, 0.1: 0.0}
    for name in NUMBERS:
        each = found[name]
        label = f"{part_of(each.input)}: {name.rpartition('.')[2]}"
        for factor in MOVES:
            with jax.enable_x64(True):
                other = moved(problem, each.input, factor)
                slope = factor**each.elasticity - 1.0
                held = held_again(other, point, design) / base - 1.0
                searched, dies = searched_again(other, point) if factor in SEARCHED else (math.nan, "")
            changed = percent(searched / base - 1.0) if factor in SEARCHED else " " * 9
            print(f"{label:<52}{each.elasticity:+9.4f}  {factor:5.2f}{percent(slope)}{percent(held)}{changed}  {dies}",
                  flush=True)  # fmt: skip
            label = ""
            if not math.isnan(held):
                step = round(abs(factor - 1.0), 2)
                worst[step] = max(worst[step], abs(slope - held))
    for step, most in worst.items():
        print(
            f"\nslope and held differ by at most {100 * most:.4f} % of the cost where a number moves by {100 * step:.0f} %",
            end="",
        )
    print()


if __name__ == "__main__":
    main()
