"""Measured collectives: comparison with the model, and link constants fitted to them.

`python -m results.benchmarks.collectives` prints the accuracy for every system. `python -m results.benchmarks.collectives fit`
fits the links and prints the constants that `hwopt/data/links` contains. The measurements are
`hwopt/data/runs/collectives.csv`: nccl-tests of one collective at a time, with separate buffers, from 8 B to 16 GB.

Training runs are not used, so that link constants never compensate for other errors. The launch latency is that of the stack
`STACK`, as in predictions of runs with this stack. A link's latency is the remainder, so that launches are not counted twice.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import numpy as np
from scipy.optimize import least_squares

from hwopt import catalog
from hwopt.catalog.names import data_root
from hwopt.hardware.network import Network
from hwopt.model.network import collectives
from hwopt.types import Scalar
from hwopt.units import to_si

STACK = "nemo-2025"
"""Software stack whose launch latency the measurements are assumed to include."""

BANDWIDTH_BYTES = (2**20, 2**33)
"""Message sizes over which bus bandwidth is scored: 1 MB to 8 GB."""

LATENCY_BYTES = 2**16
"""Message size below which a collective's time is scored as latency: 64 kB."""


SYSTEMS = {
    "a100": "a100-80",
    "h100": "h100-sxm",
    "dgx-h100": "h100-sxm",
    "p5-one-node": "h100-sxm",
    **{chip: chip for chip in ("h200", "b200", "b300", "gb200", "gb300")},
    "p5": "h100-sxm",
    "p4de": "a100-80",
    "gb200-racks": "gb200",
}
"""Systems of the table -> chip in the catalog."""

NOT_FITTED = ("gb200-racks",)
"""Systems excluded from the fit: 1, 2 and 20 whole racks."""

_SCALE_OUT = {"p5": "efa", "p4de": "efa-p4"}
"""Links between nodes, for systems measured on several nodes."""

_KERNELS: dict[str, Callable] = {
    "all_gather": collectives.ring_pass_s,
    "reduce_scatter": collectives.ring_pass_s,
    "all_reduce": collectives.all_reduce_s,
    "all_to_all": collectives.all_to_all_s,
}


Rows: TypeAlias = Any
"""Rows of the table: a NumPy record array, whose columns are attributes."""


@cache
def read() -> Rows:
    """Read the measured collectives, each run alone on its chips.

    **Returns:** rows in the table's order, with the columns:

    - `system`, `nodes`, `chips`, `chips_per_node`, `collective`.
    - `message_bytes`: message size as in nccl-tests, the larger of the sent and received buffers.
    - `time_s`.
    - `in_network`: whether switches reduce the data, if the link supports it (NVLS). True for an all-reduce over all chips of
      nodes with at least eight.

    **Units:** B, s.

    **Source:** column `source` of the table: ai-dynamo/aiconfigurator, NVIDIA/dgxc-benchmarking, aws-samples.
    """
    with (data_root() / "runs" / "collectives.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    kinds = {
        "system": str,
        "nodes": int,
        "chips": int,
        "chips_per_node": int,
        "collective": str,
        "message_bytes": float,
    }
    columns = {name: np.array([kind(row[name]) for row in rows]) for name, kind in kinds.items()}
    columns["time_s"] = np.array([to_si(float(row["time_us"]), "us") for row in rows])
    whole = columns["nodes"] * columns["chips_per_node"]
    columns["in_network"] = (columns["collective"] == "all_reduce") & (columns["chips"] == whole) & (whole >= 8)
    return np.rec.fromarrays(list(columns.values()), dtype=[(name, of.dtype) for name, of in columns.items()])


@cache
def _network(system: str, domain: int, in_network: bool) -> Network:
    chip, scale_out = SYSTEMS[system], _SCALE_OUT.get(system)
    return catalog.network(chip, domain=float(domain), scale_out=scale_out, in_network_reduction=in_network)


def networks(rows: Rows) -> Network:
    """Return the catalog's network for every row; leaves have shape (row, ...).

    **Raises:** `KeyError` for a system missing from `SYSTEMS`.
    """
    each = [_network(row.system, int(row.chips_per_node), bool(row.in_network)) for row in rows]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *each)


@eqx.filter_jit
def _times(kernel: Callable, network: Network, size: np.ndarray, group: np.ndarray, launch_s: Scalar) -> jax.Array:
    one = jax.numpy.ones(())
    return jax.vmap(lambda net, s, n: kernel(net, s, n, one, launch_s))(network, size, group)


