"""What may change: design variables, their places in the inputs of the model, and their boxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from hwopt.errors import UserError, suggest
from hwopt.hardware.chip_project import ChipProject
from hwopt.hardware.cluster import Cluster
from hwopt.model.chip_project import installed
from hwopt.model.serving.steady_state import chips_of
from hwopt.plan import Disaggregated, Plan, TrainingAndServing
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.train_and_serve import TrainAndServe


class Inputs(NamedTuple):
    """The three inputs of `estimate`, as one tree."""

    workload: Any  # TrainingRun or Service
    cluster: Cluster
    plan: Any  # Plan, of a service also Disaggregated


class Design(NamedTuple):
    """What design variables act on: the inputs of `estimate`, and the project of the chip where it is in the making."""

    workload: Any  # TrainingRun or Service
    cluster: Cluster
    plan: Any  # Plan, of a service also Disaggregated
    project: ChipProject | None = None

    @property
    def inputs(self) -> Inputs:
        return Inputs(*self[:3])


@dataclass(frozen=True)
class Variable:
    """One positive design variable, optimised in log space inside a box.

    **Arguments:** `name` with its unit; `unit` for printing; `lower`, `upper` in SI; `put` sets it in a `Design`;
    `category` groups variables for freezing; `whole` if only multiples of `step` can be built; `box_meaning` says why the
    box ends where it does.
    """

    name: str
    unit: str
    lower: float
    upper: float
    put: Callable[[Design, Scalar], Design]
    category: str
    whole: bool = False
    box_meaning: str = ""
    step: float = 1.0  # of whole numbers: a model's width is a multiple of 128

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


def _leaf(where: Callable) -> Callable[[Design, Scalar], Design]:
    return lambda design, value: eqx.tree_at(where, design, jnp.asarray(value))


def _of_design(name: str) -> Callable[[Design, Scalar], Design]:
    return _leaf(lambda i: getattr(i.project.design, name))


def _of_plan(name: str) -> Callable[[Design, Scalar], Design]:
    """Sets a field of the plan; of two the one that generates answers."""
    return _leaf(lambda i: getattr(i.plan.decode if isinstance(i.plan, Disaggregated) else i.plan, name))


def _of_prefill(name: str) -> Callable[[Design, Scalar], Design]:
    return _leaf(lambda i: getattr(i.plan.prefill, name))


def _domain(design: Design, value: Scalar) -> Design:
    where = lambda i: i.cluster.network.size
    return eqx.tree_at(where, design, jnp.asarray(where(design)).at[0].set(value))


def _hidden(design: Design, value: Scalar) -> Design:
    """Sets the width; what grows with it keeps its proportion: heads of the same size, feed-forward, experts, ranks."""
    model = design.workload.model
    ratio = value / model.hidden
    names = ("hidden", "ffn", "heads", "query_rank", "kv_rank", "expert_ffn")
    where = lambda i: tuple(getattr(i.workload.model, name) for name in names)
    return eqx.tree_at(where, design, tuple(getattr(model, name) * ratio for name in names))


def _layers(design: Design, value: Scalar) -> Design:
    """Sets the depth; MoE layers keep their share."""
    where = lambda i: (i.workload.model.layers, i.workload.model.moe_layers)
    layers, moe = where(design)
    return eqx.tree_at(where, design, (jnp.asarray(value), moe * value / layers))


def _scale_up(design: Design, value: Scalar) -> Design:
    if design.project is not None:
        return _of_design("scale_up_bandwidth_bytes_per_s")(design, value)
    where = lambda i: i.cluster.network.bandwidth_bytes_per_s
    return eqx.tree_at(where, design, jnp.asarray(where(design)).at[0].set(value))


def _scale_out(design: Design, value: Scalar) -> Design:
    """Sets the tier outside the domain; tiers beyond keep their share of it (oversubscription)."""
    if design.project is not None:
        return _of_design("scale_out_bandwidth_bytes_per_s")(design, value)
    where = lambda i: i.cluster.network.bandwidth_bytes_per_s
    old = jnp.asarray(where(design))
    return eqx.tree_at(where, design, old.at[1:].multiply(value / old[1]))


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
            "compute_area_m2",
            "m2",
            50e-6,
            3200e-6,
            _of_design("compute_area_m2"),
            "silicon",
            box_meaning="a small die to four reticles of units",
        ),
        Variable(
            "sram_bytes",
            "B",
            8e6,
            4e9,
            _of_design("sram_bytes"),
            "silicon",
            box_meaning="a cache of a decade ago to an SRAM machine's reticle",
        ),
        Variable("hbm_stacks", "", 1.0, 16.0, _of_design("hbm_stacks"), "silicon", whole=True),
        Variable("dies", "", 1.0, 4.0, _of_design("dies"), "silicon", whole=True, box_meaning="one to four reticles"),
        Variable(
            "enabled_fraction",
            "",
            0.7,
            0.999,
            _of_design("enabled_fraction"),
            "silicon",
            box_meaning="a third of the units spare to none; H100 0.917",
        ),
        Variable(
            "clock_hz",
            "Hz",
            0.5e9,
            2.6e9,
            _of_design("clock_hz"),
            "silicon",
            box_meaning="near the threshold to what gaming chips of the node reach",
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
        Variable(
            "chips_per_rack",
            "chip",
            1.0,
            144.0,
            _leaf(lambda i: i.cluster.rack.chips),
            "facility",
            whole=True,
            box_meaning="one wafer-sized system to two chips in each slot of a 72-chip rack",
        ),
        Variable(
            "pool_capacity_bytes",
            "B",
            16e9,
            4e12,
            _leaf(lambda i: i.cluster.pool.capacity_bytes),
            "memory",
            box_meaning="a module to four boxes of them, a chip",
        ),
        Variable(
            "pool_bandwidth_bytes_per_s",
            "B/s",
            8e9,
            900e9,
            _leaf(lambda i: i.cluster.pool.bandwidth_bytes_per_s),
            "memory",
            box_meaning="half of PCIe 3.0 to NVLink 5, per direction",
        ),
        Variable("tp", "", 1.0, 64.0, _of_plan("tp"), "plan", whole=True),
        Variable("pp", "", 1.0, 128.0, _of_plan("pp"), "plan", whole=True),
        Variable("ep", "", 1.0, 1024.0, _of_plan("ep"), "plan", whole=True),
        Variable("virtual_stages", "", 1.0, 16.0, _of_plan("virtual_stages"), "plan", whole=True),
        Variable("micro_batch", "sequence", 1.0, 8.0, _of_plan("micro_batch"), "plan", whole=True),
        Variable("replicas", "", 1.0, 65536.0, _of_plan("dp"), "size", whole=True),
        Variable(
            "batch",
            "sequence",
            1.0,
            2048.0,
            _of_plan("micro_batch"),
            "plan",
            whole=True,
            box_meaning="one user to the most sequences that engines take a replica",
        ),
        Variable("prefill_tp", "", 1.0, 64.0, _of_prefill("tp"), "plan", whole=True),
        Variable("prefill_pp", "", 1.0, 16.0, _of_prefill("pp"), "plan", whole=True),
        Variable("prefill_ep", "", 1.0, 1024.0, _of_prefill("ep"), "plan", whole=True),
        Variable("prefill_batch", "prompt", 1.0, 16.0, _of_prefill("micro_batch"), "plan", whole=True),
        Variable("prefill_replicas", "", 1.0, 65536.0, _of_prefill("dp"), "size", whole=True),
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
        Variable(
            "tokens",
            "token",
            1e9,
            1e15,
            _leaf(lambda i: i.workload.tokens),
            "workload",
            box_meaning="to three times the stock of public text (Epoch AI 2024: 300 T)",
        ),
        Variable(
            "hidden",
            "",
            1024.0,
            65536.0,
            _hidden,
            "workload",
            whole=True,
            box_meaning="width of a 1 B model to four times that of Llama-3.1-405B",
            step=2048.0,
        ),
        Variable(
            "layers",
            "",
            8.0,
            256.0,
            _layers,
            "workload",
            whole=True,
            box_meaning="half of a small model to twice Llama-3.1-405B",
        ),
        # Set from whole numbers of layers and stages; one in the relaxed model.
        Variable("fullest_stage", "", 1.0, 1.0, _of_plan("fullest_stage"), "rounding"),
        Variable("last_stage", "", 1.0, 1.0, _of_plan("last_stage"), "rounding"),
        Variable("prefill_fullest_stage", "", 1.0, 1.0, _of_prefill("fullest_stage"), "rounding"),
        Variable("prefill_last_stage", "", 1.0, 1.0, _of_prefill("last_stage"), "rounding"),
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


_PROBES = (1.0817, 1.2739)  # no quantity of a design has these values


def present(variable: Variable, design: Design) -> float:
    """What a design holds where a variable would be put: found by putting two numbers there and looking where they went.

    **Raises:** `UserError` where the variable is not one number of the design.
    """
    first, second = (jax.tree.leaves(variable.put(design, jnp.asarray(probe))) for probe in _PROBES)
    for before, one, other in zip(jax.tree.leaves(design), first, second, strict=True):
        moved = np.asarray(one) != np.asarray(other)
        if moved.any():
            values = np.broadcast_to(np.asarray(before), moved.shape)[moved]
            if np.allclose(np.asarray(one)[moved], _PROBES[0], rtol=1e-6):
                return float(values[0])
    raise UserError(f"'{variable.name}' has no value before it is chosen: give it bounds instead of freezing it")


def completed(design: Design) -> Design:
    """A design whose variables are set, with what follows from them.

    A chip in the making is built and installed. In training `dp = N / (t p c)`: the plan always uses every chip; a machine
    that serves has the chips of its replicas. Dense experts are split like the rest of the layer.
    """
    if design.project is not None:
        design = design._replace(cluster=installed(design.cluster, design.project))
    if isinstance(design.workload, TrainAndServe):
        training = completed(
            design._replace(workload=design.workload.training, plan=design.plan.training, project=None)
        )
        serving = completed(design._replace(workload=design.workload.service, plan=design.plan.serving, project=None))
        return design._replace(plan=TrainingAndServing(training.plan, serving.plan))
    if isinstance(design.plan, Disaggregated):
        plan = Disaggregated(*(_with_experts(each) for each in (design.plan.prefill, design.plan.decode)))
    else:
        plan = _with_experts(design.plan)
    if isinstance(design.workload, Service):
        cluster = eqx.tree_at(lambda c: c.chips, design.cluster, chips_of(plan))
        return design._replace(cluster=cluster, plan=plan)
    assert isinstance(plan, Plan)
    dp = design.cluster.chips / (plan.tp * plan.pp * plan.cp)
    return design._replace(plan=eqx.tree_at(lambda p: p.dp, plan, dp))


def _with_experts(plan: Plan) -> Plan:
    """Experts split like the rest of the layer where they are not spread."""
    expert_tp = jnp.where(jnp.asarray(plan.ep) > 1, plan.expert_tp, plan.tp)
    return eqx.tree_at(lambda p: p.expert_tp, plan, expert_tp)


SERVE = "serve_"
"""What stands before a plan's variable of the serving machine, where two share a chip."""


@cache
def of_training(variable: Variable) -> Variable:
    """A variable of the training machine of two."""

    def put(design: Design, value: Scalar) -> Design:
        own = Design(design.workload.training, design.cluster, design.plan.training, design.project)
        own = variable.put(own, value)
        held = design._replace(cluster=own.cluster, project=own.project)
        return eqx.tree_at(lambda d: (d.workload.training, d.plan.training), held, (own.workload, own.plan))

    return replace(variable, put=put)


@cache
def of_serving(variable: Variable) -> Variable:
    """A variable of the plan of the serving machine of two, by its name with `serve_` before it."""

    def put(design: Design, value: Scalar) -> Design:
        own = variable.put(Design(design.workload.service, design.cluster, design.plan.serving), value)
        return eqx.tree_at(lambda d: d.plan.serving, design, own.plan)

    return replace(variable, name=f"{SERVE}{variable.name}", put=put)
