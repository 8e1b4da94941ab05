"""The machines behind the claims of structure: GPT-3 175B on H100, from 384 to 24,576, each at its best plan."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx

from hwopt import catalog
from results.claims.machines import best, estimate

CHIPS, MANY = 1536, 12288  # of the usual machine, and of the one where a fixed batch becomes thin
BATCH = 1536.0  # sequences of 2,048 tokens: GPT-3's own
FABRIC: Mapping[str, Any] = {"fabric": "ndr-fat-tree"}  # InfiniBand NDR 400 Gb/s, non-blocking
PCIE: Mapping[str, Any] = FABRIC | {"scale_up": "pcie-5"}  # the same servers without NVLink
PLAIN: Mapping[str, Any] = {"scale_out": "ethernet-100"}  # what a general cloud has


@functools.cache
def gpt3(batch: float = BATCH, precision: str = "bf16"):
    """GPT-3 175B, 300 G tokens."""
    return catalog.training_run("gpt3-175b", global_batch=batch, precision=precision)


def h100(chips: int = CHIPS, **around: Any):
    """H100 with eight to a server on NVLink 4; NDR between servers unless another network is named."""
    usual = {} if "scale_out" in around else FABRIC
    return catalog.cluster("h100-sxm", chips, **(usual | around))


@functools.cache
def _best(chip: str, chips: int, batch: float, precision: str, objective: str, common: tuple, around: tuple):
    cluster = h100(chips, **dict(around)) if chip == "h100-sxm" else catalog.cluster(chip, chips, **dict(around))
    return best(gpt3(batch, precision), cluster, objective=objective, common=dict(common))


def best_of(
    chips: int = CHIPS, chip: str = "h100-sxm", *, batch: float = BATCH, precision: str = "bf16",
    objective: str = "step_time_s", local_steps: float = 1.0, **around: Any,
):  # fmt: skip
    """The best plan of GPT-3 on a machine, found once."""
    common = (("local_steps", local_steps),) if local_steps > 1.0 else ()
    return _best(chip, chips, batch, precision, objective, common, tuple(sorted(around.items())))


def speed(found) -> float:
    """Useful tokens a second, failures counted."""
    return float(found.report.tokens_per_s * found.report.goodput)


def changed(cluster, where: Callable, factor):
    """A cluster with a number multiplied, or an array by one factor a part."""
    return eqx.tree_at(where, cluster, replace_fn=lambda leaf: leaf * factor)


def worth(where: Callable, run, cluster, plan, of: str = "step_time_s") -> float:
    """Percent by which a number of the report changes with 1 % more of what `where` picks, the plan held."""
    before = estimate(run, cluster, plan)
    after = estimate(run, changed(cluster, where, 1.01), plan)
    return math.log(float(getattr(after, of)) / float(getattr(before, of))) / math.log(1.01)


FLOPS = lambda c: c.chip.peak_flops_per_s
HBM = lambda c: c.chip.hbm_bandwidth_bytes_per_s
LINKS = lambda c: c.network.bandwidth_bytes_per_s
