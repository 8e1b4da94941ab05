"""Where a sweep looks: points of the unit cube as designs that can be built, a column of variants at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.design.problem import Problem
from hwopt.design.variables import Variable
from hwopt.errors import UserError, suggest
from hwopt.optim.lattice import Lattice
from hwopt.optim.whole_plans import divisors

_PLAN = ("tp", "ep", "pp", "virtual_stages", "micro_batch", "chips", "global_batch_sequences", "scale_up_domain")
"""Variables that whole numbers tie to each other, in the order in which they are settled."""

_ROUNDING = 1e-6
"""Relative slack of whole numbers computed in float32."""

_WHOLE = 1e-4
"""How far from a whole number a count may be, absolutely."""

Columns = Mapping[str, Array]


@dataclass(frozen=True)
class Space:
    """The box of a question, and its whole-number designs.

    Coordinates are log-uniform in their boxes. Whole numbers are settled in turn: tensor and expert parallel degrees among
    the divisors of heads and experts, stages, micro-batches, replicas from the chips wanted, `chips = t p c d`, micro-batches
    from the batch, `batch = d b m`, chunks among those that layers and schedule allow, domains of whole tensor-parallel
    groups. What ends outside its box after rounding is kept and marked by `outside`.
    """

    problem: Problem

    @cached_property
    def _lattice(self) -> Lattice:
        return Lattice(self.problem)

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """Variables that are drawn, by name; what follows from whole layers and stages is not."""
        return {each.name: each for each in self.problem.variables if each.category != "rounding"}

    @cached_property
    def coordinates(self) -> tuple[str, ...]:
        """Variables with room in their boxes: the dimensions of the unit cube."""
        return tuple(name for name, each in self.variables.items() if each.lower < each.upper)

    @cached_property
    def _heads(self) -> int | None:
        """Heads of the model; None where its shape is free and tensor-parallel degrees are powers of two."""
        return None if "hidden" in self.variables else round(float(self.problem.template.workload.model.heads))

    def _range(self, name: str) -> tuple[float, float]:
        return self._lattice.range(name)

    def _degrees(self, name: str) -> np.ndarray:
        """Degrees to choose from."""
        low, high = self._range(name)
        if name == "tp":
            known = divisors(self._heads) if self._heads else [2**k for k in range(12)]
        else:
            known = divisors(max(1, round(float(self.problem.template.workload.model.experts))))
        inside = [each for each in known if low * (1 - 1e-9) <= each <= high * (1 + 1e-9)]
        if not inside:
            raise UserError(
                f"no {name} between {low:g} and {high:g} divides the model's {'heads' if name == 'tp' else 'experts'}: "
                f"it may be {', '.join(map(str, known))}"
            )
        return np.asarray(inside, float)

    @property
    def layers(self) -> float | None:
        """Layers of the model; None where they are a variable."""
        return None if "layers" in self.variables else float(self._lattice.layers)

    def drawn(self, cube: Columns) -> dict[str, Array]:
        """Designs of points of the unit cube.

        **Arguments:** `cube`: a column in [0, 1) for each of `coordinates`.

        **Returns:** a column for each of the problem's variables, SI.
        """
        wanted: dict[str, Any] = {}
        for name, each in self.variables.items():
            if name in ("tp", "ep"):
                wanted[name] = _chosen(self._degrees(name), cube.get(name))
            elif name not in cube:
                wanted[name] = each.lower
            elif each.whole and name not in ("chips", "global_batch_sequences", "scale_up_domain"):
                wanted[name] = _whole(cube[name], each.lower, each.upper, each.step)
            else:
                wanted[name] = each.lower * jnp.exp(cube[name] * math.log(each.upper / each.lower))
        return self._settled(wanted, cube.get("virtual_stages"))

    def nearest(self, wanted: Columns) -> dict[str, Array]:
        """Designs that can be built near wanted ones: a column for each variable, which it shares with `wanted`."""
        held: dict[str, Any] = dict(wanted)
        for name in ("tp", "ep"):
            if name in held:
                held[name] = _closest(self._degrees(name), held[name])
        for name, each in self.variables.items():
            if each.whole and name not in _PLAN:
                held[name] = each.step * jnp.round(held[name] / each.step)
        for name in ("pp", "micro_batch", "virtual_stages"):
            if name in held:
                held[name] = jnp.maximum(1.0, jnp.round(held[name]))
        return self._settled(held, None)

    def as_given(self, values: Columns) -> dict[str, Array]:
        """Designs as somebody lists them, with what follows from their whole numbers; `outside` marks what cannot be built."""
        held: dict[str, Any] = {
            name: values[name] if name in values else self._range(name)[0] for name in ("pp", "virtual_stages")
        }
        layers = values["layers"] if self.layers is None else self.layers
        fullest, last = _stage_layers(layers, held["pp"], held["virtual_stages"])
        made = dict(values) | {"fullest_stage": fullest, "last_stage": last}
        return {each.name: made[each.name] for each in self.problem.variables}

    def _settled(self, wanted: dict[str, Any], chunks: Array | None) -> dict[str, Array]:
        """Whole numbers tied to each other. **Arguments:** `chunks`: a column in [0, 1) to draw chunks by, where allowed."""

        def get(name: str) -> Any:
            return wanted[name] if name in wanted else self._range(name)[0]

        made = dict(wanted)
        t, e, b, context = get("tp"), get("ep"), get("micro_batch"), float(self._lattice.context)
        layers = get("layers") if self.layers is None else self.layers
        low_v, high_v = self._range("virtual_stages")
        p = jnp.minimum(get("pp"), _floor((layers + 2.0) / low_v))
        # Replicas hold whole sets of experts.
        step = self._replica_steps(t, e)
        d = _inside(get("chips") / (t * p * context), self._range("chips"), t * p * context, step)
        m = _inside(get("global_batch_sequences") / (d * b), self._range("global_batch_sequences"), d * b)
        most = jnp.maximum(1.0, jnp.minimum(high_v, _floor((layers + 2.0) / p)))
        most = jnp.where((p > 1.0) & (m >= p), most, 1.0)
        v = (
            jnp.minimum(get("virtual_stages"), most)
            if chunks is None
            else _whole(chunks, jnp.minimum(low_v, most), most)
        )
        groups = _inside(get("scale_up_domain") / t, self._range("scale_up_domain"), t)
        fullest, last = _stage_layers(layers, p, v)
        made |= {
            "pp": p, "virtual_stages": v, "chips": t * p * context * d, "global_batch_sequences": d * b * m,
            "scale_up_domain": t * groups, "fullest_stage": fullest, "last_stage": last,
        }  # fmt: skip
        return {each.name: made[each.name] for each in self.problem.variables}

    def _replica_steps(self, t: Any, e: Any) -> Any:
        """What replicas are multiples of, `S e / gcd(e, t c)` at S sites, looked up for each pair of degrees."""
        if "ep" not in self.variables:
            e = round(float(self._range("ep")[0]))
            experts = np.asarray([float(e)])
        else:
            experts = self._degrees("ep")
        if experts.max() == 1:
            return float(self._lattice.sites)
        tensor = self._degrees("tp") if "tp" in self.variables else np.asarray([self._range("tp")[0]])
        step = jnp.ones_like(jnp.asarray(t * e, float))
        for x in tensor:
            for y in experts:
                count = float(self._lattice.replica_step(np.asarray(round(x)), np.asarray(round(y))))
                step = jnp.where((t == x) & (e == y), count, step)
        return step

    def outside(self, values: Columns) -> Array:
        """Largest logarithm of value over bound: 0 inside the box; 1 and more where a count is not whole.

        Tensor and expert parallel degrees that do not divide heads and experts are not whole either.
        """
        worst: Any = 0.0
        for name, each in self.variables.items():
            beyond = jnp.maximum(jnp.log(values[name] * (1.0 / each.upper)), jnp.log(each.lower / values[name]))
            worst = jnp.maximum(worst, jnp.where(beyond > _ROUNDING, beyond, 0.0))

        def get(name: str) -> Any:
            return values[name] if name in values else self._range(name)[0]

        t, p, b, v = (get(name) for name in ("tp", "pp", "micro_batch", "virtual_stages"))
        layers = get("layers") if self.layers is None else self.layers
        d = get("chips") / (t * p * float(self._lattice.context))
        m = get("global_batch_sequences") / (d * b)
        counts = [t, p, b, v, d, m, get("scale_up_domain") / t]
        counts += [values[n] / each.step for n, each in self.variables.items() if each.whole and n not in _PLAN]
        if self._heads:
            counts.append(self._heads / t)
        experts = float(self.problem.template.workload.model.experts)
        if experts > 1:
            counts += [experts / get("ep"), t * float(self._lattice.context) * d / get("ep")]
        for count in counts:
            whole = jnp.abs(count - jnp.round(count)) <= _WHOLE + _ROUNDING * count
            worst = jnp.maximum(worst, jnp.where(whole & (jnp.round(count) >= 1.0), 0.0, 1.0))
        schedule = (p * v <= layers + 2.0 + _WHOLE) & ((v <= 1.0 + _WHOLE) | ((m >= p - _WHOLE) & (p > 1.0)))
        return jnp.maximum(worst, jnp.where(schedule, 0.0, 1.0))

    def completed(self, given: Mapping[str, float | Sequence[float]]) -> dict[str, Any]:
        """Columns by variable, those that are not given at what the question's machine has now.

        **Raises:** `UserError` for unknown names, or a variable without a present value.
        """
        from hwopt.design.variables import present

        for name in given:
            if name not in self.variables:
                raise UserError(f"'{name}' is no variable of '{self.problem.name}': {suggest(name, self.variables)}")
        return {
            name: given[name]
            if name in given
            else max(each.lower, min(each.upper, present(each, self.problem.template)))
            for name, each in self.variables.items()
        }


def _floor(value: Any) -> Array:
    """The whole number below, of what is whole but for rounding that number."""
    return jnp.floor(value * (1.0 + _ROUNDING))


def _whole(u: Array, low: Any, high: Any, step: float = 1.0) -> Array:
    """Whole multiples of a step from `low` to `high`, log-uniform."""
    first, last = jnp.ceil(low / step * (1.0 - _ROUNDING)), _floor(high / step)
    drawn = jnp.floor(first * jnp.exp(u * jnp.log((last + 1.0) / first)))
    return step * jnp.clip(drawn, first, last)


def _inside(wanted: Any, box: tuple[float, float], each: Any, step: Any = 1.0) -> Array:
    """The count nearest to what is wanted, a multiple of a step and at least one.

    **Arguments:** `box` of what is counted, `each` at a time; its ends hold where a multiple lies between them.
    """
    first = jnp.ceil(box[0] / (each * step) * (1.0 - _ROUNDING))
    last = _floor(box[1] / (each * step))
    near = jnp.round(wanted / step)
    near = jnp.where(near > last, last, near)
    near = jnp.where((near < first) & (first <= last), first, near)
    return step * jnp.maximum(near, 1.0)


def _chosen(known: np.ndarray, u: Array | None) -> Any:
    """One of a few ascending numbers, all as likely; the first without a coordinate."""
    if u is None:
        return float(known[0])
    chosen = jnp.full_like(u, known[0])
    for i, value in enumerate(known[1:], 1):
        chosen = jnp.where(u >= i / len(known), value, chosen)
    return chosen


def _closest(known: np.ndarray, wanted: Any) -> Array:
    """The known number nearest in ratio."""
    chosen = jnp.full_like(jnp.asarray(wanted, float), known[0])
    for below, value in itertools.pairwise(known):
        chosen = jnp.where(wanted >= math.sqrt(below * value), value, chosen)
    return chosen


def _stage_layers(layers: Any, p: Array, v: Array) -> tuple[Array, Array]:
    """`hwopt.plan.stage_layers` for columns."""
    chunk = jnp.ceil(layers / (p * v) * (1.0 - _ROUNDING))
    fullest = chunk * v
    short = fullest * p - layers
    per_stage = p / layers
    return fullest * per_stage, (fullest - jnp.minimum(short, 1.0)) * per_stage
