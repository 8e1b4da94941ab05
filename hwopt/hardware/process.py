"""Manufacture of accelerators: a silicon process with its packaging, and the contents of one package."""

import equinox as eqx

from hwopt.quantity import exponent, quantity, ratio
from hwopt.types import Scalar


class Process(eqx.Module):
    """A logic process and its packaging line: prices, yields and emissions of manufacture."""

    wafer_usd: Scalar = quantity("USD", "price of one processed logic wafer", key="wafer_price")
    wafer_diameter_m: Scalar = quantity("m", "300 mm of any process today")
    edge_exclusion_m: Scalar = quantity("m", "rim without good dies")
    scribe_m: Scalar = quantity("m", "width of the saw lane between dies")
    defects_per_m2: Scalar = quantity("1/m2", "that kill what they hit", key="defect_density")
    clustering: Scalar = exponent("alpha of the negative binomial yield: low where defects come in clusters")
    nre_usd: Scalar = quantity("USD", "design, verification, software and masks of one kind of die")
    sort_usd_per_m2: Scalar = quantity("USD/m2", "wafer test, per area of silicon tested, good or bad", key="sort_cost")
    test_usd_per_m2: Scalar = quantity(
        "USD/m2", "final and system-level test, per area of silicon in the package", key="test_cost"
    )
    interposer_wafer_usd: Scalar = quantity(
        "USD",
        "price of one wafer of interposers, with the bonding done on it",
        key="interposer_wafer_price",
        part="packaging",
    )
    interposer_defects_per_m2: Scalar = quantity(
        "1/m2", "that kill an interposer", key="interposer_defect_density", part="packaging"
    )
    interposer_clustering: Scalar = exponent("alpha of the interposer's yield", part="packaging")
    substrate_usd_per_m2: Scalar = quantity(
        "USD/m2", "substrate and bumps, per area of interposer", key="substrate_cost", part="packaging"
    )
    assembly_usd_per_part: Scalar = quantity(
        "USD", "placing one die or one memory stack", key="assembly_cost", part="packaging"
    )
    die_bond_yield: Scalar = ratio("that one die is bonded well", most=1.0, part="packaging")
    stack_bond_yield: Scalar = ratio("that one memory stack is bonded well", most=1.0, part="packaging")
    substrate_yield: Scalar = ratio("that the bonded interposer is mounted well", most=1.0, part="packaging")
    hbm_usd_per_byte: Scalar = quantity("USD/B", "what a chip maker pays for stacks", key="hbm_price", part="memory")
    fab_energy_j_per_m2: Scalar = quantity("J/m2", "electricity, per area of wafer")
    fab_gases_kg_per_m2: Scalar = quantity("kg/m2", "CO2e of process gases after abatement, per area of wafer")
    fab_materials_kg_per_m2: Scalar = quantity("kg/m2", "CO2e of raw materials, per area of wafer")
    fab_carbon_kg_per_j: Scalar = quantity("kg/J", "of the fab's electricity")
    fab_yield: Scalar = ratio("wafers that come out over wafers started", most=1.0)
    package_carbon_kg_per_m2: Scalar = quantity(
        "kg/m2", "of interposer, substrate and bonding, per area of interposer wafer", part="packaging"
    )
    hbm_carbon_kg_per_byte: Scalar = quantity("kg/B", "of making stacks", part="memory")


class Dies(eqx.Module):
    """Equal dies of one package.

    A defect in the harvestable area is repaired by turning off the affected compute unit, as long as enough units
    remain. A die without spare units has `enabled_fraction` 1, regardless of its other fields.
    """

    count: Scalar  # per package
    fixed_area_m2: Scalar  # of one die, where any defect kills the die
    harvestable_area_m2: Scalar  # of one die: compute units, and other blocks sold in part
    compute_units: Scalar  # of one die, including spares
    enabled_fraction: Scalar  # units sold / units made


class Package(eqx.Module):
    """Parts of one accelerator's package other than its compute dies."""

    hbm_stacks: Scalar
    hbm_bytes: Scalar  # of all stacks
    interposer_area_m2: Scalar
