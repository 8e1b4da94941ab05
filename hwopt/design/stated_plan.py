"""Chips and parts of a plan that a question fixes, so that it asks about "my cluster, my plan"."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from hwopt.catalog.plans import flag, integer
from hwopt.design.lattices import lattice_of
from hwopt.design.plan_lattice import undocumented
from hwopt.design.problem import Problem
from hwopt.design.variables import KNOWN
from hwopt.errors import UserError, suggest
from hwopt.integers.counting import count
from hwopt.integers.relations import AllowedRange, Divides, ProductLimit
from hwopt.workload.training import TrainingRun

_EFFORT = 1e6
"""Number of points after which the test whether any design exists is left to the search."""

_NEAR = 64
"""Number of neighboring values on each side that are tried to suggest one that is possible."""


def part_value(name: str, text: str) -> float:
    """Return the value of a part of a plan from its text: that of its variable, or 0 and 1 for no and yes.

    **Raises:** `UserError` for a text that is not a value of this part.
    """
    if name == "recompute":
        if text not in KNOWN[name].words:
            raise UserError(f"plan: recompute={text}: {suggest(text, KNOWN[name].words)}")
        return 1.0 + KNOWN[name].words.index(text)
    if name.endswith("_offloaded") or name in ("sequence_parallel", "two_batches", "weights_gathered"):
        return flag(name, text, False)
    return float(integer(name, text))


def with_plan(problem: Problem, chips: float, settings: Mapping[str, str]) -> Problem:
    """Return a question with its number of chips and parts of its plan fixed; all else remains free.

    A value may be outside the question's own range if the lattice has it.

    **Arguments:** `chips`: 0 for any number; `settings`: parts of a plan by full name, as text.

    **Raises:** `UserError` for a part that a design question does not choose, where the software does not document the plan,
    and where no design has these values.
    """
    (workload, cluster, plan, _), known = problem.template, lattice_of(problem).names
    stated: dict[str, float] = {"chips": integer("chips", chips)} if chips else {}
    for name, text in settings.items():
        value, tier = part_value(name, text), name.replace("_offloaded", "_tier")
        at = "replicas" if name == "dp" and "replicas" in known else tier
        if at in known:
            stated[at] = value + (tier != name)
        elif getattr(plan.groups[""], name, None) != value:
            raise UserError(f"plan: {name}={text} is not a choice of a design question; hwopt estimate takes it")
    columns = {name.removesuffix("_tier"): value for name, value in stated.items()}
    if isinstance(workload, TrainingRun) and (missing := undocumented(plan, cluster.stack.capabilities, columns)):
        raise UserError(
            f"{problem.name}: {problem.provenance.records['stack'].slug} does not document {' and '.join(missing)}: choose "
            "another stack, or set any_software"
        )
    if not stated:
        return problem
    words = ", ".join(_words(*each) for each in stated.items())
    if not _exists(fixed := _fixed(problem, stated)):
        raise UserError(f"{problem.name}: no design has {words}{_intent(problem, stated)}")
    return replace(fixed, question=f"{problem.question}; fixed: {words}")


def _words(name: str, value: float) -> str:
    """Return a fixed value in the syntax of a plan."""
    shown = KNOWN[name].words[round(value) - 1] if name == "recompute" else f"{value - name.endswith('_tier'):.12g}"
    return f"{name.replace('_tier', '_offloaded').replace('replicas', 'dp')}={shown}"


def _fixed(problem: Problem, stated: Mapping[str, float]) -> Problem:
    """Return the question with values fixed: variables by their ranges, other coordinates by relations of the lattice."""
    own = {each.name for each in problem.variables}
    factors = lambda name: ("tp", "pp", "replicas") if name == "chips" else (name,)
    relations = (ProductLimit(factors(name), (), x, x) for name, x in stated.items() if name not in own)
    return replace(problem.kept_at(stated), relations=(*problem.relations, *relations))


def _exists(problem: Problem) -> bool:
    """Return whether the lattice of a question has a point, or may have one."""
    lattice = lattice_of(problem).without_pieces()
    limits = [(x.factors, x.low) for x in lattice.relations if isinstance(x, ProductLimit) and x.is_fixed]
    shares = [each for each in lattice.relations if isinstance(each, Divides)]
    known = [(whole, each) for factors, whole in limits for each in shares if {*factors} == {*each.dividend}]
    for whole, each in ((whole, each) for whole, each in known if not isinstance(whole, AllowedRange)):
        sizes = product(*(lattice.values_of(lattice.by_name[name]) for name in each.divisor))
        if all(whole * each.multiple % (each.constant * math.prod(size)) for size in sizes):
            return False  # which counting finds late
    found = count(lattice, _EFFORT)
    return found.points > 0.0 or not found.complete


def _intent(problem: Problem, stated: dict[str, float]) -> str:
    """Return the nearest possible values on both sides of the last part that alone can resolve the contradiction, in words."""
    rack = lattice_of(problem).by_name.get("chips_per_rack")
    sizes = lattice_of(problem).values_of(rack) if rack else [1]
    split = math.prod(x for each, x in stated.items() if each in ("tp", "pp", "cp", "dp", "replicas"))
    for name, value in reversed(stated.items()):
        step = math.lcm(round(split), math.gcd(*map(round, sizes))) if name == "chips" else 1
        sides = range(math.ceil(value / step) - 1, 0, -1), range(int(value / step) + 1, int(value / step) + _NEAR)
        found = [
            next((x * step for x in side[:_NEAR] if _exists(_fixed(problem, {**stated, name: x * step}))), None)
            for side in sides
        ]
        if any(found):
            return f"; possible: {' or '.join(_words(name, x) for x in found if x is not None)}"
    return ""
