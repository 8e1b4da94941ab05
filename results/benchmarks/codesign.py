"""The co-design study of Calculon's SC'23 artefact asked here: 125 M$ of accelerators, how much HBM each, which plan.

    python results/benchmarks/codesign.py > results/reference/codesign.txt

That study searched 16 combinations of HBM3 {20, 40, 80, 120} GB and DDR5 exhaustively for each model and system size, tens of
CPU-hours. Prices as there: 20,000 $ an accelerator, 2,250 $ for 20 GB of HBM to 20,000 $ for 120 GB, here a straight line
through both ends, and 20,000 $ for 1,024 GB of DDR, in proportion; nothing else is charged. What waits in DDR is asked for
in words; how much of either memory to buy is found.
"""

from __future__ import annotations

import time
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np

import hwopt

BUDGET_USD = 125e6
ACCELERATOR_USD = 20_000.0
HBM_USD = {20e9: 2_250.0, 120e9: 20_000.0}  # by capacity
DDR_USD_PER_BYTE, DDR_BYTES_PER_S = 20_000.0 / 1024e9, 100e9
OFFLOADS = ("none", "optimizer", "optimizer+activations")
MODELS = {"gpt3-175b": 300e9, "mt-nlg-530b": 270e9, "megatron-1t": 450e9}  # tokens of the published runs

(SMALL, SMALL_USD), (LARGE, LARGE_USD) = HBM_USD.items()
A_BYTE_USD = (LARGE_USD - SMALL_USD) / (LARGE - SMALL)


def question(workload: str, tokens: float, offload: str):
    """The fastest run that 125 M$ of accelerators give, the network and its bandwidths as sold."""
    asked = hwopt.objective(
        "train_time", workload=workload, tokens=tokens, global_batch=3072.0, sequence_length=2048.0,
        capex_budget_usd=BUDGET_USD, power_budget_w=1e12, offload=offload, pool="none" if offload == "none" else "cxl-ddr5",
    )  # fmt: skip
    problem = asked.problem().continuous
    prices = problem.template.cluster.prices
    where = lambda d: (
        d.cluster.prices.chip_base_usd, d.cluster.prices.hbm_usd_per_byte, d.cluster.prices.hbm_usd_per_byte_per_s,
        d.cluster.prices.network_usd_per_byte_per_s, d.cluster.prices.domain_usd_per_chip, d.cluster.prices.host_usd,
        d.cluster.prices.spares_fraction, d.cluster.rack.price_usd, d.cluster.rack.optics_usd_per_byte_per_s,
        d.cluster.facility.construction_usd_per_w, d.cluster.cooling.capital_usd_per_w, d.cluster.pool.usd_per_byte,
        d.cluster.pool.usd_per_byte_per_s, d.cluster.pool.bandwidth_bytes_per_s,
    )  # fmt: skip
    zero = np.float64(0.0)
    base = np.float64(ACCELERATOR_USD + SMALL_USD - A_BYTE_USD * SMALL)
    nothing = zero * np.asarray(prices.network_usd_per_byte_per_s)
    template = eqx.tree_at(
        where,
        problem.template,
        (
            base,
            np.float64(A_BYTE_USD),
            zero,
            nothing,
            zero,
            zero,
            zero,
            zero,
            zero,
            zero,
            zero,
            np.float64(DDR_USD_PER_BYTE),
            zero,
            np.float64(DDR_BYTES_PER_S),
        ),
    )
    variables = tuple(
        replace(v, lower=SMALL, upper=LARGE) if v.name == "hbm_capacity_bytes" else v for v in problem.variables
    )
    problem = replace(problem, template=template, variables=variables)
    held = ["network", "hbm_bandwidth_bytes_per_s", "clock_ratio", "chips_per_rack"]
    return problem.frozen([*held, "pool_bandwidth_bytes_per_s"] if offload != "none" else held)


def main() -> None:
    """Print the table."""
    print(f"{'model':<13}{'in DDR':<22}{'run':>10}{'HBM':>9}{'DDR':>9}{'chips':>8}  {'plan':<46}", end="")
    print(f"{'gap':>9}{'designs':>12}{'seconds':>9}")
    for workload, tokens in MODELS.items():
        for offload in OFFLOADS:
            with jax.enable_x64(True):
                problem = question(workload, tokens, offload)
            started = time.perf_counter()
            answer = hwopt.optimize(problem)
            seconds = time.perf_counter() - started
            plan, proof = answer.plan, answer.certificate
            degrees = f"tp {plan.tp:.0f} pp {plan.pp:.0f} dp {plan.dp:.0f}"
            degrees += f" chunks {plan.virtual_stages:.0f} micro-batch {plan.micro_batch:.0f}"
            designs = proof.scope.split(" integer")[0].split(" ")[-1]
            gap = "none" if proof.gap is None else f"{100 * proof.gap:.4f} %"
            bought = {name: each.value for name, each in answer.design.items()}
            dram = f"{bought['pool_capacity_bytes'] / 1e9:.0f} GB" if "pool_capacity_bytes" in bought else "-"
            print(
                f"{workload:<13}{offload:<22}{answer.objective / 86400:>8.2f} d{bought['hbm_capacity_bytes'] / 1e9:>6.1f} GB"
                f"{dram:>9}{bought['chips']:>8,.0f}  {degrees:<46}{gap:>9}{designs:>12}{seconds:>9.1f}",
                flush=True,
            )
    print(
        "\nAll on h100-sxm with links, clock, bandwidth and racks as sold; global batch 3,072 (+-5 %) of 2,048 tokens; DDR at"
    )
    print("100 GB/s an accelerator. gap: to the bound over all integer designs of the lattice; seconds: wall time,")
    print("compiling included.")


if __name__ == "__main__":
    main()
