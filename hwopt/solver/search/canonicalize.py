"""Canonicalization: a design problem's jaxpr as a convex program in log space, with integers relaxed to ranges or fixed."""

import math
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from typing import Any

import jax
import numpy as np
from jax.extend import core

from hwopt.design.problem import Problem, ProblemForm, own_margins, set_variables
from hwopt.integers.system import System
from hwopt.model.estimate import Lifted, lifted_estimate
from hwopt.solver.gp import monotone_cuts
from hwopt.solver.gp.canonical import ConvexProgram, ProgramBuilder, draft, ratio
from hwopt.solver.gp.integer_relaxation import Ends, relaxed_system
from hwopt.solver.gp.reader import read, read_line
from hwopt.solver.gp.signomial import Algebra, Signomial, number
from hwopt.solver.gp.tape import is_number
from hwopt.trace.arrays import objects
from hwopt.trace.cache import TracedFunction, cached_trace
from hwopt.trace.scalar_program import ScalarProgram
from hwopt.trace.symbols import Symbol

LIFTED = {"junction_k": (250.0, 500.0), "useful_tokens": (1e6, 1e17), "checkpoint_interval_s": (1e-3, 1e9)}
"""Ranges, wider than any design's, of quantities found by root search in the model and variables in the convex program."""


def lifted_boxes(template: Any) -> dict[str, tuple[float, float]]:
    """Return the ranges of the lifted variables. If prefill has chips of its own, their junction temperature is added."""
    two = len(template.cluster.groups) > 1
    return LIFTED | ({"prefill_junction_k": LIFTED["junction_k"]} if two else {})


TOLERANCE = 1e-9
"""Relative violation up to which a constant constraint counts as satisfied."""

_GOAL = "objective"
_LEARNING = "learning"


