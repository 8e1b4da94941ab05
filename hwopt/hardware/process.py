"""How accelerators are made: a silicon process with its packaging, and what goes into one package."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class Process(eqx.Module):
    """A logic process and the packaging line behind it: prices, yields and emissions of manufacture."""

    wafer_usd: Scalar  # price of one processed logic wafer
    wafer_diameter_m: Scalar
    edge_exclusion_m: Scalar  # rim without good dies
    scribe_m: Scalar  # width of the saw lane between dies
    defects_per_m2: Scalar  # that kill what they hit
    clustering: Scalar  # alpha of the negative binomial yield: low where defects come in clusters
    nre_usd: Scalar  # design, verification, software and masks of one kind of die
    sort_usd_per_m2: Scalar  # wafer test, per area of silicon tested, good or bad
    test_usd_per_m2: Scalar  # final and system-level test, per area of silicon in the package
    interposer_wafer_usd: Scalar  # price of one wafer of interposers, with the bonding done on it
    interposer_defects_per_m2: Scalar
    interposer_clustering: Scalar
    substrate_usd_per_m2: Scalar  # substrate and bumps, per area of interposer
    assembly_usd_per_part: Scalar  # placing one die or one memory stack
    die_bond_yield: Scalar  # that one die is bonded well
    stack_bond_yield: Scalar  # that one memory stack is bonded well
    substrate_yield: Scalar  # that the bonded interposer is mounted well
    hbm_usd_per_byte: Scalar
    fab_energy_j_per_m2: Scalar  # electricity, per area of wafer
    fab_gases_kg_per_m2: Scalar  # CO2e of process gases after abatement, per area of wafer
    fab_materials_kg_per_m2: Scalar  # CO2e of raw materials, per area of wafer
    fab_carbon_kg_per_j: Scalar  # of the fab's electricity
    fab_yield: Scalar  # wafers that come out over wafers started
    package_carbon_kg_per_m2: Scalar  # of interposer, substrate and bonding, per area of interposer wafer
    hbm_carbon_kg_per_byte: Scalar


class Dies(eqx.Module):
    """Equal dies of one package.

    Defects in the harvestable area are mended by turning off the compute unit they hit, as long as enough units are left.
    A die without spares has `enabled_fraction` 1, whatever its other fields.
    """

    count: Scalar  # in one package
    fixed_area_m2: Scalar  # of one die, where any defect kills it
    harvestable_area_m2: Scalar  # of one die: compute units, and other blocks sold in part
    compute_units: Scalar  # of one die, made
    enabled_fraction: Scalar  # units sold over units made


class Package(eqx.Module):
    """What surrounds the dies of one accelerator."""

    hbm_stacks: Scalar
    hbm_bytes: Scalar  # of all stacks
    interposer_area_m2: Scalar
