"""A question as a function of what a user may move around one design: plan, hardware, assumptions and limits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.design.exact import ExactModel, ExactValues
from hwopt.design.lattices import lattice_of
from hwopt.design.problem import Problem
from hwopt.design.template_inputs import Input, template_inputs
from hwopt.integers.sampling import broken
from hwopt.model.report import TrainServeReport, outputs
from hwopt.plan import OFFLOADED
from hwopt.trace.scalar_program import ScalarProgram, scalar_program
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
"""Assumptions that a user may move -> the inputs that each of them scales, as a pattern of their names."""

ROOM = 4.0
"""Factor up and down within which an assumption or a limit may be moved."""

METRICS = (
    "run_time_s", "step_time_s", "time_to_first_token_s", "time_to_first_token_p95_s", "time_per_output_token_s",
    "time_per_output_token_full_batch_s", "tokens_per_s", "requests_per_s", "mfu", "goodput", "mean_time_between_failures_s",
    "memory_per_chip_bytes", "chip_power_w", "rack_power_w", "peak_power_w", "power_w", "energy_per_token_j", "capex_usd",
    "run_cost_usd", "cost_per_token_usd",
)  # fmt: skip
"""Metrics that a live page shows, of those that a report has."""

Control = dict[str, Any]
"""Number that a user may move: `name` in links, `label`, `group`, `unit`, `value` in the design, ends `lower` and `upper` (SI),
whether `integer`, allowed `values` if few, `words` of a category, and `places` in the template that scale with it."""


def _control(name: str, value: float, ends: Sequence[float], group: str, unit: str, **more: Any) -> Control:
    own = {"name": name, "label": "", "value": value, "lower": ends[0], "upper": ends[1], "group": group, "unit": unit}
    return own | {"integer": False, "values": (), "words": (), "places": ()} | more


def _ends(each: Input) -> tuple[float, float]:
    """Return the ends of an assumption; shares stay below 1, ratios such as a peak over its mean above it."""
    share, ratio = not each.unit and each.value < 1.0, not each.unit and each.value >= 1.0
    return 1.0 if ratio else each.value / ROOM, 1.0 if share else each.value * ROOM


class LiveModel:
    """A question around one design.

    **Arguments:**

    - `problem`: a question whose integers are whole, as buildable designs are.
    - `values`: its variables in the design, SI, by name.
    """

    def __init__(self, problem: Problem, values: Mapping[str, float]):
        self.problem, self.system = problem, lattice_of(problem).without_pieces()
        looked_up = {name for lookup in self.system.lookups for name in lookup.names}
        columns = self.system.coordinates_at({name: x for name, x in values.items() if name not in looked_up})
        self.point = {name: max(1.0, float(np.round(x))) for name, x in columns.items()}
        self._design = {**values, **self.system.quantities_at(self.point)}
        self.whole = {*self.system.names, *self.system.quantities}
        self.numbers = ExactModel(problem).numbers
        # `live_program` joins models with equal keys, which have one trace and equal look-up tables.
        self.key = problem.trace_key, repr([(x.of, getattr(x.function, "args", ())) for x in self.system.lookups])

    @cached_property
    def controls(self) -> list[Control]:
        """Return the controls of the page; a control with equal ends is fixed."""
        integers, inputs, limits = self._integers(), template_inputs(self.problem), len(self.numbers) - 1
        movable = {each["name"] for each in integers if each["lower"] < each["upper"]}
        continuous = [
            _control(each.name, self._design[each.name], (each.lower, each.upper), each.category, each.unit)
            for each in self.problem.variables
            if each.name not in self.whole and each.category != "lookup"
        ]
        shares = [  # whole percents, as searches have them, of a part whose tier may be the pool
            _control(name, self._design.get(name) or 1.0, (0.01 if tier in movable else 1.0, 1.0), "plan", "fraction")
            for name, tier in ((name, name.replace("_offloaded", "_tier")) for name in OFFLOADED)
            if name in self._design
        ]
        groups = [[each for each in inputs if re.search(pattern, each.name)] for pattern in ASSUMPTIONS.values()]
        assumed = [
            _control(
                one.name, one.value, _ends(one), "assumption", one.unit, label=label, places=[x.place for x in some]
            )
            for label, some in zip(ASSUMPTIONS, groups, strict=True)
            for one in some[:1]
        ]
        budgets = [
            _control(x.name, x.limit, (x.limit / ROOM, x.limit * ROOM), "limit", x.metric.unit, places=[(limits, i)])
            for i, x in enumerate(self.problem.budgets)
        ]
        return [*integers, *continuous, *shares, *assumed, *budgets]

    def _integers(self) -> list[Control]:
        boxes, known = self.system.initial_boxes(), {each.name: each for each in self.problem.variables}
        followed, found = {each.follows: each for each in self.system.quantities.values()}, list[Control]()
        for each in self.system.coordinates:
            low, high = self.system.column(boxes, each.name)
            product, name, ends = followed.get(each.name), each.name, (float(low.min()), float(high.max()))
            values = [x for x in each.values or () if ((low <= x) & (x <= high)).any()]
            if product is not None:
                name, ends, values = product.name, tuple(map(float, product.ends(self.point))), []
            kind = known.get(name)
            group, unit, words = (kind.category, kind.unit, kind.words) if kind else ("plan", "", ())
            more = {"integer": True, "values": values, "words": words}
            found.append(_control(name, self._design[name], ends, group, unit, **more))
        return found

    @cached_property
    def outputs(self) -> tuple[tuple[str, str, str], ...]:
        """Group, name and SI unit of each output: the objective, metrics, budgets, constraints (logarithms), and parts."""
        shapes = ExactModel(self.problem).shapes
        return tuple(self.values(jax.tree.map(lambda each: np.zeros(each.shape), shapes)))

    def values(self, exact: ExactValues) -> dict[tuple[str, str, str], Any]:
        """Return the outputs of an evaluated design."""
        report, goal, parts = (
            exact.report,
            self.problem.objective,
            (("breakdown", "s"), ("spending", ""), ("memory", "B")),
        )
        units = {name: each.unit for name, each in outputs(type(report)).items()}
        both = isinstance(report, TrainServeReport)
        machines = {"training ": report.training, "serving ": report.serving} if both else {"": report}
        return {
            ("objective", goal.name, goal.unit): goal.value(report),
            **{("metric", name, units[name]): getattr(report, name) for name in METRICS if name in units},
            **{("budget", each.name, each.metric.unit): each.metric.value(report) for each in self.problem.budgets},
            **{("constraint", name, ""): exact.constraints[i] for i, name in enumerate(self.problem.constraints)},
            **{
                (f"{words}{group}", name, unit): value
                for words, machine in machines.items()
                for group, unit in parts
                for name, value in getattr(machine, group)._asdict().items()
            },
        }

    def is_buildable(self, setting: Mapping[str, float]) -> bool:
        """Return whether a setting's integers are whole and fulfill the relations that those of the design fulfill."""
        start = {each["name"]: each["value"] for each in self.controls}
        at = lambda values: self.system.coordinates_at({name: x for name, x in values.items() if name in self.whole})
        pairs = zip(broken(self.system, at(start | dict(setting))), broken(self.system, at(start)), strict=True)
        return not any(now and not before for now, before in pairs)

    def stated(self, setting: Mapping[str, float]) -> tuple[Problem, dict[str, float]]:
        """Return the question with a setting's assumptions and limits, and the variables of its design, by name, SI."""
        values = {each["name"]: setting.get(each["name"], each["value"]) for each in self.controls}
        point = self.system.coordinates_at({name: x for name, x in values.items() if name in self.whole})
        design = {**values, **self.system.quantities_at(point)}
        moved = [each for each in self.controls if each["places"] and values[each["name"]] != each["value"]]
        factors = {x: values[c["name"]] / c["value"] for c in moved if c["group"] != "limit" for x in c["places"]}
        problem = self.problem.with_numbers(factors) if factors else self.problem
        said = ", ".join(f"{c['label'] or c['name']} {pretty(values[c['name']], c['unit'])}" for c in moved)
        question = f"{problem.question}; here with {said}" if said else problem.question
        budgets = tuple(replace(each, limit=values[each.name]) for each in problem.budgets)
        variables = {each.name: float(design.get(each.name, each.lower)) for each in problem.variables}
        return replace(problem, budgets=budgets, question=question), variables


