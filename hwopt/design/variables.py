"""Design variables, their positions in the model's inputs, and their bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from hwopt import renamed
from hwopt.design.design import Design, kinds_of_chips, serving_part, training_part
from hwopt.errors import UserError, suggest
from hwopt.hardware.chip import Chip
from hwopt.hardware.chip_project import ChipDesign
from hwopt.hardware.cluster import Cluster
from hwopt.hardware.facility import Cooling, Rack
from hwopt.hardware.network import Network
from hwopt.hardware.peripherals import MemoryPool, Storage
from hwopt.model.chip.thermal import LOWEST_CLOCK
from hwopt.plan import Plan, ServingLayout
from hwopt.quantity import quantities
from hwopt.types import Scalar, numpy_or_jax
from hwopt.units import ZERO_CELSIUS_K
from hwopt.workload.training import TrainingRun


@dataclass(frozen=True)
class VariableLens:
    """Accessor of a variable in a design: how it is read and set; `unit` in SI."""

    get: Callable[[Design], Scalar]
    put: Callable[[Design, Scalar], Design]
    unit: str = ""


@dataclass(frozen=True)
class Variable:
    """One positive design variable, optimized in log space within bounds.

    **Arguments:**

    - `name`: name with its unit.
    - `lower`, `upper`: bounds, SI.
    - `place`: accessor in a `Design`.
    - `category`: group of variables for freezing.
    - `integer`: whether only multiples of `step` can be built.
    - `box_meaning`: reason for the bounds.
    - `step`: step of an integer variable.
    - `counted`: unit of the count, where it differs from the unit of its place.
    - `least_frozen`: lower bound of a frozen variable, whose value is then the upper bound. A throttling chip runs below its
      nominal clock. None: a frozen variable is fixed.
    - `words`: labels of the values 1, 2, 3 ... of a categorical variable.
    - `among`: the only values on sale of an integer variable; empty for all within its bounds.
    """

    name: str
    lower: float
    upper: float
    place: VariableLens
    category: str
    integer: bool = False
    box_meaning: str = ""
    step: float = 1.0  # of integers: a model's width is a multiple of 128
    counted: str = ""
    least_frozen: float | None = None
    words: tuple[str, ...] = ()
    among: tuple[int, ...] = ()

    @property
    def unit(self) -> str:
        """SI unit of its values; empty for ratios and counts."""
        return self.counted or self.place.unit

    def bounded(self, lower: float | None = None, upper: float | None = None) -> Variable:
        """Return the variable with other bounds.

        **Raises:** `UserError` for bounds that are empty or not positive.
        """
        box = replace(self, lower=self.lower if lower is None else lower, upper=self.upper if upper is None else upper)
        if not 0 < box.lower <= box.upper < float("inf"):
            raise UserError(
                f"variable '{self.name}': lower bound {box.lower:g} and upper bound {box.upper:g} are invalid; "
                "both must be positive and finite, and the lower one not above the upper one"
            )
        return box


def _field(kind: type, holder: Callable[[Any], Any], name: str) -> VariableLens:
    """Return the accessor of a field of one of the design's modules."""
    where = lambda d: getattr(holder(d), name)
    return VariableLens(where, lambda d, value: eqx.tree_at(where, d, jnp.asarray(value)), quantities(kind)[name].unit)


_of_project = partial(_field, ChipDesign, lambda d: d.project.design)
_of_chip = partial(_field, Chip, lambda d: d.cluster.chip)
_of_pool = partial(_field, MemoryPool, lambda d: d.cluster.pool)
_of_storage = partial(_field, Storage, lambda d: d.cluster.storage)
_of_run = partial(_field, TrainingRun, lambda d: d.workload)
_of_plan = partial(_field, Plan, lambda d: d.plan.groups[""])  # with two groups, the decode plan
_of_prefill = partial(_field, Plan, lambda d: d.plan.prefill)
_of_layout = partial(_field, ServingLayout, lambda d: d.plan.groups[""].layout)
_of_prefill_layout = partial(_field, ServingLayout, lambda d: d.plan.prefill.layout)


