"""Training of one model across several sites: the share of one site, and the exchange of gradients between sites."""

import equinox as eqx

from hwopt.hardware.cluster import Cluster
from hwopt.model.numerics.maximum import several
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import total_parameters


def one_site(run: TrainingRun, cluster: Cluster, plan: Plan) -> tuple[TrainingRun, Cluster, Plan]:
    """Return the run, cluster and plan of one site: its share of the batch, of the chips and of the data parallel replicas."""
    count = cluster.sites.count  # dividing by the count, not multiplying by 1/count, keeps exact multiples integer
    run = eqx.tree_at(lambda r: r.global_batch_sequences, run, run.global_batch_sequences / count)
    cluster = eqx.tree_at(lambda c: c.chips, cluster, cluster.chips / count)
    return run, cluster, eqx.tree_at(lambda p: p.dp, plan, plan.dp / count)


def exchange_s(run: TrainingRun, cluster: Cluster, plan: Plan) -> Scalar:
    """Return the time of the exchange between sites, per step: `(2 (S - 1)/S P e / B + 2 alpha) / H`; 0 for one site.

    Every H local steps each site sends and receives the whole model once to reduce and once to gather. Each part goes directly
    to the site that reduces it. S are sites, P trainable parameters, e bytes per parameter, B and alpha bandwidth and latency.

    **Arguments:** `cluster`: the whole cluster, all sites included. **Returns:** s, before any overlap.

    **Source:** Douillard et al., arXiv 2311.08105 (DiLoCo, H = 500); streamed in parts: arXiv 2501.18512.
    """
    sites = cluster.sites
    others = sites.count - 1.0
    moved = 2.0 * others / sites.count * total_parameters(run.model) * run.trainable_fraction
    line_s = moved * sites.bytes_per_parameter * (1.0 / (sites.bandwidth_bytes_per_s * sites.efficiency))
    return (line_s + 2.0 * several(sites.count) * sites.latency_s) / plan.local_steps


def chips_in_step(cluster: Cluster, plan: Plan) -> Scalar:
    """Return the chips that wait for each other at the end of a step: `N_site S^(1/H)`.

    With an exchange every step (H = 1) these are the chips of all S sites. With many local steps H they approach those of one
    site.

    **Arguments:** `cluster`: the cluster of one site. **Returns:** chips.
    """
    return cluster.chips * cluster.sites.count ** (1.0 / plan.local_steps)


def replicas_apart(cluster: Cluster, plan: Plan) -> Scalar:
    """Return the number of replicas that train independently between exchanges: `S^(1 - 1/H)` for S sites and H local steps."""
    return cluster.sites.count ** (1.0 - 1.0 / plan.local_steps)
