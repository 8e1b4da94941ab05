"""Page of `optimize`: the answer, binding constraints, design, step time and cost, sensitivities, certificate."""

import math
import shlex
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from hwopt import escape
from hwopt.analysis.sensitivity.optimum import Parameter
from hwopt.calibration.intervals import Interval
from hwopt.hardware.cluster import Cluster
from hwopt.model.report import Report, ServingReport, TrainingReport, TrainServeReport
from hwopt.output.answers import screens
from hwopt.output.html import components, page, tornado
from hwopt.output.html.markup import Html, element, p
from hwopt.output.text import chance_constraints, cluster, shadow_prices
from hwopt.output.text.bill import bill_cells, rented
from hwopt.output.text.choices import outcome_words
from hwopt.output.text.layout import MODEL_ONLY, REPRODUCE, budget_words
from hwopt.output.text.parts import number
from hwopt.output.text.plans import plan_lines
from hwopt.output.text.token_prices import tokens_counted
from hwopt.solver.solution import Outcome, Solution
from hwopt.units import pretty


def optimum_page(
    solution: Solution,
    command: str,
    around: Interval | None = None,
    constants: str = "",
    sensitivities: tuple[Sequence[Parameter], str] = ((), ""),
) -> str:
    """Return the page of `optimize`.

    **Arguments:**

    - `command`: the command that produced the answer.
    - `around`: prediction interval.
    - `constants`: name of the constants in use, such as `calibrated`.
    - `sensitivities`: from `hwopt.analysis.sensitivity.parameters_of`.
    """
    problem, machines = solution.problem, screens.machines(solution.report)
    return page.page(
        f"hwopt optimize {problem.name}",
        problem.name,
        problem.question,
        [_answer(solution), _tiles(solution)],
        [
            _budgets(solution),
            _design(solution),
            _bill(solution),
            _choices(solution),
            _promise(solution),
            *(_splits(title, report) for title, report in machines),
            _chip(solution),
            tornado.section_of(*sensitivities, problem.name) if solution.feasible else None,
            *(_conditions(title, report) for title, report in machines),
            _proof(solution, around, constants),
            _front(solution, command) if solution.feasible and len(machines) == 1 else None,
        ],
        command,
        problem.sources,
    )


def _answer(solution: Solution) -> Html:
    """Return the objective and its certificate in large type; for an infeasible question its smallest relaxation."""
    goal, gap = solution.problem.objective, solution.certificate.gap
    name, shown = components.words(goal.name, goal.unit), pretty(solution.objective, goal.unit, 4)
    if not solution.feasible:
        relaxation = solution.infeasibility and p(element("b", "Smallest relaxation: "), solution.infeasibility)
        least = p(f"Shown below is the least violated design ({name} {shown}), not an answer.")
        shown = "No design satisfies every budget" if solution.outcome is Outcome.infeasible else "No design was found"
        return page.refusal(f"{solution.outcome.status.capitalize()}: {shown[0].lower()}{shown[1:]}", relaxation, least)
    within = "" if gap is None else f"within {100 * gap:.2g} % of the least possible; "
    binding = [budget_words(each.name) for each in solution.budgets if each.elasticity > shadow_prices.PRICED]
    binds = f"binding: {', '.join(binding)}" if binding else "no budget binds this plan"
    plan = components.terms(plan_lines(solution.report, solution.plan))
    return page.answer(
        f"least {name}", shown, solution.outcome.status, solution.outcome is Outcome.proved, within + binds, plan
    )


def _tiles(solution: Solution) -> Html:
    """Return the tiles at the top of the page: the most requested numbers, such as chips, run time and cost."""
    report, cluster = solution.report, solution.inputs.cluster
    pairs = _asked_first(report, cluster, solution.plan)
    pairs += [("capital", pretty(float(report.capex_usd), "USD"))] if float(report.capex_usd) else []
    return components.tiles([*pairs, ("power, full load", pretty(float(report.peak_power_w), "W"))])


@singledispatch
def _asked_first(report: Any, cluster: Cluster, plan: Any) -> list[tuple[str, str]]:
    raise TypeError(f"no tiles of a {type(report).__name__}")


@_asked_first.register
def _(report: TrainingReport, cluster: Cluster, plan: Any) -> list[tuple[str, str]]:
    return [
        ("chips", f"{float(cluster.chips):,.0f}"),
        ("run", pretty(float(report.run_time_s), "s")),
        ("step", pretty(float(report.step_time_s), "s")),
        ("MFU", pretty(float(report.mfu), "fraction", 3)),
        ("cost of the run", pretty(float(report.run_cost_usd), "USD")),
    ]


@_asked_first.register
def _(report: ServingReport, cluster: Cluster, plan: Any) -> list[tuple[str, str]]:
    return [
        ("chips", f"{float(cluster.chips):,.0f}"),
        *_latencies(report),
        ("throughput", pretty(float(report.tokens_per_s), "token/s")),
        (f"a million {tokens_counted(report)}", pretty(1e6 * float(report.cost_per_token_usd), "USD", 3)),
    ]


@_asked_first.register
def _(report: TrainServeReport, cluster: Cluster, plan: Any) -> list[tuple[str, str]]:
    return [
        ("chips, trains", f"{float(cluster.chips):,.0f}"),
        ("chips, serves", f"{float(plan.serving.chips):,.0f}"),
        ("run", pretty(float(report.run_time_s), "s")),
        *_latencies(report),
    ]


def _latencies(report: ServingReport | TrainServeReport) -> list[tuple[str, str]]:
    times = {"first token": report.time_to_first_token_s, "next token": report.time_per_output_token_s}
    return [(name, pretty(float(time), "s", 3)) for name, time in times.items() if not math.isnan(time)]