def _recomputation() -> VariableLens:
    """Return the accessor of recomputation as a category: 1 none, 2 the attention core, 3 whole layers."""
    where = lambda d: tuple(getattr(d.plan.groups[""], name) for name in ("recompute_attention", "recompute_full"))

    def get(design: Design) -> Scalar:
        attention, full = where(design)
        return 1.0 + attention * (1.0 - full) + 2.0 * full

    def put(design: Design, value: Scalar) -> Design:
        full = jnp.where(value > 2.5, 1.0, 0.0)
        return eqx.tree_at(where, design, (jnp.where(value > 1.5, 1.0, 0.0) * (1.0 - full), full))

    return VariableLens(get, put)


def _sharding() -> VariableLens:
    """Return the accessor of the ZeRO stage: 1 shards optimizer states over replicas, 2 also gradients, 3 also weights."""
    where = lambda d: tuple(getattr(d.plan.groups[""], name) for name in ("gradients_sharded", "weights_sharded"))
    put = lambda d, value: eqx.tree_at(where, d, tuple(jnp.where(value > least, 1.0, 0.0) for least in (1.5, 2.5)))

    def get(design: Design) -> Scalar:
        gradients, weights = where(design)
        return 1.0 + gradients + weights

    return VariableLens(get, put)


def _tier(of: str) -> VariableLens:
    """Return the accessor of a memory tier: 1 the chip's own memory, 2 the memory pool."""
    where = lambda d: getattr(d.plan.groups[""], f"{of}_offloaded")
    return VariableLens(
        lambda d: 1.0 + where(d), lambda d, value: eqx.tree_at(where, d, jnp.where(value > 1.5, 1.0, 0.0))
    )


def _share(of: str) -> VariableLens:
    """Return the accessor of the share of a part that is offloaded, where its tier is the memory pool; else 0."""
    where = lambda d: getattr(d.plan.groups[""], f"{of}_offloaded")
    return VariableLens(where, lambda d, value: eqx.tree_at(where, d, where(d) * value))


def _recovery() -> VariableLens:
    """Return the accessor of failure recovery: 1 restarts from storage, 2 swaps in hot spares, 3 also keeps checkpoints in memory.

    The template must have the last one: its bandwidth between peer hosts is the one that value 3 uses.
    """
    where = lambda d: (d.cluster.recovery.hot_spares, d.cluster.recovery.peer_bytes_per_s_per_chip)

    def get(design: Design) -> Scalar:
        spares, peers = where(design)
        return 1.0 + spares + numpy_or_jax(spares, peers).where(peers > 0.0, 1.0, 0.0)

    def put(design: Design, value: Scalar) -> Design:
        peers = jnp.where(value > 2.5, where(design)[1], 0.0)
        return eqx.tree_at(where, design, (jnp.where(value > 1.5, 1.0, 0.0), peers))

    return VariableLens(get, put)


def _domain() -> VariableLens:
    where = lambda d: d.cluster.network.size
    put = lambda d, value: eqx.tree_at(where, d, jnp.asarray(where(d)).at[0].set(value))
    return VariableLens(lambda d: where(d)[0], put, quantities(Network)["size"].unit)


def _used_chips() -> VariableLens:
    """Return the accessor of the chips of a rack that jobs use: those of its scale-up domain, too."""
    where = lambda d: (d.cluster.rack.chips, d.cluster.network.size)
    put = lambda d, value: eqx.tree_at(where, d, (jnp.asarray(value), jnp.asarray(where(d)[1]).at[0].set(value)))
    return VariableLens(lambda d: where(d)[0], put, quantities(Rack)["chips"].unit)


USED_CHIPS = _used_chips()
"""Place of `chips_per_rack` in a system of which jobs may leave chips idle."""

_OF_WIDTH = ("hidden", "ffn", "heads", "query_rank", "kv_rank", "expert_ffn")