def predict(rows: Rows, network: Network | None = None) -> np.ndarray:
    """Predict the times of collectives with the model.

    **Arguments:** `rows`; `network`: networks of all rows, by default the catalog's. **Returns:** times in s, shape (row,).
    """
    network = networks(rows) if network is None else network
    launch_s = catalog.stack(STACK).collective_launch_s
    time = np.zeros(len(rows))
    with jax.enable_x64(True):
        for name, kernel in _KERNELS.items():
            at = np.flatnonzero(rows.collective == name)
            if len(at):
                own = jax.tree.map(lambda leaf: leaf[at], network)  # noqa: B023
                time[at] = _times(kernel, own, rows.message_bytes[at], rows.chips[at].astype(float), launch_s)
    return time


class Score(NamedTuple):
    """Prediction errors of one system, or of one collective on it; None without messages of the size range."""

    rows: int
    bandwidth_error: float | None  # median of |predicted / measured - 1| of bus bandwidth, 1 MB to 8 GB
    bandwidth_error_90: float | None  # its 90th percentile
    bandwidth_bias: float | None  # median of predicted / measured - 1
    latency_factor: float | None  # median of max(predicted / measured, measured / predicted) below 64 kB
    latency_factor_90: float | None

    @classmethod
    def of(cls, rows: Rows, predicted: np.ndarray) -> Score:
        """Return the errors of rows with their predicted times in s."""
        size, ratio = rows.message_bytes, rows.time_s / predicted  # ratio of bandwidths, predicted over measured
        bias = ratio[(size >= BANDWIDTH_BYTES[0]) & (size <= BANDWIDTH_BYTES[1])] - 1.0
        error, factor = np.abs(bias), np.exp(np.abs(np.log(ratio[size < LATENCY_BYTES])))
        each = ((error, 0.5), (error, 0.9), (bias, 0.5), (factor, 0.5), (factor, 0.9))
        return cls(len(rows), *(float(np.quantile(x, share)) if len(x) else None for x, share in each))


def score() -> dict[str, dict[str, Score]]:
    """Return the model's errors by system and collective: `{system: {"all": Score, collective: Score}}`."""
    rows = read()
    predicted, scores = predict(rows), {}
    for system in dict.fromkeys(rows.system.tolist()):
        own = rows.system == system
        parts = {"all": own} | {
            name: own & (rows.collective == name) for name in dict.fromkeys(rows.collective[own].tolist())
        }
        scores[system] = {name: Score.of(rows[part], predicted[part]) for name, part in parts.items()}
    return scores


# The fit -------------------------------------------------------------------------------------------------------------


class Constants(NamedTuple):
    """Fitted constants of one link."""

    efficiency: float
    latency_s: float
    in_network_reduction: float | None  # None: not supported by the link, or not measured
    ramp: float


class Target(NamedTuple):
    """A link to fit: the systems that use it, and its network tier (0: within a node, 1: between nodes)."""

    systems: tuple[str, ...]
    tier: int


TARGETS = {
    "nvlink-3": Target(("a100",), 0),
    "nvlink-4": Target(("h100", "h200", "dgx-h100", "p5-one-node"), 0),
    "nvlink-5": Target(("b200", "b300", "gb200", "gb300"), 0),
    "efa": Target(("p5",), 1),
    "efa-p4": Target(("p4de",), 1),
}
"""Links that the table covers. Each generation of EFA is measured on two nodes of one system only: no data remain for
validation."""


def rows_of(target: Target) -> Rows:
    """Return the rows that measure a link."""
    rows = read()
    return rows[np.isin(rows.system, target.systems)]


EFFICIENCY_LIMIT = 0.95
"""Maximum share of a link's bandwidth that is usable: headers and encoding take the rest."""

ROBUST = 0.1
"""Log error at which the loss turns from quadratic to linear, because of protocol switches and outliers."""


def _with(network: Network, tier: int, constants: Constants, in_network: np.ndarray) -> Network:
    """Return the networks with a link's constants replaced; the reduction factor only in rows with `in_network` set."""
    values = constants._asdict() | {"reduction_factor": constants.in_network_reduction}
    leaves = {name: getattr(network, name).copy() for name in ("efficiency", "latency_s", "ramp", "reduction_factor")}
    for name, leaf in leaves.items():
        if values[name] is not None:
            leaf[in_network if name == "reduction_factor" else slice(None), tier] = values[name]
    return replace(network, **leaves)


def _weights(rows: Rows) -> np.ndarray:
    """Return row weights that give every collective of every system the same total weight."""
    cells = list(zip(rows.system, rows.collective, strict=True))
    count = Counter(cells)
    return np.array([1.0 / np.sqrt(count[cell] * len(count)) for cell in cells])


