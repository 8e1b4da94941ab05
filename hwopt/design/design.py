"""One point of a design space: the model's inputs, and the parametric chip design, if any."""

from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from hwopt import renamed
from hwopt.hardware.chip_project import ChipProject
from hwopt.model.chip.chip_project import installed
from hwopt.plan import Disaggregated, Plan, TrainServePlan
from hwopt.workload.service import Service
from hwopt.workload.train_serve import TrainServe
from hwopt.workload.training import TrainingRun


class Inputs(NamedTuple):
    """The three inputs of `estimate`, as one tree."""

    workload: Any  # TrainingRun, Service or TrainServe
    cluster: Any  # Cluster; ClusterPair of a service with two chip types
    plan: Any  # of the type that the workload requires

    def __repr__(self) -> str:
        return f"Inputs({', '.join(f'{name}: {type(each).__name__}' for name, each in self._asdict().items())})"


class Design(NamedTuple):
    """Target of the design variables: the inputs of `estimate`, and the parametric chip (`project`), if any."""

    workload: Any
    cluster: Any
    plan: Any
    project: ChipProject | None = None

    @property
    def inputs(self) -> Inputs:
        return Inputs(*self[:3])


def with_derived_parts(design: Design) -> Design:
    """Complete a design whose variables are set with all derived quantities.

    A parametric chip is built and installed. In training, `dp = N / (t p c)`, so that the plan uses all N chips with tensor,
    pipeline and context degrees t, p and c. A serving machine has the chips of its replicas. Experts that are not spread over
    ranks are split like the rest of the layer.
    """
    if design.project is not None:
        design = design._replace(cluster=installed(design.cluster, design.project))
    return _completed(design.workload, design)


@singledispatch
def _completed(workload: Any, design: Design) -> Design:
    raise TypeError(f"no design of a {type(workload).__name__}")


@_completed.register
def _(workload: TrainingRun, design: Design) -> Design:
    plan = _with_experts(design.plan)
    dp = design.cluster.chips / (plan.tp * plan.pp * plan.cp)
    return design._replace(plan=eqx.tree_at(lambda p: p.dp, plan, dp))


@_completed.register
def _(workload: Service, design: Design) -> Design:
    plan = design.plan
    if plan.disaggregated:
        plan = Disaggregated(_with_experts(plan.prefill), _with_experts(plan.decode))
    else:
        plan = _with_experts(plan)
    counts = lambda cluster: [each.chips for each in cluster.groups]  # each group states the total number of chips
    cluster = eqx.tree_at(counts, design.cluster, [plan.chips for _ in design.cluster.groups])
    return design._replace(cluster=cluster, plan=plan)


@_completed.register
def _(workload: TrainServe, design: Design) -> Design:
    training = with_derived_parts(training_part(design)._replace(project=None))
    serving = with_derived_parts(serving_part(design))
    return design._replace(plan=TrainServePlan(training.plan, serving.plan))


def kinds_of_chips(design: Design) -> dict[str, Design]:
    """Return the design for the cluster of each chip type alone, by the prefix of its variables' names.

    With two types, the first is the decode cluster, the second the prefill cluster. With one type, it is the design itself.
    """
    clusters = design.cluster.groups
    if len(clusters) == 1:
        return {"": design}
    return {group: design._replace(cluster=each) for group, each in zip(design.plan.groups, clusters, strict=True)}


def training_part(design: Design) -> Design:
    """Return the training machine of a design that trains and serves on the same chip type."""
    return Design(design.workload.training, design.cluster, design.plan.training, design.project)


def serving_part(design: Design) -> Design:
    """Return the serving machine of a design that trains and serves on the same chip type."""
    return Design(design.workload.service, design.cluster, design.plan.serving)


def _with_experts(plan: Plan) -> Plan:
    """Split experts like the rest of the layer where they are not spread over ranks."""
    expert_tp = jnp.where(jnp.asarray(plan.ep) > 1, plan.expert_tp, plan.tp)
    return eqx.tree_at(lambda p: p.expert_tp, plan, expert_tp)


if not TYPE_CHECKING:  # old public names
    __getattr__ = renamed.getter(__name__)
