"""One design question in mathematics: minimise a metric over a box of variables, under budgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwopt.design.metrics import METRICS, Metric, numbers
from hwopt.design.variables import Design, Variable, completed, present
from hwopt.errors import UserError, suggest
from hwopt.model.chip_project import margins
from hwopt.model.estimate import estimate, report_type
from hwopt.model.maximum import pick
from hwopt.types import Scalar


def bounds(workload: Any) -> tuple[str, ...]:
    """Names of what bounds every design besides its budgets: margins of its report, and the clock.

    A design asks for no clock that it cannot sustain: throttling answers `estimate`, but as a design it would be a clock
    that buys nothing.
    """
    return (*report_type(workload).BOUNDS, "clock")


SILICON = ("reticle", "shoreline")
"""What bounds a chip in the making besides."""

_NOTHING_USED = 1e-9
"""Share of its budget that a metric of exactly 0 counts as, such as capital of a rented cluster: the logarithm is finite,
and so far below the limit that no solver takes the budget for active. Only finiteness hangs on the number."""


@dataclass(frozen=True)
class Budget:
    """An upper limit on a metric, in SI units."""

    name: str
    metric: Metric
    limit: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.limit) and self.limit > 0):
            raise UserError(
                f"budget '{self.name}' = {self.limit}: it must be a positive, finite number ({self.metric.unit})"
            )


class Values(NamedTuple):
    """Objective and constraints in log space: scale-free, so multipliers are elasticities."""

    objective: Scalar  # log F
    constraints: Float[Array, " constraint"]  # log(used / limit) <= 0: as `Problem.constraints` names them


@dataclass(frozen=True)
class Form:
    """The structure of a question: where variables go, what is minimised, what is limited.

    Questions of one form differ in numbers only, so they share one trace and one compiled solver.
    """

    places: tuple[tuple[str, Callable[[Design, Scalar], Design], bool], ...]  # name, how it is set, whole numbers only
    objective: Metric
    budgets: tuple[Metric, ...]


@dataclass(frozen=True)
class Problem:
    """Minimise `objective` over `variables`, budgets and the plan's own constraints holding.

    **Arguments:** `template`: what the variables are put into; `sources`: citations behind the
    template's numbers.
    """

    name: str
    question: str
    objective: Metric
    variables: tuple[Variable, ...]
    budgets: tuple[Budget, ...]
    template: Design
    sources: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        names = [each.name for each in self.variables]
        if len(set(names)) != len(names):
            raise UserError(f"problem '{self.name}': a variable stands twice in {', '.join(names)}")
        for each in self.variables:
            each.bounded()
        known = numbers(self.template.workload)
        for each in (self.objective, *(budget.metric for budget in self.budgets)):
            if each.name in METRICS and each.name not in known:
                raise UserError(
                    f"problem '{self.name}': its workload has no '{each.name}': {suggest(each.name, known)}"
                )

    def narrowed(self, boxes: Mapping[str, tuple[float, float]]) -> Problem:
        """The same question with variables in boxes of one's own, inside those it has.

        **Arguments:** `boxes`: (lower, upper) in SI units by name of a variable.

        **Raises:** `UserError` for an unknown name, an empty box, or one that reaches beyond the question's.
        """
        known = {each.name: each for each in self.variables}
        for name, (low, high) in boxes.items():
            if name not in known:
                raise UserError(f"'{name}' is no variable of '{self.name}': {suggest(name, known)}")
            held = known[name]
            if low < held.lower * (1 - 1e-9) or high > held.upper * (1 + 1e-9):
                raise UserError(
                    f"bounds of '{name}' = {low:g}:{high:g} reach beyond {held.lower:g}:{held.upper:g} {held.unit}"
                    + (f" ({held.box_meaning})" if held.box_meaning else "")
                )
            known[name] = held.bounded(low, high)
        return replace(self, variables=tuple(known.values()))

    def frozen(self, names: Iterable[str]) -> Problem:
        """The same question with variables held at what its machine has now ("the chip is taped out").

        **Arguments:** `names` of variables, or of their categories (size, chip, silicon, network, facility, plan, workload).

        **Raises:** `UserError` for a name that is neither.
        """
        categories = {each.category for each in self.variables} - {"rounding"}
        held = {}
        for name in names:
            chosen = [each for each in self.variables if name in (each.name, each.category)]
            if not chosen:
                raise UserError(
                    f"'{name}' is neither a variable nor a category of '{self.name}': "
                    f"{suggest(name, [*(v.name for v in self.variables), *categories])}"
                )
            held |= {each.name: (value := present(each, self.template), value) for each in chosen}
        return self.narrowed(held)

    @property
    def lower(self) -> Float[Array, " variable"]:
        """Logarithms of the lower bounds."""
        return jnp.log(jnp.asarray([each.lower for each in self.variables]))

    @property
    def upper(self) -> Float[Array, " variable"]:
        """Logarithms of the upper bounds."""
        return jnp.log(jnp.asarray([each.upper for each in self.variables]))

    @property
    def limits(self) -> Float[Array, " budget"]:
        """Budget limits in SI units."""
        return jnp.asarray([each.limit for each in self.budgets])

    @property
    def form(self) -> Form:
        """The question without its numbers."""
        return Form(
            places=tuple((each.name, each.put, each.whole) for each in self.variables),
            objective=self.objective,
            budgets=tuple(each.metric for each in self.budgets),
        )

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of what bounds a design: budgets, what makes a plan and a rack one, what makes a chip one."""
        silicon = SILICON if self.template.project is not None else ()
        return (*(each.name for each in self.budgets), *bounds(self.template.workload), *silicon)


