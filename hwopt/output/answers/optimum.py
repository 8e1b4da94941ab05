"""Answer of `optimize` to one question: design, budgets, bill, breakdowns of cost and time, certificate, sources."""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

from hwopt import escape
from hwopt.analysis.chance_constraints.value_of_information import Regret
from hwopt.analysis.comparison import candidates_of
from hwopt.analysis.integrality_gap import AnswerAlternative, IntegralityGap
from hwopt.analysis.sensitivity.optimum import Parameter
from hwopt.calibration.evidence import question_evidence
from hwopt.calibration.intervals import Interval
from hwopt.declared import document, plain
from hwopt.model.report import FEASIBILITY_TOLERANCE, Report, TrainServeReport
from hwopt.output.answer import Answer, Facts, Lines, Named, OnPage, Section, Sentences, Table
from hwopt.output.answers.documents import chip_document, report_document
from hwopt.output.html import components, page, tornado
from hwopt.output.html.live import NOTE, LiveMachine, live
from hwopt.output.html.tiles import tiles
from hwopt.output.text.bill import bill, bill_section, rented, systems
from hwopt.output.text.chance_constraints import promise_section
from hwopt.output.text.choices import choice_section, choices_document, tie_words
from hwopt.output.text.cluster import (
    conditions,
    financing,
    interval_words,
    money_section,
    time_section,
)
from hwopt.output.text.customary_units import amount
from hwopt.output.text.integrality_gap import alternative_section
from hwopt.output.text.integrality_gap import price_words as price_of_parts
from hwopt.output.text.layout import MODEL_ONLY, REPRODUCE, budget_line, budget_words
from hwopt.output.text.parts import number
from hwopt.output.text.plans import plan_document, plan_lines, replicas
from hwopt.output.text.regret import regret_section
from hwopt.output.text.shadow_prices import price_words
from hwopt.output.text.token_prices import million_words
from hwopt.output.text.verdict import bought, chips_bought
from hwopt.solver.solution import BudgetUse, Certificate, DesignValue, Outcome, Solution
from hwopt.units import pretty

_LARGE = math.log1p(1e4)
"""Violation of a constraint, as a logarithm, above which a screen states only that it exceeds 1,000,000 %."""

_SOURCES = 6
"""Maximum number of sources that a screen lists; the page has all."""


def solution_document(
    solution: Solution,
    around: Interval | None = None,
    constants: str = "",
    price: IntegralityGap | None = None,
    alternatives: Sequence[AnswerAlternative] = (),
    regret: Regret | None = None,
) -> dict[str, Any]:
    """Return the answer of `optimize` as JSON. **Arguments:** those of `solution_answer`."""
    problem = solution.problem
    return {
        "question": problem.question,
        "approximations": problem.provenance.approximations,
        "status": solution.outcome.status,
        **document(solution),
        "objective": {
            "name": problem.objective.name,
            "value": number(solution.objective),
            "unit": problem.objective.unit,
        },
        "reproduce": REPRODUCE,
        "plan": plan_document(solution.report, solution.plan),
        "chip": chip_document(solution),
        "bill": plain(bill(solution)),
        "systems": plain(systems(solution)),
        "price_of_parts": plain(price),
        "alternatives": plain(alternatives),
        "regret": plain(regret),
        "choices": choices_document(solution.choices),
        "report": report_document(solution.report, around, constants),
        "sources": list(problem.sources),
    }


