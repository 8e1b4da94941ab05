"""Measured power of chips and of servers compared with the model, as text. Run from the top of a checkout:

    python -m results.benchmarks.power

Fifteen seconds. Chips are evaluated at the measured rate of tokens, so that an error in time does not count as one in power.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

import hwopt
from hwopt import catalog
from hwopt.calibration.measured.rows import read
from hwopt.calibration.validation import serving
from hwopt.calibration.validation.join import evaluate, join
from hwopt.calibration.validation.machines import constants
from hwopt.catalog import leaf
from hwopt.catalog.names import data_root
from hwopt.hardware.cluster import Cluster
from hwopt.model import machine
from hwopt.model.chip.sustained_clock import asked_core_share
from hwopt.model.chip.thermal import operating_point
from hwopt.model.facility import power
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.model.serving.steady_state import steady_state
from hwopt.plan import Plan
from hwopt.workload.service import Service
from results.benchmarks.machines import MACHINES, figures
from results.claims.runs import palm_540b

RUNS = Path(str(data_root() / "runs" / "power.csv"))
"""Services with measured power. Beyond the columns of measured services: `power_w` of all chips of the run, and `gpu_busy`, the
share of the time in which kernels ran, where the source states it."""

BATCHES = ((16, "1 to 16"), (128, "17 to 128"), (1024, "129 to 1,024"), (float("inf"), "above 1,024"))


class Drawn(NamedTuple):
    """Power of one chip of a measured service, W, and the activity from which the model computes it."""

    chip: str
    model: str
    source: str
    number_format: str
    batch: float
    counts: bool  # host-bound rows are shown apart
    measured_w: float
    static_w: float  # standby and leakage
    core_w: float  # compute dies at full load
    hbm_w: float  # HBM at full bandwidth
    arithmetic: float
    memory: float
    kernels: float
    pace: float  # measured over predicted rate

    @property
    def cell(self) -> tuple[str, str, str]:
        return self.source, self.model, self.chip

    def watts(self, share: float = power.KERNEL_SHARE) -> float:
        """Return the predicted power. **Arguments:** `share` of core power that flows while any kernel runs."""
        core = share * self.kernels + (1.0 - share) * self.arithmetic
        return self.static_w + self.core_w * core + self.hbm_w * self.memory

    def error(self, share: float = power.KERNEL_SHARE) -> float:
        return self.watts(share) / self.measured_w - 1.0

    @property
    def own_share(self) -> float:
        """Share at which the prediction equals the measured power."""
        lowest, highest = self.watts(0.0), self.watts(1.0)
        return (self.measured_w - lowest) / (highest - lowest)


def _activity(service: Service, cluster: Cluster, plan: Plan) -> dict[str, Array]:
    """Return parts of a chip's power, W, and its activity when the service runs at its capacity."""
    it = machine.machine(cluster, None, service)
    running = machine.running(cluster, it.point, settles=True)
    state = steady_state(service, [running], plan, hard_maximum)
    (work,), chip = state.work, cluster.chip
    each = 1.0 / (state.least_interval_s * cluster.chips)
    return {
        "static_w": chip.standby_power_w + it.point.leakage_w,
        "core_w": it.point.core_w,
        "hbm_w": chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte,
        "arithmetic": work.core * asked_core_share(running.chip, it.point) * each,
        "memory": work.memory * each,
        "kernels": work.kernels * each,
        "tokens_per_s": service.output_tokens / state.least_interval_s,
    }


@cache
def drawn(longer: float = 1.0) -> tuple[Drawn, ...]:
    """Return all rows at their measured rate.

    Kernels run for the share of time that the source states, if any. Otherwise a run slower than predicted has slower kernels,
    between collectives and gaps of the predicted length; in a faster run all parts are shorter alike. Where the source calls the
    host the bound, kernels run for their predicted time.

    **Arguments:** `longer`: factor of the assumed prompts.
    """
    rows, of = read(RUNS).rows, constants(catalog.calibration())
    with RUNS.open(encoding="utf-8", newline="") as file:
        texts = list(csv.DictReader(file))
    asked: list[Any] = [replace(row, input_tokens=longer * row.input_tokens, quality="B") for row in rows]  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    cases = [join(row, serving.KIND, of) for row in asked]
    batched = [replace(case.plan, micro_batch=leaf(max(case.row.batch / float(case.plan.dp), 1.0))) for case in cases]
    found = evaluate(
        _activity, [(case.workload, case.cluster, plan) for case, plan in zip(cases, batched, strict=True)]
    )
    results = []
    for case, text, parts in zip(cases, texts, found, strict=True):
        row, host_bound = case.row, "bound by the host" in text["notes"]
        pace = row.measured_value / parts.pop("tokens_per_s")
        busy = parts.pop("kernels")
        kernels = pace * busy if host_bound else 1.0 - min(pace, 1.0) * (1.0 - busy)
        parts |= {name: pace * parts[name] for name in ("arithmetic", "memory")}
        results.append(
            Drawn(
                case.accelerator, row.model_name, row.source, row.weight_format, row.batch, not host_bound,
                float(text["power_w"]) / row.num_gpus, **parts, kernels=float(text["gpu_busy"] or kernels), pace=pace,
            )
        )  # fmt: skip
    return tuple(results)