def _set_hidden(design: Design, value: Scalar) -> Design:
    """Set a model's width. Head size is kept; feed-forward, experts and ranks scale with the width.

    Key-value heads scale as well where every head has its own.
    """
    model = design.workload.model
    ratio = value / model.hidden
    names = (*_OF_WIDTH, "kv_heads")
    where = lambda d: tuple(getattr(d.workload.model, name) for name in names)
    ratios = [ratio] * len(_OF_WIDTH) + [jnp.where(model.kv_heads == model.heads, ratio, 1.0)]
    return eqx.tree_at(where, design, tuple(getattr(model, name) * x for name, x in zip(names, ratios, strict=True)))


def _set_layers(design: Design, value: Scalar) -> Design:
    """Set a model's depth; the share of MoE layers is kept."""
    where = lambda d: (d.workload.model.layers, d.workload.model.moe_layers)
    layers, moe = where(design)
    return eqx.tree_at(where, design, (jnp.asarray(value), moe * value / layers))


def _stacks() -> VariableLens:
    """Return the accessor of memory stacks. A stock chip scales capacity and bandwidth in proportion to its stacks."""
    drawn = _of_project("hbm_stacks")
    where = lambda d: (
        d.cluster.chip.hbm_stacks,
        d.cluster.chip.hbm_capacity_bytes,
        d.cluster.chip.hbm_bandwidth_bytes_per_s,
    )

    def put(design: Design, value: Scalar) -> Design:
        if design.project is not None:
            return drawn.put(design, value)
        stacks, capacity, bandwidth = where(design)
        more = value / stacks
        return eqx.tree_at(where, design, (jnp.asarray(value), capacity * more, bandwidth * more))

    return VariableLens(lambda d: drawn.get(d) if d.project is not None else where(d)[0], put, drawn.unit)


def _celsius(kelvin: VariableLens) -> VariableLens:
    """Return the accessor of a temperature in degC."""
    return VariableLens(
        lambda d: kelvin.get(d) - ZERO_CELSIUS_K, lambda d, value: kelvin.put(d, value + ZERO_CELSIUS_K), "degC"
    )


def _links(name: str, tier: int, each: Callable[[Design], Any]) -> VariableLens:
    """Return the accessor of a number of links, a network tier's bandwidth over the rate of one.

    **Arguments:** `name`, `tier`: see `_bandwidth`; `each`: rate of one link.
    """
    rate = _bandwidth(name, tier)
    return VariableLens(lambda d: rate.get(d) / each(d), lambda d, value: rate.put(d, value * each(d)))


def _bandwidth(name: str, tier: int) -> VariableLens:
    """Return the accessor of a network tier's bandwidth; tiers beyond the second scale with it.

    A parametric chip has its own bandwidth; otherwise it is that of the network.
    """
    where = lambda d: d.cluster.network.bandwidth_bytes_per_s
    drawn = _of_project(name)

    def put(design: Design, value: Scalar) -> Design:
        if design.project is not None:
            return drawn.put(design, value)
        old = jnp.asarray(where(design))
        if tier != 0:
            return eqx.tree_at(where, design, old.at[1:].multiply(value / old[1]))
        chip = design.cluster.chip  # the power of its SerDes follows the link bandwidth
        standby = (
            chip.standby_power_w - chip.scale_up_idle_j_per_byte * old[0]
        ) + chip.scale_up_idle_j_per_byte * value
        both = lambda d: (where(d), d.cluster.chip.standby_power_w)
        return eqx.tree_at(both, design, (old.at[0].set(value), standby))

    return VariableLens(lambda d: drawn.get(d) if d.project is not None else where(d)[tier], put, drawn.unit)


RECOVERIES = ("from-storage", "hot-spares", "in-memory")
"""Values of the variable `recovery`, entries of the catalog; each includes what the one before it provides."""

