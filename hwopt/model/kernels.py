"""GEMM tables of a workload, with dimensions and time of each GEMM."""

from functools import singledispatch
from typing import Any

from hwopt.hardware.cluster import Cluster
from hwopt.model.chip.roofline import KernelTime, gemm_time
from hwopt.model.layers import work
from hwopt.model.numerics.maximum import Maximum, hard_maximum
from hwopt.model.serving.forward import pass_gemms
from hwopt.model.serving.steady_state import steady_pass
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer


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
    table = work.gemms(work.flow(workload, plan), plan)
    return table, gemm_time(table, workload, cluster.chip, cluster.stack, maximum)


@kernels.register
def _(workload: Service, cluster: Cluster, plan: Any) -> tuple[work.Gemms, KernelTime]:
    return pass_gemms(workload, cluster, *steady_pass(workload, plan), hard_maximum)
