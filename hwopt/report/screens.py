"""Answers as one plain screen of text."""

from __future__ import annotations

import math

import jax

from hwopt.evidence.intervals import Interval
from hwopt.hardware.cluster import Cluster
from hwopt.model.cost import capital, cost_parts
from hwopt.model.report import Report
from hwopt.model.serving.report import ServingReport
from hwopt.model.serving.train_and_serve import BothReport, serving_cluster
from hwopt.optim.solution import BudgetUse, Solution
from hwopt.plan import Plan, TrainingAndServing
from hwopt.report.documents import ATTENTION_CONVENTION, chip_document, plan_document
from hwopt.report.layout import bar, budget_line, design_line, heading
from hwopt.report.machine import interval_line, surroundings, time_parts, violations_text
from hwopt.report.serving_screens import serving_lines, serving_plan_line
from hwopt.units import pretty

_OFFLOADED = ("weights_offloaded", "optimizer_offloaded", "activations_offloaded")

PRICED = 1e-4
"""Elasticities of budgets below are rounding."""


def plan_line(plan: Plan) -> str:
    """A plan in the words that `--plan` takes."""
    values = plan_document(plan)
    words = [f"{name}={values[name]}" for name in ("tp", "pp", "dp")]
    words += [f"{name}={values[name]}" for name in ("cp", "ep") if values[name] != 1]
    if values["ep"] != 1:
        words.append(f"expert_tp={values['expert_tp']}")
    words += [f"{name}={values[name]}" for name in ("virtual_stages", "micro_batch")]
    zero = int(values["optimizer_sharded"] + values["gradients_sharded"] + values["weights_sharded"])
    full, attention = float(values["recompute_full"]), float(values["recompute_attention"])
    words += [f"{name}={values[name]:g}" for name in _OFFLOADED if values[name]]
    words += [f"local_steps={values['local_steps']:g}"] if values["local_steps"] != 1 else []
    recompute = "full" if full == 1 else f"{full:g}" if full else "selective" if attention else "none"
    return ", ".join([*words, f"zero={zero}", f"recompute={recompute}"])


def _memory(report: Report) -> list[str]:
    used, capacity = float(report.memory_per_chip_bytes), float(report.memory_capacity_bytes)
    parts = ", ".join(
        f"{name.removesuffix('_bytes')} {pretty(float(value), 'B', 3)}"
        for name, value in report.memory._asdict().items()
        if float(value) > 0.001 * used
    )
    outside = float(report.pool_per_chip_bytes)
    pool = [f"  memory pool    {pretty(outside, 'B')} a chip"] if outside else []
    return [
        f"  memory         {pretty(used, 'B')} of {pretty(capacity, 'B')} a chip ({100 * used / capacity:.0f} %): {parts}",
        *pool,
    ]


def _surroundings(r: Report) -> list[str]:
    """Chip, racks, power and failures of a concrete report."""
    return [
        *surroundings(r),
        f"  failures       one in {pretty(float(r.mean_time_between_failures_s), 's')}, a checkpoint every "
        f"{pretty(float(r.checkpoint_interval_s), 's', 3)}, {100 * float(r.goodput):.1f} % of the time useful",
    ]


def estimate_screen(report: Report, plan: Plan, title: str, around: Interval | None = None, constants: str = "") -> str:
    """One screen for `estimate`."""
    lines = [title, f"  plan           {plan_line(plan)}"]
    if not bool(report.feasible):
        lines += (
            ["", "This plan does not fit:"] + [f"  - it {text}" for text in violations_text(report)] + _memory(report)
        )
        return "\n".join(lines)
    r = report
    lines += [
        f"  step time      {pretty(float(r.step_time_s), 's')}",
        *([interval_line(r, around, constants)] if constants else []),
        f"  throughput     {pretty(float(r.tokens_per_s), 'token/s')}, {float(r.tokens_per_s_per_chip):,.0f} token/s a chip",
        f"  utilisation    MFU {100 * float(r.mfu):.1f} %, HFU {100 * float(r.hfu):.1f} %, "
        f"{pretty(float(r.model_flops_per_chip_per_s), 'FLOP/s')} a chip ({ATTENTION_CONVENTION})",
        *_memory(r),
        *_surroundings(r),
        f"  energy         {pretty(float(r.energy_per_token_j), 'J')} a token",
        f"  money          {pretty(float(r.capex_usd), 'USD') + ' to build' if float(r.capex_usd) else 'rented'}; "
        f"{1e6 * float(r.cost_per_token_usd):.4g} $ a million tokens",
        f"  whole run      {pretty(float(r.run_time_s), 's')}, {pretty(float(r.run_cost_usd), 'USD')}, "
        f"{float(r.run_carbon_kg) / 1e3:,.0f} t CO2e, loss {float(r.loss):.4f}",
        *time_parts(r),
        "",
        "Constants from literature, not fitted; see the accuracy table of the README.",
    ]
    return "\n".join(lines)


