"""Measured collectives against the model, and the constants of links fitted to them.

`python -m hwopt.evidence.collectives` prints how well every system is predicted; `python -m hwopt.evidence.collectives fit`
fits the links and prints what `hwopt/data/links` holds of it. The measurements are `hwopt/data/runs/collectives.csv`:
nccl-tests of one collective at a time, buffers apart, from 8 B to 16 GB.

Training runs take no part, so that a link is never bent to hide another error. Launch latency is that of the stack
`STACK`, as in predictions of its runs; latencies of links are what is left, and so never count it twice.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from scipy.optimize import least_squares

from hwopt import catalog
from hwopt.catalog.names import data_root
from hwopt.hardware.network import Network
from hwopt.model import collectives
from hwopt.units import to_si

STACK = "nemo-2025"
"""Whose launch latency the measurements are taken to contain."""

BANDWIDTH_BYTES = (2**20, 2**33)
"""Sizes over which bus bandwidth is scored: 1 MB to 8 GB."""

LATENCY_BYTES = 2**16
"""Below this many bytes a collective's time is scored as its latency: 64 kB."""


class System(NamedTuple):
    """What a measured system is in the catalogue."""

    chip: str
    scale_out: str | None = None


SYSTEMS = {
    "a100": System("a100-80"),
    "h100": System("h100-sxm"),
    "dgx-h100": System("h100-sxm"),
    "p5-one-node": System("h100-sxm"),
    "h200": System("h200"),
    "b200": System("b200"),
    "b300": System("b300"),
    "gb200": System("gb200"),
    "gb300": System("gb300"),
    "p5": System("h100-sxm", "efa"),
    "p4de": System("a100-80", "efa-p4"),
}
"""Systems of the table."""

_KERNELS: dict[str, Callable] = {
    "all_gather": collectives.ring_pass_s,
    "reduce_scatter": collectives.ring_pass_s,
    "all_reduce": collectives.all_reduce_s,
    "all_to_all": collectives.all_to_all_s,
}


@dataclass(frozen=True)
class Measurement:
    """One row: a collective on `chips` chips, alone."""

    system: str
    nodes: int
    chips: int
    chips_per_node: int
    collective: str
    message_bytes: float
    time_s: float

    @property
    def in_network(self) -> bool:
        """Whether switches take part: an all-reduce over all chips of nodes of eight (NVLS), where the link can."""
        return self.collective == "all_reduce" and self.chips == self.nodes * self.chips_per_node >= 8


@cache
def read() -> tuple[Measurement, ...]:
    """The measured collectives.

    **Returns:** rows, in the table's order. **Units:** bytes (as nccl-tests count a message: the larger of the buffers
    sent and received), s.

    **Source:** column `source` of the table: ai-dynamo/aiconfigurator, NVIDIA/dgxc-benchmarking, aws-samples.
    """
    with (data_root() / "runs" / "collectives.csv").open(encoding="utf-8") as file:
        return tuple(
            Measurement(
                row["system"], int(row["nodes"]), int(row["chips"]), int(row["chips_per_node"]), row["collective"],
                float(row["message_bytes"]), to_si(float(row["time_us"]), "us"),
            )
            for row in csv.DictReader(file)
        )  # fmt: skip


@cache
def _network(system: str, domain: int, in_network: bool) -> Network:
    entry = SYSTEMS[system]
    return catalog.network(
        entry.chip, domain=float(domain), scale_out=entry.scale_out, in_network_reduction=in_network
    )  # fmt: skip


def networks(rows: Sequence[Measurement]) -> Network:
    """The network of every row as the catalogue has it, leaves of shape (row, ...).

    **Arguments:** `rows`. **Raises:** `KeyError` for a system that `SYSTEMS` lacks.
    """
    each = [_network(row.system, row.chips_per_node, row.in_network) for row in rows]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *each)


@eqx.filter_jit
def _times(kernel: Callable, network: Network, size, group, launch_s):
    one = jax.numpy.ones(())
    return jax.vmap(lambda net, s, n: kernel(net, s, n, one, launch_s))(network, size, group)


def predict(rows: Sequence[Measurement], network: Network | None = None) -> np.ndarray:
    """Times of collectives by the model.

    **Arguments:** `rows`; `network` of every row instead of the catalogue's. **Returns:** times, s, shape (row,).
    """
    network = networks(rows) if network is None else network
    launch_s = catalog.stack(STACK).collective_launch_s
    names = np.array([row.collective for row in rows])
    size = np.array([row.message_bytes for row in rows])
    group = np.array([float(row.chips) for row in rows])
    time = np.zeros(len(rows))
    with jax.enable_x64(True):
        for name, kernel in _KERNELS.items():
            at = np.flatnonzero(names == name)
            if len(at):
                own = jax.tree.map(lambda leaf: leaf[at], network)  # noqa: B023
                time[at] = _times(kernel, own, size[at], group[at], launch_s)
    return time


