"""Mathematical form of a design question: minimize a metric over bounded variables, subject to budgets."""

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
from hwopt.integers.relations import Relation
from hwopt.model.chip.chip_project import margins as chip_margins
from hwopt.model.estimate import estimate, margin_names
from hwopt.model.numerics.maximum import pick
from hwopt.types import Scalar
from hwopt.units import pretty

CLOCK = "clock"
"""Name of the constraint that the chip sustains its requested clock. `estimate` models throttling, but a design should not pay
for a clock that it cannot use.
"""

SILICON = ("reticle", "shoreline", "package")
"""Further constraints of a parametric chip."""


_BOUGHT = ("chip", "silicon", "network", "facility")
"""Categories of variables that describe purchased hardware."""

_NOTHING_USED = 1e-9
"""Share of a budget that stands for a metric of exactly 0, such as the capital of a rented cluster. It keeps the logarithm
finite, and is so far below the limit that no solver takes the budget for active.
"""


@dataclass(frozen=True)
class Budget:
    """An upper limit on a metric, in SI units.

    **Arguments:** `asked`: the requested limit, where `limit` is a tightened one; otherwise None.
    """

    name: str
    metric: Metric
    limit: float
    asked: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.limit) and self.limit > 0):
            raise UserError(
                f"budget '{self.name}' = {self.limit}: must be a positive, finite number ({self.metric.unit})"
            )

    def relaxed_words(self, logarithm: float, percent: str) -> str:
        """Describe the relaxation of the limit by a factor given as a logarithm."""
        limit = self.limit if self.asked is None else self.asked
        to = pretty(limit * math.exp(logarithm), self.metric.unit, 5)
        return f"{self.name} from {pretty(limit, self.metric.unit)} to {to} ({percent})"


class LogValues(NamedTuple):
    """Objective and constraints in log space. They are scale-free, so that multipliers are elasticities."""

    objective: Scalar  # log F
    constraints: Float[Array, " constraint"]  # log(used / limit) <= 0, in the order of `Problem.constraints`


@dataclass(frozen=True)
class ProblemForm:
    """Structure of a question: its variables, objective and budgets without numbers.

    Questions of one form share one trace and one compiled solver.
    """

    places: tuple[tuple[str, VariableLens, bool], ...]  # name, position in the design, whether integer
    objective: Metric
    budgets: tuple[tuple[str, Metric], ...]  # by name