KNOWN: Mapping[str, Variable] = {
    each.name: each
    for each in (
        Variable("chips", 64.0, 4e5, _field(Cluster, lambda d: d.cluster, "chips"), "size", integer=True),
        Variable("hbm_bandwidth_bytes_per_s", 1e12, 12e12, _of_chip("hbm_bandwidth_bytes_per_s"), "chip",
                 box_meaning="two HBM2e stacks to eight HBM4 stacks at moderate speed"),
        Variable("hbm_capacity_bytes", 32e9, 432e9, _of_chip("hbm_capacity_bytes"), "chip",
                 box_meaning="four 8 GB stacks to twelve 36 GB stacks"),
        Variable("clock_ratio", 0.5, 1.08, _of_chip("clock_ratio"), "chip", counted="of nominal", least_frozen=LOWEST_CLOCK,
                 box_meaning="half the nominal clock to the boost clock (H100: 1,980 MHz, 1.08 of 1,830 MHz)"),
        Variable("compute_area_m2", 50e-6, 3200e-6, _of_project("compute_area_m2"), "silicon",
                 box_meaning="a small die to compute units on four reticles"),
        Variable("sram_bytes", 8e6, 4e9, _of_project("sram_bytes"), "silicon",
                 box_meaning="a small cache to a reticle of SRAM, as on SRAM-based chips"),
        Variable("hbm_stacks", 1.0, 16.0, _stacks(), "silicon", integer=True),
        Variable("dies", 1.0, 4.0, _of_project("dies"), "silicon", integer=True, box_meaning="one to four reticles"),
        Variable("enabled_fraction", 0.7, 1.0, _of_project("enabled_fraction"), "silicon",
                 box_meaning="30 % spare units to none; H100 has 0.917"),
        Variable("clock_hz", 0.5e9, 2.6e9, _of_project("clock_hz"), "silicon",
                 box_meaning="near-threshold voltage to the clock of gaming chips"),
        Variable("scale_up_domain", 4.0, 576.0, _domain(), "network", integer=True,
                 box_meaning="half an eight-way board to an eight-rack domain"),
        Variable("scale_up_bandwidth_bytes_per_s", 50e9, 1.8e12, _bandwidth("scale_up_bandwidth_bytes_per_s", 0),
                 "network", box_meaning="PCIe 5 to NVLink 6, per direction"),
        Variable("scale_out_bandwidth_bytes_per_s", 6.25e9, 200e9, _bandwidth("scale_out_bandwidth_bytes_per_s", 1),
                 "network", box_meaning="50 Gb/s to 1.6 Tb/s per chip and direction"),
        Variable("scale_up_lanes", 1.0, 72.0,
                 _links("scale_up_bandwidth_bytes_per_s", 0, lambda d: d.cluster.network.lane_bytes_per_s[0]),
                 "network", integer=True,
                 box_meaning="one lane to twice the number of NVLink 6"),
        # A server's ports, which its chips share.
        Variable("nics_per_server", 1.0, 64.0,
                 _links("scale_out_bandwidth_bytes_per_s", 1,
                        lambda d: d.cluster.network.lane_bytes_per_s[1] / d.cluster.rack.server_chips),
                 "network", integer=True,
                 box_meaning="one port per server to four for each of 16 chips"),
        Variable("chips_per_rack", 1.0, 144.0, _field(Rack, lambda d: d.cluster.rack, "chips"), "facility", integer=True,
                 box_meaning="one wafer-sized system to two chips in each slot of a 72-chip rack"),
        Variable("coolant_degc", 17.0, 45.0, _celsius(_field(Cooling, lambda d: d.cluster.cooling, "coolant_temperature_k")),
                 "facility", integer=True, box_meaning="facility water of classes W17 to W45"),
        Variable("pool_capacity_bytes", 16e9, 4e12, _of_pool("capacity_bytes"), "memory",
                 box_meaning="one memory module to four boxes of modules, per chip"),
        Variable("pool_bandwidth_bytes_per_s", 8e9, 900e9, _of_pool("bandwidth_bytes_per_s"),
                 "memory", box_meaning="half of PCIe 3.0 to NVLink 5, per direction"),
        Variable("storage_bytes_per_s_per_chip", 5e6, 10e9, _of_storage("checkpoint_bytes_per_s_per_chip"), "facility",
                 box_meaning="checkpoints on a shared file server to local drives"),
        Variable("tp", 1.0, 64.0, _of_plan("tp"), "plan", integer=True),
        Variable("pp", 1.0, 128.0, _of_plan("pp"), "plan", integer=True),
        Variable("ep", 1.0, 1024.0, _of_plan("ep"), "plan", integer=True),
        Variable("cp", 1.0, 64.0, _of_plan("cp"), "plan", integer=True,
                 box_meaning="a whole sequence per chip to 1/64 of one"),
        Variable("recompute", 1.0, 3.0, _recomputation(), "plan", integer=True, words=("none", "selective", "full")),
        Variable("zero", 1.0, 3.0, _sharding(), "plan", integer=True, words=("ZeRO-1", "ZeRO-2", "ZeRO-3")),
        *(Variable(f"{of}_tier", 1.0, 2.0, _tier(of), "plan", integer=True, words=("HBM", "pool"))
          for of in ("weights", "optimizer", "activations")),
        Variable("recovery", 1.0, 3.0, _recovery(), "plan", integer=True, words=RECOVERIES),
        Variable("virtual_stages", 1.0, 16.0, _of_plan("virtual_stages"), "plan", integer=True),
        Variable("micro_batch", 1.0, 8.0, _of_plan("micro_batch"), "plan", integer=True),
        Variable("replicas", 1.0, 65536.0, _of_plan("dp"), "size", integer=True),
        Variable("batch", 1.0, 2048.0, _of_plan("micro_batch"), "plan", integer=True,
                 box_meaning="one sequence to the maximum that serving engines support per replica"),
        Variable("expert_slots", 1.0, 1024.0, _of_layout("expert_slots"), "plan", integer=True),
        Variable("cache_split", 1.0, 64.0, _of_layout("cache_split"), "plan", integer=True),
        Variable("prefill_expert_slots", 1.0, 1024.0, _of_prefill_layout("expert_slots"), "plan", integer=True),
        Variable("prefill_tp", 1.0, 64.0, _of_prefill("tp"), "plan", integer=True),
        Variable("prefill_pp", 1.0, 16.0, _of_prefill("pp"), "plan", integer=True),
        Variable("prefill_ep", 1.0, 1024.0, _of_prefill("ep"), "plan", integer=True),
        Variable("prefill_batch", 1.0, 16.0, _of_prefill("micro_batch"), "plan", integer=True, counted="prompt"),
        Variable("prefill_replicas", 1.0, 65536.0, _of_prefill("dp"), "size", integer=True),
        Variable("global_batch_sequences", 1.0, 1e6, _of_run("global_batch_sequences"), "plan",
                 integer=True, box_meaning="how far the batch may move from the workload's own to fit the replicas"),
        Variable("tokens", 1e9, 1e15, _of_run("tokens"), "workload",
                 box_meaning="to three times the stock of public text (Epoch AI 2024: 300 T)"),
        Variable("hidden", 1024.0, 65536.0, VariableLens(lambda d: d.workload.model.hidden, _set_hidden), "workload",
                 integer=True, step=2048.0, box_meaning="width of a 1 B model to four times that of Llama-3.1-405B"),
        Variable("layers", 8.0, 256.0, VariableLens(lambda d: d.workload.model.layers, _set_layers), "workload",
                 integer=True, box_meaning="half of a small model to twice Llama-3.1-405B"),
        # Derived from layers, stages and degrees; the relaxed model uses these constants.
        Variable("fullest_stage", 1.0, 1.0, _of_plan("fullest_stage"), "lookup"),
        Variable("last_stage", 1.0, 1.0, _of_plan("last_stage"), "lookup"),
        # All of a part, where its tier is the pool; set after the tiers, and lowered after the search.
        *(Variable(f"{of}_offloaded", 1.0, 1.0, _share(of), "lookup") for of in ("weights", "optimizer", "activations")),
        Variable("prefill_fullest_stage", 1.0, 1.0, _of_prefill("fullest_stage"), "lookup"),
        Variable("prefill_last_stage", 1.0, 1.0, _of_prefill("last_stage"), "lookup"),
    )
}  # fmt: skip
"""Design variables by name, with bounds that cover hardware on sale or announced."""


