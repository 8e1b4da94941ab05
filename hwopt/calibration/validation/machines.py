"""Machines of measured runs: chips, links and software with the settings of a table row and a given set of model constants."""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from hwopt import catalog
from hwopt.calibration.holdout import study_of
from hwopt.calibration.measured.columns import MeasuredRun
from hwopt.catalog import Calibration
from hwopt.hardware.cluster import Cluster
from hwopt.stack import Stack
from hwopt.units import to_si

_NARROW_SCALE_CASTS = 2.5
"""Cast passes with one scale per row or block, relative to one scale per tensor: both orientations are quantized separately
(estimate, 1.5 to 4; torchtitan's own tables print 1.4 to 1.5 times the step)."""

_MACHINES = 4096
"""Number of cached machines; rows of a table often share one."""


Settings = namedtuple(
    "Settings",
    "attention_kernel tp_overlap pp_overlap ep_overlap deduplicated_dispatch dispatcher host_graphs compilation tuning "
    "recompute_norms recompute_activation logit_bytes gathered_inputs gradient_bytes number_format scaling",
    defaults=(None,) * 16,
)
"""Columns of a row that override the defaults of its software stack."""


class MeasuredMachine(NamedTuple):
    """Properties shared by rows on the same machine, except the number of chips."""

    accelerator: str  # catalogue slug
    architecture: str  # architecture of the accelerator
    domain: float | None  # chips per scale-up domain; None: the accelerator's default
    scale_out_gbit_per_s: float | None  # per chip; None: the accelerator's default
    stack: str
    settings: Settings = Settings()
    operation: str = catalog.BENCHMARK


def software(stack: Stack, row: Settings | MeasuredRun, name: str) -> Stack:
    """Return a stack with the settings stated in a row: words of a run, kernels, scaling, and tensors kept in memory.

    **Arguments:** `name` of the stack.
    """
    stored = {"fused": 0.0, "unfused": 1.0, None: None}[row.attention_kernel]
    settings = {
        "attention_scores_stored": stored,
        "tp_overlap": row.tp_overlap, "pp_overlap": row.pp_overlap,
        "residual_tensors": 2.0 if row.recompute_norms else None,
        "product_kept": 0.0 if row.recompute_activation else None,
        # less than a byte means a chunked loss; each logit of a chunk takes the bytes of the stack
        "logit_bytes": None if row.logit_bytes is not None and row.logit_bytes < 1.0 else row.logit_bytes,
        "gathered_inputs_kept": row.gathered_inputs,
        # Megatron and DeepSpeed reduce gradients in the weights' format; they accumulate in 32 bit only for bf16.
        "gradient_bytes": 2.0 if row.number_format == "fp16" else row.gradient_bytes,
    }  # fmt: skip
    if settings["gradient_bytes"] is not None:
        settings["gradient_copy_bytes"] = 0.0
    stack = replace(stack, **{name: np.float64(value) for name, value in settings.items() if value is not None})
    words = {
        "dispatcher": row.dispatcher or {True: "deepep", False: "alltoall", None: None}[row.deduplicated_dispatch],
        "ep_overlap": row.ep_overlap, "cuda_graphs": row.host_graphs, "compilation": row.compilation, "tuning": row.tuning,
    }  # fmt: skip
    stack = catalog.with_words(stack, name, words, any_software=True)
    casts = _NARROW_SCALE_CASTS if row.scaling in ("row", "block") else 1.0
    return replace(stack, cast_passes=np.float64(casts * stack.cast_passes))


@cache
def _parts(accelerator: str, domain: float | None, links: float | None, stack: str, operation: str) -> Cluster:
    return catalog.cluster(
        accelerator, 8, domain=domain, stack=stack, scale_out_bytes_per_s=links, constants=catalog.LITERATURE,
        operation=operation,
    )  # fmt: skip


Constants = Callable[[MeasuredMachine, str], Cluster]
"""Function that returns eight chips of a machine with constants fitted without a given source of runs."""


def constants(calibration: Calibration | None) -> Constants:
    """Return a cached constructor of machines with the constants of a calibration.

    **Arguments:** `calibration`: as returned by `catalog.calibration`.
    """
    left_out = calibration.left_out if calibration is not None else {}

    @lru_cache(_MACHINES)
    def of(machine: MeasuredMachine, without: str) -> Cluster:
        links = machine.scale_out_gbit_per_s and to_si(machine.scale_out_gbit_per_s, "Gb/s")
        cluster = _parts(machine.accelerator, machine.domain, links, machine.stack, machine.operation)
        cluster = replace(cluster, stack=software(cluster.stack, machine.settings, machine.stack))
        return catalog.with_constants(cluster, calibration, machine.architecture, machine.stack, without=without)

    return lambda machine, source: of(machine, study_of(source) if study_of(source) in left_out else "")