@dataclass(frozen=True)
class Problem:
    """Minimize `objective` over `variables`, subject to `budgets` and the plan's own constraints.

    **Arguments:**

    - `name`, `question`: name of the problem, and the question in words.
    - `template`: design that the variables are inserted into.
    - `provenance`: sources of the template's numbers.
    - `relaxation`: the question over continuous hardware, where this one buys whole units.
    - `relations`: relations of its lattice in addition to those of every question of its kind.
    """

    name: str
    question: str
    objective: Metric
    variables: tuple[Variable, ...]
    budgets: tuple[Budget, ...]
    template: Design
    provenance: Provenance = field(default_factory=Provenance, repr=False)
    relaxation: Problem | None = field(default=None, repr=False)
    relations: tuple[Relation, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "question", escape.line(self.question))
        names = [each.name for each in self.variables]
        if len(set(names)) != len(names):
            raise UserError(f"problem '{self.name}': a variable is repeated in {', '.join(names)}")
        for each in self.variables:
            each.bounded()
        known = numbers(self.template.workload)
        for each in (self.objective, *(budget.metric for budget in self.budgets)):
            if each.name in METRICS and each.name not in known:
                raise UserError(
                    f"problem '{self.name}': its workload has no '{each.name}': {suggest(each.name, known)}"
                )
            if not each.bounded:
                others = "a percentile, or a latency of a full batch such as time_per_output_token_full_batch_s"
                raise UserError(f"problem '{self.name}': no bound of '{each.name}' can be proved: use {others}")

    def problem(self) -> Problem:
        """Return the problem itself, so that a problem can be used as a question."""
        return self

    @property
    def continuous(self) -> Problem:
        """The question over continuous hardware, to which elasticities and sweeps refer.

        **Raises:** `UserError` for two chip types, which exist only as sold.
        """
        if len(self.template.cluster.groups) > 1:
            raise UserError(
                f"'{self.name}' with two types of chips has whole units of stock hardware only, not continuous hardware: "
                "remove decode_chip, or use the certified regime of hwopt optimize"
            )
        return self.relaxation or self

    def narrowed(self, boxes: Mapping[str, tuple[float, float]]) -> Problem:
        """Return the question with tighter bounds of some variables.

        **Arguments:** `boxes`: (lower, upper) in SI units, by name of the variable.

        **Raises:** `UserError` for an unknown name, for empty bounds, and for bounds beyond the question's own.
        """
        known = {each.name: each for each in self.variables}
        for name, (low, high) in boxes.items():
            if name not in known:
                self._refuse_kept(name)
                raise UserError(f"'{name}' is not a variable of '{self.name}': {suggest(name, known)}")
            own = known[name]
            if low < own.lower * (1 - 1e-9) or high > own.upper * (1 + 1e-9):
                raise UserError(
                    f"bounds of '{name}' = {low:g}:{high:g} reach beyond {own.lower:g}:{own.upper:g} {own.unit}"
                    + (f" ({own.box_meaning})" if own.box_meaning else "")
                )
            if own.integer and math.floor(high * (1 + 1e-9)) < math.ceil(low * (1 - 1e-9)):
                raise UserError(f"bounds of '{name}' = {low:g}:{high:g} contain no integer, which it must be")
            known[name] = own.bounded(low, high)
        relaxation = None if self.relaxation is None else self.relaxation._within(boxes)
        return replace(self, variables=tuple(known.values()), relaxation=relaxation)

    def _within(self, boxes: Mapping[str, tuple[float, float]]) -> Problem:
        """Return the relaxation with its bounds intersected with these. Where the intersection is empty, these apply."""
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
        """Raise an error for a variable of continuous hardware that this question buys in whole units, or keeps as sold.

        **Raises:** `UserError` that says how to make it free.
        """
        if self.relaxation is not None and name in self.relaxation._names:
            raise UserError(
                f"'{name}' is not a variable of '{self.name}' here: hardware is bought in whole units ("
                f"{', '.join(each.name for each in self.variables if each.category in _BOUGHT)}); --free hbm+links+domain+clock "
                "optimizes the chip, --free nics+racks the servers, --regime relaxed makes hardware continuous"
            )

    @property
    def machine(self) -> dict[str, float]:
        """Values of the hardware variables on the template's machine, SI, by name."""
        bought = (each for each in self.variables if each.category in _BOUGHT)
        return {each.name: float(each.place.get(self.template)) for each in bought}

    def frozen(self, names: Iterable[str]) -> Problem:
        """Return the question with variables fixed at the values of its machine ("the chip is taped out").

        A value may be outside the question's bounds, such as a torus of 8,960 chips that is actually sold. A fixed clock is an
        upper limit: a chip limited by cooling or a power cap runs slower.

        **Arguments:** `names`: variables or their categories (size, chip, silicon, network, facility, plan, workload).

        **Raises:** `UserError` for a name that is neither, and for a value that is not positive and finite.
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
        """Return the question with variables fixed at given values, even outside their bounds.

        **Arguments:** `values`: SI, by name.
        """
        kept = {name: (value, value) for name, value in values.items()}
        variables = tuple(each.bounded(*kept.get(each.name, (None, None))) for each in self.variables)
        relaxation = None if self.relaxation is None else self.relaxation.kept_at(values)
        return replace(self, variables=variables, relaxation=relaxation)

    def _knows(self, name: str) -> bool:
        """Return whether a name is a variable or a category of variables."""
        return any(name in (each.name, each.category) for each in self.variables)

    def relaxed(self, factors: Iterable[float]) -> Problem:
        """Return the question with the limit of each budget multiplied by a factor."""
        factors = tuple(factors)
        relaxation = None if self.relaxation is None else self.relaxation.relaxed(factors)
        pairs = zip(self.budgets, factors, strict=True)
        budgets = tuple(replace(each, limit=each.limit * float(x)) for each, x in pairs)
        return replace(self, budgets=budgets, relaxation=relaxation)

    def tightened(self, factors: Iterable[float]) -> Problem:
        """Return the question with the limit of each budget multiplied by a factor. Texts still show the original limits."""
        tight = self.relaxed(factors)
        pairs = zip(tight.budgets, self.budgets, strict=True)
        return replace(tight, budgets=tuple(replace(each, asked=before.limit) for each, before in pairs))

    def with_numbers(self, factors: Mapping[tuple[int, int], float]) -> Problem:
        """Return the question with numbers of its template multiplied by factors, without its continuous relaxation.

        **Arguments:** `factors`: by position (leaf of the template, element of the leaf).
        """
        leaves, tree = jax.tree.flatten(self.template)
        leaves = [np.array(leaf, np.float64) for leaf in leaves]
        for (leaf, element), factor in factors.items():
            leaves[leaf].reshape(-1)[element] *= factor
        return replace(self, template=jax.tree.unflatten(tree, leaves), relaxation=None)

    @property
    def sources(self) -> tuple[str, ...]:
        """References of the template's numbers."""
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
        """Structure of the question without its numbers."""
        return ProblemForm(
            places=tuple((each.name, each.place, each.integer) for each in self.variables),
            objective=self.objective,
            budgets=tuple((each.name, each.metric) for each in self.budgets),
        )

    @property
    def trace_key(self) -> tuple[ProblemForm, Any, tuple[tuple[int, ...], ...]]:
        """Key of traces shared by problems that differ only in numbers: form, tree structure and shapes of the template."""
        leaves, tree = jax.tree.flatten(self.template)
        return self.form, tree, tuple(map(np.shape, leaves))

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of all constraints: budgets, feasibility conditions of the report, the clock, and dies of a parametric chip."""
        silicon = SILICON if self.template.project is not None else ()
        return (*(each.name for each in self.budgets), *margin_names(self.template.workload), CLOCK, *silicon)


def set_variables(form: ProblemForm, template: Design, values: Iterable[Scalar]) -> Design:
    """Return a design with values of its variables, in the order of the form's places."""
    design = template
    for (_, place_, _), value in zip(form.places, values, strict=True):
        design = place_.put(design, value)
    return with_derived_parts(design)