def price_words(budget: BudgetUse) -> str:
    """What a budget is worth, in words."""
    if budget.one_sided is not None:
        less, more = budget.one_sided
        costs = f"costs {less:.4g}" if math.isfinite(less) else "leaves no design"
        unit = budget.shadow_price_unit
        return (
            f"one {budget.unit} less {costs}, one more saves {more:.4g} {unit} (same plan: {budget.shadow_price:.4g})"
        )
    if budget.elasticity > PRICED:
        each = f"{budget.elasticity:.3g} % of the objective per %"
        return f"{each}; one more {budget.unit} saves {budget.shadow_price:.4g} {budget.shadow_price_unit}"
    if budget.relaxed_elasticity is not None and budget.relaxed_elasticity > PRICED:
        return f"slack only in whole numbers; relaxed, {budget.relaxed_elasticity:.2g} % per %"
    return "not binding"


def chip_lines(solution: Solution) -> list[str]:
    """The chip of an answer that drew one."""
    chip = chip_document(solution)
    if chip is None:
        return []
    areas, bill = chip["areas"], chip["bill_usd"]
    shown = ("compute", "fabric", "sram", "hbm_phy", "scale_up_phy", "scale_out_phy", "fixed", "die_to_die")
    silicon = ", ".join(f"{name} {1e6 * areas[name]:.0f}" for name in shown if areas[name] > 0)
    parts = ", ".join(f"{name} {value:,.0f}" for name, value in bill.items() if name != "total" and value > 0)
    return [
        *heading("The chip"),
        f"  {pretty(chip['peak_flops_per_s']['bf16'], 'FLOP/s')} dense 16 bit, "
        f"{pretty(chip['hbm_bandwidth_bytes_per_s'], 'B/s')} and {pretty(chip['hbm_capacity_bytes'], 'B')} of HBM, "
        f"{pretty(chip['sram_bytes'], 'B')} of SRAM, {pretty(chip['power_w'], 'W')}",
        f"  {1e6 * areas['total']:.0f} mm2: {silicon}; largest die {1e6 * areas['one_die']:.0f} mm2",
        f"  costs {bill['total']:,.0f} $ to make ({parts}), {chip['price_usd']:,.0f} $ to buy; "
        f"{chip['embodied_carbon_kg']:.0f} kg CO2e",
    ]


_TRAINED = "Where the money goes (cost of the cluster during the run)"
_SERVED = "Where the money goes (cost of a million tokens)"


def money_title(report: Report | ServingReport) -> str:
    """What `money_parts` are the parts of."""
    return _SERVED if isinstance(report, ServingReport) else _TRAINED


def money_parts(cluster: Cluster, report: Report | ServingReport) -> list[tuple[str, float, float]]:
    """Parts of the cost as (name, USD, share), largest first: of the run, or of a million tokens of a service."""
    serves = isinstance(report, ServingReport)
    spent = 1e6 * float(report.cost_per_token_usd) if serves else float(report.run_cost_usd)
    it_peak_w = report.rack_power_w / cluster.rack.chips
    with jax.enable_x64(True):
        parts = cost_parts(cluster, capital(cluster, it_peak_w), report.power_w)
    total = sum(float(value) for value in parts.values())
    shares = ((name, float(value) / total) for name, value in sorted(parts.items(), key=lambda part: -float(part[1])))
    return [(name, share * spent, share) for name, share in shares if share]