def live_program(models: Sequence[LiveModel]) -> tuple[ScalarProgram, list[str], list[tuple[int, int]]]:
    """Return the outputs of models of one trace as one program, in which they differ by numbers only.

    **Returns:** the program; the names of its first inputs, which are integer coordinates and continuous variables; and the
    positions of the others: numbers that can be moved or that differ between models (`ExactModel.numbers`).
    """
    first, numbers = models[0], [each.numbers for each in models]
    fixed = [{c["name"]: c["value"] for c in each.controls if c["lower"] == c["upper"]} for each in models]
    free = [
        *first.system.names,
        *(c["name"] for c in first.controls if c["name"] not in first.whole and not c["places"]),
    ]
    names = [name for name in free if len({each.get(name) for each in fixed}) > 1 or name not in fixed[0]]
    moved = {place for each in models for c in each.controls for place in c["places"]}
    every = [(leaf, i) for leaf, own in enumerate(numbers[0]) for i in range(len(own))]
    places = [at for at in every if at in moved or len({own[at[0]][at[1]] for own in numbers}) > 1]

    def completed(x: Any) -> Any:
        known = {**fixed[0], **first.point, **dict(zip(names, x, strict=False))}
        found = {**known, **first.system.quantities_at(known)}
        variables = [found.get(each.name, each.lower) for each in first.problem.variables]
        return jnp.stack([jnp.asarray(each) for each in (*variables, *x[len(names) :])])

    line = ExactModel(first.problem).line(lambda exact: list(first.values(exact).values()), places)
    return line.of(scalar_program(completed, len(names) + len(places))), names, places
