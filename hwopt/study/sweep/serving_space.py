"""Where a sweep of a question about serving looks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.optim.serving_lattice import ServingLattice
from hwopt.study.sweep.space import ROUNDING, WHOLE, Columns, Space, inside


@dataclass(frozen=True)
class ServingSpace(Space):
    """The box of a question about serving, and its whole-number designs.

    Degrees among the divisors of heads and experts, replicas of whole sets of experts, domains of whole tensor-parallel groups;
    batches and stages are whole.
    """

    TIED: ClassVar[tuple[str, ...]] = (
        "tp", "ep", "pp", "batch", "replicas", "scale_up_domain",
        "prefill_tp", "prefill_ep", "prefill_pp", "prefill_batch", "prefill_replicas",
    )  # fmt: skip
    COUNTED: ClassVar[tuple[str, ...]] = ("replicas", "prefill_replicas", "scale_up_domain")

    @cached_property
    def _groups(self) -> tuple[str, ...]:
        """Prefixes of the machine's groups of chips."""
        lattice = self.lattice
        assert isinstance(lattice, ServingLattice)
        return ("", "prefill_") if lattice.apart else ("",)

    def _stages(self, values: Columns) -> dict[str, Array]:
        """Layers of the fullest and of the last stage over the mean, by the variables that hold them."""
        made = {}
        for prefix in self._groups:
            stages = self._value(values, prefix + "pp")
            layers = float(self.lattice.layers)
            fullest = jnp.ceil(layers / stages * (1.0 - ROUNDING))
            short = jnp.minimum(fullest * stages - layers, 1.0)
            made[prefix + "fullest_stage"] = fullest * stages / layers
            made[prefix + "last_stage"] = (fullest - short) * stages / layers
        return made

    def _value(self, values: Columns, name: str) -> Any:
        return values[name] if name in values else self.range(name)[0]

    def as_given(self, values: Columns) -> dict[str, Array]:
        """Designs as somebody lists them, with what follows from their stages."""
        made = dict(values) | self._stages(values)
        return {each.name: made[each.name] for each in self.problem.variables}

    def settled(self, wanted: dict[str, Any], cube: Columns) -> dict[str, Array]:
        """Replicas and domains as multiples of what they must hold, stages no more than layers."""
        made = dict(wanted)
        for prefix in self._groups:
            t, e = self._value(wanted, prefix + "tp"), self._value(wanted, prefix + "ep")
            if prefix + "pp" in made:
                made[prefix + "pp"] = jnp.minimum(made[prefix + "pp"], float(self.lattice.layers) + 2.0)
            name = prefix + "replicas"
            if name in made:
                made[name] = inside(made[name], self.range(name), 1.0, self._step(prefix, t, e))
        t = self._value(wanted, "tp")
        if "scale_up_domain" in made:
            made["scale_up_domain"] = t * inside(made["scale_up_domain"] / t, self.range("scale_up_domain"), t)
        made |= self._stages(made)
        return {each.name: made[each.name] for each in self.problem.variables}

    def _step(self, prefix: str, t: Any, e: Any) -> Any:
        """What replicas are multiples of, `e / gcd(e, t)`, looked up for each pair of degrees."""
        names = prefix + "tp", prefix + "ep"
        known = [self.degrees(name) if name in self.variables else np.asarray([self.range(name)[0]]) for name in names]
        step = jnp.ones_like(jnp.asarray(t * e, float))
        if known[1].max() == 1:
            return step
        for x in known[0]:
            for y in known[1]:
                step = jnp.where((t == x) & (e == y), float(y) / np.gcd(round(x), round(y)), step)
        return step

    def outside(self, values: Columns) -> Array:
        """Largest logarithm of value over bound: 0 inside the box; 1 and more where a count is not whole.

        Degrees that do not divide heads and experts, and replicas that do not hold whole sets of experts, are not whole either.
        """
        worst = self.beyond_box(values)
        counts = [self._value(values, "scale_up_domain") / self._value(values, "tp")]
        counts += [values[n] / each.step for n, each in self.variables.items() if each.whole]
        experts = float(self.problem.template.workload.model.experts)
        for prefix in self._groups:
            t, d = self._value(values, prefix + "tp"), self._value(values, prefix + "replicas")
            counts.append(self.heads / t)
            if experts > 1:
                e = self._value(values, prefix + "ep")
                counts += [experts / e, t * d / e]
        for count in counts:
            whole = jnp.abs(count - jnp.round(count)) <= WHOLE + ROUNDING * count
            worst = jnp.maximum(worst, jnp.where(whole & (jnp.round(count) >= 1.0), 0.0, 1.0))
        return worst