class Score(NamedTuple):
    """Errors of one system, or of one collective on it; None where no message has the size."""

    rows: int
    bandwidth_error: float | None  # median of |predicted / measured - 1| of bus bandwidth, 1 MB to 8 GB
    bandwidth_error_90: float | None  # its 90th percentile
    bandwidth_bias: float | None  # median of predicted / measured - 1
    latency_factor: float | None  # median of max(predicted / measured, measured / predicted) below 64 kB
    latency_factor_90: float | None


def _score(rows: Sequence[Measurement], predicted: np.ndarray) -> Score:
    size, measured = np.array([row.message_bytes for row in rows]), np.array([row.time_s for row in rows])
    ratio = measured / predicted  # of bandwidths, predicted over measured
    bias = ratio[(size >= BANDWIDTH_BYTES[0]) & (size <= BANDWIDTH_BYTES[1])] - 1.0
    factor = np.exp(np.abs(np.log(ratio[size < LATENCY_BYTES])))
    quantile = lambda values, share: float(np.quantile(values, share)) if len(values) else None
    error = np.abs(bias)
    of = ((error, 0.5), (error, 0.9), (bias, 0.5), (factor, 0.5), (factor, 0.9))
    return Score(len(rows), *(quantile(values, share) for values, share in of))


def score(rows: Sequence[Measurement] | None = None, predicted: np.ndarray | None = None) -> dict:
    """Errors by system and by collective on it.

    **Arguments:** `rows`, by default all; `predicted` times of them, s, by default the model's.

    **Returns:** `{system: {"all": Score, collective: Score}}`.
    """
    rows = read() if rows is None else rows
    predicted = predict(rows) if predicted is None else predicted
    members: dict[str, dict[str, list[int]]] = {}
    for i, row in enumerate(rows):
        parts = members.setdefault(row.system, {"all": []})
        parts["all"].append(i)
        parts.setdefault(row.collective, []).append(i)
    return {
        system: {name: _score([rows[i] for i in at], predicted[at]) for name, at in parts.items()}
        for system, parts in members.items()
    }


# The fit -------------------------------------------------------------------------------------------------------------


class Constants(NamedTuple):
    """What the fit finds of one link."""

    efficiency: float
    latency_s: float
    in_network_reduction: float | None  # None: the link cannot, or no row shows it
    ramp: float


@dataclass(frozen=True)
class Target:
    """A link to fit: the systems that show it, its tier, and the chips' bandwidth that is its own."""

    systems: tuple[str, ...]
    tier: int


TARGETS = {
    "nvlink-3": Target(("a100",), 0),
    "nvlink-4": Target(("h100", "h200", "dgx-h100", "p5-one-node"), 0),
    "nvlink-5": Target(("b200", "b300", "gb200", "gb300"), 0),
    "efa": Target(("p5",), 1),
    "efa-p4": Target(("p4de",), 1),
}
"""Links that the table covers. Each generation of EFA is seen on two nodes of one system alone, so nothing is left out of it."""

EFFICIENCY_LIMIT = 0.95
"""No link carries more of its bandwidth: headers and encoding remain."""

ROBUST = 0.1
"""Log errors beyond this count in proportion, not squared: switches of protocol and outliers."""


def _with(network: Network, tier: int, constants: Constants, in_network: np.ndarray) -> Network:
    """Networks with a link's constants replaced."""

    def put(leaf: np.ndarray, value: float, where: np.ndarray | slice = slice(None)) -> np.ndarray:
        leaf = leaf.copy()
        leaf[where, tier] = value
        return leaf

    reduction = network.reduction_factor
    if constants.in_network_reduction is not None:
        reduction = put(reduction, constants.in_network_reduction, in_network)
    return eqx.tree_at(
        lambda n: (n.efficiency, n.latency_s, n.ramp, n.reduction_factor), network,
        (put(network.efficiency, constants.efficiency), put(network.latency_s, constants.latency_s),
         put(network.ramp, constants.ramp), reduction),
    )  # fmt: skip


def _weights(rows: Iterable[Measurement]) -> np.ndarray:
    """Every collective of every system counts alike, however many rows it has."""
    cells = [(row.system, row.collective) for row in rows]
    count = {cell: cells.count(cell) for cell in set(cells)}
    return np.array([1.0 / np.sqrt(count[cell] * len(count)) for cell in cells])


