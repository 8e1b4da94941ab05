"""A design question as a scalar program of what a user may move: plan, hardware, assumptions and limits, around one design."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.design.exact import ExactModel, ExactValues
from hwopt.design.lattices import lattice_of
from hwopt.design.problem import Problem
from hwopt.design.template_inputs import Input, template_inputs
from hwopt.integers.relations import ConditionalRelation, Divides, Nested, ProductLimit, Relation
from hwopt.model.report import TrainServeReport, outputs
from hwopt.trace.scalar_program import ScalarProgram, scalar_program
from hwopt.trace.simplify import simplified
from hwopt.units import pretty

ASSUMPTIONS = {
    "price of a chip without its memory": r"prices\.chip_base_usd$",
    "price of memory": r"prices\.hbm_usd_per_byte$",
    "price of electricity": r"facility\.electricity_usd_per_j$",
    "interest": r"prices\.capital_rate_per_s$",
    "share of time in use": r"prices\.occupancy$",
    "memory capacity of a chip": r"chip\.hbm_capacity_bytes$",
    "memory bandwidth of a chip": r"chip\.hbm_bandwidth_bytes_per_s$",
    "scale-up bandwidth": r"network\.bandwidth_bytes_per_s\[scale_up\]$",
    "scale-out bandwidth": r"network\.bandwidth_bytes_per_s\[scale_out\]$",
    "failure rate, all causes in proportion": r"reliability\.\w+_failures_per_\w+$",
    "requests": r"workload\.(\w+\.)?requests_per_s$",
    "tokens of a prompt": r"workload\.(\w+\.)?input_tokens$",
    "tokens of an answer": r"workload\.(\w+\.)?output_tokens$",
    "busiest hour over the mean hour": r"workload\.(\w+\.)?peak_over_mean$",
}
"""Assumptions that a user may move, and the inputs that each of them stands for, as a pattern of their names."""

ROOM = 4.0
"""Factor up and down within which an assumption or a limit may be moved."""

METRICS = (
    "run_time_s", "step_time_s", "time_to_first_token_s", "time_to_first_token_p95_s", "time_per_output_token_s",
    "time_per_output_token_full_batch_s", "tokens_per_s", "requests_per_s", "mfu", "goodput", "mean_time_between_failures_s",
    "memory_per_chip_bytes", "chip_power_w", "rack_power_w", "peak_power_w", "power_w", "energy_per_token_j", "capex_usd",
    "run_cost_usd", "cost_per_token_usd",
)  # fmt: skip
"""Metrics that a live page shows, of those that a report has."""


@dataclass(frozen=True)
class Control:
    """Number that a user may move.

    **Arguments:**

    - `name`, `label`: name in links and in commands, and what users read.
    - `group`: size, plan, hardware, assumption or limit.
    - `value`: value in the design, SI.
    - `values`: the only allowed values; empty for all in the range.
    - `inputs`: inputs that move with it, in proportion.
    """

    name: str
    label: str
    group: str
    unit: str
    value: float
    lower: float
    upper: float
    integer: bool = False
    values: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()


class LiveModel:
    """Exact model of a question as a function of controls.

    **Arguments:**

    - `problem`: a question whose integers are whole, as buildable designs are.
    - `values`: its variables in one design, SI, by name.
    """

    def __init__(self, problem: Problem, values: Mapping[str, float]):
        self.problem, self.system = problem, lattice_of(problem).without_pieces()
        known = {name: value for name, value in values.items() if name not in self._looked_up}
        self.point = {name: float(np.round(x)) for name, x in self.system.coordinates_at(known).items()}
        self._design = {**known, **self.system.quantities_at(self.point)}

    @property
    def _looked_up(self) -> set[str]:
        return {name for lookup in self.system.lookups for name in lookup.names}

    @cached_property
    def controls(self) -> tuple[Control, ...]:
        """What can be moved, and, with equal bounds, what is fixed."""
        return (*self._integers(), *self._continuous(), *self._assumptions(), *self._limits())

    def _integers(self) -> list[Control]:
        boxes, known = self.system.initial_boxes(), {each.name: each for each in self.problem.variables}
        followed = {each.follows: each for each in self.system.quantities.values()}
        found = []
        for each in self.system.coordinates:
            low, high = self.system.column(boxes, each.name)
            least, most = float(low.min()), float(high.max())
            name = followed[each.name].name if each.name in followed else each.name
            if each.name in followed:
                least, most = map(float, followed[each.name].ends(self.point))
            variable = known.get(name)
            values = tuple(x for x in each.values or () if least <= x <= most and ((low <= x) & (x <= high)).any())
            group, words = (variable.category, variable.words) if variable else ("plan", ())
            at = self._design[name]
            found.append(
                Control(name, name, group, variable.unit if variable else "", at, least, most, True, values, words)
            )
        return found

    def _continuous(self) -> list[Control]:
        return [
            Control(each.name, each.name, each.category, each.unit, self._design[each.name], each.lower, each.upper)
            for each in self.problem.variables
            if each.name not in self._whole and each.category != "lookup"
        ]

    @property
    def _whole(self) -> set[str]:
        return {*self.system.names, *self.system.quantities}

    def _assumptions(self) -> list[Control]:
        inputs, found = template_inputs(self.problem), []
        for label, pattern in ASSUMPTIONS.items():
            some = tuple(each for each in inputs if re.search(pattern, each.name))
            if some:
                one, low, high = some[0], some[0].value / ROOM, some[0].value * ROOM
                if not one.unit:  # shares stay below 1, ratios such as a peak over its mean above it
                    low, high = (low, 1.0) if one.value < 1.0 else (1.0, high)
                found.append(Control(one.name, label, "assumption", one.unit, one.value, low, high, inputs=some))
        return found

    def _limits(self) -> list[Control]:
        return [
            Control(each.name, each.name, "limit", each.metric.unit, each.limit, each.limit / ROOM, each.limit * ROOM)
            for each in self.problem.budgets
        ]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs of `program`: integer coordinates that are not fixed, then controls of other kinds."""
        fixed = {each.name for each in self.controls if each.lower == each.upper}
        free = (name for name in self.system.names if name not in fixed)
        return (*free, *(each.name for each in self.controls if each.name not in self._whole | fixed))

    @cached_property
    def program(self) -> ScalarProgram:
        """The outputs (`outputs`) as scalar operations on `inputs`."""
        leaves = len(jax.tree.leaves(self.problem.template))
        moved = [each for each in self.controls if each.group in ("assumption", "limit")]
        places = [each.place for control in moved for each in control.inputs]
        places += [(leaves, i) for i in range(len(self.problem.budgets))]
        fixed = {each.name: each.value for each in self.controls}

        def completed(x: Any) -> Any:
            known = {**fixed, **self.point, **dict(zip(self.inputs, x, strict=True))}
            found = {**known, **self.system.quantities_at(known)}
            variables = [found.get(each.name, each.lower) for each in self.problem.variables]
            numbers = [known[c.name] * (each.value / c.value) for c in moved for each in c.inputs]
            limits = [known[each.name] for each in self.problem.budgets]
            return jnp.stack([jnp.asarray(each) for each in (*variables, *numbers, *limits)])

        line = ExactModel(self.problem).line(lambda exact: list(self._outputs(exact).values()), places)
        return simplified(line.of(scalar_program(completed, len(self.inputs))))

    @cached_property
    def outputs(self) -> tuple[tuple[str, str, str], ...]:
        """Group, name and SI unit of each output: the objective, metrics, budgets, constraints (logarithms), and parts."""
        shapes = ExactModel(self.problem).shapes
        return tuple(self._outputs(jax.tree.map(lambda each: np.zeros(each.shape), shapes)))

    def _outputs(self, exact: ExactValues) -> dict[tuple[str, str, str], Any]:
        report, problem, of = exact.report, self.problem, ("objective", self.problem.objective.name)
        own = {name: each for name, each in outputs(type(report)).items() if name in METRICS}
        values = {(*of, problem.objective.unit): problem.objective.value(report)}
        values |= {("metric", name, own[name].unit): getattr(report, name) for name in METRICS if name in own}
        for each in problem.budgets:
            values["budget", each.name, each.metric.unit] = each.metric.value(report)
        for i, name in enumerate(problem.constraints):
            values["constraint", name, ""] = exact.constraints[i]
        both = {"training ": "training", "serving ": "serving"} if isinstance(report, TrainServeReport) else {"": ""}
        for words, part in both.items():
            machine = getattr(report, part) if part else report
            for group, unit in (("breakdown", "s"), ("spending", ""), ("memory", "B")):
                parts = getattr(machine, group)._asdict()
                values |= {(f"{words}{group}", name, unit): value for name, value in parts.items()}
        return values

    def stated(self, setting: Mapping[str, float]) -> tuple[Problem, dict[str, float]]:
        """Return the question with a setting's assumptions and limits, and the variables of its design, by name, SI."""
        values = {each.name: setting.get(each.name, each.value) for each in self.controls}
        point = self.system.coordinates_at({name: x for name, x in values.items() if name in self._whole})
        design = {**values, **self.system.quantities_at(point)}
        factors = {
            each.place: values[control.name] / control.value for control in self.controls for each in control.inputs
        }
        moved = {place: factor for place, factor in factors.items() if factor != 1.0}
        problem = self.problem.with_numbers(moved) if moved else self.problem
        budgets = tuple(replace(each, limit=values[each.name]) for each in problem.budgets)
        others = [c for c in self.controls if c.group in ("assumption", "limit") and values[c.name] != c.value]
        said = ", ".join(f"{c.label} {pretty(values[c.name], c.unit)}" for c in others)
        question = f"{problem.question}; here with {said}" if said else problem.question
        variables = {each.name: float(design.get(each.name, each.lower)) for each in problem.variables}
        return replace(problem, budgets=budgets, question=question), variables


def rule(relation: Relation) -> dict[str, Any] | None:
    """Return a relation as JSON; None for a limit that is a function, which the model itself measures."""
    if isinstance(relation, ConditionalRelation):
        then = rule(relation.then)
        return then and {**then, "when": [relation.name, relation.least]}
    if isinstance(relation, Divides):
        numbers = {"constant": relation.constant, "multiple": relation.multiple}
        return {"divisor": relation.divisor, "dividend": relation.dividend, **numbers}
    if isinstance(relation, Nested):
        return {"one": relation.one, "other": relation.other}
    if not isinstance(relation, ProductLimit) or callable(relation.low) or callable(relation.high):
        return None
    high = relation.high if np.isfinite(relation.high) else None
    ends = {"low": relation.low, "high": high, "by": relation.coefficient}
    return {
        "factors": relation.factors,
        "over": relation.over,
        **ends,
        "name": relation.name,
        "follows": relation.follows,
    }
