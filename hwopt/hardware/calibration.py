"""Calibrated constants: a few physical constants of chips and software, with shifts that stay within physical limits.

A constant's shift is a sum over scopes. One applies to all machines. The others apply to the chip's family, the family
of software, the stack and each stack before it in its line of releases, and the source of the runs. A new release thus
starts from what was learned about the releases before it. The shift acts in a transformed coordinate in which every number is
valid. Hence no fit can make an efficiency exceed 1 or a pass faster than the fused minimum.

The global step-time factor (`level`) is separate from the composition of a step. It has shifts of every scope,
including one per source of runs, and one more for its runs with experts. These absorb the reasons for which a source is
slow as a whole, and show how far sources differ. The other constants learn the composition, which sources have in common.

Links are calibrated on collectives and then fixed. One shared constant is an exception: the efficiency of scale-out
links when thousands of chips use them at once. Measured collectives do not show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster
from hwopt.types import PRECISIONS

SHARED, FAMILY, SOFTWARE, STACK, SOURCE, OWN = "all", "family", "software", "stack", "source", "own"
"""Scopes of shifts: all machines, a family of chips, a family of software, a stack, a source (in fits only), the user's
own runs."""

_NARROW = np.array([float(name in ("fp8", "int8", "fp4")) for name in PRECISIONS])
_FP4 = np.array([float(name == "fp4") for name in PRECISIONS])


def _scaled(value: Array, shift: Array, xp: ModuleType) -> Array:
    """Return `value e^shift`, for a time or a share of time."""
    return value * xp.exp(shift)


def _odds(value: Array, shift: Array, xp: ModuleType) -> Array:
    """Multiply the odds `x / (1 - x)` by `e^shift`, so that a fraction stays within 0 to 1. Exactly 0 and 1 (off, ideal)
    do not change.
    """
    inside = (value > 0.0) & (value < 1.0)
    x = xp.where(inside, value, 0.5)
    return xp.where(inside, x / (x + (1.0 - x) * xp.exp(-shift)), value)


def _excess(value: Array, shift: Array, xp: ModuleType) -> Array:
    """Return `1 + (value - 1) e^shift`, for passes above a minimum of one."""
    return 1.0 + (value - 1.0) * xp.exp(shift)


@dataclass(frozen=True)
class Constant:
    """One calibrated constant and the priors of its shifts.

    Priors are standard deviations of the shift, by scope. They come from the range that the literature gives for the
    constant: a third to a half of its width. Five shared priors are narrower: HBM efficiency, small GEMMs, host times, step
    overhead and scale-out links. They limit how far one source moves a constant for all machines. Of seven fits tried, they
    had the least error on open studies left out and on models that are tables of operators, which no constant is fitted to.

    The prior of the user's own runs is the deviation of one source from its stack and chips. Of the values tried, it is the
    one that best predicts the other runs of a source from one to ten of its runs (`results/benchmarks/own_runs.py`).
    Constants without this prior gained nothing from it.
    """

    name: str
    law: Callable[[Array, Array, ModuleType], Array]
    fields: tuple[str, ...]  # leaves of the stack, or of the part named in `_ELSEWHERE`
    prior: dict[str, float]  # scope -> standard deviation
    meaning: str


CONSTANTS = (
    Constant("gemm_efficiency", _odds, ("matmul_efficiency",), {SHARED: 0.25, FAMILY: 0.25},
             "large GEMMs over peak, all formats"),
    Constant("narrow_gemm_efficiency", _odds, ("matmul_efficiency",), {SHARED: 0.25, FAMILY: 0.2, OWN: 0.3},
             "large GEMMs over peak, 8- and 4-bit formats besides"),
    Constant("fp4_gemm_efficiency", _odds, ("matmul_efficiency",), {SHARED: 0.4}, "large GEMMs over peak, 4 bit besides"),
    Constant("hbm_efficiency", _odds, ("hbm_efficiency",), {SHARED: 0.2, FAMILY: 0.3}, "streams over the memory's peak"),
    Constant("stack_gemm_efficiency", _scaled, ("gemm_efficiency_factor",), {STACK: 0.06},
             "a stack's GEMMs over the chip's best"),
    Constant("small_gemms", _scaled, ("gemm_half_size",), {SHARED: 0.25, FAMILY: 0.3, OWN: 0.5},
             "matrix side at which a GEMM takes twice its time"),
    Constant("expert_gemms", _odds, ("expert_gemm_factor",), {SHARED: 0.8, OWN: 1.0}, "grouped GEMMs of experts over plain ones"),
    Constant("attention_forward", _odds, ("attention_forward_efficiency",), {SHARED: 0.2, STACK: 0.3, OWN: 0.4},
             "attention kernels over peak, forward"),
    Constant("attention_backward", _odds, ("attention_backward_efficiency",), {SHARED: 0.2, STACK: 0.3, OWN: 0.5},
             "attention kernels over peak, backward"),
    Constant("elementwise", _excess, ("elementwise_passes",), {SHARED: 0.3, STACK: 0.3}, "memory passes over the fused minimum"),
    Constant("routing", _excess, ("routing_passes",), {SHARED: 0.7}, "memory passes of permuting tokens to experts"),
    Constant("casts", _scaled, ("cast_passes",), {SHARED: 0.3}, "memory passes of casts to 8 and 4 bit"),
    Constant("kernel_gaps", _scaled, ("kernel_launch_s",), {SHARED: 0.3}, "device-side gap after a kernel"),
    Constant("host", _scaled, ("host_layer_s",), {SHARED: 0.2, STACK: 0.4}, "host time to enqueue a layer"),
    Constant("host_moe", _scaled, ("host_moe_layer_s",), {SHARED: 0.4, STACK: 0.3}, "host time to enqueue an MoE layer"),
    Constant("tp_overlap", _odds, ("tp_overlap",), {SHARED: 0.4, STACK: 0.3, OWN: 0.4}, "work that covers tensor parallelism"),
    Constant("cp_overlap", _odds, ("cp_overlap",), {SHARED: 0.4}, "work that covers context parallelism"),
    Constant("ep_overlap", _odds, ("ep_overlap",), {SHARED: 0.5, OWN: 0.6}, "work that covers expert parallelism"),
    Constant("pp_overlap", _odds, ("pp_overlap",), {SHARED: 0.4}, "work that covers sends between stages"),
    Constant("dp_overlap", _odds, ("dp_overlap",), {SHARED: 0.5, STACK: 0.4, OWN: 0.4}, "work that covers data parallelism"),
    Constant("contention", _scaled, ("communication_slowdown",), {SHARED: 0.3},
             "compute that hidden communication takes away"),
    Constant("gather", _odds, ("gather_efficiency",), {STACK: 0.4}, "bandwidth of gathering sharded weights"),
    Constant("optimizer", _excess, ("optimizer_passes",), {SHARED: 0.5}, "memory passes of the optimizer over the minimum"),
    Constant("scale_out", _odds, ("efficiency",), {SHARED: 0.5, OWN: 1.0},
             "bandwidth of scale-out links under a training run's load over that of two idle nodes"),
    Constant("level", _scaled, ("level",), {SHARED: 0.04, FAMILY: 0.04, SOFTWARE: 0.04, STACK: 0.04, SOURCE: 0.13, OWN: 0.2},
             "time of a step over what its parts say"),
    Constant("step_overhead", _scaled, ("step_overhead_s",), {SHARED: 0.2}, "host work of a step"),
)  # fmt: skip
"""All constants that a calibration may shift, with their priors."""

_ELSEWHERE = {
    "gemm_efficiency": ("chip", np.ones_like(_NARROW)),
    "narrow_gemm_efficiency": ("chip", _NARROW),
    "fp4_gemm_efficiency": ("chip", _FP4),
    "hbm_efficiency": ("chip", 1.0),
    "scale_out": ("network", np.array([0.0, 1.0, 1.0])),
}
"""Constants outside the stack -> their part of the cluster, and the elements of the leaf that they shift."""

OF_MACHINES = frozenset(_ELSEWHERE)
"""Constants of chips and links; all others are constants of software."""


def moved(cluster: Cluster, shifts: Mapping[str, Array | float], xp: ModuleType = jnp) -> Cluster:
    """Return a copy of the cluster with its constants shifted.

    **Arguments:** `shifts` by name of `CONSTANTS`, summed over scopes; missing names do not shift; `xp`: NumPy for
    clusters of the catalog, jax.numpy under a trace.

    **Returns:** a cluster of the same structure. Differentiable in the shifts; a shift of 0 returns the same numbers up
    to rounding.
    """
    parts: dict[str, Any] = {name: getattr(cluster, name) for name in ("chip", "network", "stack")}
    for constant in CONSTANTS:
        if constant.name in shifts:
            part, elements = _ELSEWHERE.get(constant.name, ("stack", 1.0))
            shift = xp.asarray(shifts[constant.name]) * elements
            for field in constant.fields:
                value = constant.law(getattr(parts[part], field), shift, xp)
                parts[part] = replace(parts[part], **{field: value})
    return replace(cluster, **parts)


def family_of(architecture: str) -> str:
    """Return the family of chips that shares constants: the architecture, with all of AMD's CDNA generations as one."""
    return "cdna" if architecture.startswith("cdna") else architecture


