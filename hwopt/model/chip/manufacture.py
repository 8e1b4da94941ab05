"""Manufacturing of an accelerator: yield, cost and embodied carbon of wafers, dies, interposer, memory, test and design.

All quantities suit geometric programs. Every cost below is log-log convex in areas, defect densities, counts, bytes and
prices, because 1/yield and 1/(dies per wafer) are. Their reciprocals, the yields themselves, are log-log concave.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from hwopt.hardware.process import Dies, Package, Process
from hwopt.trace.yield_primitive import dies_made
from hwopt.types import Scalar


class ChipBill(NamedTuple):
    """Manufacturing cost of one sold accelerator, USD, by part. The parts before `loss` are those of one assembled package."""

    dies: Scalar  # good compute dies
    extra_dies: Scalar  # other good dies, such as I/O and base dies
    packaging: Scalar  # interposer, substrate, assembly
    hbm: Scalar
    test: Scalar
    loss: Scalar  # all of the above, in packages that fail
    nre: Scalar  # share of design and mask costs

    @property
    def total(self) -> Scalar:
        """Total cost of one accelerator, USD."""
        return sum(self[1:], start=self[0])


class EmbodiedCarbon(NamedTuple):
    """Emissions of manufacturing one sold accelerator, kg CO2e; each part includes its losses in packages that fail."""

    dies: Scalar
    extra_dies: Scalar
    packaging: Scalar
    hbm: Scalar

    @property
    def total(self) -> Scalar:
        """Total emissions of one accelerator, kg CO2e."""
        return sum(self[1:], start=self[0])


def die_yield(area_m2: Scalar, process: Process) -> Scalar:
    """Return the yield of dies without spare units: dies without any defect over dies made.

    `Y = (1 + D A / alpha)^-alpha`, negative binomial; it tends to the Poisson yield `exp(-D A)` as alpha grows.

    **Arguments:** `area_m2` A of one die; `process` with D `defects_per_m2` and alpha `clustering`.

    **Returns:** fraction. Its reciprocal is log-log convex in A and D: a power of a posynomial.

    **Source:** Stapper, IBM J. Res. Dev. 1983; alpha 10 as in Feng and Ma, Chiplet Actuary, DAC 2022.
    """
    return (1.0 + process.defects_per_m2 * area_m2 / process.clustering) ** -process.clustering


def harvest_yield(dies: Dies, process: Process) -> Scalar:
    """Return the yield with harvesting: sellable dies over dies made, where up to S compute units may be defective.

    `Y = (1 + D A_f / alpha)^-alpha I_x(alpha, S + 1)`, `S = (1 - enabled) units`,
    `x = (alpha + D A_f) / (alpha + D A_f + D A_h)`. It allows no defect in the fixed area A_f and at most S in the harvestable
    area A_h; one negative binomial law covers both areas. I is the regularized incomplete beta function, which extends the sum
    over integer spares to any S. Without spares it equals `die_yield` of the whole area.

    Two defects in one unit count as two dead units, so the result is never above the exact sum over units. For a GH100 (144
    units, one spare) it is at most 0.1 % low, less with more spares. In general it is at most 0.25 % low at 144 units, 0.75 %
    at 40 and 2 % at 16, for D (A_f + A_h) up to 1.6 with three quarters of the area harvestable.

    The reciprocal is log-log convex in A_f, A_h and D (`hwopt.trace.yield_primitive`). Joint convexity with `enabled_fraction`
    was confirmed at each of 20,000 sampled points but is unproved.

    **Arguments:** `dies`; `process` with D and alpha. **Returns:** fraction.

    **Source:** Koren and Koren, Defect Tolerance in VLSI Circuits, Proc. IEEE 1998, for the mixed law with spares.
    """
    return 1.0 / _made_per_sellable_die(dies, process)


def _made_per_sellable_die(dies: Dies, process: Process) -> Scalar:
    """Return the dies made per sellable die, `1 / harvest_yield`."""
    fixed, harvestable = process.defects_per_m2 * dies.fixed_area_m2, process.defects_per_m2 * dies.harvestable_area_m2
    return dies_made(fixed, harvestable, (1.0 - dies.enabled_fraction) * dies.compute_units, process.clustering)


def gross_dies_per_wafer(area_m2: Scalar, process: Process) -> Scalar:
    """Return the whole dies on a wafer, good or bad.

    `N = pi d^2 / (4 A') exp(-2 sqrt(A') / d)`, `sqrt(A') = sqrt(A) + scribe`, d the diameter without the excluded rim. The
    reference is a count of dies of 1:1 to 3:2 on a grid with the best offset. The formula deviates by -2 to +5 % from 20 mm2 to
    a reticle (858 mm2), mean +1 %. Up to 5000 mm2 it deviates by -12 to +15 %, mean +3 %, because small counts change in large
    steps.

    The textbook formula `pi d^2/(4A) - pi d/sqrt(2A)` (de Vries) is up to 12 % low up to a reticle. At 5000 mm2 it gives half
    the count, and for wafer-scale dies a negative one. Without rim and saw lanes it returns the 63 of a GH100 by chance.

    **Arguments:** `area_m2` A of one die; `process`. **Returns:** dies. Its reciprocal is log-log convex in the area: a
    posynomial times the exponential of one.

    **Source:** Ferris-Prabhu, IEEE Circuits and Devices 1989; compared in de Vries, IEEE Trans. Semicond. Manuf. 2005.
    """
    return 1.0 / _wafers_per_gross_die(area_m2, process)


def _wafers_per_gross_die(area_m2: Scalar, process: Process) -> Scalar:
    diameter = process.wafer_diameter_m - 2.0 * process.edge_exclusion_m
    edge = (jnp.sqrt(area_m2) + process.scribe_m) / diameter
    return (4.0 / jnp.pi) * edge * edge * jnp.exp(2.0 * edge)


def wafers_per_good_die(dies: Dies, process: Process) -> Scalar:
    """Return the wafers per sellable die, `1 / (N Y)`.

    **Arguments:** `dies` (their count does not matter); `process`.

    **Returns:** wafers; log-log convex like the reciprocal of `harvest_yield`.
    """
    return _wafers_per_gross_die(_area(dies), process) * _made_per_sellable_die(dies, process)


def good_die_usd(dies: Dies, process: Process) -> Scalar:
    """Return the wafer cost of one sellable die, before its test: `price / (N Y)`.

    **Returns:** USD; log-log convex like the reciprocal of `harvest_yield`.
    """
    return process.wafer_usd * wafers_per_good_die(dies, process)


def package_yield(dies: Scalar, package: Package, process: Process) -> Scalar:
    """Return the package yield, good packages over packages assembled: `die_yield^dies stack_yield^stacks substrate_yield`.

    The three factors are bonding yields. Dies and stacks are tested before bonding (known good), interposers before mounting.

    **Arguments:** `dies`: number of all dies in the package; `package`; `process`.

    **Returns:** fraction; its reciprocal is log-log convex in the counts.
    """
    return jnp.exp(-_bonding_loss(dies, package, process))


def _bonding_loss(dies: Scalar | float, package: Package, process: Process) -> Scalar:
    """Return `-ln package_yield`."""
    return -(
        dies * jnp.log(process.die_bond_yield)
        + package.hbm_stacks * jnp.log(process.stack_bond_yield)
        + jnp.log(process.substrate_yield)
    )


def wafers_per_chip(dies: Dies, package: Package, process: Process, *, other_dies: Scalar | float = 0.0) -> Scalar:
    """Return the wafers of one type of die per sold accelerator, including dies lost in packages that fail.

    **Arguments:** `dies` of that type; `other_dies`: number of all other dies in the package. **Returns:** wafers, log-log
    convex.
    """
    lost = jnp.exp(_bonding_loss(dies.count + other_dies, package, process))
    return dies.count * wafers_per_good_die(dies, process) * lost


def interposer_usd(area_m2: Scalar, process: Process) -> Scalar:
    """Return the cost of a good interposer: `wafer price / N (1 + D A / alpha)^alpha`.

    D and alpha are the interposer's own; N is `gross_dies_per_wafer`.

    **Returns:** USD, log-log convex in area and prices.
    """
    return process.interposer_wafer_usd * _wafers_per_interposer(area_m2, process)


def _wafers_per_interposer(area_m2: Scalar, process: Process) -> Scalar:
    alpha = process.interposer_clustering
    made = (1.0 + process.interposer_defects_per_m2 * area_m2 / alpha) ** alpha
    return _wafers_per_gross_die(area_m2, process) * made


def packaging_usd(dies: Scalar | float, package: Package, process: Process) -> Scalar:
    """Return the cost of interposer, substrate with bumps, and assembly of one package, before losses.

    **Arguments:** `dies`: number of all dies in the package. **Returns:** USD, log-log convex.
    """
    substrate = process.substrate_usd_per_m2 * package.interposer_area_m2
    placing = process.assembly_usd_per_part * (dies + package.hbm_stacks)
    return interposer_usd(package.interposer_area_m2, process) + substrate + placing


def bill_of_materials(
    dies: Dies, package: Package, process: Process, volume: Scalar, *, extra: Sequence[tuple[Dies, Process]] = ()
) -> ChipBill:
    """Return the maker's cost of one sold accelerator by part, without margin.

    `loss = (dies + packaging + hbm + test) (1 / package_yield - 1)`: a package that fails takes all its parts with it.
    `nre = sum of nre_usd / volume` over the types of dies. Power stages, board and heat sink are excluded.

    **Arguments:**
    - `dies`: compute dies;
    - `package`: interposer and memory;
    - `process`: process of the compute dies; its packaging line is used;
    - `volume`: accelerators sold, over which the design costs are spread;
    - `extra`: other types of dies (I/O and base dies), each with its process.

    **Returns:** USD by part. Each part and the total are log-log convex in areas, counts, bytes, defect densities, prices and
    1/volume; for `enabled_fraction` see `harvest_yield`.
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
    """Return the test cost of one package's dies: wafer sort of every die made, and final test of the good ones, USD."""
    sort = process.sort_usd_per_m2 * _made_per_sellable_die(dies, process)
    return dies.count * _area(dies) * (sort + process.test_usd_per_m2)