def _money(cluster: Cluster, report: Report | ServingReport) -> list[str]:
    """Lines of `money_parts`."""
    return heading(money_title(report)) + [
        f"  {name:<22} {pretty(spent, 'USD'):>12}  {bar(share)} {100 * share:5.1f} %"
        for name, spent, share in money_parts(cluster, report)
    ]


def condition_lines(report: Report | ServingReport) -> list[str]:
    """Utilisation, memory, heat, power and failures of one machine."""
    if isinstance(report, ServingReport):
        return serving_lines(report)
    return [
        f"  MFU {100 * float(report.mfu):.1f} % ({ATTENTION_CONVENTION})",
        *_memory(report),
        *_surroundings(report),
    ]


def _machine(cluster: Cluster, report: Report | ServingReport) -> list[str]:
    """Money, time, utilisation, memory, heat, power and failures of one machine of an answer."""
    lines = [*_money(cluster, report), *time_parts(report), *heading("Utilisation, memory, heat, power, failures")]
    return [*lines, *condition_lines(report)]


def machines(solution: Solution) -> list[tuple[str, Cluster, Report | ServingReport]]:
    """The machine of an answer, without a title; two with theirs where a chip trains and serves."""
    report, cluster = solution.report, solution.inputs.cluster
    if not isinstance(report, BothReport):
        return [("", cluster, report)]
    with jax.enable_x64(True):
        serves = serving_cluster(*solution.inputs)
    return [("The machine that trains", cluster, report.training), ("The machine that serves", serves, report.serving)]


def _machines(solution: Solution) -> list[str]:
    """Lines of `machines`."""
    lines = []
    for title, cluster, report in machines(solution):
        lines += ["", title, "=" * len(title)] if title else []
        lines += _machine(cluster, report)
    return lines


def plans(solution: Solution) -> list[tuple[str, str]]:
    """The plan of an answer by what it does, in the words of `--plan`; two where a chip trains and serves."""
    plan = solution.plan
    if isinstance(plan, TrainingAndServing):
        return [("trains", plan_line(plan.training)), ("serves", serving_plan_line(plan.serving))]
    of_plan = serving_plan_line if isinstance(solution.report, ServingReport) else plan_line
    return [("plan", of_plan(plan))]


def bound_words(solution: Solution) -> str:
    """What is proved of the objective, in words."""
    proof, unit = solution.certificate, solution.problem.objective.unit
    if proof.gap is None or proof.lower_bound is None:
        return "no bound"
    return f"no design is below {pretty(proof.lower_bound, unit, 6)}: gap {100 * proof.gap:.2g} %"


def solution_screen(solution: Solution, around: Interval | None = None, constants: str = "") -> str:
    """One screen for `optimize`: objective, design, budgets, parts of cost and time, proof, sources."""
    problem = solution.problem
    report = solution.report
    lines = [problem.question, "", solution.outcome.value]
    if solution.clash:
        lines.append(solution.clash)
    lines += [f"{problem.objective.name} = {pretty(solution.objective, problem.objective.unit, 6)}"]
    lines += heading("Design")
    for name, each in solution.design.items():
        bound = (
            f"  <- at its {each.at_bound} bound" + (f": {each.box_meaning}" if each.box_meaning else "")
            if each.at_bound
            else ""
        )
        lines.append(design_line(name, each.value, each.unit, each.lower, each.upper, bound))
    lines += [f"  {what}: {words}" for what, words in plans(solution)]
    if constants and solution.feasible and not isinstance(report, BothReport):
        lines.append(interval_line(report, around, constants))
    lines += chip_lines(solution)
    lines += heading("Budgets")
    lines += [budget_line(each.name, each.used, each.limit, each.unit, price_words(each)) for each in solution.budgets]
    lines += _machines(solution)
    lines += heading("How good is it")
    proof = solution.certificate
    bound = bound_words(solution)
    lines += [
        f"  {proof.scope}",
        f"  largest violation {proof.max_violation:.1e}, KKT residual {proof.kkt_residual:.1e}; {bound}",
        "  a statement about the model, not about silicon" + (f"; constants: {constants}" if constants else ""),
    ]
    if problem.sources:
        lines += heading(f"Sources behind these numbers ({len(problem.sources)}; all with hwopt sources)")
        lines += [f"  - {text}" for text in problem.sources[:6]]
    return "\n".join(lines)
