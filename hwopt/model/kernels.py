"""GEMM tables of a workload, with dimensions and time of each GEMM."""

from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model.chip.roofline import KernelTime, gemm_time
from hwopt.model.layers import work
from hwopt.model.layers.kinds import each_kind
from hwopt.model.numerics.maximum import Maximum, hard_maximum
from hwopt.model.serving.forward import pass_gemms
from hwopt.model.serving.steady_state import steady_pass
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer, shapes_of_kinds


@singledispatch
def kernels(workload: Any, cluster: Cluster, plan: Any) -> tuple[work.Gemms, KernelTime]:
    """Return the GEMMs of a forward pass and their times, dispatched on the type of the workload.

    The pass is that of a micro-batch in training, or the repeated pass of a service.

    **Raises:** `TypeError` for a workload type without a rule.
    """
    raise TypeError(f"no kernels of a {type(workload).__name__}")


@kernels.register
def _(workload: TrainingRun, cluster: Cluster, plan: Any) -> tuple[work.Gemms, KernelTime]:
    return training_kernels(workload.model, workload, cluster, plan, hard_maximum)


@singledispatch
def training_kernels(
    model: Any, workload: TrainingRun, cluster: Cluster, plan: Any, maximum: Maximum
) -> tuple[work.Gemms, KernelTime]:
    """Return the GEMMs of a training micro-batch, forward, and their times, dispatched on the type of the model.

    **Raises:** `TypeError` for a model type without a rule.
    """
    raise TypeError(f"no kernels of a {type(model).__name__}")


@training_kernels.register
def _(
    model: Transformer, workload: TrainingRun, cluster: Cluster, plan: Any, maximum: Maximum
) -> tuple[work.Gemms, KernelTime]:
    def one(shape: Transformer, _: Scalar) -> tuple[work.Gemms, KernelTime]:
        run = workload if shape is model else replace(workload, model=shape)
        table = work.gemms(work.flow(run, plan), plan)
        return table, gemm_time(table, run, cluster.chip, cluster.stack, maximum)

    return _of_kinds(model, one)


def _of_kinds(
    model: Transformer, one: Callable[[Transformer, Scalar], tuple[work.Gemms, KernelTime]]
) -> tuple[work.Gemms, KernelTime]:
    """Return the GEMMs of one layer of each kind, one kind after the other along the axis "gemm"."""
    if model.kinds is None:
        return one(model, model.layers)
    return jax.tree.map(jnp.ravel, each_kind(model, one)[1])


@kernels.register
def _(workload: Service, cluster: Cluster, plan: Any) -> tuple[work.Gemms, KernelTime]:
    steady = steady_pass(workload, plan)

    def one(shape: Transformer, _: Scalar) -> tuple[work.Gemms, KernelTime]:
        service = workload if shape is workload.model else replace(workload, model=shape)
        return pass_gemms(service, cluster, *steady, hard_maximum)

    return _of_kinds(workload.model, one)


def kernel_names(model: Transformer) -> list[str]:
    """Return the name of each GEMM of `kernels`, with the number of its kind of layers where there are several."""
    kinds = shapes_of_kinds(model)
    return [
        f"{name} of kind {i}" if kinds[1:] else name
        for i, each in enumerate(kinds, 1)
        for name in work.gemm_names(each)
    ]