def variable(name: str, lower: float | None = None, upper: float | None = None) -> Variable:
    """Return a known variable, optionally with other bounds.

    **Raises:** `UserError` for an unknown name, and for empty bounds.
    """
    if name not in KNOWN:
        raise UserError(f"unknown design variable '{name}': {suggest(name, KNOWN)}")
    return KNOWN[name].bounded(lower, upper)


def count_of(value: Any) -> int:
    """Return a concrete count as an integer."""
    return round(float(np.asarray(value)))


@dataclass(frozen=True)
class Ranges:
    """Bounds of a machine's variables.

    **Arguments:**

    - `variables`: variables of the question, by name.
    - `template`: template of the machine.
    - `prefix`: prefix of its variables' names, where the question has two machines.
    """

    variables: Mapping[str, Variable]
    template: Design
    prefix: str = ""

    def name(self, name: str) -> str:
        """Return the name of a machine's variable in the question."""
        return self.prefix + name

    def frees(self, name: str) -> bool:
        """Return whether the question optimizes a variable."""
        return self.name(name) in self.variables

    @property
    def kinds(self) -> dict[str, Ranges]:
        """The ranges of each chip type's machine, by the prefix of its variables; with one type, only this one."""
        parts = kinds_of_chips(self.template)
        return {group: replace(self, template=part, prefix=self.prefix + group) for group, part in parts.items()}

    @property
    def in_parts(self) -> bool:
        """Whether hardware is bought in whole units: servers, racks, NICs."""
        return self.name("nics_per_server") in self.variables

    def of(self, name: str) -> tuple[float, float]:
        """Return the bounds of a variable; equal ones where the question keeps it fixed."""
        if self.frees(name):
            box = self.variables[self.name(name)]
            return box.lower, box.upper
        if KNOWN[name].category == "silicon" and self.template.project is None:
            return 1.0, 1.0  # a stock chip: exactly one
        value = float(np.asarray(KNOWN[name].place.get(self.template)))
        return value, value


