"""Answers as plain text for a terminal."""

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from hwopt.analysis.chance_constraints.value_of_information import Regret
from hwopt.analysis.integrality_gap import AnswerAlternative, IntegralityGap
from hwopt.calibration.intervals import Interval
from hwopt.model.report import Report, TrainingReport, TrainServeReport
from hwopt.output.answers.documents import chip_document
from hwopt.output.text.bill import bill_table
from hwopt.output.text.chance_constraints import promise_lines
from hwopt.output.text.choices import choice_lines
from hwopt.output.text.cluster import (
    chip_hour,
    conditions,
    fact_lines,
    interval_words,
    memory,
    money_lines,
    time_lines,
    violations_text,
)
from hwopt.output.text.integrality_gap import alternative_lines
from hwopt.output.text.integrality_gap import price_words as price_of_parts
from hwopt.output.text.layout import MODEL_ONLY, REPRODUCED, budget_line, design_line, fact, heading, kind_line
from hwopt.output.text.plans import plan_lines
from hwopt.output.text.regret import regret_lines
from hwopt.output.text.shadow_prices import price_words
from hwopt.output.text.token_prices import million_words, rate_words, unit_of_work
from hwopt.solver.solution import Certificate, DesignValue, Solution
from hwopt.units import pretty


def estimate_screen(report: Report, plan: Any, title: str, around: Interval | None = None, constants: str = "") -> str:
    """Return the answer of `estimate` as text for a terminal.

    **Arguments:**

    - `title`: workload, cluster and, for a service, requests, in words.
    - `around`: prediction interval.
    - `constants`: name of the constants in use, such as `calibrated`; empty where unknown.
    """
    said = [words if what == "plan" else f"{what} {words}" for what, words in plan_lines(report, plan)]
    lines = [title, *(fact("" if place else "plan", words) for place, words in enumerate(said))]
    if not bool(report.feasible):
        over = [f"  - it {text}" for text in violations_text(report)]
        return "\n".join([*lines, "", "This plan does not fit:", *over, *fact_lines(memory(report))])
    pace, whole = _run(report)
    capital = float(report.capex_usd)
    money = pretty(capital, "USD") + " to build" if capital else "rented"
    unit, tokens = unit_of_work(report)
    one = "an" if unit[0] in "aeiou" else "a"
    lines += [
        *pace,
        *fact_lines(conditions(report)),
        fact("energy", f"{pretty(float(report.energy_per_token_j) * tokens, 'J')} {one} {unit}"),
        fact(
            "money",
            f"{money}; {million_words(report)}; {chip_hour(report)}",
        ),
        *whole,
        *([fact("constants", interval_words(report, around, constants))] if constants else []),
        *time_lines(report),
        f"  bottleneck: {report.bottleneck_name()}",
    ]
    return "\n".join(lines)


def _loss_words(report: TrainingReport) -> str:
    loss = float(report.loss)
    return "no law of its loss" if math.isnan(loss) else f"loss {loss:.4f}"


@singledispatch
def _run(report: Any) -> tuple[list[str], list[str]]:
    """Return the lines on speed and those on the whole run of a training run.

    Both are empty for a service: its speed is among its conditions, and it has no end.
    """
    return [], []


@_run.register
def _(report: TrainingReport) -> tuple[list[str], list[str]]:
    unit, tokens = unit_of_work(report)
    rate, each = rate_words(report, report.tokens_per_s), float(report.tokens_per_s_per_chip) / tokens
    step, time = (pretty(float(seconds), "s") for seconds in (report.step_time_s, report.run_time_s))
    cost, carbon = pretty(float(report.run_cost_usd), "USD"), float(report.run_carbon_kg) / 1e3
    pace = [fact("step time", step), fact("throughput", f"{rate}, {each:,.0f} {unit}/s a chip")]
    return pace, [fact("whole run", f"{time}, {cost}, {carbon:,.0f} t CO2e, {_loss_words(report)}")]


def chip_lines(solution: Solution) -> list[str]:
    """Return the lines on the custom chip of an answer; none for stock chips."""
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


