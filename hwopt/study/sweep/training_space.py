"""Where a sweep of a question about training looks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.optim.lattice import Lattice
from hwopt.study.sweep.space import ROUNDING, WHOLE, Columns, Space, floor, inside, whole


@dataclass(frozen=True)
class TrainingSpace(Space):
    """The box of a question about training, and its whole-number designs.

    Whole numbers are settled in turn: tensor and expert parallel degrees among the divisors of heads and experts, stages,
    micro-batches, replicas from the chips wanted, `chips = t p c d`, micro-batches from the batch, `batch = d b m`, chunks among
    those that layers and schedule allow, domains of whole tensor-parallel groups.
    """

    TIED: ClassVar[tuple[str, ...]] = (
        "tp", "ep", "pp", "virtual_stages", "micro_batch", "chips", "global_batch_sequences", "scale_up_domain",
    )  # fmt: skip
    COUNTED: ClassVar[tuple[str, ...]] = ("chips", "global_batch_sequences", "scale_up_domain")

    @cached_property
    def _training(self) -> Lattice:
        return Lattice(self.problem)

    def as_given(self, values: Columns) -> dict[str, Array]:
        """Designs as somebody lists them, with what follows from their whole numbers; `outside` marks what cannot be built."""
        held: dict[str, Any] = {
            name: values[name] if name in values else self.range(name)[0] for name in ("pp", "virtual_stages")
        }
        layers = values["layers"] if self.layers is None else self.layers
        fullest, last = stage_layers(layers, held["pp"], held["virtual_stages"])
        made = dict(values) | {"fullest_stage": fullest, "last_stage": last}
        return {each.name: made[each.name] for each in self.problem.variables}

    def settled(self, wanted: dict[str, Any], cube: Columns) -> dict[str, Array]:
        """Whole numbers tied to each other. Chunks are drawn where they are allowed."""

        def get(name: str) -> Any:
            return wanted[name] if name in wanted else self.range(name)[0]

        made, chunks = dict(wanted), cube.get("virtual_stages")
        t, e, b, context = get("tp"), get("ep"), get("micro_batch"), float(self._training.context)
        layers = get("layers") if self.layers is None else self.layers
        low_v, high_v = self.range("virtual_stages")
        p = jnp.minimum(get("pp"), floor((layers + 2.0) / low_v))
        # Replicas hold whole sets of experts.
        step = self._replica_steps(t, e)
        d = inside(get("chips") / (t * p * context), self.range("chips"), t * p * context, step)
        m = inside(get("global_batch_sequences") / (d * b), self.range("global_batch_sequences"), d * b)
        most = jnp.maximum(1.0, jnp.minimum(high_v, floor((layers + 2.0) / p)))
        most = jnp.where((p > 1.0) & (m >= p), most, 1.0)
        v = (
            jnp.minimum(get("virtual_stages"), most)
            if chunks is None
            else whole(chunks, jnp.minimum(low_v, most), most)
        )
        groups = inside(get("scale_up_domain") / t, self.range("scale_up_domain"), t)
        fullest, last = stage_layers(layers, p, v)
        made |= {
            "pp": p, "virtual_stages": v, "chips": t * p * context * d, "global_batch_sequences": d * b * m,
            "scale_up_domain": t * groups, "fullest_stage": fullest, "last_stage": last,
        }  # fmt: skip
        return {each.name: made[each.name] for each in self.problem.variables}

    def _replica_steps(self, t: Any, e: Any) -> Any:
        """What replicas are multiples of, `S e / gcd(e, t c)` at S sites, looked up for each pair of degrees."""
        if "ep" not in self.variables:
            e = round(float(self.range("ep")[0]))
            experts = np.asarray([float(e)])
        else:
            experts = self.degrees("ep")
        if experts.max() == 1:
            return float(self._training.sites)
        tensor = self.degrees("tp") if "tp" in self.variables else np.asarray([self.range("tp")[0]])
        step = jnp.ones_like(jnp.asarray(t * e, float))
        for x in tensor:
            for y in experts:
                count = float(self._training.replica_step(np.asarray(round(x)), np.asarray(round(y))))
                step = jnp.where((t == x) & (e == y), count, step)
        return step

    def outside(self, values: Columns) -> Array:
        """Largest logarithm of value over bound: 0 inside the box; 1 and more where a count is not whole.

        Tensor and expert parallel degrees that do not divide heads and experts are not whole either.
        """
        worst = self.beyond_box(values)

        def get(name: str) -> Any:
            return values[name] if name in values else self.range(name)[0]

        t, p, b, v = (get(name) for name in ("tp", "pp", "micro_batch", "virtual_stages"))
        layers = get("layers") if self.layers is None else self.layers
        d = get("chips") / (t * p * float(self._training.context))
        m = get("global_batch_sequences") / (d * b)
        counts = [t, p, b, v, d, m, get("scale_up_domain") / t]
        counts += [values[n] / each.step for n, each in self.variables.items() if each.whole and n not in self.TIED]
        if self.heads:
            counts.append(self.heads / t)
        experts = float(self.problem.template.workload.model.experts)
        if experts > 1:
            counts += [experts / get("ep"), t * float(self._training.context) * d / get("ep")]
        for count in counts:
            whole = jnp.abs(count - jnp.round(count)) <= WHOLE + ROUNDING * count
            worst = jnp.maximum(worst, jnp.where(whole & (jnp.round(count) >= 1.0), 0.0, 1.0))
        schedule = (p * v <= layers + 2.0 + WHOLE) & ((v <= 1.0 + WHOLE) | ((m >= p - WHOLE) & (p > 1.0)))
        return jnp.maximum(worst, jnp.where(schedule, 0.0, 1.0))


def stage_layers(layers: Any, p: Array, v: Array) -> tuple[Array, Array]:
    """`hwopt.plan.stage_layers` for columns."""
    chunk = jnp.ceil(layers / (p * v) * (1.0 - ROUNDING))
    fullest = chunk * v
    short = fullest * p - layers
    per_stage = p / layers
    return fullest * per_stage, (fullest - jnp.minimum(short, 1.0)) * per_stage