def solution_answer(
    solution: Solution,
    around: Interval | None = None,
    constants: str = "",
    price: IntegralityGap | None = None,
    alternatives: Sequence[AnswerAlternative] = (),
    regret: Regret | None = None,
    sensitivities: tuple[Sequence[Parameter], str] | None = None,
    command_line: str = "",
    movable: Sequence[LiveMachine] = (),
    reproduce: str = "",
) -> Answer:
    """Return the answer of `optimize` to one question.

    **Arguments:**

    - `around`: prediction interval of the step time.
    - `constants`: name of the constants in use, such as `calibrated`.
    - `price`: integrality gap, the cost of buying whole units, where it was computed.
    - `alternatives`: other answers to compare with, where they were computed.
    - `regret`: regret over uncertain inputs, where it was computed.
    - `sensitivities`: for a page, from `hwopt.analysis.sensitivity.parameters_of`.
    - `command_line`: for a page, the command that produced the answer.
    - `movable`: for a page, the machines of its live part.
    - `reproduce`: the command that evaluates the answer again, where a file of the answer does not suffice.
    """
    problem, report, proof = solution.problem, solution.report, solution.certificate
    goal, sources, each_machine = problem.objective, problem.sources, machines(report)
    name, least = components.words(goal.name, goal.unit), pretty(solution.objective, goal.unit, 4)
    if goal.name == "cost_per_token_usd":
        least = million_words(report)
    binding = [budget_words(each.name) for each in solution.budgets if each.status == "binding"]
    binds = f"binding: {', '.join(binding)}" if binding else "no budget is binding"
    one, of = len(each_machine) == 1, "" if solution.feasible else " of this design"
    tornado_of = [OnPage(tornado.children(*sensitivities, problem.name))] if sensitivities and solution.feasible else []
    front = _front(solution, command_line) if command_line and solution.feasible and one else []
    counted = [
        *([("chips", f"{chips_bought([solution])}: {replicas(solution.built.plan)}")] if one else []),
        *((f"{each.machine} systems".strip(), each.words) for each in systems(solution)),
    ]
    sections = [
        Section("Smallest relaxation", [Sentences([*filter(None, [solution.infeasibility])], "", "")], False, True),
        Section("Objective", [OnPage(None, [f"{name[0].upper()}{name[1:]}{of}: {least}", *capital_words(solution)])], False, True),
        Section("At a glance", [OnPage(tiles(solution))]),
        Section("Try other settings", [OnPage(live(movable))], note=NOTE),
        Section("Design", [design_table(solution.design), Facts([*plan_lines(report, solution.plan), *counted])]),
        Section("The chip", [Lines(chip_words(solution))]),
        budget_section("Budgets", solution.budgets, solution.feasible),
        promise_section(solution),
        regret_section(regret, goal.unit),
        bill_section(bill(solution), rented(solution)),
        *(section for title, each in each_machine for section in _machine_sections(title, each)),
        alternative_section(alternatives, goal.unit),
        choice_section(solution.choices, goal.unit, name),
        Section("Sensitivities", tornado_of),
        Section("How good is it", [Named([
            *proof_words(proof, goal.unit),
            *([("integrality gap", price_of_parts(price, goal.unit))] if price else []),
            ("constants", interval_words(report, around, constants) if solution.feasible and one else constants or "not stated"),
            ("validity", MODEL_ONLY), ("reproduce", reproduce or f"{REPRODUCE}, where ANSWER.json is this answer with --json"),
        ])]),
        Section("A Pareto front around this design", front),
        Section(
            f"Sources behind these numbers (the first {_SOURCES} of {len(sources)}; hwopt sources lists all)",
            [OnPage(None, [f"  - {text}" for text in sources[:_SOURCES]])],
        ),
    ]  # fmt: skip
    return Answer(
        "optimize", solution_document(solution, around, constants, price, alternatives, regret), problem.question,
        f"{bought(solution, around)} {tie_words(candidates_of(solution.choices))}".rstrip(),
        (f"least {name}", least if solution.feasible else ""),
        (solution.outcome.status, solution.outcome is Outcome.proved, binds),
        sections, sources, solution.feasible, question=problem.name, details=solution.headline if solution.feasible else "",
        also={"reproduce": reproduce} if reproduce else {},
        evidence=question_evidence(solution) if solution.feasible else None,
    )  # fmt: skip


def capital_words(solution: Solution) -> list[str]:
    """Return the cost of the machine, the run's share, the financing, and the chips whose price is an estimate."""
    report, capital = solution.report, pretty(float(solution.report.capex_usd), "USD")
    used = getattr(report, "run_cost_usd", None)
    whole = f"The run uses {pretty(float(used), 'USD')} of" if used is not None else "The machine is"
    owned = (
        f"{whole} a {capital} cluster" if not rented(solution) else "The machine is rented; the rent covers its owner's"
    )
    chips = [each for each in solution.problem.provenance.records.values() if each.kind == "chips"]
    guessed = [
        each.slug for each in chips if "price" not in each.quantities or each.quantities["price"].kind == "estimate"
    ]
    marked = [f"Price estimated, not on the market: {', '.join(guessed)}."] if guessed else []
    return [f"{owned} ({financing(solution.built.cluster.groups[0].prices)}).", *marked]


def design_table(design: Mapping[str, DesignValue]) -> Table:
    """Return the table of design variables: value, search range, and a note on values at the end of their range."""
    rows = [
        [
            name,
            each.word or components.amount(each.value, each.unit),
            ", ".join(each.words) or " .. ".join(components.amount(end, each.unit) for end in (each.lower, each.upper)),
            bound_of(each),
        ]
        for name, each in design.items()
    ]  # fmt: skip
    return Table("the design", ("variable", "value", "search range", ""), rows, "lrll")


def bound_of(value: DesignValue) -> str:
    """Return text on the bound (lower or upper) at which a design variable lies, with the meaning of its range.

    Empty for a value between the bounds.
    """
    meaning = f" (range: {value.box_meaning})" if value.box_meaning else ""
    return f"at {value.at_bound} limit{meaning}" if value.at_bound else ""


