"""What a calibration moves: a few physical constants of chips and software, by shifts that never leave physics.

A constant's shift is a sum over scopes: one for all machines, one for the chip's family, one for the family of software, one
for the stack, one for who ran it. It acts in a coordinate in which every number is allowed, so that no fit can make an
efficiency exceed 1 or a pass take less than the fused minimum. The level of a step is told apart from its shape: it has a
shift of every scope, that of a source of runs among them, so that sources which are slow for reasons of their own teach
others what they have in common, the shape, and how far sources lie apart. Links are calibrated on collectives and frozen, but
for one shared constant: what measured collectives cannot show, how scale-out links fare when thousands of chips use them at
once.
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
"""Scopes of shifts: every machine, a family of chips, of software, a stack; a source, in fits alone; one's own runs."""

_NARROW = np.array([float(name in ("fp8", "int8", "fp4")) for name in PRECISIONS])
_FP4 = np.array([float(name == "fp4") for name in PRECISIONS])


def _scaled(value: Array, shift: Array, xp: ModuleType) -> Array:
    """`value e^shift`: a time, a share of time."""
    return value * xp.exp(shift)


def _odds(value: Array, shift: Array, xp: ModuleType) -> Array:
    """Odds `x / (1 - x)` times `e^shift`: a fraction stays one. Exactly 0 and 1 (off, ideal) stay."""
    inside = (value > 0.0) & (value < 1.0)
    x = xp.where(inside, value, 0.5)
    return xp.where(inside, x / (x + (1.0 - x) * xp.exp(-shift)), value)


def _excess(value: Array, shift: Array, xp: ModuleType) -> Array:
    """`1 + (value - 1) e^shift`: passes over a minimum of one."""
    return 1.0 + (value - 1.0) * xp.exp(shift)


@dataclass(frozen=True)
class Constant:
    """One physical constant and how far it may move.

    Prior standard deviations by scope are those of the shift, and come from the ranges that the literature gives for the
    constant: a third to a half of the width of its range. Those of one's own runs say how far a constant of one source lies from
    what its stack and chips say: of those tried, what predicts the other runs of a source best from one to ten of them
    (`results/benchmarks/own_runs.py`); constants without it gained nothing.
    """

    name: str
    law: Callable[[Array, Array, ModuleType], Array]
    fields: tuple[str, ...]  # leaves of the stack, or of what `_ELSEWHERE` says
    prior: dict[str, float]  # scope -> standard deviation
    meaning: str


CONSTANTS = (
    Constant("gemm_efficiency", _odds, ("matmul_efficiency",), {SHARED: 0.25, FAMILY: 0.25},
             "large GEMMs over peak, all formats"),
    Constant("narrow_gemm_efficiency", _odds, ("matmul_efficiency",), {SHARED: 0.25, FAMILY: 0.2, OWN: 0.3},
             "large GEMMs over peak, 8- and 4-bit formats besides"),
    Constant("fp4_gemm_efficiency", _odds, ("matmul_efficiency",), {SHARED: 0.4}, "large GEMMs over peak, 4 bit besides"),
    Constant("hbm_efficiency", _odds, ("hbm_efficiency",), {SHARED: 0.4}, "streams over the memory's peak"),
    Constant("stack_gemm_efficiency", _scaled, ("gemm_efficiency_factor",), {STACK: 0.06},
             "a stack's GEMMs over the chip's best"),
    Constant("small_gemms", _scaled, ("gemm_half_size",), {SHARED: 0.35, FAMILY: 0.3, OWN: 0.5},
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
    Constant("host", _scaled, ("host_layer_s",), {SHARED: 0.4, STACK: 0.3}, "host time to enqueue a layer"),
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
    Constant("scale_out", _odds, ("efficiency",), {SHARED: 1.0, OWN: 1.0},
             "bandwidth of scale-out links under a training run's load over that of two idle nodes"),
    Constant("level", _scaled, ("level",), {SHARED: 0.04, FAMILY: 0.04, SOFTWARE: 0.04, STACK: 0.04, SOURCE: 0.13, OWN: 0.2},
             "time of a step over what its parts say"),
    Constant("step_overhead", _scaled, ("step_overhead_s",), {SHARED: 0.4}, "host work of a step"),
)  # fmt: skip
"""All that a calibration may move, with priors."""

_ELSEWHERE = {
    "gemm_efficiency": ("chip", np.ones_like(_NARROW)),
    "narrow_gemm_efficiency": ("chip", _NARROW),
    "fp4_gemm_efficiency": ("chip", _FP4),
    "hbm_efficiency": ("chip", 1.0),
    "scale_out": ("network", np.array([0.0, 1.0, 1.0])),
}
"""Constants that are not the stack's: the part of the cluster that has them, and which elements of the leaf they move."""

OF_MACHINES = frozenset(_ELSEWHERE)
"""Constants of chips and links; the others are software's."""


def moved(cluster: Cluster, shifts: Mapping[str, Array | float], xp: ModuleType = jnp) -> Cluster:
    """The cluster with its constants shifted.

    **Arguments:** `shifts` by name of `CONSTANTS`, the scopes already added up; names left out do not move; `xp`: NumPy for
    clusters of the catalogue, jax.numpy under a trace.

    **Returns:** a cluster of the same structure. Differentiable in the shifts; a shift of 0 returns the same numbers up to
    rounding.
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
    """The family of chips that shares constants: an architecture, AMD's CDNA generations taken together."""
    return "cdna" if architecture.startswith("cdna") else architecture


@dataclass(frozen=True)
class Scopes:
    """The flat order of all shifts: (constant, scope), scopes such as `all`, `family:hopper`, `stack:nemo-2025`, `own`."""

    entries: tuple[tuple[str, str], ...]

    @staticmethod
    def of(
        families: Sequence[str], stacks: Sequence[str], software: Sequence[str] = (), sources: Sequence[str] = (),
        own: bool = False,
    ) -> Scopes:  # fmt: skip
        """All shifts for these families of chips, stacks, families of software and sources; `own`: of who fits besides."""
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
        """Prior standard deviation of each shift, shape (shift,)."""
        by_name = {constant.name: constant.prior for constant in CONSTANTS}
        return np.array([by_name[name][scope.split(":")[0]] for name, scope in self.entries])

    @property
    def of_sources(self) -> np.ndarray:
        """Which shifts are of one source, shape (shift,): part of fits, not of what they say of others."""
        return np.array([scope.startswith(SOURCE) for _, scope in self.entries])

    def membership(self, family: str, stack: str, software: str = "", source: str = "") -> np.ndarray:
        """Which shifts act on a machine, and on which constant: 0 or 1, shape (constant, shift)."""
        on = {SHARED, OWN, f"{FAMILY}:{family}", f"{SOFTWARE}:{software}", f"{STACK}:{stack}", f"{SOURCE}:{source}"}
        names = [constant.name for constant in CONSTANTS]
        matrix = np.zeros((len(names), len(self.entries)))
        for column, (name, scope) in enumerate(self.entries):
            matrix[names.index(name), column] = scope in on
        return matrix
