"""Serving: what machines give one user and all users, what memory bandwidth is worth, how large a domain a sparse model wants.

    python results/benchmarks/serving.py > results/serving.md

Every integer plan of each machine by the exact model (`hwopt plan --mode serve`'s lattice). Requests of 2,048 tokens in and
512 out. Constants are calibrated to published runs where there are any; Groq and Cerebras serve by no measured constant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

import hwopt
from hwopt import catalog
from hwopt.model.training.schedule import Breakdown
from hwopt.output.figures.style import figure, save
from hwopt.planning.plan_table import PlanTable, in_blocks, reports
from hwopt.planning.serving_plans import serving_plans
from hwopt.workload.service import Service

FIGURE = Path("results/figures/serving.png")
SPEEDS = (25, 50, 100, 200, 400, 800)  # tokens a second and user
BLOCK = 2048
PARTS = [name.removesuffix("_s").replace("_", " ") for name in Breakdown._fields]


@dataclass(frozen=True)
class Machine:
    """A machine that serves, with the least chips that hold the model well."""

    name: str
    chip: str
    chips: int
    precision: str = "fp8"
    around: Mapping[str, Any] = field(default_factory=dict)

    def cluster(self) -> Any:
        """The machine as the model takes it."""
        return catalog.cluster(self.chip, self.chips, stack=catalog.serving_stack(self.chip), **dict(self.around))


MACHINES = (
    Machine("8 x A100, NVLink 3", "a100-80", 8, "bf16"),
    Machine("8 x H100, NVLink 4", "h100-sxm", 8),
    Machine("8 x H200, NVLink 4", "h200", 8),
    Machine("8 x B200, NVLink 5", "b200", 8),
    Machine("72 x GB200, NVLink 5, one domain", "gb200", 72),
    Machine("16 x TPU v5p, torus", "tpu-v5p", 16, "bf16"),
    Machine("1,024 x Groq LPU, SRAM alone", "groq-lpu", 1024, "int8", {"domain": 1024}),
    Machine("4 x WSE-3, wafers of SRAM", "wse-3", 4, "bf16"),
)


def answers(service: Service, cluster: Any) -> tuple[PlanTable, np.ndarray, dict[str, np.ndarray]]:
    """Every plan that fits, and what it gives."""
    plans = dataclasses.replace(serving_plans(service, cluster), block=BLOCK)
    names = ("feasible", "time_per_output_token_s", "cost_per_token_usd", "tokens_per_s_per_chip", "energy_per_token_j",
             "time_to_first_token_s", "bottleneck", "floor_time_s", "step_time_s")  # fmt: skip

    def take(workload, machine, some):
        report = reports(workload, machine, some)
        return [getattr(report, name) for name in names]

    with jax.enable_x64(True):
        found = in_blocks(take, plans, np.arange(plans.count), service, cluster)
    table = dict(zip(names, found, strict=True))
    fits = np.flatnonzero(table["feasible"] > 0)
    return plans, fits, {name: column[fits] for name, column in table.items()}


def front(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Indices of the least of both, by x."""
    order = np.lexsort((y, x))
    least = np.minimum.accumulate(y[order])
    return order[np.r_[True, y[order][1:] < least[:-1]]]


def plan_words(plans: PlanTable, index: int) -> str:
    """Degrees that are not 1, and the batch."""
    parts = [f"{name} {plans[name][index]}" for name in ("tp", "pp", "ep") if plans[name][index] > 1]
    return ", ".join([*parts, f"batch {plans['batch'][index]}"])


def speeds() -> list[str]:
    """The frontier of speed for one user against the price of a token, and its figure."""
    lines = [
        "## What a user's speed costs: Llama-3.1-70B",
        "",
        "Least price of a million output tokens, USD, at a speed for each user of at least so many tokens a second (prefill",
        "beside decode). The last columns: the fastest answers, one user alone. Groq and Cerebras run at what their hardware",
        "allows, software for nothing: upper bounds (announced, recalled: Groq 300 tokens a second on Llama-2-70B with 576",
        "chips, Cerebras 969 on Llama-3.1-405B).",
        "",
        f"| machine | {' | '.join(f'{speed} /s' for speed in SPEEDS)} | fastest, tokens/s | by |",
        f"| --- | {' | '.join('---' for _ in SPEEDS)} | --- | --- |",
    ]
    with figure(figsize=(7.6, 4.6)) as (drawn, (axes,)):
        for machine in MACHINES:
            service = catalog.service("llama3.1-70b", precision=machine.precision)
            plans, fits, table = answers(service, machine.cluster())
            speed, price = 1.0 / table["time_per_output_token_s"], table["cost_per_token_usd"] * 1e6
            cells = []
            for least in SPEEDS:
                held = np.flatnonzero(speed >= least)
                best = held[np.argmin(price[held])] if len(held) else -1
                cells.append(f"{price[best]:.2f}" if best >= 0 else "-")
            top = int(np.argmax(speed))
            lines.append(
                f"| {machine.name}, {machine.precision} | {' | '.join(cells)} | {speed[top]:,.0f} "
                f"| {plan_words(plans, fits[top])} |"
            )
            on = front(-speed, price)
            axes.plot(speed[on], price[on], "o-", markersize=2.5, label=machine.name, linewidth=1.4)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("tokens a second for each user")
        axes.set_ylabel("USD a million tokens")
        axes.legend(fontsize=7)
        save(drawn, FIGURE)
    return lines


