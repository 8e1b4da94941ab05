"""The interconnect as nested tiers, from the scale-up domain outward."""

import equinox as eqx

from hwopt.quantity import exponent, quantity, ratio, switch
from hwopt.types import PerInnerTier, PerTier, Scalar


class Network(eqx.Module):
    """Tiers of the network, from the inside out. Arrays over tiers (`PerTier`) follow the order of `hwopt.types.TIERS`.

    A group of chips uses tier i where it does not fit into one unit of tier i - 1. The outermost tier has no size: it
    connects the whole cluster through switches.
    """

    size: PerInnerTier = quantity(
        "chip", "chips one unit of each inner tier connects: scale-up domain, pod", follows="pod"
    )
    bandwidth_bytes_per_s: PerTier = quantity("B/s", "per chip and direction")
    lane_bytes_per_s: PerInnerTier = quantity(
        "B/s", "of the part that its bandwidth is bought in: a lane of the domain's links, a port of a NIC",
        follows="lane", varies=False,
    )  # fmt: skip
    efficiency: PerTier = ratio("bus bandwidth of a large collective over bandwidth", follows="efficiency")
    latency_s: PerTier = quantity(
        "s", "of one step between neighbors for a tiny message, including the software of the step", follows="latency"
    )
    ramp: PerTier = ratio(
        "rho of a step's `alpha + 2 rho sqrt(alpha s/B) + s/B`: 1 cut into its best chunks, 0 sent whole",
        follows="ramp",
    )
    reduction_factor: PerTier = ratio(
        "traffic of an all-reduce over that of a ring (0.5: reduced inside the switch, 1: ring)",
        follows="reduction_factor",
    )
    dimensions: PerTier = switch(
        "D: rings that a collective runs through one after the other; D of a torus, 1 elsewhere"
    )
    links: PerInnerTier = ratio("of a chip to neighbors in the tier; 1 with switches")
    sharing: PerInnerTier = exponent(
        "q: n of a tier's m chips can use (n / m)^q of each chip's links; 0 behind switches", key=""
    )
    crossings: PerInnerTier = switch(
        "c: a byte of an all-to-all crosses c n^(1/D) times its share of links; D/4 on a torus, else 0", key=""
    )
    tree_step: PerTier = ratio(
        "latency of a level of a logarithmic algorithm over that of a ring's step; huge: rings only",
        follows="tree_step",
    )
    latency_tail_s: PerTier = quantity(
        "s", "mean of the exponential tail of a step's latency, above `latency_s`", follows="latency_tail"
    )
    bandwidth_spread: PerTier = ratio(
        "relative standard deviation of what links deliver: collisions, congestion", follows="bandwidth_spread"
    )
    level_chips: Scalar = quantity(
        "chip", "of a domain that one level of its switches joins; more take two", key="level_chips", default=1e9
    )
    level_latency_s: Scalar = quantity(
        "s", "of the two switches and cables more on a way through two levels", default=0.0
    )
    flat_rings: Scalar = switch(
        "1 where all-reduces over more than two domains run as one ring through all chips", key="", default=0.0
    )
    switches_per_port: PerTier = switch(
        "switches, all levels of the tier, that a port of a NIC takes; 0 in the domain and where there are none", key=""
    )
    switch_price_share: PerTier = switch("of a tier's price that is its switches'", key="")
    switch_power_share: PerTier = switch("of a tier's power that its switches draw", key="")
    energy_j_per_byte: PerTier = quantity(
        "J/B", "of switches, optics and cables outside the chip, per byte sent", follows="energy"
    )
