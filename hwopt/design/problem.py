"""One design question in mathematics: minimise a metric over a box of variables, under budgets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwopt import escape, renamed
from hwopt.design.design import Design, with_derived_parts
from hwopt.design.metrics import METRICS, Metric, numbers
from hwopt.design.provenance import Provenance
from hwopt.design.variables import Variable, VariableLens
from hwopt.errors import UserError, suggest
from hwopt.model.chip.chip_project import margins as chip_margins
from hwopt.model.estimate import estimate, margin_names
from hwopt.model.numerics.maximum import pick
from hwopt.types import Scalar
from hwopt.units import pretty

CLOCK = "clock"
"""The chip sustains the clock that it asks for: throttling answers `estimate`, but as a design it would be a clock that buys
nothing."""

SILICON = ("reticle", "shoreline", "package")
"""What bounds a drawn chip besides."""


_BOUGHT = ("chip", "silicon", "network", "facility")
"""Categories of variables that say what is bought."""

_NOTHING_USED = 1e-9
"""Share of its budget that a metric of exactly 0 counts as, such as capital of a rented cluster: the logarithm is finite,
and so far below the limit that no solver takes the budget for active. The number only keeps it finite."""


@dataclass(frozen=True)
class Budget:
    """An upper limit on a metric, in SI units. **Arguments:** `asked`: what was asked for, where this limit is tightened."""

    name: str
    metric: Metric
    limit: float
    asked: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.limit) and self.limit > 0):
            raise UserError(
                f"budget '{self.name}' = {self.limit}: it must be a positive, finite number ({self.metric.unit})"
            )

    def relaxed_words(self, logarithm: float, percent: str) -> str:
        """The budget and its limit relaxed by a logarithm."""
        limit = self.limit if self.asked is None else self.asked
        to = pretty(limit * math.exp(logarithm), self.metric.unit, 5)
        return f"{self.name} from {pretty(limit, self.metric.unit)} to {to} ({percent})"


class LogValues(NamedTuple):
    """Objective and constraints in log space: scale-free, so multipliers are elasticities."""

    objective: Scalar  # log F
    constraints: Float[Array, " constraint"]  # log(used / limit) <= 0: as `Problem.constraints` names them


@dataclass(frozen=True)
class ProblemForm:
    """The structure of a question: where variables go, what is minimised, what is limited.

    Questions of one form differ in numbers only, so they share one trace and one compiled solver.
    """

    places: tuple[tuple[str, VariableLens, bool], ...]  # name, where it stands, integers only
    objective: Metric
    budgets: tuple[tuple[str, Metric], ...]  # by name


@dataclass(frozen=True)
class Problem:
    """Minimise `objective` over `variables`, subject to `budgets` and the plan's own constraints.

    **Arguments:** `template`: what the variables are put into; `provenance`: where the template's numbers come from;
    `relaxation`: the same question over continuous hardware, where this one buys whole units.
    """

    name: str
    question: str
    objective: Metric
    variables: tuple[Variable, ...]
    budgets: tuple[Budget, ...]
    template: Design
    provenance: Provenance = field(default_factory=Provenance, repr=False)
    relaxation: Problem | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "question", escape.line(self.question))
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

    def problem(self) -> Problem:
        """Itself: a problem is a question too."""
        return self

    @property
    def continuous(self) -> Problem:
        """The question over continuous hardware: the one that elasticities and sweeps refer to.

        **Raises:** `UserError` for two kinds of chips, which are asked as they are sold.
        """
        if len(self.template.cluster.groups) > 1:
            raise UserError(
                f"'{self.name}' on two kinds of chips is asked in whole units, as they are sold, and has no continuous hardware: "
                "leave out decode_chip, or ask hwopt optimize in its usual regime"
            )
        return self.relaxation or self

    def narrowed(self, boxes: Mapping[str, tuple[float, float]]) -> Problem:
        """The same question with variables in boxes of one's own, inside those it has.

        **Arguments:** `boxes`: (lower, upper) in SI units by name of a variable.

        **Raises:** `UserError` for an unknown name, an empty box, or one that reaches beyond the question's.
        """
        known = {each.name: each for each in self.variables}
        for name, (low, high) in boxes.items():
            if name not in known:
                self._refuse_kept(name)
                raise UserError(f"'{name}' is no variable of '{self.name}': {suggest(name, known)}")
            own = known[name]
            if low < own.lower * (1 - 1e-9) or high > own.upper * (1 + 1e-9):
                raise UserError(
                    f"bounds of '{name}' = {low:g}:{high:g} reach beyond {own.lower:g}:{own.upper:g} {own.unit}"
                    + (f" ({own.box_meaning})" if own.box_meaning else "")
                )
            if own.integer and math.floor(high * (1 + 1e-9)) < math.ceil(low * (1 - 1e-9)):
                raise UserError(f"bounds of '{name}' = {low:g}:{high:g} hold no integer, and it counts things")
            known[name] = own.bounded(low, high)
        relaxation = None if self.relaxation is None else self.relaxation._within(boxes)
        return replace(self, variables=tuple(known.values()), relaxation=relaxation)

    def _within(self, boxes: Mapping[str, tuple[float, float]]) -> Problem:
        """The relaxation of a question in these boxes: what it holds fixed gives way to a box beside that."""
        variables = []
        for each in self.variables:
            low, high = boxes.get(each.name, (each.lower, each.upper))
            least, most = max(low, each.lower), min(high, each.upper)
            variables.append(each.bounded(*((least, most) if least <= most else (low, high))))
        return replace(self, variables=tuple(variables))

    @property
    def _names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.variables)

    def _refuse_kept(self, name: str) -> None:
        """A variable of continuous hardware that this question buys in parts, or keeps as sold.

        **Raises:** `UserError` that says what frees it.
        """
        if self.relaxation is not None and name in self.relaxation._names:
            raise UserError(
                f"'{name}' is no variable of '{self.name}' as it is asked: hardware is bought in whole units ("
                f"{', '.join(each.name for each in self.variables if each.category in _BOUGHT)}); --free hbm+links+domain+clock "
                "redesigns the chip, --regime relaxed takes continuous hardware"
            )

    @property
    def machine(self) -> dict[str, float]:
        """Values of the hardware variables on the template's machine, SI, by name."""
        bought = (each for each in self.variables if each.category in _BOUGHT)
        return {each.name: float(each.place.get(self.template)) for each in bought}

    def frozen(self, names: Iterable[str]) -> Problem:
        """The same question with variables kept at what its machine has now ("the chip is taped out").

        What the machine has is kept also where it lies outside the question's box: a torus of 8,960 chips is what is sold.
        A frozen clock is the most that the chip runs at: one that its cooling or power cap slows runs slower.

        **Arguments:** `names` of variables, or of their categories (size, chip, silicon, network, facility, plan, workload).

        **Raises:** `UserError` for a name that is neither, or a value that is not positive and finite.
        """
        categories = {each.category for each in self.variables} - {"lookup"}
        kept: dict[str, Variable] = {}
        names = tuple(names)
        for name in names:
            if name not in self._names | categories:
                self._refuse_kept(name)
            chosen = [each for each in self.variables if name in (each.name, each.category)]
            if not chosen:
                raise UserError(
                    f"'{name}' is neither a variable nor a category of '{self.name}': "
                    f"{suggest(name, [*(v.name for v in self.variables), *categories])}"
                )
            for each in chosen:
                value = float(each.place.get(self.template))
                least = value if each.least_frozen is None else min(each.least_frozen, value)
                kept[each.name] = each.bounded(least, value)
        relaxation = self.relaxation
        if relaxation is not None:
            relaxation = relaxation.frozen([name for name in names if relaxation._knows(name)])
        variables = tuple(kept.get(each.name, each) for each in self.variables)
        return replace(self, variables=variables, relaxation=relaxation)

    def kept_at(self, values: Mapping[str, float]) -> Problem:
        """The same question with variables at given values, inside its boxes or not. **Arguments:** `values`, SI, by name."""
        kept = {name: (value, value) for name, value in values.items()}
        variables = tuple(each.bounded(*kept.get(each.name, (None, None))) for each in self.variables)
        relaxation = None if self.relaxation is None else self.relaxation.kept_at(values)
        return replace(self, variables=variables, relaxation=relaxation)

    def _knows(self, name: str) -> bool:
        """Whether it is a variable or a category of them."""
        return any(name in (each.name, each.category) for each in self.variables)

    def relaxed(self, factors: Iterable[float]) -> Problem:
        """The same question with the limit of each budget times a factor."""
        factors = tuple(factors)
        relaxation = None if self.relaxation is None else self.relaxation.relaxed(factors)
        pairs = zip(self.budgets, factors, strict=True)
        budgets = tuple(replace(each, limit=each.limit * float(x)) for each, x in pairs)
        return replace(self, budgets=budgets, relaxation=relaxation)

    def tightened(self, factors: Iterable[float]) -> Problem:
        """The same question with the limit of each budget times a factor, which words about it leave out."""
        tight = self.relaxed(factors)
        pairs = zip(tight.budgets, self.budgets, strict=True)
        return replace(tight, budgets=tuple(replace(each, asked=before.limit) for each, before in pairs))

    def with_numbers(self, factors: Mapping[tuple[int, int], float]) -> Problem:
        """The same question with numbers of its template times factors, over hardware as it is bought here.

        **Arguments:** `factors` by place: which leaf of the template, and which element of it.
        """
        leaves, tree = jax.tree.flatten(self.template)
        leaves = [np.array(leaf, np.float64) for leaf in leaves]
        for (leaf, element), factor in factors.items():
            leaves[leaf].reshape(-1)[element] *= factor
        return replace(self, template=jax.tree.unflatten(tree, leaves), relaxation=None)

    @property
    def sources(self) -> tuple[str, ...]:
        """The references behind the template's numbers."""
        return self.provenance.sources

    @property
    def lower(self) -> Float[np.ndarray, " variable"]:
        """Logarithms of the lower bounds."""
        return np.log([each.lower for each in self.variables])

    @property
    def upper(self) -> Float[np.ndarray, " variable"]:
        """Logarithms of the upper bounds."""
        return np.log([each.upper for each in self.variables])

    @property
    def limits(self) -> Float[np.ndarray, " budget"]:
        """Budget limits in SI units."""
        return np.array([each.limit for each in self.budgets], np.float64)

    @property
    def form(self) -> ProblemForm:
        """The question without its numbers."""
        return ProblemForm(
            places=tuple((each.name, each.place, each.integer) for each in self.variables),
            objective=self.objective,
            budgets=tuple((each.name, each.metric) for each in self.budgets),
        )

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of what bounds a design: budgets, all that makes a report infeasible, the clock, a drawn chip's die."""
        silicon = SILICON if self.template.project is not None else ()
        return (*(each.name for each in self.budgets), *margin_names(self.template.workload), CLOCK, *silicon)


