"""What may change: design variables, their places in the inputs of the model, and their boxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import Cluster
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun


class Inputs(NamedTuple):
    """The three inputs of `estimate`, as one tree."""

    workload: TrainingRun
    cluster: Cluster
    plan: Plan


@dataclass(frozen=True)
class Variable:
    """One positive design variable, optimised in log space inside a box.

    **Arguments:** `name` with its unit; `unit` for printing; `lower`, `upper` in SI; `put` sets it in `Inputs`;
    `category` groups variables for freezing; `whole` if only whole numbers can be built; `box_meaning` says why the box
    ends where it does.
    """

    name: str
    unit: str
    lower: float
    upper: float
    put: Callable[[Inputs, Scalar], Inputs]
    category: str
    whole: bool = False
    box_meaning: str = ""

    def bounded(self, lower: float | None = None, upper: float | None = None) -> Variable:
        """The same variable in another box.

        **Raises:** `UserError` where the box is empty or not positive.
        """
        box = replace(self, lower=self.lower if lower is None else lower, upper=self.upper if upper is None else upper)
        if not 0 < box.lower <= box.upper < float("inf"):
            raise UserError(
                f"variable '{self.name}': lower bound {box.lower:g} and upper bound {box.upper:g} leave no room; "
                "both must be positive and finite, the lower one first"
            )
        return box


def _leaf(where: Callable) -> Callable[[Inputs, Scalar], Inputs]:
    return lambda inputs, value: eqx.tree_at(where, inputs, jnp.asarray(value))


def _domain(inputs: Inputs, value: Scalar) -> Inputs:
    where = lambda i: i.cluster.network.size
    return eqx.tree_at(where, inputs, jnp.asarray(where(inputs)).at[0].set(value))


def _scale_up(inputs: Inputs, value: Scalar) -> Inputs:
    where = lambda i: i.cluster.network.bandwidth_bytes_per_s
    return eqx.tree_at(where, inputs, jnp.asarray(where(inputs)).at[0].set(value))


def _scale_out(inputs: Inputs, value: Scalar) -> Inputs:
    """Sets the tier outside the domain; tiers beyond keep their share of it (oversubscription)."""
    where = lambda i: i.cluster.network.bandwidth_bytes_per_s
    old = jnp.asarray(where(inputs))
    return eqx.tree_at(where, inputs, old.at[1:].multiply(value / old[1]))


KNOWN: Mapping[str, Variable] = {
    each.name: each
    for each in (
        Variable("chips", "chip", 64.0, 4e5, _leaf(lambda i: i.cluster.chips), "size", whole=True),
        Variable(
            "hbm_bandwidth_bytes_per_s",
            "B/s",
            1e12,
            12e12,
            _leaf(lambda i: i.cluster.chip.hbm_bandwidth_bytes_per_s),
            "chip",
            box_meaning="two HBM2e stacks to eight HBM4 stacks at moderate speed",
        ),
        Variable(
            "hbm_capacity_bytes",
            "B",
            32e9,
            432e9,
            _leaf(lambda i: i.cluster.chip.hbm_capacity_bytes),
            "chip",
            box_meaning="four 8 GB stacks to twelve 36 GB stacks",
        ),
        Variable(
            "clock_ratio",
            "of nominal",
            0.5,
            1.08,
            _leaf(lambda i: i.cluster.chip.clock_ratio),
            "chip",
            box_meaning="half the nominal clock to the boost clock (1,980 of 1,830 MHz on H100)",
        ),
        Variable(
            "scale_up_domain",
            "chip",
            4.0,
            576.0,
            _domain,
            "network",
            whole=True,
            box_meaning="half an eight-way board to an eight-rack domain",
        ),
        Variable(
            "scale_up_bandwidth_bytes_per_s",
            "B/s",
            50e9,
            1.8e12,
            _scale_up,
            "network",
            box_meaning="PCIe 5 to NVLink 6, per direction",
        ),
        Variable(
            "scale_out_bandwidth_bytes_per_s",
            "B/s",
            6.25e9,
            200e9,
            _scale_out,
            "network",
            box_meaning="50 Gb/s to 1.6 Tb/s a chip and direction",
        ),
        Variable("tp", "", 1.0, 64.0, _leaf(lambda i: i.plan.tp), "plan", whole=True),
        Variable("pp", "", 1.0, 128.0, _leaf(lambda i: i.plan.pp), "plan", whole=True),
        Variable("virtual_stages", "", 1.0, 16.0, _leaf(lambda i: i.plan.virtual_stages), "plan", whole=True),
        Variable("micro_batch", "sequence", 1.0, 8.0, _leaf(lambda i: i.plan.micro_batch), "plan", whole=True),
        Variable(
            "global_batch_sequences",
            "sequence",
            1.0,
            1e6,
            _leaf(lambda i: i.workload.global_batch_sequences),
            "plan",
            whole=True,
            box_meaning="how far the batch may move from the workload's own to fit the replicas",
        ),
        # Set from whole numbers of layers and stages; one in the relaxed model.
        Variable("fullest_stage", "", 1.0, 1.0, _leaf(lambda i: i.plan.fullest_stage), "rounding"),
        Variable("last_stage", "", 1.0, 1.0, _leaf(lambda i: i.plan.last_stage), "rounding"),
    )
}
"""Design variables by name, with the widest boxes that hardware on sale or announced spans."""


def variable(name: str, lower: float | None = None, upper: float | None = None) -> Variable:
    """A known variable, perhaps in a box of one's own.

    **Raises:** `UserError` for an unknown name or an empty box.
    """
    if name not in KNOWN:
        raise UserError(f"unknown design variable '{name}': {suggest(name, KNOWN)}")
    return KNOWN[name].bounded(lower, upper)


def assemble(template: Inputs, variables: tuple[Variable, ...], values: Mapping[str, Scalar]) -> Inputs:
    """The template with design variables put in place.

    `dp = N / (t p c)`: the plan always uses every chip; dense experts are split like the rest of the layer.

    **Arguments:** `values` by name, SI. **Returns:** inputs of `estimate`.
    """
    inputs = template
    for each in variables:
        inputs = each.put(inputs, values[each.name])
    plan = inputs.plan
    dp = inputs.cluster.chips / (plan.tp * plan.pp * plan.cp)
    expert_tp = jnp.where(jnp.asarray(plan.ep) > 1, plan.expert_tp, plan.tp)
    return eqx.tree_at(lambda i: (i.plan.dp, i.plan.expert_tp), inputs, (dp, expert_tp))