def fit_rows(rows: Sequence[Measurement], tier: int, *, ramp: float | None = 1.0) -> Constants:
    """Constants of one tier of links that explain rows best.

    Minimises `sum_cells mean_rows rho(log(predicted / measured))`, rho quadratic to `ROBUST` and linear beyond, over the
    logarithms of efficiency, latency and in-network reduction, from three starting points.

    **Arguments:** `rows`; `tier` the link is; `ramp` as it is, or None to fit it too.
    """
    base, in_network = networks(rows), np.array([row.in_network for row in rows])
    measured, weights = np.array([row.time_s for row in rows]), _weights(rows)
    reduces = bool(tier == 0 and (base.reduction_factor[in_network, 0] < 1.0).any())

    def constants(x: np.ndarray) -> Constants:
        values = np.exp(x)
        return Constants(values[0], values[1], values[2] if reduces else None, values[-1] if ramp is None else ramp)

    def residuals(x: np.ndarray) -> np.ndarray:
        error = np.log(predict(rows, _with(base, tier, constants(x), in_network)) / measured) / ROBUST
        return weights * error * np.sqrt(2.0 / (1.0 + np.sqrt(1.0 + error**2)))  # squares to 2 (sqrt(1 + e^2) - 1)

    low, high = [0.2, 1e-7] + [0.5] * reduces, [EFFICIENCY_LIMIT, 1e-3] + [1.0] * reduces
    starts = [[0.7, latency] + [0.8] * reduces for latency in (5e-7, 3e-6, 2e-5)]
    if ramp is None:
        low, high, starts = [*low, 0.05], [*high, 10.0], [[*start, 1.0] for start in starts]
    optima = [
        least_squares(residuals, np.log(start), bounds=(np.log(low), np.log(high)), diff_step=1e-4) for start in starts
    ]
    return constants(min(optima, key=lambda one: one.cost).x)


class Fit(NamedTuple):
    """Constants of a link and how far they can be trusted."""

    best: Constants  # of all rows
    low: Constants  # least over fits to each system alone and to each collective alone
    high: Constants  # most over them
    free: Constants  # with the ramp fitted too: a check of its theory


def fit(name: str) -> Fit:
    """Constants of a link with their spread.

    **Arguments:** `name` of a link in `TARGETS`. **Returns:** what `hwopt/data/links` holds, rounded.

    **Source:** rows of `hwopt/data/runs/collectives.csv`.
    """
    target = TARGETS[name]
    rows = [row for row in read() if row.system in target.systems]
    parts = [[row for row in rows if row.system == system] for system in target.systems]
    parts += [[row for row in rows if row.collective == kind] for kind in _KERNELS]
    fits = [fit_rows(part, target.tier) for part in (rows, *parts) if part]

    def end(of: Callable[..., float]) -> Constants:
        columns = ([value for value in column if value is not None] for column in zip(*fits, strict=True))
        return Constants(*(of(known) if known else None for known in columns))  # pyright: ignore[reportArgumentType]

    return Fit(fits[0], end(min), end(max), fit_rows(rows, target.tier, ramp=None))


def table(scores: Mapping[str, Mapping[str, Score]]) -> str:
    """Scores as lines of text, one a system."""
    percent = lambda value: "-" if value is None else f"{100 * value:.1f}"
    factor = lambda value: "-" if value is None else f"{value:.2f}"
    lines = [
        f"{'system':12} {'rows':>5} {'bus bandwidth':>14} {'90 %':>6} {'bias':>6} {'latency x':>10} {'90 %':>6}  by collective"
    ]
    for system, parts in scores.items():
        rows, error, error_90, bias, latency, latency_90 = parts["all"]
        rest = "  ".join(
            f"{name} {100 * part.bandwidth_error:.0f} %"
            for name, part in parts.items()
            if name != "all" and part.bandwidth_error is not None
        )
        lines.append(
            f"{system:12} {rows:5} {percent(error):>14} {percent(error_90):>6} {percent(bias):>6} {factor(latency):>10}"
            f" {factor(latency_90):>6}  {rest}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Prints the scores, or with `fit` the constants."""
    if list(arguments) == ["fit"]:
        for name in TARGETS:
            print(name)
            for kind, constants in fit(name)._asdict().items():
                print(f"  {kind:5}", *(f"{k} {v:.4g}" for k, v in constants._asdict().items() if v is not None))
    else:
        print(table(score()))


if __name__ == "__main__":
    main(sys.argv[1:])