def set_variables(form: ProblemForm, template: Design, values: Iterable[Scalar]) -> Design:
    """One point of the design space, values in the order of the form's places."""
    design = template
    for (_, place_, _), value in zip(form.places, values, strict=True):
        design = place_.put(design, value)
    return with_derived_parts(design)


def design_at(
    form: ProblemForm, template: Design, log_values: Float[Array, " variable"], rounded: bool = False
) -> Design:
    """One point of the design space, given in logarithms.

    **Arguments:** `rounded` rounds integers, which `exp(log(n))` misses by the last bit.
    """
    values = zip(form.places, jnp.exp(log_values), strict=True)
    return set_variables(
        form, template, [jnp.round(x) if rounded and is_integer else x for (_, _, is_integer), x in values]
    )


def values(form: ProblemForm, design: Design, report: Any, limits: Any) -> LogValues:
    """Objective and constraints of a design and its report; `limits` of the budgets, SI."""
    used = [each.value(report) for _, each in form.budgets]
    budgets = [_log_share(value / limit) for value, limit in zip(used, limits, strict=True)]
    own = [-margin for margin in own_margins(design, report).values()]
    return LogValues(jnp.log(form.objective.value(report)), jnp.stack(budgets + own))


def own_margins(design: Design, report: Any) -> dict[str, Scalar]:
    """Signed logarithmic margins of `Problem.constraints` but the budgets, by name."""
    margins = report.margins_by_name() | {CLOCK: report.clock_margin}
    if design.project is not None:
        silicon = chip_margins(design.project)
        margins |= {name: silicon[name] for name in SILICON}
    return margins


def _log_share(share: Scalar) -> Scalar:
    """Logarithm of the share of a budget that is used: exact above 0; at 0 that of `_NOTHING_USED`, without a gradient.

    Not a number stays not a number.
    """
    nothing = share == 0.0
    some = jnp.log(pick(nothing, jnp.ones_like(share), share))  # the branch not taken has a finite slope too
    return pick(nothing, jnp.full_like(share, math.log(_NOTHING_USED)), some)


def evaluate(
    form: ProblemForm,
    template: Design,
    log_values: Float[Array, " variable"],
    limits: Array,
    temperature: Scalar | None,
) -> LogValues:
    """Objective and constraints of one point.

    **Arguments:** `template` and `limits` (of the budgets, SI) as arrays, so that other chips, sites and budgets are new
    numbers and not a new trace.
    """
    design = design_at(form, template, log_values)
    return values(form, design, estimate(*design.inputs, temperature=temperature), limits)


class Objective(Protocol):
    """A design question: a plain dataclass of budgets and choices that can state itself as a `Problem`."""

    def problem(self) -> Problem:
        """The question in mathematics."""
        ...


if not TYPE_CHECKING:  # old public names
    __getattr__ = renamed.getter(__name__)