@dataclass(frozen=True)
class Scopes:
    """Flat order of all shifts as (constant, scope), with scopes such as `all`, `family:hopper`, `stack:nemo-2025`, `own`."""

    entries: tuple[tuple[str, str], ...]

    @staticmethod
    def of(
        families: Sequence[str], stacks: Sequence[str], software: Sequence[str] = (), sources: Sequence[str] = (),
        own: bool = False,
    ) -> Scopes:  # fmt: skip
        """Return all shifts for these chip families, stacks, software families and sources; with `own`, also those of the
        user's runs.
        """
        members = {
            SHARED: [SHARED],
            FAMILY: [f"{FAMILY}:{x}" for x in families],
            SOFTWARE: [f"{SOFTWARE}:{x}" for x in software],
            STACK: [f"{STACK}:{x}" for x in stacks],
            SOURCE: [f"{SOURCE}:{x}" for x in sources],
            OWN: [OWN] * own,
        }
        return Scopes(tuple((c.name, scope) for c in CONSTANTS for kind in c.prior for scope in members[kind]))

    @property
    def prior_sd(self) -> np.ndarray:
        """Return the prior standard deviation of each shift, shape (shift,)."""
        by_name = {constant.name: constant.prior for constant in CONSTANTS}
        return np.array([by_name[name][scope.split(":")[0]] for name, scope in self.entries])

    @property
    def of_sources(self) -> np.ndarray:
        """Return which shifts belong to one source, shape (shift,). They are part of the fit, not of predictions for other
        sources.
        """
        return np.array([scope.startswith(SOURCE) for _, scope in self.entries])

    def membership(
        self, family: str, stacks: Sequence[str], software: str = "", sources: Sequence[str] = ()
    ) -> np.ndarray:
        """Return which shifts act on a machine, and on which constant: 0 or 1, shape (constant, shift).

        **Arguments:**

        - `family`: chip family; `software`: software family.
        - `stacks`: the stack and those before it in its line, whose shifts it keeps.
        - `sources`: names under which the source of a run has shifts.
        """
        on = {SHARED, OWN, f"{FAMILY}:{family}", f"{SOFTWARE}:{software}"}
        on |= {f"{STACK}:{stack}" for stack in stacks} | {f"{SOURCE}:{source}" for source in sources}
        names = [constant.name for constant in CONSTANTS]
        matrix = np.zeros((len(names), len(self.entries)))
        for column, (name, scope) in enumerate(self.entries):
            matrix[names.index(name), column] = scope in on
        return matrix
