"""Several sites that train one model: one of them as a cluster of its own, and the exchange between them."""

import equinox as eqx

from hwopt.hardware.cluster import Cluster
from hwopt.model.numerics.maximum import several
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import total_parameters


def one_site(run: TrainingRun, cluster: Cluster, plan: Plan) -> tuple[TrainingRun, Cluster, Plan]:
    """What one site holds and does: its share of the chips, of the replicas and of the batch."""
    count = cluster.sites.count  # quotients, not products with a share: thirds of integers stay integers
    run = eqx.tree_at(lambda r: r.global_batch_sequences, run, run.global_batch_sequences / count)
    cluster = eqx.tree_at(lambda c: c.chips, cluster, cluster.chips / count)
    return run, cluster, eqx.tree_at(lambda p: p.dp, plan, plan.dp / count)


def exchange_s(run: TrainingRun, cluster: Cluster, plan: Plan) -> Scalar:
    """Time of the lines between sites, a step: `(2 (S - 1)/S P e / B + 2 alpha) / H`; none for one site.

    Every site sends and receives the whole model once to reduce and once to gather, each part straight to the site that
    adds it up, every H local steps.

    **Arguments:** the whole cluster. **Returns:** s, before any overlap.

    **Source:** Douillard et al., arXiv 2311.08105 (DiLoCo, H = 500); streamed in parts: arXiv 2501.18512.
    """
    sites = cluster.sites
    others = sites.count - 1.0
    moved = 2.0 * others / sites.count * total_parameters(run.model) * run.trainable_fraction
    line_s = moved * sites.bytes_per_parameter * (1.0 / (sites.bandwidth_bytes_per_s * sites.efficiency))
    return (line_s + 2.0 * several(sites.count) * sites.latency_s) / plan.local_steps


def chips_in_step(cluster: Cluster, plan: Plan) -> Scalar:
    """Chips that wait for each other at the end of a step: those of a site, of all sites where every step exchanges.

    **Arguments:** the cluster of one site. **Returns:** `N_site S^(1/H)`.
    """
    return cluster.chips * cluster.sites.count ** (1.0 / plan.local_steps)


def replicas_apart(cluster: Cluster, plan: Plan) -> Scalar:
    """Replicas that learn apart: the sites, as far as steps between exchanges are local: `S^(1 - 1/H)`."""
    return cluster.sites.count ** (1.0 - 1.0 / plan.local_steps)