def put(form: Form, template: Design, values: Iterable[Scalar]) -> Design:
    """One point of the design space, values in the order of the form's places."""
    design = template
    for (_, setter, _), value in zip(form.places, values, strict=True):
        design = setter(design, value)
    return completed(design)


def place(form: Form, template: Design, log_values: Float[Array, " variable"], whole: bool = False) -> Design:
    """One point of the design space, given in logarithms.

    **Arguments:** `whole` rounds whole-number variables, which `exp(log(n))` misses by the last bit.
    """
    held = zip(form.places, jnp.exp(log_values), strict=True)
    return put(form, template, [jnp.round(value) if whole and is_whole else value for (_, _, is_whole), value in held])


def values(form: Form, design: Design, report: Any, limits: Array) -> Values:
    """Objective and constraints of a design and its report; `limits` of the budgets, SI."""
    used = [each.value(report) for each in form.budgets]
    budgets = [_log_share(value / limit) for value, limit in zip(used, limits, strict=True)]
    own = [-attrgetter(name)(report.margins) for name in report.BOUNDS] + [-report.clock_margin]
    if design.project is not None:
        silicon = margins(design.project)
        own += [-silicon[name] for name in SILICON]
    return Values(jnp.log(form.objective.value(report)), jnp.stack(budgets + own))


def _log_share(share: Scalar) -> Scalar:
    """Logarithm of the share of a budget that is used: exact above 0; at 0 that of `_NOTHING_USED`, without a gradient.

    Not a number stays not a number.
    """
    nothing = share == 0.0
    some = jnp.log(pick(nothing, jnp.ones_like(share), share))  # the branch not taken has a finite slope too
    return pick(nothing, jnp.full_like(share, math.log(_NOTHING_USED)), some)


def evaluate(
    form: Form, template: Design, log_values: Float[Array, " variable"], limits: Array, temperature: Scalar | None
) -> Values:
    """Objective and constraints of one point.

    **Arguments:** `template` and `limits` (of the budgets, SI) as arrays, so that other chips, sites and budgets are new
    numbers and not a new trace.
    """
    design = place(form, template, log_values)
    return values(form, design, estimate(*design.inputs, temperature=temperature), limits)


class Objective(Protocol):
    """A design question: a plain dataclass of budgets and choices that can state itself as a `Problem`."""

    def problem(self) -> Problem:
        """The question in mathematics."""
        ...
