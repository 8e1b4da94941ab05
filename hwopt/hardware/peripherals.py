"""Components around chips and network: memory beyond HBM, storage, lines between sites; failure and recovery of all
components.
"""

import equinox as eqx

from hwopt.quantity import quantity, ratio, switch
from hwopt.types import Scalar

NO_POOL_BYTES = 1.0
"""Capacity that encodes a missing memory pool: the smallest allowed positive number."""


class MemoryPool(eqx.Module):
    """A second tier of memory. Offloaded data is stored here and prefetched before its use."""

    capacity_bytes: Scalar = quantity("B", "per chip")
    reserved: Scalar = ratio("share of the capacity that other software needs and a plan cannot use", most=1.0)
    bandwidth_bytes_per_s: Scalar = quantity("B/s", "of a chip's link to it, per direction, as measured")
    shares_link: Scalar = switch(
        "1: the chip's NIC is behind the same link; 0: the link carries the pool's data only", most=1.0
    )
    update_bandwidth_bytes_per_s: Scalar = quantity(
        "B/s", "of the memory itself, a chip's share: data in both directions of the link, and optimizer updates"
    )
    power_w_per_byte: Scalar = quantity("W/B", "drawn by what it holds")
    energy_j_per_byte: Scalar = quantity(
        "J/B", "of moving a byte to the chip; the link draws it at full rate all the time"
    )
    usd_per_byte: Scalar = quantity("USD/B", "0 where the host's price holds it", key="price")
    usd_per_byte_per_s: Scalar = quantity("USD/(B/s)", "of the link to it", key="bandwidth_price")
    carbon_kg_per_byte: Scalar = quantity("kg/B", "of making it; 0 where the host's holds it")

    @property
    def usable_bytes(self) -> Scalar:
        """Capacity that plans can use, B per chip: `capacity (1 - reserved)`."""
        return self.capacity_bytes * (1.0 - self.reserved)


class Storage(eqx.Module):
    """Storage of data and checkpoints in separate halls, and the input pipeline. Bandwidth is counted per chip."""

    capacity_bytes: Scalar = quantity("B", "beside data and checkpoints of the job: software, logs, results")
    data_copies: Scalar = ratio(
        "copies of the training data, or of the served weights: raw, tokenized, former versions"
    )
    checkpoints: Scalar = ratio("checkpoints of a training run that are retained")
    usd_per_byte: Scalar = quantity("USD/B", "of capacity", key="price")
    usd_per_byte_per_s: Scalar = quantity("USD/(B/s)", "of checkpoint bandwidth", key="bandwidth_price")
    power_w_per_byte: Scalar = quantity("W/B", "drawn by what it holds")
    energy_j_per_byte: Scalar = quantity("J/B", "drawn by a B/s of checkpoint bandwidth, used or not")
    carbon_kg_per_byte: Scalar = quantity("kg/B", "of making it, per capacity")
    checkpoint_bytes_per_s_per_chip: Scalar = quantity(
        "B/s", "written or read back", key="checkpoint_bandwidth", follows="storage_bandwidth"
    )
    input_bytes_per_s_per_chip: Scalar = quantity(
        "B/s", "training data read, decoded and handed to a chip", key="input_bandwidth"
    )


class Sites(eqx.Module):
    """Sites with equal shares of the cluster. Each contains whole replicas of the model; only gradients are exchanged
    between sites.
    """

    count: Scalar = switch("1: everything in one place", key="")
    bandwidth_bytes_per_s: Scalar = quantity("B/s", "of one site to all others, per direction")
    latency_s: Scalar = quantity("s", "one way, protocol and distance")
    efficiency: Scalar = ratio("rate of a large exchange over bandwidth", most=1.0)
    bytes_per_parameter: Scalar = quantity("B", "exchanged: 4 in fp32, 0.5 quantized to 4 bits")
    overlap: Scalar = ratio("share of the time between exchanges that can hide one: 0 blocking, 1 streamed", most=1.0)
    lease_usd_per_byte: Scalar = quantity("USD/B", "of a second of a line of 1 B/s")
    fixed_usd: Scalar = quantity(
        "USD", "of another site: land, grid connection, entry, staff over its life", key="site_price"
    )


class Operation(eqx.Module):
    """Operating conditions of a machine: stalls and stragglers of a long run, which a benchmark of the same plan does not
    have.
    """

    stall_fraction: Scalar = ratio(
        "of a step: evaluation, saves, data and restarts of processes that stop nobody's clock"
    )
    straggler_sigma: Scalar = ratio(
        "relative standard deviation between chips of a step's time, the slowest sets the pace"
    )


class Recovery(eqx.Module):
    """Recovery of a job whose machine failed: through storage and a queue, or with hot spares and in-memory copies."""

    hot_spares: Scalar = switch("1: servers stand started beside the job", most=1.0)
    swap_s: Scalar = quantity("s", "to go on with a spare server, or with processes started again; without reading")
    repair_s: Scalar = quantity("s", "until a failed server is a spare again")
    spare_deviations: Scalar = ratio(
        "standard deviations of servers under repair above their mean that spares stand for"
    )
    peer_bytes_per_s_per_chip: Scalar = quantity(
        "B/s", "saves to the memory of other hosts, or back; 0: saves go to storage", key="peer_bandwidth"
    )


class Spot(eqx.Module):
    """Discounted chips that the provider may preempt at any time and returns when capacity is available."""

    every_s: Scalar = quantity("s", "mean time until a group that is there is taken away")
    return_s: Scalar = quantity("s", "mean time until it is there again")
    discount: Scalar = ratio("share of the price that is left off while a group is there", most=1.0)
    group_chips: Scalar = quantity("chip", "that are taken away together: an instance")


class Reliability(eqx.Module):
    """Interruption rates of a job by part of the machine, and the times of restart and checkpointing."""

    die_failures_per_m2_s: Scalar = quantity(
        "1/(m2.s)", "interruptions of a job by silicon under a lid, at the reference junction", follows="failures"
    )
    stack_failures_per_s: Scalar = quantity("1/s", "by a stack of HBM, at the reference junction", follows="failures")
    host_failures_per_s: Scalar = quantity("1/s", "by a server's processors, memory, disks, boards", follows="failures")
    link_failures_per_s: Scalar = quantity("1/s", "by a port of a NIC with its cable and optics", follows="failures")
    switch_failures_per_s: Scalar = quantity("1/s", "by a switch of the fabric", follows="failures")
    rack_failures_per_s: Scalar = quantity("1/s", "by a rack's supplies and chassis", follows="failures")
    loop_failures_per_s: Scalar = quantity(
        "1/s", "by a cooling loop: pumps, valves, leaks, control", follows="failures"
    )
    software_failures_per_chip_s: Scalar = quantity("1/s", "by software and what else, a chip", follows="failures")
    failure_growth_per_k: Scalar = quantity("1/K", "of dies and stacks, exp(growth (T - reference))")
    reference_junction_k: Scalar = quantity("K", "junction temperature at which failures are counted")
    restart_s: Scalar = quantity("s", "detect, replace, start again, warm up; without reading the checkpoint")
    snapshot_bandwidth_bytes_per_s: Scalar = quantity("B/s", "chip to host memory, while the job waits")
    snapshot_overhead_s: Scalar = quantity("s", "of a save, independent of its size: barrier, serialization")
