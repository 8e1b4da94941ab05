"""One chip for two machines: what training and serving cost together, and where either stands in the way."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model.report import Margins, Report, violations
from hwopt.model.serving.report import ServingMargins, ServingReport
from hwopt.model.serving.steady_state import chips_of
from hwopt.plan import TrainingAndServing
from hwopt.types import Scalar
from hwopt.workload.train_and_serve import TrainAndServe


class BothMargins(eqx.Module):
    """Signed logarithmic margins of both machines."""

    training: Margins
    serving: ServingMargins


class BothReport(eqx.Module):
    """Metrics of a machine that trains and one that serves, of the same chips. Sums are of both."""

    lifetime_cost_usd: Scalar  # of the training run and of all tokens served
    lifetime_energy_j: Scalar
    run_time_s: Scalar  # of training
    run_cost_usd: Scalar
    time_to_first_token_s: Scalar  # of serving, as the next two
    time_per_output_token_s: Scalar
    cost_per_token_usd: Scalar
    requests_per_s: Scalar
    capex_usd: Scalar  # of both machines
    peak_power_w: Scalar
    clock_ratio: Scalar  # of the chip, as what follows
    clock_margin: Scalar
    junction_temperature_k: Scalar
    chip_power_w: Scalar
    rack_power_w: Scalar
    silicon_area_m2: Scalar
    training: Report
    serving: ServingReport
    margins: BothMargins
    feasible: Scalar
    bottleneck: Scalar  # of the training step

    BOUNDS = (*(f"training.{name}" for name in Report.BOUNDS), *(f"serving.{name}" for name in ServingReport.BOUNDS))
    """Margins that bound every design."""

    def violations(self) -> dict[str, float]:
        """Violated constraints of a concrete report: name -> how far over the limit, as a fraction of it."""
        return violations(self.margins.training) | violations(self.margins.serving)


def serving_cluster(both: TrainAndServe, cluster: Cluster, plan: TrainingAndServing) -> Cluster:
    """The machine that serves: the same chips, links and racks, as many as its plan uses, with its own software."""
    return eqx.tree_at(lambda c: (c.chips, c.stack), cluster, (chips_of(plan.serving), both.stack))


def both_report(both: TrainAndServe, training: Report, serving: ServingReport) -> BothReport:
    """Both machines together: `run cost + served tokens x cost of a token`."""
    return BothReport(
        lifetime_cost_usd=training.run_cost_usd + both.served_tokens * serving.cost_per_token_usd,
        lifetime_energy_j=training.run_energy_j + both.served_tokens * serving.energy_per_token_j,
        run_time_s=training.run_time_s,
        run_cost_usd=training.run_cost_usd,
        time_to_first_token_s=serving.time_to_first_token_s,
        time_per_output_token_s=serving.time_per_output_token_s,
        cost_per_token_usd=serving.cost_per_token_usd,
        requests_per_s=serving.requests_per_s,
        capex_usd=training.capex_usd + serving.capex_usd,
        peak_power_w=training.peak_power_w + serving.peak_power_w,
        clock_ratio=training.clock_ratio,
        clock_margin=training.clock_margin,
        junction_temperature_k=training.junction_temperature_k,
        chip_power_w=training.chip_power_w,
        rack_power_w=jnp.where(
            training.rack_power_w > serving.rack_power_w, training.rack_power_w, serving.rack_power_w
        ),
        silicon_area_m2=training.silicon_area_m2,
        training=training,
        serving=serving,
        margins=BothMargins(training.margins, serving.margins),
        feasible=training.feasible * serving.feasible,
        bottleneck=training.bottleneck,
    )