@singledispatch
def machines(report: Any) -> list[tuple[str, Report]]:
    """Return the machine of an answer without a title, or two titled machines where one chip trains and serves."""
    return [("", report)]


@machines.register
def _(report: TrainServeReport) -> list[tuple[str, Report]]:
    return [("The machine that trains", report.training), ("The machine that serves", report.serving)]


def _machine_lines(report: Any) -> list[str]:
    """Return the lines on cost, step time, utilization, memory, heat, power and failures of each machine of an answer."""
    lines = []
    for title, each in machines(report):
        lines += ["", title, "=" * len(title)] if title else []
        lines += [*money_lines(each), *time_lines(each), *heading("Utilisation, memory, heat, power, failures")]
        lines += fact_lines(conditions(each))
    return lines


def bound_of(value: DesignValue) -> str:
    """Return text on the bound (lower or upper) at which a design variable lies, with the meaning of its range.

    Empty for a value between the bounds.
    """
    meaning = f"; the box: {value.box_meaning}" if value.box_meaning else ""
    return f"at its {value.at_bound} bound{meaning}" if value.at_bound else ""


def residuals(proof: Certificate) -> str:
    """Return the largest constraint violation and the KKT residual of an answer, in words."""
    solved = "" if math.isnan(proof.kkt_residual) else f", KKT residual {proof.kkt_residual:.1e}"
    return f"largest violation {proof.max_violation:.1e}{solved}"


def bound_words(solution: Solution) -> str:
    """Return the proved lower bound on the objective and the optimality gap, in words."""
    proof, unit = solution.certificate, solution.problem.objective.unit
    if proof.gap is None or proof.lower_bound is None:
        return "no bound"
    return f"no design is below {pretty(proof.lower_bound, unit, 6)}: gap {100 * proof.gap:.2g} %"


def solution_screen(
    solution: Solution,
    around: Interval | None = None,
    constants: str = "",
    price: IntegralityGap | None = None,
    alternatives: Sequence[AnswerAlternative] = (),
    regret: Regret | None = None,
) -> str:
    """Return the answer of `optimize` as text: objective, design, budgets, breakdowns of cost and time, proof, sources."""
    problem, report, proof = solution.problem, solution.report, solution.certificate
    lines = [problem.question, "", solution.headline, *filter(None, [solution.infeasibility])]
    lines += [f"{problem.objective.name} = {pretty(solution.objective, problem.objective.unit, 6)}"]
    lines += heading("Design")
    for name, each in solution.design.items():
        bound = f"  <- {bound_of(each)}" if each.at_bound else ""
        lines.append(
            kind_line(name, each.word, each.words)
            if each.words
            else design_line(name, each.value, each.unit, each.lower, each.upper, bound)
        )
    lines += [f"  {what}: {words}" for what, words in plan_lines(report, solution.plan)]
    if constants and solution.feasible and len(machines(report)) == 1:
        lines.append(fact("constants", interval_words(report, around, constants)))
    lines += chip_lines(solution)
    lines += heading("Budgets")
    lines += [budget_line(each.name, each.used, each.limit, each.unit, price_words(each)) for each in solution.budgets]
    lines += promise_lines(solution)
    lines += regret_lines(regret, problem.objective.unit)
    lines += bill_table(solution)
    lines += _machine_lines(report)
    lines += alternative_lines(alternatives, problem.objective.unit)
    lines += choice_lines(solution.choices, problem.objective.unit)
    lines += heading("How good is it")
    lines += [
        f"  {proof.scope}",
        f"  {residuals(proof)}; {bound_words(solution)}",
        *([f"  {price_of_parts(price, problem.objective.unit)}"] if price is not None else []),
        f"  {MODEL_ONLY}" + (f"; constants: {constants}" if constants else ""),
        REPRODUCED,
    ]
    if problem.sources:
        lines += heading(f"Sources behind these numbers ({len(problem.sources)}; all with hwopt sources)")
        lines += [f"  - {text}" for text in problem.sources[:6]]
    return "\n".join(lines)