def design_at(
    form: ProblemForm, template: Design, log_values: Float[Array, " variable"], rounded: bool = False
) -> Design:
    """Return a design for values in log space.

    **Arguments:** `rounded`: round integers, because `exp(log(n))` is not exact.
    """
    values = zip(form.places, jnp.exp(log_values), strict=True)
    return set_variables(
        form, template, [jnp.round(x) if rounded and is_integer else x for (_, _, is_integer), x in values]
    )


def values(form: ProblemForm, design: Design, report: Any, limits: Any) -> LogValues:
    """Return log objective and log constraints of a design and its report. **Arguments:** `limits` of the budgets, SI."""
    used = [each.value(report) for _, each in form.budgets]
    budgets = [_log_share(value / limit) for value, limit in zip(used, limits, strict=True)]
    own = [-margin for margin in own_margins(design, report).values()]
    return LogValues(jnp.log(form.objective.value(report)), jnp.stack(budgets + own))


def own_margins(design: Design, report: Any) -> dict[str, Scalar]:
    """Return signed logarithmic margins of all constraints except budgets, by name."""
    margins = report.margins_by_name() | {CLOCK: report.clock_margin}
    if design.project is not None:
        silicon = chip_margins(design.project)
        margins |= {name: silicon[name] for name in SILICON}
    return margins


def _log_share(share: Scalar) -> Scalar:
    """Return the logarithm of the used share of a budget: exact above 0; that of `_NOTHING_USED`, without a gradient, at 0.

    NaN stays NaN.
    """
    nothing = share == 0.0
    some = jnp.log(pick(nothing, jnp.ones_like(share), share))  # the unused branch needs a finite gradient as well
    return pick(nothing, jnp.full_like(share, math.log(_NOTHING_USED)), some)


def evaluate(
    form: ProblemForm,
    template: Design,
    log_values: Float[Array, " variable"],
    limits: Array,
    temperature: Scalar | None,
) -> LogValues:
    """Evaluate log objective and log constraints at one point.

    **Arguments:**

    - `form`: structure of the question.
    - `template`, `limits`: template and limits of the budgets (SI) as arrays, so that other chips, sites and budgets need no
      new trace.
    - `log_values`: logarithms of the variables.
    - `temperature`: temperature of smooth maxima; None for hard ones.
    """
    design = design_at(form, template, log_values)
    return values(form, design, estimate(*design.inputs, temperature=temperature), limits)


class Objective(Protocol):
    """A design question: a dataclass of budgets and choices that can be stated as a `Problem`."""

    def problem(self) -> Problem:
        """Return the question in mathematical form."""
        ...


if not TYPE_CHECKING:  # old public names
    __getattr__ = renamed.getter(__name__)
