"""Every fabric and machine of the field on one workload: best plan, bottleneck and cost; and what follows for designs.

    python results/benchmarks/fabrics.py > results/fabrics.md

GPT-3 175B on 300 G tokens, each machine with about the peak of 1,536 H100 (chips of the form 3 x 2^k), best of all integer
plans by cost. Constants are calibrated to published runs of GPUs and TPUs; Groq and Cerebras train by no measured constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import hwopt
from hwopt import catalog
from hwopt.analysis.fabrics import FabricVariant as Case
from hwopt.analysis.fabrics import jitter_levels
from hwopt.model.estimate import estimate
from hwopt.model.report import TrainingReport
from hwopt.output.text.plans import plan_line
from hwopt.planning.plan_search import best_plan
from hwopt.planning.plan_table import PlanCandidate
from hwopt.units import pretty
from results.claims.runs import opt_175b, opt_communication

WORKLOAD, TOKENS, BATCH, LENGTH = "gpt3-175b", 300e9, 1536, 2048
PEAK_FLOPS_PER_S = 1536 * 989.4e12  # of as many H100


@dataclass(frozen=True)
class Machine:
    """A line of the table: a chip with what surrounds it, by the words of `catalog.cluster`."""

    name: str
    chip: str = "h100-sxm"
    chips: int = 0  # 0: as many as have the peak
    around: Mapping[str, Any] = field(default_factory=dict)
    common: Mapping[str, float] = field(default_factory=dict)  # what all its plans have alike


NDR = {"fabric": "ndr-fat-tree"}
STREAMED = {"weights_offloaded": 1.0, "optimizer_offloaded": 1.0}

MACHINES = (
    Machine("A100, NVLink 3, InfiniBand HDR fat tree", "a100-80", around={"fabric": "hdr-fat-tree"}),
    Machine("A100, PCIe 4.0 inside the server", "a100-80", around={"scale_up": "pcie-4", "fabric": "hdr-fat-tree"}),
    Machine("H100, NVLink 4, InfiniBand NDR fat tree", around={"fabric": "ndr-fat-tree"}),
    Machine("H100, NDR, rail-optimised", around={"fabric": "ndr-rail"}),
    Machine("H100, fat tree oversubscribed 3 to 1", around={"fabric": "oversubscribed-3"}),
    Machine("H100, InfiniBand HDR 200 Gb/s", around={"fabric": "hdr-fat-tree"}),
    Machine("H100, InfiniBand XDR 800 Gb/s, co-packaged optics", around={"fabric": "xdr-cpo"}),
    Machine("H100, Ethernet with RDMA, 400 Gb/s", around={"fabric": "roce-400-fat-tree"}),
    Machine("H100, the same, hashed flows that collide", around={"fabric": "roce-400-fat-tree", "bandwidth_spread": 0.15}),
    Machine("H100, Ethernet 800 Gb/s, four planes", around={"fabric": "roce-800-multiplane"}),
    Machine("H100, Ethernet 100 Gb/s", around={"scale_out": "ethernet-100"}),
    Machine("H100, dragonfly of 400 Gb/s", around={"fabric": "dragonfly-400"}),
    Machine("H100, 3D torus of 400 Gb/s, no switches", around={"fabric": "torus-3d-400"}),
    Machine("H100, PCIe 5.0 inside the server", around={"scale_up": "pcie-5", "fabric": "ndr-fat-tree"}),
    Machine("H100, racks of 40, direct liquid", around=NDR | {"rack_chips": 40, "cooling": "direct-liquid"}),
    Machine("H100, immersed, 64 a tank", around=NDR | {"rack_chips": 64, "cooling": "immersion-2p"}),
    Machine("H100, super-cluster of 12,288", chips=12288, around={"fabric": "ndr-fat-tree"}),
    Machine("GB200 NVL72, copper backplane", "gb200"),
    Machine("MI250X, Infinity Fabric", "mi250x"),
    Machine("MI300X, Infinity Fabric full mesh", "mi300x"),
    Machine("TPU v4, 3D torus pod", "tpu-v4"),
    Machine("TPU v5e, 2D torus pods of 256", "tpu-v5e"),
    Machine("TPU v5p, 3D torus pod", "tpu-v5p"),
    Machine("Trainium2, 2D torus of 16", "trainium2"),
    Machine("Groq LPU, weights resident in SRAM", "groq-lpu", chips=49152),
    Machine("Cerebras WSE-2, weights streamed", "wse-2", common=STREAMED),
    Machine("Cerebras WSE-3, weights streamed", "wse-3", common=STREAMED),
    Machine("H100, optimizer in host DRAM over PCIe 5.0", around=NDR, common={"optimizer_offloaded": 1.0}),
    Machine("H100, optimizer in DDR5 over CXL", around=NDR | {"pool": "cxl-ddr5"}, common={"optimizer_offloaded": 1.0}),
    Machine("H100, states in a disaggregated pool", around=NDR | {"pool": "pooled-fabric"}, common=STREAMED),
    Machine("H100, three sites of a region, synchronous", around=NDR | {"sites": 3, "lines": "metro"}),
    Machine("H100, three sites of a continent, synchronous", around=NDR | {"sites": 3, "lines": "continental"}),
    Machine("H100, three sites of a continent, 500 local steps", around=NDR | {"sites": 3, "lines": "continental"},
            common={"local_steps": 500.0}),
    Machine("H100, three sites over the internet, 500 local steps", around=NDR | {"sites": 3, "lines": "internet"},
            common={"local_steps": 500.0}),
)  # fmt: skip


def chips_of(machine: Machine) -> int:
    """Chips of the form 3 x 2^k whose peak is nearest to the one asked for."""
    if machine.chips:
        return machine.chips
    peak = float(catalog.chip(machine.chip).peak_flops_per_s[2])
    return 3 * 2 ** round(math.log2(PEAK_FLOPS_PER_S / peak / 3.0))


def run():
    """The workload that all machines train."""
    return catalog.training_run(WORKLOAD, global_batch=BATCH, sequence_length=LENGTH, tokens=TOKENS)


def bottleneck(report: TrainingReport) -> str:
    """The two largest parts of the step, with their shares."""
    parts = report.breakdown._asdict()
    names = sorted(parts, key=lambda each: -float(parts[each]))[:2]
    shares = (
        f"{name.removesuffix('_s')} {100 * float(parts[name]) / float(report.step_time_s):.0f} %" for name in names
    )
    return ", ".join(shares)


def answer(machine: Machine):
    """The cheapest plan of a machine, or the one nearest to fitting."""
    cluster = catalog.cluster(machine.chip, chips_of(machine), any_software=bool(machine.common), **machine.around)
    return best_plan(run(), cluster, "run_cost_usd", 0, machine.common)


def short(found: PlanCandidate) -> str:
    """A plan without what is usual."""
    usual = ("cp=1", "virtual_stages=1", "zero=1", "recompute=none")
    return " ".join(word for word in plan_line(found.report, found.plan).split(", ") if word not in usual)


def table() -> list[str]:
    """A line a machine."""
    lines = [
        "| machine | chips | best plan | step | MFU | bottleneck | loss | run | cost | $ a M tokens | capital | average power |",
        "| --- | ---: | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for machine in MACHINES:
        found = answer(machine)
        report, plan = found.best.report, short(found.best)
        first = f"| {machine.name} | {chips_of(machine):,} |"
        if not found.feasible:
            why = ", ".join(f"{name} by {100 * over:.0f} %" for name, over in report.violations().items())
            lines.append(f"{first} none fits; nearest {plan} | - | - | over: {why} | - | - | - | - | - | - |")
            continue
        r = report
        lines.append(
            f"{first} {plan} | {pretty(float(r.step_time_s), 's', 3)} | {100 * float(r.mfu):.1f} % | "
            f"{bottleneck(r)} | "
            f"{float(r.loss):.3f} | {float(r.run_time_s) / 86400:.1f} d | {float(r.run_cost_usd) / 1e6:.2f} M$ | "
            f"{1e6 * float(r.cost_per_token_usd):.2f} | {float(r.capex_usd) / 1e6:,.0f} M$ | {float(r.power_w) / 1e6:.2f} MW |"
        )
    return lines


def estimated(cluster, plan: Mapping[str, Any], asked=None) -> TrainingReport:
    """The report of one plan."""
    asked = run() if asked is None else asked
    with jax.enable_x64(True):
        return jax.tree.map(
            np.asarray,
            estimate(
                asked, cluster, catalog.plan(asked, float(cluster.chips), sites=float(cluster.sites.count), **plan)
            ),
        )


def jitter() -> list[str]:
    """Uniform against heroic bandwidth, by size of the cluster."""
    asked = catalog.training_run(WORKLOAD, global_batch=12288, sequence_length=LENGTH, tokens=TOKENS)
    plan = dict(tp=8, pp=4, virtual_stages=24)
    lines = [
        "| chips | 200 Gb/s, even | 400 Gb/s, even | 400 Gb/s, spread 0.15, tails 10 us "
        "| 400 Gb/s, spread 0.35, tails 30 us |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    kinds = (
        dict(scale_out_bytes_per_s=25e9), {}, dict(bandwidth_spread=0.15, latency_tail_s=1e-5),
        dict(bandwidth_spread=0.35, latency_tail_s=3e-5),
    )  # fmt: skip
    for chips in (384, 1536, 6144, 24576):
        times = [
            float(estimated(catalog.cluster("h100-sxm", chips, **kind), plan, asked).step_time_s) for kind in kinds
        ]
        lines.append(f"| {chips:,} | " + " | ".join(pretty(each, "s", 4) for each in times) + " |")
    return lines


def predictability() -> list[str]:
    """What a fabric's unevenness costs a run, in money, each fabric with its own price and bandwidth."""
    asked = catalog.training_run(WORKLOAD, global_batch=12288, sequence_length=LENGTH, tokens=TOKENS)
    plan = catalog.plan(asked, 24576, tp=8, pp=4, virtual_stages=24)

    def machine(name: str) -> Case:
        at = lambda spread, tail_s: catalog.cluster(
            "h100-sxm", 24576, fabric=name, bandwidth_spread=spread, latency_tail_s=tail_s
        )
        return Case(name, at)

    answer = hwopt.fabrics(
        asked,
        [machine(name) for name in catalog.names("fabrics")],
        jitter_levels(spread=0.35, tail_s=3e-5),
        lambda _: plan,
    )
    lines = [
        "| fabric | scale-out a chip | run, even | as production runs | spread 0.35, tails 30 us "
        "| worth paying for evenness, a chip |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in answer.cases:
        assert each.cluster is not None
        rate = pretty(float(each.cluster.network.bandwidth_bytes_per_s[1]), "B/s", 3)
        more = [
            f"{pretty(cost, 'USD', 4)} ({100 * by:+.1f} %)"
            for cost, by in zip(each.costs_usd[1:], each.dearer[1:], strict=True)
        ]
        even, worth = pretty(each.costs_usd[0], "USD", 4), each.worth_usd_per_chip[-1]
        lines.append(f"| {each.name} | {rate} | {even} | {more[0]} | {more[1]} | {worth:,.0f} $ |")
    return lines


def domains() -> list[str]:
    """The cheapest design with each size of the scale-up domain, and the one the optimiser takes."""
    lines = [
        "| domain | cost | chips | tp | power | chips in a rack | proof |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    asked = hwopt.objective("train_cost", free="domain", power_budget_w=33e6, capex_budget_usd=0.99e9)
    for size in (8, 16, 24, 48, 72, 144, None):
        problem = asked.problem()
        if size is not None:
            problem = problem.narrowed({"scale_up_domain": (size, size)})
        found = hwopt.optimize(problem)
        value = {name: each.value for name, each in found.design.items()}
        first = "free: " if size is None else ""
        if found.certificate.gap is None:
            lines.append(f"| {size} | no design satisfies the budgets: proved | - | - | - | - | - |")
            continue
        lines.append(
            f"| {first}{value['scale_up_domain']:.0f} | {found.objective / 1e6:.2f} M$ | {value['chips']:,.0f} | "
            f"{value['tp']:.0f} | {pretty(float(found.report.peak_power_w), 'W', 3)} | {value['chips_per_rack']:.0f} | "
            f"gap {100 * found.certificate.gap:.3f} % |"
        )
    return lines


def sites() -> list[str]:
    """One large site against three small ones, at equal loss: more tokens pay for learning apart."""
    kinds = (
        ("one site", {}, {}),
        ("three, a region, synchronous", {"sites": 3, "lines": "metro"}, {}),
        ("three, a continent, synchronous", {"sites": 3, "lines": "continental"}, {}),
        ("three, a continent, 500 local steps, streamed", {"sites": 3, "lines": "continental-streamed"}, {"local_steps": 500}),
    )  # fmt: skip
    lines = [
        "| sites | step | tokens for the loss of one site | run | cost | power of a site |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    wanted = None
    for name, around, plan in kinds:
        cluster = catalog.cluster("h100-sxm", 24576, **around)
        split = dict(tp=8, pp=16, virtual_stages=8) | plan
        tokens = TOKENS_LONG
        for _ in range(60):
            asked = catalog.training_run("llama3.1-405b", global_batch=3072, tokens=tokens, unique_tokens=1e18)
            report = estimated(cluster, split, asked)
            wanted = float(report.loss) if wanted is None else wanted
            if float(report.loss) <= wanted * (1 + 1e-9) or tokens > 1e4 * TOKENS_LONG:
                break
            tokens *= 1.2
        reached = f"{tokens / TOKENS_LONG:.1f} x" if float(report.loss) <= wanted * (1 + 1e-9) else "none"
        lines.append(
            f"| {name} | {pretty(float(report.step_time_s), 's', 3)} | {reached} | {float(report.run_time_s) / 86400:,.0f} d | "
            f"{float(report.run_cost_usd) / 1e6:,.1f} M$ | {float(report.site_power_w) / 1e6:.1f} MW |"
        )
    return lines


TOKENS_LONG = 15.6e12  # of Llama 3.1 405B


def torus_and_tree() -> list[str]:
    """TPU v4: its torus, and trays of four joined by a fat tree of what the torus costs, and of its bandwidth."""
    torus = catalog.cluster("tpu-v4", 6144)
    usd = float(torus.network.bandwidth_bytes_per_s[0] * torus.prices.network_usd_per_byte_per_s[0])
    tree = catalog.cluster("tpu-v4", 6144, fabric="ndr-fat-tree", domain=4)
    a_byte = float(tree.prices.network_usd_per_byte_per_s[1:].sum())
    lines = ["| network | bandwidth a chip | price a chip | step | MFU |", "| --- | ---: | ---: | ---: | ---: |"]
    rates = (("3D torus", None), ("fat tree, equal price", usd / a_byte), ("fat tree, NDR", 50e9),
             ("fat tree, equal bandwidth", 270e9))  # fmt: skip
    for name, rate in rates:
        cluster = torus if rate is None else catalog.cluster(
            "tpu-v4", 6144, fabric="ndr-fat-tree", domain=4, scale_out_bytes_per_s=rate
        )  # fmt: skip
        best = best_plan(run(), cluster, "step_time_s", 0).best.report
        shown = 270e9 if rate is None else rate
        price = usd if rate is None else rate * a_byte
        lines.append(
            f"| {name} | {pretty(shown, 'B/s', 3)} | {price:,.0f} $ | {pretty(float(best.step_time_s), 's', 3)} | "
            f"{100 * float(best.mfu):.1f} % |"
        )
    return lines


def opt() -> list[str]:
    """OPT-175B as published: what of its step is exposed communication; the calculation is that of claim A12."""
    run = opt_175b()
    report, found = run.report, opt_communication()
    step, peak, best = float(report.step_time_s), 312e12, float(catalog.chip("a100-80").matmul_efficiency[2])
    return [
        f"Claim A12, {found.verdict}: {found.figure}. {found.arithmetic}. The model says {step:.1f} s a step, "
        f"{float(report.mfu) * peak / 1e12:.0f} TFLOP/s a chip ({float(report.hfu) * peak / 1e12:.0f} with recomputation; 147 "
        f"published). With 40 % exposed the kernels would run at 147 / 0.6 = 245 TFLOP/s, {100 * 245e12 / peak:.0f} % of the "
        f"peak, if 147 counts what is computed again; the best products measured reach {100 * best:.0f} %."
    ]


SECTIONS = (
    ("Machines and fabrics", table),
    ("Predictable beats peak", jitter),
    ("The price of predictability", predictability),
    ("How large a scale-up domain", domains),
    ("A torus against a fat tree", torus_and_tree),
    ("One large site or three small ones", sites),
    ("OPT-175B", opt),
)

NOTES = {
    "Predictable beats peak": "GPT-3 175B, 12,288 sequences a step, tp=8 pp=4 with 24 chunks, H100. Spread: relative standard "
    "deviation of what links deliver; tails: mean of the exponential tail of a step's latency.",
    "The price of predictability": "The same run on 24,576 H100, by fabric. Production's spread and tails are estimates (0.1 and "
    "5 us: `hwopt catalog operations production`); the last column is what evenness may add to a chip's share of the capital "
    "before the least even fabric is as cheap, money being spent in proportion to capital.",
    "How large a scale-up domain": "The default question with 10 % more power and capital, H100 as sold but for the domain, "
    "which is held, then free.",
    "A torus against a fat tree": "6,144 TPU v4. Link prices are estimates; Jouppi et al. 2023 put the optical network below "
    "5 % of the system's cost.",
    "One large site or three small ones": "Llama 3.1 405B on 24,576 H100, tp=8 pp=16 with 8 chunks. Learning apart raises the "
    "loss by M^0.0116, a fit to models of 35 M to 2.4 B parameters; the paper finds less at larger ones, so read the tokens of "
    "the last line as what that fit says, not as a fact of this scale.",
}


INTRODUCTION = f"""# Fabrics and machines

Made by `python results/benchmarks/fabrics.py > results/fabrics.md` from the catalogue as it stands: a model's answers, with its
calibrated constants. The walls of scale: `python -m tests.validation.walls`.

The first table: GPT-3 175B, {TOKENS / 1e9:.0f} G tokens, {BATCH} sequences of {LENGTH} a step, bf16. Chips of every machine:
3 x 2^k with a peak nearest to that of 1,536 H100, but where the name says otherwise. The plan is the cheapest of all
integer ones; bottleneck: the two largest parts of the step; capital includes racks, network and building."""


def main() -> None:
    """Print the whole file."""
    print(INTRODUCTION)
    for title, section in SECTIONS:
        print(f"\n## {title}\n")
        if title in NOTES:
            print(NOTES[title] + "\n")
        print("\n".join(section()), flush=True)


if __name__ == "__main__":
    main()