SERVE = "serve_"
"""Prefix of the serving machine's plan variables, where training and serving share a chip type."""


@cache
def of_training(variable: Variable) -> Variable:
    """Return a variable of the training machine, for questions about training and serving."""

    def whole(design: Design, own: Design) -> Design:
        design = design._replace(cluster=own.cluster, project=own.project)
        return eqx.tree_at(lambda d: (d.workload.training, d.plan.training), design, (own.workload, own.plan))

    return _of_part(variable, variable.name, training_part, whole)


@cache
def of_serving(variable: Variable) -> Variable:
    """Return a variable of the serving machine's plan, with the prefix `serve_`, for questions about training and serving."""
    whole = lambda design, own: eqx.tree_at(lambda d: d.plan.serving, design, own.plan)
    return _of_part(variable, f"{SERVE}{variable.name}", serving_part, whole)


@cache
def of_kind(variable: Variable, group: str) -> Variable:
    """Return a variable of the machine of one of two chip types. **Arguments:** `group`: prefix of its name."""

    def whole(design: Design, own: Design) -> Design:
        clusters = {name: each.cluster for name, each in kinds_of_chips(design).items()} | {group: own.cluster}
        return design._replace(cluster=design.cluster.with_groups(*clusters.values()))

    return _of_part(variable, group + variable.name, lambda design: kinds_of_chips(design)[group], whole)


def _of_part(variable: Variable, name: str, part: Callable, whole: Callable) -> Variable:
    """Return a variable of one of two machines.

    **Arguments:**

    - `variable`: the variable of a question about this machine alone.
    - `name`: its new name.
    - `part`: function that extracts the machine from a design.
    - `whole`: function that inserts it into a design.
    """
    get = lambda design: variable.place.get(part(design))
    put = lambda design, value: whole(design, variable.place.put(part(design), value))
    return replace(variable, name=name, place=replace(variable.place, get=get, put=put))


if not TYPE_CHECKING:  # old public names
    __getattr__ = renamed.getter(__name__)