def embodied_carbon_kg(
    dies: Dies, package: Package, process: Process, *, extra: Sequence[tuple[Dies, Process]] = ()
) -> EmbodiedCarbon:
    """Return the emissions of manufacturing one sold accelerator: dies, interposer and substrate, memory.

    Dies: `wafers per chip x pi d^2/4 x (energy x grid + gases + materials) / fab_yield`. The figures are per wafer area, so rim
    and saw lanes count. Packaging uses one figure per interposer wafer area, over the interposer's yield; memory one per byte.
    All parts are divided by `package_yield`. Board, heat sink and transport are excluded.

    **Arguments:** as in `bill_of_materials`. **Returns:** kg CO2e by part; log-log convex like the bill.

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
    """Return the emissions per finished wafer, kg CO2e."""
    per_m2 = process.fab_energy_j_per_m2 * process.fab_carbon_kg_per_j
    per_m2 = per_m2 + process.fab_gases_kg_per_m2 + process.fab_materials_kg_per_m2
    return _wafer_area_m2(process) * per_m2 / process.fab_yield


def _wafer_area_m2(process: Process) -> Scalar:
    return (jnp.pi / 4.0) * process.wafer_diameter_m * process.wafer_diameter_m


def _area(dies: Dies) -> Scalar:
    return dies.fixed_area_m2 + dies.harvestable_area_m2