@dataclass(frozen=True)
class _Outputs:
    """Outputs of a problem form by name: objective, use of each budget over its limit, negated log margins (met if <= 0)."""

    form: ProblemForm
    tree: Any  # structure of the template
    shapes: tuple[tuple[int, ...], ...]  # of its leaves

    def __call__(self, leaves: list, values: dict, lifted: Lifted, limits: list) -> OrderedDict[str, Any]:
        design = set_variables(
            self.form, jax.tree.unflatten(self.tree, leaves), [values[name] for name, _, _ in self.form.places]
        )
        report, state = lifted_estimate(*design.inputs, lifted)
        margins = own_margins(design, report)
        margins |= {"heat": state.heat, _LEARNING: state.learning, "storage": state.storage}
        result = OrderedDict([(_GOAL, self.form.objective.value(report))])
        result |= {name: each.value(report) / limits[i] for i, (name, each) in enumerate(self.form.budgets)}
        return result | {name: -margin for name, margin in margins.items()}

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Shapes of the inputs: template leaves, variables, lifted variables and budget limits."""
        number: Any = lambda *shape: jax.ShapeDtypeStruct(shape, np.float64)
        values = {name: number() for name, _, _ in self.form.places}
        lifted = Lifted(**{name: number() for name in lifted_boxes(jax.tree.unflatten(self.tree, self.shapes))})
        return [number(*shape) for shape in self.shapes], values, lifted, [number() for _ in self.form.budgets]


@cache
def _general(form: ProblemForm, tree: Any, shapes: tuple) -> TracedFunction:
    """Return the outputs of a form as scalar operations on template leaves, variables, lifted variables and budget limits."""
    outputs = _Outputs(form, tree, shapes)
    return cached_trace(outputs, *outputs.inputs, key=(form, jax.tree.unflatten(tree, shapes)))


@lru_cache(maxsize=32)
def _line(
    form: ProblemForm, tree: Any, shapes: tuple, numbers: bytes, varied: tuple[int, ...], learns: bool
) -> tuple[ScalarProgram, list[str]]:
    """Return the outputs as scalar operations for one machine, and their names.

    The machine's numbers are constants, except those at `varied`, which are inputs.
    """
    constants: list[float | None] = list(np.frombuffer(numbers, np.float64))
    for place in varied:
        constants[place] = None
    known = _general(form, tree, shapes).known(constants)
    names = _needed(known.shapes, learns)
    return known.only(lambda outputs: [outputs[name] for name in names]).line, names


_EXPONENTS = {"pow": 1, "dies_made": 3}
"""Operations that have an exponent, and the index of that argument."""

_FREE = -1
"""Mark of values that depend on variables."""


@cache
def exponent_places(form: ProblemForm, tree: Any, shapes: tuple) -> tuple[int, ...]:
    """Return indices of the template's numbers (`flat_numbers`) that determine the exponent of an expression in variables.

    Machines that differ in one of these numbers have convex programs of different structure.
    """
    line = _general(form, tree, shapes).line
    leaves = sum(math.prod(shape) for shape in shapes)
    follows = {id(symbol): 1 << i if i < leaves else _FREE for i, symbol in enumerate(line.inputs)}
    found = 0
    for symbol in line.operations:
        each = [follows[id(part)] if isinstance(part, Symbol) else 0 for part in symbol.arguments]
        exponent = _EXPONENTS.get(symbol.name)
        if exponent is not None and min(each[:exponent]) < 0:
            found |= max(each[exponent], 0)
        follows[id(symbol)] = _FREE if min(each, default=0) < 0 else reduce(operator.or_, each, 0)
    return tuple(i for i in range(leaves) if found >> i & 1)


def _needed(outputs: Iterable[str], learns: bool) -> list[str]:
    """Return the names of the outputs to read; the learning margin only if the problem uses the loss."""
    return [name for name in outputs if learns or name != _LEARNING]


@cache
def _jaxpr(form: ProblemForm, tree: Any, shapes: tuple) -> tuple[core.ClosedJaxpr, list[str]]:
    """Return the outputs of a form as a jaxpr, and their names."""
    outputs = _Outputs(form, tree, shapes)
    with jax.enable_x64(True):
        jaxpr, returned = jax.make_jaxpr(outputs, return_shape=True)(*outputs.inputs)
    return jaxpr, list(returned)


@dataclass(frozen=True)
class Canonical:
    """Outputs of the model at nodes: signomials, or numbers where no variable is involved."""

    algebra: Algebra
    objective: Signomial
    constraints: dict[str, Signomial]
    holds: np.ndarray  # (node,) or (1,): whether the constant constraints are satisfied
    implied: dict[str, Signomial]  # redundant constraints that tighten the relaxation (`monotone_cuts`)

    def draft(
        self,
        extra: Mapping[str, Signomial] | None = None,
        goal: Signomial | None = None,
        rows_of: Callable[[Algebra], ProgramBuilder] = ProgramBuilder,
    ) -> ConvexProgram:
        """Return the draft of the convex program.

        **Arguments:**

        - `extra`: additional constraints by label, each at most 1.
        - `goal`: objective in place of the problem's.
        - `rows_of`: builder of the rows: a global relaxation, or `Condensation`.
        """
        return draft(self.algebra, goal or self.objective, self.constraints | dict(extra or {}), rows_of)


def free_values(
    problem: Problem, system: System, algebra: Algebra, ends: Ends
) -> tuple[dict[str, Signomial], dict[str, Signomial]]:
    """Return the problem's variables over ranges of integers, and the constraints (at most 1) that tie the integers together.

    A variable whose lower and upper bounds are equal is a constant, unless `ends` has bounds for it.

    **Arguments:** `ends`: bounds by name, in place of the variables' own.
    """
    values, ties = relaxed_system(system, algebra, ends)
    for each in problem.variables:
        if each.name in values:
            continue
        if each.name in ends:
            values[each.name] = algebra.variable(each.name, *ends[each.name])
        else:
            fixed = each.lower == each.upper
            values[each.name] = number(each.lower) if fixed else algebra.variable(each.name, each.lower, each.upper)
    names = {each.name for each in problem.variables}
    return {name: value for name, value in values.items() if name in names}, ties


def canonicalize(
    problem: Problem,
    algebra: Algebra,
    values: Mapping[str, Signomial],
    elastic: Mapping[str, Any] | None = None,
    limits: Sequence[Any] | None = None,
    template: Sequence[np.ndarray] | None = None,
    varied: Mapping[int, Any] | None = None,
    lifted: Mapping[str, tuple[float, float]] | None = None,
) -> Canonical:
    """Return objective and constraints of a problem at some nodes, as signomials or numbers.

    **Arguments:**

    - `values`: the problem's variables by name, as atoms of the algebra or as numbers.
    - `elastic`: monomial, by budget name, by which the budget's limit may be exceeded.
    - `limits`: budget limits in place of the problem's.
    - `template`: leaves of the template, one row for each node (node, *shape), where they differ between nodes.
    - `varied`: alternative to `template`: single numbers of the template (node,), by their index in `flat_numbers`.
    - `lifted`: ranges in place of those of `lifted_boxes`.

    **Raises:** `NotDGP` where the model has no form as a geometric program.
    """
    key = problem.trace_key
    roots = [
        algebra.variable(name, *box) for name, box in (lifted_boxes(problem.template) | dict(lifted or {})).items()
    ]
    free = [values[name] for name in sorted(each.name for each in problem.variables)]  # jax's order of dict entries
    numbers = [number(each) for each in limits or [budget.limit for budget in problem.budgets]]
    arguments = [each if each.constant is None else each.constant for each in (*free, *roots, *numbers)]
    learns = any(each.name == "loss" for each in (problem.objective, *(b.metric for b in problem.budgets)))
    if template is None:
        known, varied = flat_numbers(problem.template), varied or {}
        known[list(varied)] = 0.0
        line, names = _line(*key, known.tobytes(), tuple(varied), learns)
        results = read_line(line, [*varied.values(), *arguments], algebra)
    else:
        jaxpr, every = _jaxpr(*key)
        names = _needed(every, learns)
        arrays = [objects([each], ()) if isinstance(each, Signomial) else each for each in arguments]
        results = read(jaxpr, [*template, *arrays], algebra, [name in names for name in every])
        results = [each[()] if each.dtype == object else each for each in results if each is not None]
    outputs: dict[str, Any] = dict(zip(names, results, strict=True))
    objective = outputs.pop(_GOAL)
    objective = number(objective) if is_number(objective) else objective
    budgets = {each.name for each in problem.budgets}
    constraints: dict[str, Signomial] = {}
    implied: dict[str, Signomial] = {}
    holds: Any = np.ones(1, bool)
    for name, value in outputs.items():
        share = _share(value, algebra, is_share=name in budgets)
        if elastic and name in elastic:
            share = algebra.over(share, elastic[name])
        if share.constant is not None:
            holds = holds & (share.constant <= 1.0 + TOLERANCE)
        elif not any(share.same(other) for other in constraints.values()):
            constraints[name] = share
            if name in budgets and name not in (elastic or {}):
                implied |= monotone_cuts.cut_rows(algebra, share, name)
    return Canonical(algebra, objective, constraints, holds, implied)


def flat_numbers(template: Any) -> np.ndarray:
    """Return all numbers of a template as one array (number,), leaf after leaf."""
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(template)])


def _share(value: Any, algebra: Algebra, is_share: bool) -> Signomial:
    """Return a constraint's left-hand side, which must not exceed 1.

    **Arguments:** `is_share`: whether `value` is that already, and not its logarithm.
    """
    if is_number(value):
        return number(value if is_share else np.exp(value))
    return value if is_share and isinstance(value, Signomial) else ratio(value, algebra)
