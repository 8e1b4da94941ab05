"""A sweep's dataset with made-up numbers of a real one's size and shape."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

PARTS = (
    "compute", "memory_bound", "host", "tp_comm", "cp_comm", "ep_comm", "pp_comm", "pp_bubble", "pp_imbalance",
    "dp_comm", "optimizer", "overhead", "jitter",
)  # fmt: skip
CODES = {"flag_values": list(range(len(PARTS))), "flag_meanings": " ".join(PARTS)}
VARIABLES = {
    # name -> words, unit, lower, upper
    "chips": ("chips", "chip", 64.0, 4e5),
    "hbm_bandwidth_bytes_per_s": ("HBM bandwidth", "B/s", 1e12, 12e12),
    "hbm_capacity_bytes": ("HBM capacity", "B", 32e9, 432e9),
    "clock_ratio": ("clock", "of nominal", 0.5, 1.08),
    "scale_up_domain": ("scale-up domain", "chip", 4.0, 576.0),
    "scale_up_bandwidth_bytes_per_s": ("scale-up bandwidth", "B/s", 50e9, 1.8e12),
    "scale_out_bandwidth_bytes_per_s": ("scale-out bandwidth", "B/s", 6.25e9, 200e9),
    "chips_per_rack": ("chips in a rack", "chip", 1.0, 144.0),
    "tp": ("tensor parallel", "1", 1.0, 64.0),
    "pp": ("pipeline stages", "1", 1.0, 128.0),
    "virtual_stages": ("virtual stages", "1", 1.0, 16.0),
    "micro_batch": ("micro-batch", "sequence", 1.0, 8.0),
    "fullest_stage": ("fullest stage", "1", 1.0, 1.0),
    "compute_area_m2": ("compute area", "m2", 50e-6, 3200e-6),
}
METRICS = {
    "run_cost_usd": ("cost of the run", "USD"),
    "run_time_s": ("time of the run", "s"),
    "capex_usd": ("capital", "USD"),
    "peak_power_w": ("peak power", "W"),
    "step_time_s": ("time of a step", "s"),
    "mfu": ("model FLOPs utilisation", "1"),
}
BUDGETS = {
    # name -> metric, limit
    "time_budget_s": ("run_time_s", 41 * 86400.0),
    "capex_budget_usd": ("capex_usd", 1.45e9),
    "power_budget_w": ("peak_power_w", 40e6),
}
KERNELS = {
    "qkv_projection": (310.0, 690e12), "attention_scores": (130.0, 390e12), "attention_output": (305.0, 680e12),
    "ffn_up": (900.0, 760e12), "ffn_gate": (900.0, 758e12), "ffn_down": (880.0, 750e12), "lm_head": (1200.0, 770e12),
    "norms": (0.6, 1.7e12), "rotary": (0.9, 2.5e12), "activation": (1.3, 3.6e12),
}  # fmt: skip


def _metrics(values, random):
    """Something like physics: more chips are faster, dearer and hungrier."""
    count = len(values["chips"])
    chips, bandwidth = values["chips"], values["hbm_bandwidth_bytes_per_s"]
    mfu = 0.5 * (bandwidth / 4e12) ** 0.15 / (1 + chips / 1e5) * random.uniform(0.2, 0.95, count)
    seconds = 3.8e25 / (chips * 0.99e15 * mfu)
    capex = chips * 3.2e4 * (1 + bandwidth / 2e13) * random.uniform(0.95, 1.4, count)
    power = chips * 1.05e3 * (1 + bandwidth / 4e13) * random.uniform(0.95, 1.2, count)
    cost = capex * seconds / (4 * 365 * 86400) + power * seconds / 3.6e6 * 0.07
    return {
        "run_cost_usd": cost, "run_time_s": seconds, "capex_usd": capex, "peak_power_w": power,
        "step_time_s": seconds / 9e5, "mfu": mfu,
    }  # fmt: skip


def _front(columns):
    """Places of what nothing beats in all columns."""
    stacked = np.stack(columns, axis=1)
    kept = []
    for at in np.lexsort(stacked.T[::-1]):
        if not any((stacked[other] <= stacked[at]).all() for other in kept):
            kept.append(at)
    return np.array(kept, int)


def _stated(kind, values, **more):
    words = VARIABLES.get(kind) or METRICS[kind]
    return values, {"long_name": words[0], "units": words[1], **more}


@pytest.fixture(scope="session")
def sweep():
    """Builds a dataset: `sweep(rows=..., variables=..., pareto=..., hardest=...)`; `hardest` multiplies the budgets."""

    def built(rows=6000, variables=tuple(VARIABLES), pareto=("run_cost_usd", "run_time_s"), hardest=1.0, ranks=40):
        random = np.random.default_rng(0)
        boxes = {name: VARIABLES[name][2:] for name in VARIABLES}
        values = {name: low * (high / low) ** random.uniform(size=rows) for name, (low, high) in boxes.items()}
        metrics = _metrics(values, random)
        possible = random.uniform(size=rows) < 0.7
        limits = {name: limit * hardest for name, (_, limit) in BUDGETS.items()}
        over = np.max([np.log(metrics[BUDGETS[name][0]] / limit) for name, limit in limits.items()], axis=0)
        feasible = possible & (over <= 0)
        choices = np.array(
            [PARTS.index(name) for name in ("compute", "pp_bubble", "tp_comm", "dp_comm", "memory_bound")]
        )
        size = np.log10(values["chips"]) + 0.4 * np.log10(values["hbm_bandwidth_bytes_per_s"] / 1e12)
        bottleneck = choices[np.clip(size - 1.5 + random.normal(0, 0.15, rows), 0, 4).astype(int)].astype(np.int8)
        held = {}
        for name in variables:
            low, high = boxes[name]
            held[name] = ("variant", *_stated(name, values[name].astype("f4"), role="variable", lower=low, upper=high))
        for name in METRICS:
            held[name] = ("variant", *_stated(name, metrics[name].astype("f4"), role="metric"))
        held["possible"], held["feasible"] = (("variant", each.astype("i1")) for each in (possible, feasible))
        held["bottleneck"] = ("variant", bottleneck, CODES)

        order = np.lexsort((metrics["run_cost_usd"], np.where(over > 0, over, 0.0)))
        best = order[possible[order]][:ranks]
        for name in variables:
            held[f"best_{name}"] = ("rank", *_stated(name, values[name][best]))
        for name in METRICS:
            held[f"best_{name}"] = ("rank", *_stated(name, metrics[name][best]))
        held["best_bottleneck"] = ("rank", bottleneck[best], CODES)
        weights = np.array([55, 6, 2, 9, 0, 0, 0.3, 11, 2.5, 6, 0.8, 0.1, 1.4]) * random.uniform(
            0.6, 1.4, (best.size, 13)
        )
        seconds = metrics["step_time_s"][best][:, None] * weights / weights.sum(axis=1, keepdims=True)
        held["best_breakdown_s"] = (("rank", "part"), seconds, {"units": "s", "long_name": "time", **CODES})
        names = {"flag_meanings": " ".join(BUDGETS), "flag_values": [0, 1, 2], "budget_units": "s USD W"}
        names["budget_metrics"] = " ".join(metric for metric, _ in BUDGETS.values())
        used = np.stack([metrics[metric][best] for metric, _ in BUDGETS.values()], axis=1)
        held["best_used"], held["budget_limit"] = (
            (("rank", "budget"), used, names),
            ("budget", [*limits.values()], names),
        )

        kernels = {"flag_meanings": " ".join(KERNELS), "flag_values": list(range(len(KERNELS)))}
        intensity, rate = (np.array(each) for each in zip(*KERNELS.values(), strict=True))
        held["roofline_intensity"] = ("kernel", intensity, {"units": "FLOP/B", **kernels})
        held["roofline_flops_per_s"] = ("kernel", rate, {"units": "FLOP/s", **kernels})
        held["roofline_peak_flops_per_s"], held["roofline_hbm_bytes_per_s"] = ((), 989e12), ((), 3.35e12)

        some = np.flatnonzero(possible)
        point = some[_front([metrics[name][some] for name in pareto])]
        for name in pareto:
            held[f"front_{name}"] = ("point", *_stated(name, metrics[name][point]))
        held["front_feasible"] = ("point", feasible[point].astype("i1"))
        held["front_bottleneck"] = ("point", bottleneck[point], CODES)

        if len(variables) > 1:
            held |= _map(variables[:2], values, metrics["run_cost_usd"], bottleneck, possible)
        attrs = {
            "title": "train_cost", "objective": "run_cost_usd", "objective_unit": "USD", "metrics": " ".join(METRICS),
            "variables": " ".join(variables), "pareto": " ".join(pareto), "map_variables": " ".join(variables[:2]),
            "samples": rows, "best_are": "feasible" if feasible.any() else "nearest",
        }  # fmt: skip
        return xr.Dataset(held, attrs=attrs)

    return built


def _map(names, values, objective, bottleneck, possible, cells=24):
    edges = [np.geomspace(*VARIABLES[name][2:], cells + 1) for name in names]
    column, row = (
        np.clip(np.searchsorted(each, values[name]) - 1, 0, cells - 1) for name, each in zip(names, edges, strict=True)
    )
    least, codes = np.full((cells, cells), np.nan), np.full((cells, cells), -1, np.int8)
    for at in np.flatnonzero(possible):
        if not least[row[at], column[at]] <= objective[at]:
            least[row[at], column[at]], codes[row[at], column[at]] = objective[at], bottleneck[at]
    return {
        "map_objective": (("map_y", "map_x"), least, {"long_name": "cost of the run", "units": "USD"}),
        "map_bottleneck": (("map_y", "map_x"), codes, CODES),
        "map_x_edges": ("map_x_edge", *_stated(names[0], edges[0])),
        "map_y_edges": ("map_y_edge", *_stated(names[1], edges[1])),
    }