def by_cell(rows: Sequence[Drawn], error: Callable[[Drawn], float]) -> list[float]:
    """Return the mean absolute error of each cell (source, model, chip)."""
    cells: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        cells[row.cell].append(abs(error(row)))
    return [float(np.mean(errors)) for errors in cells.values()]


def _line(name: str, rows: Sequence[Drawn], left_out: float | None = None) -> str:
    """Return a line of the table. **Arguments:** `left_out`: share by the other groups of measurements."""
    now, before = by_cell(rows, Drawn.error), by_cell(rows, lambda row: row.error(0.0))
    bias = float(np.exp(np.mean([np.log(row.watts() / row.measured_w) for row in rows])))
    cells = [f"{name:25}{len(now):6}{len(rows):6}"]
    cells += [f"{100 * f(errors):8.1f}%" for errors in (before, now) for f in (np.median, np.mean)]
    cells += [f"{bias:8.2f}{np.median([row.own_share for row in rows]):8.2f}"]
    if left_out is not None:
        cells.append(f"{left_out:10.2f}{100 * np.mean(by_cell(rows, lambda row: row.error(left_out))):8.1f}%")
    return "".join(cells)


def _groups(rows: Sequence[Drawn], of: Callable[[Drawn], str]) -> dict[str, list[Drawn]]:
    groups: dict[str, list[Drawn]] = defaultdict(list)
    for row in rows:
        groups[of(row)].append(row)
    return dict(sorted(groups.items()))


def _size(row: Drawn) -> str:
    return next(name for most, name in BATCHES if row.batch <= most)


# Servers -------------------------------------------------------------------------------------------------------------


class Server(NamedTuple):
    """Measured power of servers or of a hall, W, and the model's."""

    name: str
    measured_w: float
    model_w: float
    source: str
    scored: bool = True  # the source says what ran and what it counts

    @property
    def error(self) -> float:
        return self.model_w / self.measured_w - 1.0


def _outside_w(cluster: Cluster) -> float:
    """Return the power of links and switches outside of servers, W a chip at the inlet."""
    network, facility = cluster.network, cluster.facility
    watts = np.asarray(network.bandwidth_bytes_per_s * network.energy_j_per_byte)[1:].sum()
    return float(watts / ((1.0 - cluster.cooling.fan_fraction) * facility.supply_efficiency))


def training_server_w(servers: int, workload: str, cooling: str | None, options: dict, **plan: int) -> float:
    """Return the average power at the inlet of a server of eight H100 that trains, without storage and outer links, W."""
    chips = 8 * servers
    run = catalog.training_run(workload, **options)
    with jax.enable_x64(True):
        cluster = catalog.cluster("h100-sxm", chips, cooling=cooling)
        report = hwopt.estimate(run, cluster, catalog.plan(run, chips, **plan))
        it_w = report.power_w / report.pue - power.storage_w(machine.stocked(cluster, run))
        return float(it_w) / servers - 8.0 * _outside_w(cluster)


