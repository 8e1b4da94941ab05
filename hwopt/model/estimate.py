"""The one entry of the model: (workload, cluster, plan) -> Report."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model import cost, power, work
from hwopt.model.footprint import footprint
from hwopt.model.maximum import choose
from hwopt.model.parameters import expert_replicas, held_parameters
from hwopt.model.report import FEASIBILITY_TOLERANCE, Margins, Report
from hwopt.model.schedule import Breakdown, step_time
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import active_parameters, total_parameters


@jax.jit
def estimate(workload: TrainingRun, cluster: Cluster, plan: Plan, *, temperature: Scalar | None = None) -> Report:
    """Time, memory, power and money of one training step on a cluster under a plan.

    Compiled once for inputs of the same shapes. Pure: works under `jax.jit`, `vmap`, `grad` and `jacobian`; checks no
    values (constructors in the catalogue do) and knows no budgets. A plan that does not fit has `feasible = 0` and a
    negative margin that says by how much.

    **Arguments:**

    - `workload`: model, batch and tokens.
    - `cluster`: chips, network, facility, prices and software stack.
    - `plan`: degrees of parallelism; may be fractional (the relaxed model).
    - `temperature`: None for the exact model (hard maxima, the one whose numbers are reported); a small positive number
      for its smooth twin, an upper bound within a factor `2^temperature` a maximum.

    **Returns:** a `Report`.

    **Units:** SI throughout.
    """
    workload, cluster, plan = _floating((workload, cluster, plan))
    maximum = choose(temperature)
    held = held_parameters(workload.model, plan)
    time = step_time(workload, cluster, plan, held, maximum)
    memory = footprint(workload, plan, cluster.stack, held, maximum)
    tokens_per_step = workload.global_batch_sequences * workload.sequence_length
    tokens_per_s = tokens_per_step / time.step_s
    model_flops = work.step_model_flops(workload)
    repeated = work.recompute_flops(workload, plan, cluster.stack)
    per_chip = model_flops / cluster.chips / time.step_s
    peak = 1.0 / jnp.sum(workload.gemm_precision / cluster.chip.peak_flops_per_s) * cluster.chip.clock_ratio
    average_w = power.facility_average_w(cluster, time.busy_fraction)
    usd_per_s = cost.ownership_usd_per_s(cluster, average_w)
    run_time = workload.tokens / tokens_per_s
    margins = _margins(workload, cluster, plan, memory.total_bytes)
    fits = jnp.stack([value >= -FEASIBILITY_TOLERANCE for value in jax.tree.leaves(margins)])
    return Report(
        step_time_s=time.step_s,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_chip=tokens_per_s / cluster.chips,
        mfu=per_chip / peak,
        hfu=per_chip / peak * (1.0 + repeated / model_flops),
        model_flops_per_chip_per_s=per_chip,
        memory_per_chip_bytes=memory.total_bytes,
        memory_capacity_bytes=cluster.chip.hbm_capacity_bytes,
        power_w=average_w,
        peak_power_w=power.facility_peak_w(cluster),
        chip_power_w=power.chip_peak_w(cluster.chip),
        energy_per_token_j=average_w / tokens_per_s,
        carbon_per_token_kg=average_w / tokens_per_s * cluster.facility.carbon_kg_per_j,
        capex_usd=cost.capex_usd(cluster),
        cost_per_token_usd=usd_per_s / tokens_per_s,
        run_time_s=run_time,
        run_cost_usd=usd_per_s * run_time,
        run_energy_j=average_w * run_time,
        parameters=total_parameters(workload.model),
        active_parameters=active_parameters(workload.model),
        breakdown=time.breakdown,
        hidden_s=time.hidden_s,
        memory=memory,
        margins=margins,
        bottleneck=_largest(time.breakdown),
        feasible=jnp.all(fits).astype(time.step_s.dtype),
    )


def _floating(tree):
    """Every leaf as a floating array: whole numbers and NumPy scalars are welcome at the door."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float, leaf)), tree)


def _largest(breakdown: Breakdown) -> Scalar:
    stacked = jnp.stack(list(breakdown))
    return jnp.argmax(stacked, axis=0).astype(stacked.dtype)


def _margins(run: TrainingRun, cluster: Cluster, plan: Plan, memory_bytes: Scalar) -> Margins:
    """Logarithmic margins of the constraints that make a plan one."""
    w = run.model
    used = plan.tp * plan.pp * plan.dp * plan.cp
    experts = jnp.where(w.experts > 0, w.experts, 1.0)
    return Margins(
        memory=jnp.log(cluster.chip.hbm_capacity_bytes / memory_bytes),
        chips=-jnp.abs(jnp.log(cluster.chips / used)),
        stages=jnp.log((w.layers + 2.0) / (plan.pp * plan.virtual_stages)),
        tensor_parallel=jnp.log(w.heads / plan.tp),
        experts=jnp.log(experts / plan.ep),
        replicas=jnp.log(expert_replicas(plan)),
        batch=jnp.log(run.global_batch_sequences / (plan.dp * plan.micro_batch)),
        context=jnp.log(run.sequence_length / plan.cp),
    )
