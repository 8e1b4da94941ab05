"""Printed prices of budgets beside questions asked again. From the top of a checkout:

    python -m results.benchmarks.prices [COUNT] [SECONDS] [SEED]    # 100 questions, or as many as 600 s allow

A question, its chip, workload, boxes and budgets are drawn at random; limits lie near what the answer uses, so that budgets bind,
nearly bind, or are slack by a hair. Each limit is then moved by 1 % to either side and the question searched again from scratch,
at the usual tolerance and without knowing the first answer. Its value must be what the printed interval of the price predicts: it
is up to its own gap above an optimum, so that it counts where the range that it proves meets what was predicted; how often the
value itself lies inside is printed beside.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

import hwopt
from hwopt.design.lattices import lattice_of
from hwopt.design.problem import Problem
from hwopt.errors import UserError
from hwopt.solver.budget_prices import with_one_sided_prices
from hwopt.solver.options import SEARCH
from hwopt.solver.search.branch_and_bound import search
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.solver.search.solve_global import solve_global, solve_leaf
from hwopt.solver.solution import OneSidedPrice, Outcome, Solution
from hwopt.validation import question_of

OBJECTIVES = ("train_cost", "train_time", "train_energy", "carbon", "tokens_per_dollar")
WORKLOADS = {"llama3.1-70b": 70e9, "llama3.1-8b": 8e9, "gpt3-175b": 175e9, "llama3.1-405b": 405e9}  # parameters
RATES = {"h100-sxm": 3.3e14, "h200": 3.3e14, "b200": 7.5e14, "mi300x": 3.3e14, "a100-80": 1.2e14, "tpu-v5p": 2e14}
"""FLOP/s that a chip may reach, to draw budgets of the right size."""

NEAR = 0.96, 1.03
"""Limits of budgets that were slack, over what the answer used."""

ROUNDING = 1e-7
"""Relative: the gap to which programmes of designs are solved."""


class Check(NamedTuple):
    """One budget moved to one side. **Arguments:** `again`: the objective asked again, infinite where no design holds."""

    question: str
    price: OneSidedPrice
    multiplier: float  # of the answer's plan
    today: float
    again: float
    itself: bool  # lies in what was predicted
    inside: bool  # or at least its proved range meets it


def random_question(rng: np.random.Generator) -> Problem:
    """A question in small boxes."""
    while True:
        objective, workload, chip = (str(rng.choice(list(x))) for x in (OBJECTIVES, WORKLOADS, RATES))
        tokens, days = 10 ** rng.uniform(11.5, 13.2), 10 ** rng.uniform(0.3, 1.9)
        chips = 6 * WORKLOADS[workload] * tokens / RATES[chip] / (days * 86400)
        fields = {"workload": workload, "chip": chip, "tokens": tokens, "global_batch": float(2 ** rng.integers(8, 12))}
        fields["time_budget_s"] = days * 86400 * rng.uniform(1, 3)
        fields["power_budget_w"] = chips * 2400 * rng.uniform(1, 2.5)
        fields["capex_budget_usd"] = chips * 50e3 * rng.uniform(1, 2.5)
        tp, rack = float(2 ** rng.integers(1, 4)), float(8 * rng.integers(1, 5))
        boxes = {
            "tp": (tp, tp), "pp": (1.0, 12.0), "virtual_stages": (1.0, 1.0), "micro_batch": (1.0, 2.0),
            "chips_per_rack": (rack, rack), "global_batch_sequences": (fields["global_batch"], fields["global_batch"]),
        }  # fmt: skip
        try:
            if 64 < chips < 3e4:
                return question_of(hwopt.objective(objective, **fields)).narrowed(boxes)
        except UserError:  # a chip that has no such part
            continue


def random_answer(rng: np.random.Generator) -> Solution:
    """A proved answer of a random question whose budgets stand near what they bound."""
    while True:
        problem = random_question(rng)
        first = solve_global(problem, explain=False)
        if not first.feasible:
            continue
        near = [each.used / each.limit * rng.uniform(*NEAR) if rng.random() < 0.7 else 1.0 for each in first.budgets]
        answer = solve_global(problem.relaxed(near), explain=False)
        if answer.outcome is Outcome.proved:
            return answer


def checks(priced: Solution) -> Iterator[Check]:
    """Each budget of an answer moved to each side, and the question searched again."""
    programmes = NodeRelaxations(priced.problem, lattice_of(priced.problem))
    for index, budget in enumerate(priced.budgets):
        assert budget.one_sided_prices is not None
        for sign, price in zip((-1.0, 1.0), budget.one_sided_prices, strict=True):
            factors = np.where(np.arange(len(priced.budgets)) == index, 1.0 + sign * SEARCH.prices.step, 1.0)
            moved = programmes.with_limits(priced.problem.relaxed(factors))
            again = search(moved)
            value, bound = math.exp(again.value), math.exp(again.proved_bound)
            if again.point is not None:  # as an answer is printed: solved more sharply than boxes are
                programme, answers = solve_leaf(moved, again.point)
                value = math.exp(answers.objective[0] + programme.constant[0])
            ends = [
                priced.objective - sign * SEARCH.prices.step * budget.limit * each for each in (price.low, price.high)
            ]
            least, most = min(ends) * (1.0 - ROUNDING), max(ends) * (1.0 + ROUNDING)
            label = f"{priced.problem.question}; {budget.name} {100 * sign * SEARCH.prices.step:+.0f} %"
            itself, inside = least <= value <= most, least <= value and bound <= most
            yield Check(label, price, budget.shadow_price, priced.objective, value, itself, inside)


def main(count: int = 100, seconds: float = 600.0, seed: int = 0) -> None:
    """Asks, and prints how often what was asked again lies inside."""
    rng, ends = np.random.default_rng(seed), time.monotonic() + seconds
    every: list[list[Check]] = []
    with jax.enable_x64(True):
        while len(every) < count and time.monotonic() < ends:
            every.append(list(checks(with_one_sided_prices(random_answer(rng)))))
            for each in every[-1]:
                if not each.itself:
                    print(f"{'above, by less than its gap' if each.inside else 'outside'}: {each}")
            print(f"{len(every)} questions, {sum(all(c.inside for c in one) for one in every)} inside", file=sys.stderr)
    sides = [each for one in every for each in one]
    moved = [each for each in sides if abs(each.again / each.today - 1.0) > 1e-6]
    mute = [each for each in moved if each.multiplier * each.price.limit < 1e-6 * each.today]
    print(f"inside {sum(all(each.inside for each in one) for one in every)} of {len(every)} questions")
    print(f"inside {sum(each.inside for each in sides)} of {len(sides)} budgets moved to one side; ", end="")
    print(f"the value itself, its gap left out, {sum(each.itself for each in sides)}")
    print(
        f"the objective moved in {len(moved)}, {sum(each.price.resolved for each in moved)} of them resolved; ", end=""
    )
    print(f"the multiplier was 0 in {len(mute)} of these")


if __name__ == "__main__":
    asked = sys.argv[1:] + ["100", "600", "0"][len(sys.argv) - 1 :]
    main(int(asked[0]), float(asked[1]), int(asked[2]))