def lora_w(servers: int, cp: int, batch: int) -> float:
    """Return the same for LoRA of Llama 2 70B in immersion, behind the power supplies, where the source measured."""
    options = {"sequence_length": 8192, "global_batch": batch, "precision": "fp8", "trainable_fraction": 0.001}
    inlet = training_server_w(servers, "llama2-70b", "immersion-1p", options, tp=4, cp=cp, dp=8 * servers // (4 * cp))
    return inlet * float(catalog.cluster("h100-sxm", 8).facility.supply_efficiency)


def idle_w(chip: str, chips: int, cooling: str | None) -> float:
    """Return the power at the inlet of an idle chip with its share of host and links, W."""
    with jax.enable_x64(True):
        cluster = catalog.cluster(chip, chips, cooling=cooling)
        return float(power.idle_it_w(cluster, operating_point(cluster.chip, cluster.cooling)))


@cache
def servers() -> tuple[Server, ...]:
    smc = "Sustainable Metal Cloud, MLPerf Training v4.0 (smc.co/mlperfv40): nodes without network, direct current"
    bloom = "Luccioni et al., arXiv 2211.02001: 256,646 kWh idle over 1,082,990 GPU hours; it does not say which links count"
    frontier = "Sun et al., Scientific Data 11:1077: 8 to 30 MW; it does not say how many nodes were on at 8"
    llama = {"global_batch": 128}
    with jax.enable_x64(True):
        palm = palm_540b().report
        palm_w = float(palm.power_w / palm.pue) / 6144
    most = next(each for each in MACHINES if each.name == "HGX H100 server")
    return (
        Server("LoRA, 1 server of 8 H100", 6741.0, lora_w(1, 1, 8), smc),
        Server("LoRA, 8 servers, each", 5847.0, lora_w(8, 2, 8), smc),
        Server("LoRA, 64 servers, each", 4745.0, lora_w(64, 2, 64), f"{smc}; a run of 126 s, with its start and evaluation"),
        Server(
            "Llama 2 13B on 8 H100", 7752.0, training_server_w(1, "llama2-13b", None, llama, dp=8),
            "Newkirk et al., arXiv 2506.14551: 0.76 of 10.2 kW in training; the batch of 128 is assumed"),
        Server("8 H100, the most seen", most.watts, 8.0 * figures(most).watts, most.source),
        Server("PaLM, share of a TPU v4", 378.5, palm_w, "arXiv 2204.02311, appendix B, with host and network"),
        Server("idle share of an A100", 237.0, idle_w("a100-80", 8, None), bloom, scored=False),
        Server("idle share of an MI250X", 8e6 / 37632, idle_w("mi250x", 37632, "direct-liquid"), frontier, scored=False),
    )  # fmt: skip


def server_table() -> list[str]:
    errors = [abs(each.error) for each in servers() if each.scored]
    lines = [f"{'':28}{'measured':>10}{'model':>8}{'error':>8}  source"]
    lines += [
        f"{each.name:28}{each.measured_w:8,.0f} W{each.model_w:8,.0f}{100 * each.error:+7.0f}%  {each.source}"
        for each in servers()
    ]
    return [
        *lines,
        f"Median {100 * np.median(errors):.0f}%, mean {100 * np.mean(errors):.0f}%, the idle ones left out.",
    ]


# Table ---------------------------------------------------------------------------------------------------------------


def table() -> str:
    """Return the whole table as text."""
    every = drawn()
    rows, bound = [row for row in every if row.counts], [row for row in every if not row.counts]
    head = f"{'':25}{'cells':>6}{'rows':>6}{'median':>9}{'mean':>9}{'median':>9}{'mean':>9}{'bias':>8}{'share':>8}"
    by_chip = _groups(rows, lambda row: row.chip)
    shares = {chip: float(np.median([row.own_share for row in some])) for chip, some in by_chip.items()}
    others = {chip: min(1.0, float(np.median([s for c, s in shares.items() if c != chip]))) for chip in shares}
    lines = [
        f"Power of chips in services: {len(rows)} rows of {RUNS.name}, watts of the chips alone at the measured rate of tokens.",
        "Errors are means per cell (source, model, chip), then over cells: before, with core power by arithmetic alone; now, with",
        f"a share of {power.KERNEL_SHARE:g} of it while any kernel runs. bias: predicted over measured. share: the one that fits,",
        "median of rows; above 1, the chip draws more than its datasheet leaves for compute dies beside full HBM traffic.",
        "",
        f"{'':37}{'before':>18}{'now':>18}",
        head,
        _line("all", rows),
        "",
        f"by chip; left out: the share by the other chips, at most 1, and the mean error with it{'':3}",
        *(_line(chip, some, others[chip]) for chip, some in by_chip.items()),
    ]
    for what, of in (
        ("source", lambda row: row.source),
        ("model", lambda row: row.model),
        ("format of weights", lambda row: row.number_format),
        ("batch", _size),
    ):
        groups = _groups(rows, of)
        order = [name for _, name in BATCHES if name in groups] if of is _size else groups
        lines += ["", f"by {what}", *(_line(name, groups[name]) for name in order)]
    lines += ["", "prompts shorter and longer than assumed"]
    lines += [_line(f"times {longer:g}", [row for row in drawn(longer) if row.counts]) for longer in (0.25, 4.0)]
    lines += [
        "",
        "rows that the source calls bound by the host: W of a chip, measured and predicted, at kernels' share of time",
    ]
    lines += [
        f"  {row.chip}, {row.model}, batch {row.batch:.0f}: {row.measured_w:.0f}, {row.watts():.0f} at {row.kernels:.2f}"
        for row in bound
    ]
    lines += [
        "",
        "Not scored: InferenceX pull 2323, 298 W an H200 and 317 W an H100 with four users: its excerpt names no model.",
        "",
    ]
    lines += ["Servers and halls with a known load", *server_table()]
    return "\n".join(line.rstrip() for line in lines)


if __name__ == "__main__":
    print(table())