def generations() -> list[str]:
    """What bandwidth and arithmetic are worth, chip by chip, where plan and batch stay."""
    lines = [
        "",
        "## Bandwidth against arithmetic, generation by generation: Llama-3.1-70B in 8 bit (A100: 16 bit)",
        "",
        "Best plan of 8 chips at 25 tokens a second and user; % of tokens a second by % of each input, all else (plan and batch",
        "too) as it is. Answers alone: prompts are processed elsewhere.",
        "",
        "| chip | | USD / M tokens | plan | HBM bandwidth | FLOP/s | NVLink bandwidth | memory in use |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, chip, precision in (
        ("A100", "a100-80", "bf16"),
        ("H100", "h100-sxm", "fp8"),
        ("H200", "h200", "fp8"),
        ("B200", "b200", "fp8"),
        ("B300", "b300", "fp8"),
    ):
        for mode, words in (("serve", "prompts beside answers"), ("decode", "answers alone")):
            service = catalog.service("llama3.1-70b", mode=mode, precision=precision)
            cluster = Machine(name, chip, 8).cluster()
            found = hwopt.best_plan(service, cluster, limits={"time_per_output_token_s": 0.04}, alternatives=0)
            report, plan = found.best.report, found.best.plan
            worth = hwopt.elasticities(service, cluster, plan, metrics=["tokens_per_s"]).of("tokens_per_s")
            flops = sum(value for key, value in worth.items() if key.startswith("cluster.chip.peak_flops_per_s"))
            memory = worth.get("cluster.chip.hbm_bandwidth_bytes_per_s", 0.0)
            links = worth.get("cluster.network.bandwidth_bytes_per_s[scale_up]", 0.0)
            full = float(report.memory_per_chip_bytes / report.memory_capacity_bytes)
            price = 1e6 * float(report.cost_per_token_usd)
            shares = f"{memory:+.2f} | {flops:+.2f} | {links:+.2f} | {100 * full:.0f} %"
            lines.append(
                f"| {name} | {words} | {price:.2f} | tp {plan.tp:.0f}, batch {plan.micro_batch:.0f} | {shares} |"
            )
    return lines


def domains() -> list[str]:
    """Throughput and latency of a sparse model by the size of its scale-up domain."""
    lines = [
        "",
        "## How large a domain a sparse model wants: DeepSeek-V3 in 8 bit on 144 GB200",
        "",
        "Least price of a million tokens under 50 ms a token, and the fastest answers of all plans, by the chips of one NVLink",
        "domain (InfiniBand NDR between domains).",
        "",
        "| domain | USD / M tokens | plan | bound by | fastest, tokens/s and user | plan |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    service = catalog.service("deepseek-v3", precision="fp8")
    for domain in (4, 8, 16, 36, 72, 144):
        cluster = catalog.cluster("gb200", 144, domain=domain, stack=catalog.serving_stack("gb200"))
        plans, fits, table = answers(service, cluster)
        pace = table["time_per_output_token_s"]
        held = np.flatnonzero(pace <= 0.05)
        best = held[np.argmin(table["cost_per_token_usd"][held])]
        fast = int(np.argmin(pace))
        part = PARTS[int(table["bottleneck"][best])]
        lines.append(
            f"| {domain} | {table['cost_per_token_usd'][best] * 1e6:.2f} | {plan_words(plans, fits[best])} | {part} | "
            f"{1.0 / pace[fast]:.0f} | {plan_words(plans, fits[fast])} |"
        )
    return lines


def main() -> None:
    """Print all three studies."""
    print(
        "# Serving\n\nMade by `python results/benchmarks/serving.py > results/serving.md`; see there for what is held.\n"
    )
    print("\n".join([*speeds(), *generations(), *domains()]))


if __name__ == "__main__":
    main()