def _budgets(solution: Solution) -> Html:
    priced = solution.feasible
    bars = []
    for each in solution.budgets:
        worth = shadow_prices.price_words(each) if priced else "holds"
        binds = priced and each.elasticity > shadow_prices.PRICED
        bars.append(components.Bar(each.name, number(each.used), each.limit, each.unit, worth, binds))
    price = "What one more unit of a budget saves is its shadow price, with this plan." if priced else ""
    title, note = "What binds" if priced else "What breaks", f"The mark is the limit. {price}"
    return page.section(title, components.budgets(bars), note=note, wide=False)


def _bill(solution: Solution) -> Html:
    table = components.table("the bill", ("part", "count", "each", "price", "power"), bill_cells(solution))
    note = "Rented: what the landlord buys costs nothing here." if rented(solution) else ""
    return page.section("What is bought", table, note=note or "At full load on the design day.")


def _choices(solution: Solution) -> Html | None:
    """Return the outcome of each combination of categorical choices; None where there are none."""
    if not solution.choices:
        return None
    unit = solution.problem.objective.unit
    rows = [[each.name, outcome_words(each, unit)] for each in solution.choices]
    table = components.table("the choices", ("combination", "what is proved of it"), rows)
    note = "One search bounded them all, against one best design."
    if solution.promise is not None:
        note += " Those whose bound is below the answer were searched with the promise."
    return page.section("Choices", table, note=note)


def _promise(solution: Solution) -> Html | None:
    """Return the section on chance constraints: how often each budget holds under uncertain inputs; None without them."""
    promise = solution.promise
    if promise is None:
        return None
    cells = [list(each) for each in chance_constraints.promise_cells(solution)]
    table = components.table("the promise", ("budget", "holds in", "limit", "variance"), cells)
    said = f"The promise {chance_constraints.cost_words(solution)}."
    note = f"Drawn anew: {chance_constraints.kept_words(promise)}."
    return page.section("When the numbers are off", table, p(said), note=note)


def _splits(title: str, report: Report) -> list[Html]:
    """Return the breakdowns of step time and of cost of a machine, side by side."""
    return [_split(title, cluster.time_split(report)), _split(title, cluster.money_split(report))]


def _split(machine_title: str, split: cluster.PartsBreakdown) -> Html:
    title = f"{machine_title}: w{split.title[1:]}" if machine_title else split.title
    note = f"{split.note.capitalize()}." if split.note else ""
    return page.section(title, components.parts(title, split.parts), note=note, wide=False)


def _design(solution: Solution) -> Html:
    rows = [
        [
            components.named(components.words(name, each.unit), screens.bound_of(each)),
            each.word or components.amount(each.value, each.unit),
            *(
                (each.words[0], each.words[-1])
                if each.words
                else (components.amount(x, each.unit, 3) for x in (each.lower, each.upper))
            ),
        ]
        for name, each in solution.design.items()
    ]
    table = components.table("the design", ("variable", "value", "lower", "upper"), rows)
    return page.section("The design", table, wide=False)


def _chip(solution: Solution) -> Html | None:
    lines = screens.chip_lines(solution)[3:]
    return page.section("The chip", *(p(line.strip()) for line in lines)) if lines else None


def _conditions(title: str, report: Report) -> Html:
    name = "utilisation, memory, heat, power, failures"
    terms = [
        (each.name, "; ".join([each.text, *(f"{part} {much} {100 * share:.1f} %" for part, much, share in each.parts)]))
        for each in cluster.conditions(report)
    ]
    return page.section(f"{title}: {name}" if title else name.capitalize(), components.terms(terms))


def _proof(solution: Solution, around: Interval | None, constants: str) -> Html:
    """Return the section on the certificate: proof, scope, residuals, constants."""
    proof = solution.certificate
    if not solution.feasible:
        said = "Proved" if solution.outcome is Outcome.infeasible else "Searched"
        pairs = [(said, solution.infeasibility or "no design found")]
    elif proof.gap is not None:
        pairs = [("Proved", screens.bound_words(solution))]
    else:
        unproved = "no lower bound: another design may be better; this is the best that local search found"
        pairs = [("Not proved", unproved)]
    pairs += [
        ("Scope", proof.scope),
        ("Residuals", screens.residuals(proof)),
        ("Of what", MODEL_ONLY),
        ("Reproduce", REPRODUCE),
    ]
    if constants:
        is_one = solution.feasible and len(screens.machines(solution.report)) == 1
        words = cluster.interval_words(solution.report, around, constants) if is_one else constants
        pairs.append(("Constants", words))
    return page.section("How good is it", components.terms(pairs))


_OF_OPTIMIZE = ("--report", "--regime", "--seconds", "--confidence", "--vary")
"""Flags with a value that `sweep` does not have, or that would name another file."""


def _front(solution: Solution, command: str) -> Html | None:
    """Return the command that draws a Pareto front.

    The page itself has none, because branch and bound discards designs without listing them.
    """
    kept, words = [], iter(shlex.split(command)[2:])
    for word in words:
        name, valued, _ = word.partition("=")
        if name in _OF_OPTIMIZE and not valued:
            next(words, None)
        elif name not in (*_OF_OPTIMIZE, "--json", "--one-sided-prices", "--alternatives"):
            kept.append(word)
    proved = solution.certificate.gap is not None
    around = ["--within", "1.1"] if proved else []  # --within makes the sweep search a certified optimum first
    again = escape.command(["hwopt", "sweep", *kept, *around, "--report", "front.html"])
    where = "what lies within 10 % of this design" if proved else "the whole box"
    return page.section(
        "A Pareto front around this design",
        page.code(again, "command for the front"),
        note="The search discards designs without listing them, so this page has no front of its own. A sweep of "
        f"{where} draws one to hover over:",
    )
