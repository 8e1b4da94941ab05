"""Yield, cost and embodied carbon of making an accelerator: wafers, dies, interposer, memory, test, design.

Areas, counts, prices and yields are in log space what a geometric programme wants: every cost below is log-log convex in
areas, defect densities, counts, bytes and prices, because 1/yield and 1/(dies per wafer) are. Their reciprocals, the
yields themselves, are log-log concave.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from hwopt.hardware.process import Dies, Package, Process
from hwopt.trace.yield_primitive import dies_made
from hwopt.types import Scalar


class ChipBill(NamedTuple):
    """What one sold accelerator costs to make, USD. The parts before `loss` are those of one package put together."""

    dies: Scalar  # good compute dies
    extra_dies: Scalar  # good dies of other kinds
    packaging: Scalar  # interposer, substrate, assembly
    hbm: Scalar
    test: Scalar
    loss: Scalar  # all of the above in packages that fail
    nre: Scalar  # share of design and masks

    @property
    def total(self) -> Scalar:
        """USD for one accelerator."""
        return sum(self[1:], start=self[0])


class EmbodiedCarbon(NamedTuple):
    """Emissions of making one sold accelerator, kg CO2e; each part with what is lost in packages that fail."""

    dies: Scalar
    extra_dies: Scalar
    packaging: Scalar
    hbm: Scalar

    @property
    def total(self) -> Scalar:
        """Emissions of one accelerator, kg CO2e."""
        return sum(self[1:], start=self[0])


def die_yield(area_m2: Scalar, process: Process) -> Scalar:
    """Dies without any defect over dies made.

    `Y = (1 + D A / alpha)^-alpha`, negative binomial; tends to the Poisson yield `exp(-D A)` as alpha grows.

    **Arguments:** `area_m2` of one die; `process` with D `defects_per_m2` and alpha `clustering`.

    **Returns:** fraction. Its reciprocal is log-log convex in A and D: a power of a posynomial.

    **Source:** Stapper, IBM J. Res. Dev. 1983; alpha 10 as in Feng and Ma, Chiplet Actuary, DAC 2022.
    """
    return (1.0 + process.defects_per_m2 * area_m2 / process.clustering) ** -process.clustering


def harvest_yield(dies: Dies, process: Process) -> Scalar:
    """Sellable dies over dies made, where up to S units may be dead.

    `Y = (1 + D A_f / alpha)^-alpha I_x(alpha, S + 1)`, `S = (1 - enabled) units`,
    `x = (alpha + D A_f) / (alpha + D A_f + D A_h)`: no defect in the fixed area A_f, at most S in the harvestable area A_h,
    both under one negative binomial law; I is the regularised incomplete beta function, which continues the sum over
    integer spares to any S. Without spares it is `die_yield` of the whole area.

    Counts two defects in one unit as two dead units, so it is never above the exact sum over units. It is low by at most
    0.1 % for a GH100 (144 units, one spare, less with more), 0.25 % at 144 units, 0.75 % at 40 and 2 % at 16, for
    D (A_f + A_h) up to 1.6 with three quarters of it harvestable. Its reciprocal is log-log convex in A_f, A_h and D
    (`hwopt.trace.yield_primitive`); jointly with `enabled_fraction` it was so at each of 20,000 points sampled, which is no proof.

    **Arguments:** `dies`, `process`. **Returns:** fraction.

    **Source:** Koren and Koren, Defect Tolerance in VLSI Circuits, Proc. IEEE 1998, for the mixed law with spares.
    """
    return 1.0 / _made_per_sellable_die(dies, process)


def _made_per_sellable_die(dies: Dies, process: Process) -> Scalar:
    """`1 / harvest_yield`."""
    fixed, harvestable = process.defects_per_m2 * dies.fixed_area_m2, process.defects_per_m2 * dies.harvestable_area_m2
    return dies_made(fixed, harvestable, (1.0 - dies.enabled_fraction) * dies.compute_units, process.clustering)


def gross_dies_per_wafer(area_m2: Scalar, process: Process) -> Scalar:
    """Whole dies on a wafer, good or bad.

    `N = pi d^2 / (4 A') exp(-2 sqrt(A') / d)`, `sqrt(A') = sqrt(A) + scribe`, d the diameter without the excluded rim.
    Against dies of 1:1 to 3:2 counted on a grid of the best offset: -2 to +5 % from 20 mm2 to a reticle (858 mm2), mean
    +1 %; -12 to +15 % up to 5000 mm2, mean +3 %, where few dies come in steps. The textbook `pi d^2/(4A) - pi d/sqrt(2A)`
    (de Vries) is up to 12 % low to a reticle and half at 5000 mm2, and negative for wafer-scale dies; taken without rim and
    lanes it returns the 63 of a GH100 by luck.

    **Arguments:** `area_m2` of one die; `process`. **Returns:** dies. Its reciprocal is log-log convex in the area: a
    posynomial times the exponential of one.

    **Source:** Ferris-Prabhu, IEEE Circuits and Devices 1989; compared in de Vries, IEEE Trans. Semicond. Manuf. 2005.
    """
    return 1.0 / _wafers_per_gross_die(area_m2, process)


def _wafers_per_gross_die(area_m2: Scalar, process: Process) -> Scalar:
    diameter = process.wafer_diameter_m - 2.0 * process.edge_exclusion_m
    edge = (jnp.sqrt(area_m2) + process.scribe_m) / diameter
    return (4.0 / jnp.pi) * edge * edge * jnp.exp(2.0 * edge)


def wafers_per_good_die(dies: Dies, process: Process) -> Scalar:
    """Wafers that one sellable die takes, `1 / (N Y)`.

    **Arguments:** `dies` (their count does not matter); `process`. **Returns:** wafers; log-log convex as
    `harvest_yield` says.
    """
    return _wafers_per_gross_die(_area(dies), process) * _made_per_sellable_die(dies, process)


def good_die_usd(dies: Dies, process: Process) -> Scalar:
    """Wafer price of one sellable die, before its test: `price / (N Y)`.

    **Returns:** USD; log-log convex as `harvest_yield` says.
    """
    return process.wafer_usd * wafers_per_good_die(dies, process)


def package_yield(dies: Scalar, package: Package, process: Process) -> Scalar:
    """Good packages over packages put together: `die_yield^dies stack_yield^stacks substrate_yield`, bonding yields.

    Dies and stacks are tested before they are bonded (known good), the interposer before it is mounted.

    **Arguments:** `dies` of all kinds in the package. **Returns:** fraction; its reciprocal is log-log convex in the counts.
    """
    return jnp.exp(-_bonding_loss(dies, package, process))


def _bonding_loss(dies: Scalar | float, package: Package, process: Process) -> Scalar:
    """`-ln package_yield`."""
    return -(
        dies * jnp.log(process.die_bond_yield)
        + package.hbm_stacks * jnp.log(process.stack_bond_yield)
        + jnp.log(process.substrate_yield)
    )


def wafers_per_chip(dies: Dies, package: Package, process: Process, *, other_dies: Scalar | float = 0.0) -> Scalar:
    """Wafers of one kind of die that one sold accelerator takes, with those in packages that fail.

    **Arguments:** `dies` of that kind; `other_dies` of other kinds in the package. **Returns:** wafers, log-log convex.
    """
    lost = jnp.exp(_bonding_loss(dies.count + other_dies, package, process))
    return dies.count * wafers_per_good_die(dies, process) * lost


def interposer_usd(area_m2: Scalar, process: Process) -> Scalar:
    """A good interposer: `wafer price / N (1 + D A / alpha)^alpha` with its own D and alpha, N as for dies.

    **Returns:** USD, log-log convex in area and prices.
    """
    return process.interposer_wafer_usd * _wafers_per_interposer(area_m2, process)


def _wafers_per_interposer(area_m2: Scalar, process: Process) -> Scalar:
    alpha = process.interposer_clustering
    made = (1.0 + process.interposer_defects_per_m2 * area_m2 / alpha) ** alpha
    return _wafers_per_gross_die(area_m2, process) * made


def packaging_usd(dies: Scalar | float, package: Package, process: Process) -> Scalar:
    """Interposer, substrate with bumps, and assembly of one package, before losses.

    **Arguments:** `dies` of all kinds in the package. **Returns:** USD, log-log convex.
    """
    substrate = process.substrate_usd_per_m2 * package.interposer_area_m2
    placing = process.assembly_usd_per_part * (dies + package.hbm_stacks)
    return interposer_usd(package.interposer_area_m2, process) + substrate + placing


def bill_of_materials(
    dies: Dies, package: Package, process: Process, volume: Scalar, *, extra: Sequence[tuple[Dies, Process]] = ()
) -> ChipBill:
    """What one sold accelerator costs its maker, without margin.

    `loss = (dies + packaging + hbm + test) (1 / package_yield - 1)`: a package that fails takes everything in it;
    `nre = sum of nre_usd / volume` over the kinds of dies. Power stages, board and heat sink are not in it.

    **Arguments:** `dies` that compute; `package`; `process` of these dies, whose packaging line is used; `volume`
    accelerators sold over which design is paid; `extra` kinds of dies, each with its process (I/O and base dies).

    **Returns:** USD by part. Log-log convex in areas, counts, bytes, defect densities, prices and 1/volume, every part and
    the total; with `enabled_fraction` as `harvest_yield` says.
    """
    made = ((dies, process), *extra)
    count = sum(each.count for each, _ in made)
    priced = [each.count * good_die_usd(each, by) for each, by in made]
    packaging = packaging_usd(count, package, process)
    hbm = process.hbm_usd_per_byte * package.hbm_bytes
    test = sum((_test_usd(*each) for each in extra), start=_test_usd(dies, process))
    extras = jnp.asarray(sum(priced[1:], 0.0), jnp.result_type(priced[0]))
    again = jnp.expm1(_bonding_loss(count, package, process))
    return ChipBill(
        dies=priced[0],
        extra_dies=extras,
        packaging=packaging,
        hbm=hbm,
        test=test,
        loss=(priced[0] + extras + packaging + hbm + test) * again,
        nre=sum(by.nre_usd for _, by in made) / volume,
    )


def _test_usd(dies: Dies, process: Process) -> Scalar:
    """Sort of every die made for the good ones, and final test of those."""
    sort = process.sort_usd_per_m2 * _made_per_sellable_die(dies, process)
    return dies.count * _area(dies) * (sort + process.test_usd_per_m2)


def embodied_carbon_kg(
    dies: Dies, package: Package, process: Process, *, extra: Sequence[tuple[Dies, Process]] = ()
) -> EmbodiedCarbon:
    """Emissions of making one sold accelerator: dies, interposer and substrate, memory.

    Dies: `wafers per chip x pi d^2/4 x (energy x grid + gases + materials) / fab_yield`, per wafer area, so that rim and
    lanes count. Packaging likewise with one figure per interposer wafer area over the interposer's yield; memory per byte.
    All over `package_yield`. Board, heat sink and transport are not in it.

    **Arguments:** as `bill_of_materials`. **Returns:** kg CO2e by part; log-log convex like the bill.

    **Source:** Gupta et al., ACT, ISCA 2022, equations 4 to 7.
    """
    made = ((dies, process), *extra)
    count = sum(each.count for each, _ in made)
    lost = jnp.exp(_bonding_loss(count, package, process))
    emitted = [each.count * wafers_per_good_die(each, by) * _wafer_kg(by) * lost for each, by in made]
    interposers = _wafers_per_interposer(package.interposer_area_m2, process)
    return EmbodiedCarbon(
        dies=emitted[0],
        extra_dies=jnp.asarray(sum(emitted[1:], 0.0), jnp.result_type(emitted[0])),
        packaging=interposers * _wafer_area_m2(process) * process.package_carbon_kg_per_m2 * lost,
        hbm=process.hbm_carbon_kg_per_byte * package.hbm_bytes * lost,
    )


def _wafer_kg(process: Process) -> Scalar:
    """Emissions of one wafer that comes out of the fab."""
    per_m2 = process.fab_energy_j_per_m2 * process.fab_carbon_kg_per_j
    per_m2 = per_m2 + process.fab_gases_kg_per_m2 + process.fab_materials_kg_per_m2
    return _wafer_area_m2(process) * per_m2 / process.fab_yield


def _wafer_area_m2(process: Process) -> Scalar:
    return (jnp.pi / 4.0) * process.wafer_diameter_m * process.wafer_diameter_m


def _area(dies: Dies) -> Scalar:
    return dies.fixed_area_m2 + dies.harvestable_area_m2
