"""The page of `optimize`: the answer, what binds, the design, time and money, what it hangs on, how good it is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from hwopt.evidence.intervals import Interval
from hwopt.model.serving.report import ServingReport
from hwopt.model.serving.train_and_serve import BothReport
from hwopt.optim.solution import DesignValue, Solution
from hwopt.report import screens
from hwopt.report.documents import number
from hwopt.report.machine import interval_words
from hwopt.report.page import pieces, sheet, swings
from hwopt.report.page.markup import Html, element
from hwopt.report.parts import breakdown_shares
from hwopt.study.sensitivity.study import Parameter
from hwopt.units import pretty


def optimum_page(
    solution: Solution,
    command: str,
    around: Interval | None = None,
    constants: str = "",
    hangs_on: tuple[Sequence[Parameter], str] = ((), ""),
) -> str:
    """One page for `optimize`.

    **Arguments:** `solution`; the `command` that asked for it; `around`: the interval of the prediction; the mode of its
    `constants`; `hangs_on`: of `owed`.
    """
    problem = solution.problem
    return sheet.page(
        f"hwopt optimize {problem.name}",
        problem.question,
        sheet.header(f"hwopt optimize {problem.name}", problem.question, _answer(solution), _tiles(solution)),
        _budgets(solution),
        _design(solution),
        *(part for machine in screens.machines(solution) for part in _parts(*machine)),
        _chip(solution),
        swings.section_of(*hangs_on, problem.name) if solution.feasible else None,
        *(_condition(title, report) for title, _, report in screens.machines(solution)),
        _proof(solution, around, constants),
        _front(solution, command) if solution.feasible else None,
        sheet.command_section(command),
        sheet.sources_section(problem.sources, problem.name),
    )


def _answer(solution: Solution) -> Html:
    """The objective, large, and what is proved of it; of an infeasible question what would mend it."""
    goal, proof = solution.problem.objective, solution.certificate
    shown = pretty(solution.objective, goal.unit, 4)
    if not solution.feasible:
        return element(
            "div",
            element("p", "No design holds every budget", class_="big"),
            element(
                "div",
                element("p", element("b", "Smallest relaxation: "), solution.clash) if solution.clash else None,
                element(
                    "p",
                    f"Shown below is the least violated design ({pieces.words(goal.name)} {shown}), not an answer.",
                ),
                class_="mend",
                role="note",
            ),
        )
    proved = proof.gap is not None
    badge = element("span", "proved" if proved else "local, not proved", class_="badge" if proved else "badge open")
    within = f"within {100 * proof.gap:.2g} % of the least possible; " if proof.gap is not None else ""
    binding = [pieces.budget_words(each.name) for each in solution.budgets if each.elasticity > screens.PRICED]
    binds = f"what binds: {', '.join(binding)}" if binding else "no budget binds"
    return element(
        "div",
        element("p", f"least {pieces.words(goal.name)}", class_="what"),
        element("p", shown, class_="big"),
        element("p", badge, within + binds, class_="proof"),
        pieces.terms(screens.plans(solution)),
    )


def _tiles(solution: Solution) -> Html:
    """The numbers that people ask for first."""
    report = solution.report
    cluster = solution.inputs.cluster
    pairs = [("chips", f"{float(cluster.chips):,.0f}")]
    if isinstance(report, BothReport):
        counted = [(title, float(each.chips)) for title, each, _ in screens.machines(solution)]
        pairs = [(f"chips, {title.removeprefix('The machine that ')}", f"{chips:,.0f}") for title, chips in counted]
        pairs += [
            ("run", pretty(float(report.run_time_s), "s")),
            ("first token", pretty(float(report.time_to_first_token_s), "s", 3)),
            ("next token", pretty(float(report.time_per_output_token_s), "s", 3)),
        ]
    elif isinstance(report, ServingReport):
        first, each = float(report.time_to_first_token_s), float(report.time_per_output_token_s)
        pairs += [("first token", pretty(first, "s", 3))] if first else []
        pairs += [("next token", pretty(each, "s", 3))] if each else []
        pairs += [
            ("throughput", pretty(float(report.tokens_per_s), "token/s")),
            ("a million tokens", pretty(1e6 * float(report.cost_per_token_usd), "USD", 3)),
        ]
    else:
        pairs += [
            ("run", pretty(float(report.run_time_s), "s")),
            ("step", pretty(float(report.step_time_s), "s")),
            ("MFU", pretty(float(report.mfu), "fraction", 3)),
            ("cost of the run", pretty(float(report.run_cost_usd), "USD")),
        ]
    pairs += [("capital", pretty(float(report.capex_usd), "USD"))] if float(report.capex_usd) else []
    return pieces.tiles([*pairs, ("power, full load", pretty(float(report.peak_power_w), "W"))])


def _budgets(solution: Solution) -> Html:
    held = solution.feasible
    bars = [
        pieces.Bar(
            each.name,
            number(each.used),
            each.limit,
            each.unit,
            screens.price_words(each) if held else "holds",
            held and each.elasticity > screens.PRICED,
        )
        for each in solution.budgets
    ]
    note = "What one more unit of a budget saves is its shadow price, at these whole numbers." if held else ""
    return sheet.section(
        "What binds" if held else "What breaks", pieces.budgets(bars), note=f"The mark is the limit. {note}", wide=False
    )


def _parts(title: str, cluster: object, report: object) -> list[Html]:
    """Where time and money of a machine go, side by side."""
    times = [(name, pretty(seconds, "s"), share) for name, seconds, share in breakdown_shares(report)]  # pyright: ignore
    money = [(name, pretty(usd, "USD"), share) for name, usd, share in screens.money_parts(cluster, report)]  # pyright: ignore
    hidden, step = float(report.hidden_s), float(report.step_time_s)  # pyright: ignore
    note = f"Hidden under other work: {pretty(hidden, 's')} of communication." if hidden > 1e-6 * step else ""
    of = f"{title}: w" if title else "W"
    where = f"{of}here a step of {pretty(step, 's')} goes"
    what = of + screens.money_title(report).removeprefix("W")  # pyright: ignore
    return [
        sheet.section(where, pieces.parts(where, times), note=note, wide=False),
        sheet.section(what, pieces.parts(what, money), wide=False),
    ]


def _design(solution: Solution) -> Html:
    rows = [_variable(name, each) for name, each in solution.design.items()]
    return sheet.section(
        "The design", pieces.table("the design", ("variable", "value", "lower", "upper"), rows), wide=False
    )


def _variable(name: str, each: DesignValue) -> list[Html | str]:
    meaning = f": {each.box_meaning}" if each.box_meaning else ""
    bound = f"at its {each.at_bound} bound{meaning}" if each.at_bound else ""
    ends = (pieces.amount(end, each.unit, 3) for end in (each.lower, each.upper))
    return [pieces.named(pieces.words(name), bound), pieces.amount(each.value, each.unit), *ends]


def _chip(solution: Solution) -> Html | None:
    lines = screens.chip_lines(solution)[3:]
    return sheet.section("The chip", sheet.lines(*map(str.strip, lines))) if lines else None


def _condition(title: str, report: object) -> Html:
    name = "utilisation, memory, heat, power, failures"
    return sheet.section(
        f"{title}: {name}" if title else name.capitalize(),
        pieces.terms_of(screens.condition_lines(report)),  # pyright: ignore
    )


def _proof(solution: Solution, around: Interval | None, constants: str) -> Html:
    """The certificate in plain words."""
    proof = solution.certificate
    if not solution.feasible:
        said = "Searched" if not solution.clash.startswith("Proved") else "Proved"
        pairs = [(said, solution.clash or "no design found")]
    elif proof.gap is not None:
        pairs = [("Proved", screens.bound_words(solution))]
    else:
        pairs = [
            ("Not proved", "no lower bound: another design may be better; this is the best that local search found")
        ]
    pairs += [
        ("Scope", proof.scope),
        ("Residuals", f"largest violation {proof.max_violation:.1e}, KKT residual {proof.kkt_residual:.1e}"),
        ("Of what", "a statement about the model, not about silicon"),
    ]
    if solution.feasible and not isinstance(solution.report, BothReport) and constants:
        pairs.append(("Constants", interval_words(solution.report, around, constants)))
    elif constants:
        pairs.append(("Constants", constants))
    return sheet.section("How good is it", pieces.terms(pairs))


_OF_OPTIMIZE = ("--report", "--regime", "--seconds")
"""Flags with a value that `sweep` has not, or that name another file."""


def _front(solution: Solution, command: str) -> Html | None:
    """How to get the front that this page has not: designs were bounded and thrown away, not listed."""
    if isinstance(solution.report, BothReport):
        return None  # a sweep has one machine
    kept, given = [], iter(shlex.split(command)[2:])
    for word in given:
        name, valued, _ = word.partition("=")
        if name in _OF_OPTIMIZE and not valued:
            next(given, None)
        elif name not in (*_OF_OPTIMIZE, "--json", "--one-sided-prices"):
            kept.append(word)
    proved = solution.certificate.gap is not None
    around = ["--within", "1.1"] if proved else []  # which asks for a certified optimum
    again = shlex.join(["hwopt", "sweep", *kept, *around, "--report", "front.html"])
    where = "what lies within 10 % of this design" if proved else "the whole box"
    return sheet.section(
        "A Pareto front around this design",
        element("pre", element("code", again), tabindex="0", aria_label="command for the front"),
        note="The search discards designs without listing them, so this page has no front of its own. A sweep of "
        f"{where} draws one to hover over:",
    )
