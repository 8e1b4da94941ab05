"""Several sites that train one model, and the lines between them."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class Sites(eqx.Module):
    """Sites with equal shares of the cluster. Each holds whole replicas of the model; only gradients travel between them."""

    count: Scalar  # 1: everything in one place
    bandwidth_bytes_per_s: Scalar  # of one site to all others, per direction
    latency_s: Scalar  # one way, protocol and distance
    efficiency: Scalar  # rate of a large exchange over bandwidth
    bytes_per_parameter: Scalar  # exchanged: 4 in fp32, 0.5 quantised to 4 bit
    overlap: Scalar  # share of the time between exchanges that can hide one: 0 blocking, 1 streamed
    lease_usd_per_byte: Scalar  # of a second of a line of 1 B/s
    fixed_usd: Scalar  # of another site: land, grid connection, entry, staff over its life
