"""Parametric chips: from a custom chip design to the chip, its manufacturing cost, and a cluster built of it."""

import equinox as eqx
import jax.numpy as jnp

from hwopt.hardware.chip import Chip
from hwopt.hardware.chip_project import ChipProject
from hwopt.hardware.cluster import Cluster
from hwopt.hardware.process import Dies, Package, Process
from hwopt.model.chip import manufacture, silicon
from hwopt.types import Scalar

_BASE_DIES = 4.0
"""Number of base dies below stacked compute dies (MI300X has four).

It sets the size of a base die and thus its yield, and the number of dies to bond.
"""


def _parts(project: ChipProject) -> tuple[Dies, Package, tuple[Dies, Process]]:
    """Return the contents of one package: compute dies, package, and base dies with their process."""
    design, technology = project.design, project.technology
    area = silicon.areas(design, technology)
    compute = design.compute_area_m2 / design.dies
    dies = Dies(
        count=design.dies,
        fixed_area_m2=area.one_die - compute,
        harvestable_area_m2=compute,
        compute_units=project.compute_units,
        enabled_fraction=design.enabled_fraction,
    )
    one = jnp.ones_like(design.dies)
    base = Dies(
        count=_BASE_DIES * technology.stacked,
        # Without base dies their count is 0; an area of 0 would make the gradient of its square root infinite.
        fixed_area_m2=jnp.where(technology.stacked > 0, area.base_dies / _BASE_DIES, design.compute_area_m2),
        harvestable_area_m2=0.0 * one,
        compute_units=one,
        enabled_fraction=one,
    )
    # Base dies have design costs of their own, if there are any.
    process = project.base_process
    process = eqx.tree_at(lambda p: p.nre_usd, process, process.nre_usd * technology.stacked)
    package = Package(
        hbm_stacks=design.hbm_stacks,
        hbm_bytes=design.hbm_stacks * technology.hbm_capacity_bytes,
        interposer_area_m2=area.interposer,
    )
    return dies, package, (base, process)


def chip(project: ChipProject) -> Chip:
    """Return the accelerator of a project, in the same form as one from a datasheet."""
    dies, package, base = _parts(project)
    return silicon.chip(
        project.design,
        project.technology,
        wafers=manufacture.wafers_per_chip(dies, package, project.process, other_dies=base[0].count),
        embodied_carbon_kg=manufacture.embodied_carbon_kg(dies, package, project.process, extra=[base]).total,
    )


def bill(project: ChipProject) -> manufacture.ChipBill:
    """Return the manufacturing cost of one chip by part, USD."""
    dies, package, base = _parts(project)
    return manufacture.bill_of_materials(dies, package, project.process, project.volume, extra=[base])


def installed(cluster: Cluster, project: ChipProject) -> Cluster:
    """Return the cluster with the project's chip in every socket: its price, and its link bandwidth in the two inner tiers.

    Tiers further out keep their ratio to the scale-out bandwidth (oversubscription).
    """
    design, network, prices = project.design, cluster.network, cluster.prices
    bandwidth = network.bandwidth_bytes_per_s
    outer = bandwidth[1:] * (design.scale_out_bandwidth_bytes_per_s / bandwidth[1])
    links = jnp.concatenate([jnp.reshape(design.scale_up_bandwidth_bytes_per_s, (1,)), outer])
    price = project.price_over_bill * bill(project).total
    where = lambda c: (
        c.chip,
        c.network.bandwidth_bytes_per_s,
        c.prices.chip_base_usd,
        c.prices.hbm_usd_per_byte,
        c.prices.hbm_usd_per_byte_per_s,
    )
    none = jnp.zeros_like(jnp.asarray(prices.hbm_usd_per_byte))  # memory is in the bill
    return eqx.tree_at(where, cluster, (chip(project), links, price, none, none))


def areas(project: ChipProject) -> silicon.Areas:
    """Return the silicon areas of one package by function."""
    return silicon.areas(project.design, project.technology)


def margins(project: ChipProject) -> dict[str, Scalar]:
    """Return signed logarithmic margins, `log(limit / need)`, by name: reticle, shoreline and package size."""
    return silicon.margins(project.design, project.technology)._asdict()
