"""Several sites: what one of them is, and what they exchange."""

from __future__ import annotations

from tests.reference.plain.rack import replaced
from tests.reference.plain.weights import parameters


def one_site(run, cluster, plan):
    """Run, cluster and plan of one of the sites; each does a share of the batch."""
    count = cluster.sites.count
    return (
        replaced(run, global_batch_sequences=run.global_batch_sequences / count),
        replaced(cluster, chips=cluster.chips / count),
        replaced(plan, dp=plan.dp / count),
    )


def exchange(run, sites, plan) -> float:
    """Seconds that gradients travel between sites, as a share of each step."""
    others = sites.count - 1.0
    sent = parameters(run.model, per_token=False) * run.trainable_fraction * sites.bytes_per_parameter
    travel = 2.0 * others / sites.count * sent / (sites.bandwidth_bytes_per_s * sites.efficiency)
    return (travel + 2.0 * min(others, 1.0) * sites.latency_s) / plan.local_steps


def lease(sites) -> float:
    """Dollars a second for the lines of all sites."""
    if sites.count <= 1:
        return 0.0
    return min(sites.count - 1.0, 1.0) * sites.count * sites.bandwidth_bytes_per_s * sites.lease_usd_per_byte


def apart(law, sites, plan) -> float:
    """Factor on the loss of replicas that meet only now and then."""
    return (sites.count ** (1.0 - 1.0 / plan.local_steps)) ** law.replica_exponent