def budget_section(title: str, budgets: Sequence[BudgetUse], priced: bool, alone: bool = True) -> Section:
    """Return the section on the use and the shadow price of each budget.

    **Arguments:**

    - `priced`: whether the budgets have shadow prices: not without a feasible design.
    - `alone`: whether the question can be re-solved by itself.
    """
    words = [
        price_words(each, alone) if priced else each.status if each.status == "exceeded" else "" for each in budgets
    ]
    bars = [
        components.Bar(each.name, number(each.used), each.limit, each.unit, text, priced and each.status == "binding")
        for each, text in zip(budgets, words, strict=True)
    ]
    lines = [
        budget_line(each.name, each.used, each.limit, each.unit, text)
        for each, text in zip(budgets, words, strict=True)
    ]
    note = f"The mark is the limit.{' What one more unit of a budget saves is its shadow price.' if priced else ''}"
    return Section(title, [OnPage(components.budgets(bars), lines)] if bars else [], note=note)


def chip_words(solution: Solution) -> list[str]:
    """Return sentences on the custom chip of an answer; none for stock chips."""
    chip = chip_document(solution)
    if chip is None:
        return []
    areas, cost = chip["areas"], chip["bill_usd"]
    shown = ("compute", "fabric", "sram", "hbm_phy", "scale_up_phy", "scale_out_phy", "fixed", "die_to_die")
    silicon = ", ".join(f"{name.replace('_', ' ')} {1e6 * areas[name]:.0f}" for name in shown if areas[name] > 0)
    parts = ", ".join(
        f"{name.replace('_', ' ')} {value:,.0f}" for name, value in cost.items() if name != "total" and value > 0
    )
    return [
        f"{pretty(chip['peak_flops_per_s']['bf16'], 'FLOP/s')} dense BF16, "
        f"{pretty(chip['hbm_bandwidth_bytes_per_s'], 'B/s')} and {pretty(chip['hbm_capacity_bytes'], 'B')} of HBM, "
        f"{pretty(chip['sram_bytes'], 'B')} of SRAM, {pretty(chip['power_w'], 'W')} at full load",
        f"{1e6 * areas['total']:.0f} mm2 of silicon: {silicon}; largest die {1e6 * areas['one_die']:.0f} mm2",
        f"{cost['total']:,.0f} $ to make ({parts}), {chip['price_usd']:,.0f} $ to buy; "
        f"{chip['embodied_carbon_kg']:.0f} kg CO2e embodied",
    ]


@singledispatch
def machines(report: Any) -> list[tuple[str, Report]]:
    """Return the machine of an answer without a title, or two titled machines where one chip trains and serves."""
    return [("", report)]


@machines.register
def _(report: TrainServeReport) -> list[tuple[str, Report]]:
    return [("The machine that trains", report.training), ("The machine that serves", report.serving)]


def _machine_sections(machine: str, report: Report) -> Iterator[Section]:
    """Return the sections on cost, step time, utilization, memory, heat, power and failures of a machine."""
    titled = lambda title: f"{machine}: {title[0].lower()}{title[1:]}" if machine else title
    for each in (money_section(report), time_section(report)):
        yield replace(each, title=titled(each.title))
    yield Section(titled("Utilization, memory, heat, power, failures"), [Facts(conditions(report))])


def proof_words(proof: Certificate, unit: str) -> list[tuple[str, str]]:
    """Return the certificate in words: scope, lower bound with optimality gap, and residuals, each with its name."""
    bound = "none proved"
    violation = f"largest violation of a constraint {proof.max_violation:.1e}"
    if proof.max_violation > FEASIBILITY_TOLERANCE:  # a design that is shown although it is not feasible
        over = math.expm1(min(proof.max_violation, _LARGE))
        bound = "none, because the design shown is not feasible"
        more = "more than " if proof.max_violation > _LARGE else ""
        violation = f"the design shown exceeds a limit by {more}{100 * over:,.{0 if over >= 1 else 2}f} %"
    if proof.gap is not None and proof.lower_bound is not None:
        bound = f"{amount(proof.lower_bound, unit, 6)}, optimality gap {100 * proof.gap:.2g} %"
    solved = "" if math.isnan(proof.kkt_residual) else f", KKT residual {proof.kkt_residual:.1e}"
    return [("search space", proof.scope), ("lower bound", bound), ("residuals", f"{violation}{solved}")]


_OF_OPTIMIZE = ("--report", "--regime", "--seconds", "--confidence", "--vary")
"""Flags with a value that `sweep` does not have, or that would name another file."""


def _front(solution: Solution, command_line: str) -> list[OnPage]:
    """Return the command that draws a Pareto front around a design."""
    kept, words = [], iter(shlex.split(command_line)[2:])
    for word in words:
        name, valued, _ = word.partition("=")
        if name in _OF_OPTIMIZE and not valued:
            next(words, None)
        elif name not in (*_OF_OPTIMIZE, "--json", "--one-sided-prices", "--alternatives"):
            kept.append(word)
    around = ["--within", "1.1"] if solution.certificate.gap is not None else []  # --within first certifies an optimum
    again = escape.command(["hwopt", "sweep", *kept, *around, "--report", "front.html"])
    return [OnPage(page.code(again, "command for the front"))]