def fit_rows(rows: Rows, tier: int, *, ramp: float | None = 1.0) -> Constants:
    """Fit the constants of one tier of links to rows.

    Minimizes `sum_cells mean_rows rho(log(predicted / measured))` over the logarithms of efficiency, latency and in-network
    reduction, from three starting points. `rho` is quadratic up to `ROBUST` and linear beyond.

    **Arguments:** `rows`; `tier` of the link; `ramp`: fixed value, or None to fit it as well.
    """
    base, in_network = networks(rows), rows.in_network
    weights = _weights(rows)
    reduces = bool(tier == 0 and (base.reduction_factor[in_network, 0] < 1.0).any())

    def constants(x: np.ndarray) -> Constants:
        values = np.exp(x)
        return Constants(values[0], values[1], values[2] if reduces else None, values[-1] if ramp is None else ramp)

    def residuals(x: np.ndarray) -> np.ndarray:
        error = np.log(predict(rows, _with(base, tier, constants(x), in_network)) / rows.time_s) / ROBUST
        return weights * error * np.sqrt(2.0 / (1.0 + np.sqrt(1.0 + error**2)))  # its square: 2 (sqrt(1 + e^2) - 1)

    low, high = [0.2, 1e-7] + [0.5] * reduces, [EFFICIENCY_LIMIT, 1e-3] + [1.0] * reduces
    starts = [[0.7, latency] + [0.8] * reduces for latency in (5e-7, 3e-6, 2e-5)]
    if ramp is None:
        low, high, starts = [*low, 0.05], [*high, 10.0], [[*start, 1.0] for start in starts]
    bounds = np.log(low), np.log(high)
    optima = [least_squares(residuals, np.log(start), bounds=bounds, diff_step=1e-4) for start in starts]
    return constants(min(optima, key=lambda one: one.cost).x)


def fit(name: str) -> dict[str, Constants]:
    """Fit the constants of a link, with their ranges.

    **Arguments:** `name` of a link in `TARGETS`.

    **Returns:** constants, which `hwopt/data/links` contains in rounded form:

    - `best`: fit to all rows.
    - `low`, `high`: minimum and maximum over fits to each system and to each collective alone.
    - `free`: fit with a free ramp, as a check of the theory behind the fixed ramp.

    **Source:** rows of `hwopt/data/runs/collectives.csv`.
    """
    target = TARGETS[name]
    rows = rows_of(target)
    parts = [rows[rows.system == system] for system in target.systems]
    parts += [rows[rows.collective == kind] for kind in _KERNELS]
    fits = [fit_rows(part, target.tier) for part in (rows, *parts) if len(part)]

    def end(of: Callable[..., float]) -> Constants:
        columns = ([value for value in column if value is not None] for column in zip(*fits, strict=True))
        return Constants(*(of(known) if known else None for known in columns))  # pyright: ignore[reportArgumentType]

    return {"best": fits[0], "low": end(min), "high": end(max), "free": fit_rows(rows, target.tier, ramp=None)}


def table(scores: Mapping[str, Mapping[str, Score]]) -> str:
    """Format scores as text, one line per system, below an explanation of the columns."""
    lines = [
        "Measured collectives (nccl-tests) beside the model, % over messages. bus bandwidth: median and 90th percentile of",
        "|predicted / measured - 1| from 1 MB to 8 GB, and the median with its sign; latency x: median and 90th percentile of the",
        "factor between the two below 64 kB. Constants of links are fitted to these rows, but for gb200-racks.",
        "",
        f"{'system':12} {'rows':>5} {'bus bandwidth':>14} {'90 %':>6} {'bias':>6} {'latency x':>10} {'90 %':>6}  by collective",
    ]
    for system, parts in scores.items():
        rows, *values = parts["all"]
        layout = zip(values, (14, 6, 6, 10, 6), (".1f", ".1f", ".1f", ".2f", ".2f"), strict=True)
        cells = (
            f"{'-' if x is None else format(100 * x if form == '.1f' else x, form):>{width}}"
            for x, width, form in layout
        )
        errors = {name: part.bandwidth_error for name, part in parts.items() if name != "all"}
        rest = "  ".join(f"{name} {100 * error:.0f} %" for name, error in errors.items() if error is not None)
        lines.append(f"{system:12} {rows:5} {' '.join(cells)}  {rest}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Print the scores, or with `fit` the constants."""
    if list(arguments) == ["fit"]:
        for name in TARGETS:
            print(name)
            for kind, constants in fit(name).items():
                print(f"  {kind:5}", *(f"{k} {v:.4g}" for k, v in constants._asdict().items() if v is not None))
    else:
        print(table(score()))


if __name__ == "__main__":
    main(sys.argv[1:])
