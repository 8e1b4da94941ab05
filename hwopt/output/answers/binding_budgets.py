"""Report the budgets of a design problem in the order in which they bind, for `hwopt walls`.

The analysis removes the binding budget, solves again, and finds the next one. This module turns its result into JSON, a text
screen and a page.
"""

from hwopt.analysis.binding_budgets import BindingBudgets
from hwopt.analysis.chip_time import chip_time
from hwopt.declared import document
from hwopt.model.report import TrainingReport, declared_margins
from hwopt.output.answer import Answer, OnPage, Section, Sentences, Steps, Table
from hwopt.output.html import components
from hwopt.output.schema.elements import NUMBER, TEXT, YES_OR_NO, by_name, listed, maybe, shared
from hwopt.output.schema.elements import answer as schema_of
from hwopt.output.schema.keys import OF_START, Keys, goal_of
from hwopt.output.schema.machines import OUTCOME, STATUS, every_output
from hwopt.output.text.layout import MODEL_ONLY, budget_words
from hwopt.output.text.parts import step_label
from hwopt.output.text.scaling import CAUSES
from hwopt.solver.solution import BudgetUse, Outcome, Solution
from hwopt.units import pretty

METRICS = {
    "run_time_s": "run time",
    "capex_usd": "capex",
    "peak_power_w": "peak power",
    "mfu": "MFU",
    "goodput": "goodput",
}
"""Metrics shown for each answer, where its report has them, with their column headings."""

_OF_A_PLAN = frozenset({"chips", "stages", "tensor_parallel", "experts", "replicas", "context", "sites"})
"""Constraints on plan integers. A plan can meet them exactly by choice, so they are not reported as limits reached."""

_AT_LIMIT = 0.01
"""Margin (in log units) below which a limit counts as reached."""

_NAMED = 4
"""Number of the largest components of chip time that a sentence names."""


def shares(solution: Solution) -> dict[str, float]:
    """Return the components of chip time in a training run as shares, the largest first; empty for other workloads."""
    report = solution.report
    if not isinstance(report, TrainingReport):
        return {}
    parts = chip_time(report, float(solution.built.cluster.chips))
    whole = sum(parts.values())
    return {name: value / whole for name, value in sorted(parts.items(), key=lambda part: -part[1])}


def at_limit(solution: Solution) -> list[str]:
    """Return the limits, other than budgets, that an answer has reached.

    These are limits of the machine and of the run, and the chip count where it is at its upper bound.
    """
    known, margins = declared_margins(), solution.report.margins_by_name()
    met = [name for name, margin in margins.items() if float(margin) <= _AT_LIMIT and name not in _OF_A_PLAN]
    stops = [known[name.rpartition(".")[2]].stop for name in met]
    ends = [f"{name.replace('_', ' ')} at most {pretty(each.upper, each.unit)}" for name, each in solution.design.items()
            if each.at_bound == "upper" and each.upper > each.lower and name == "chips"]  # fmt: skip
    return [*stops, *ends]


_STAGE = Keys({
    "lifted": (listed(TEXT), lambda solution, lifted: lifted),
    "outcome": (OUTCOME, lambda solution, _: solution.outcome),
    "status": (STATUS, lambda solution, _: solution.outcome.status),
    "objective": (maybe(NUMBER), lambda solution, _: solution.objective),
    "lower_bound": (maybe(NUMBER), lambda solution, _: solution.certificate.lower_bound),
    "gap": (maybe(NUMBER), lambda solution, _: solution.certificate.gap),
    "chips": (maybe(NUMBER), lambda solution, _: solution.built.cluster.chips),
    "chosen": (by_name(TEXT), lambda solution, _: solution.chosen),
    "budgets": (listed(schema_of(BudgetUse)), lambda solution, lifted: [
        document(each) | ({"limit": None} if each.name in lifted else {}) for each in solution.budgets
    ]),
    "chip_time": (by_name(NUMBER), lambda solution, _: shares(solution)),
    "at_limit": (listed(TEXT), lambda solution, _: at_limit(solution)),
}, {
    name: (every_output()[name], lambda solution, _, name=name: getattr(solution.report, name, None)) for name in METRICS
})  # fmt: skip
_WALL = Keys({
    "budgets": (listed(schema_of(BudgetUse, {"until": maybe(NUMBER)})), lambda wall: [
        document(each) | {"until": wall.until(each.name)} for each in map(wall.limit, wall.names)
    ]),
    "gained": (maybe(NUMBER), lambda wall: wall.gained),
    "proved": (YES_OR_NO, lambda wall: wall.proved),
})  # fmt: skip
WALLS = Keys(OF_START | {
    "objective": (shared("goal"), lambda found: goal_of(found.start.problem)),
    "answers": (listed(_STAGE.schema), lambda found: [_STAGE.document(*each) for each in found.stages if found.start.feasible]),
    "walls": (listed(_WALL.schema), lambda found: list(map(_WALL.document, found.walls))),
    "idle": (listed(TEXT), lambda found: found.idle),
    "complete": (YES_OR_NO, lambda found: not found.over),
})  # fmt: skip
"""Keys of `walls --json`: the sequence of answers, and the binding budgets between them."""


def sentence(answer: BindingBudgets, place: int) -> str:
    """Return one binding budget in a sentence. **Arguments:** `place`: its index among the binding budgets, from 0."""
    wall, goal = answer.walls[place], answer.start.problem.objective
    then = answer.walls[place + 1] if place + 1 < len(answer.walls) else None
    before = [name for each in answer.walls[:place] for name in each.names]
    also = [f"{pretty(wall.until(name), wall.limit(name).unit)} of the {budget_words(name)}" for name in before]
    takes = f", which also takes {' and '.join(also)}" if also else ""
    many = len(wall.names) > 1
    names = " and ".join(budget_words(name) for name in wall.names)
    limits = " and ".join(pretty(wall.limit(name).limit, wall.limit(name).unit) for name in wall.names)
    ends = " and ".join(pretty(wall.until(name), wall.limit(name).unit) for name in wall.names)
    was, now = (pretty(each.objective, goal.unit) for each in (wall.before, wall.after))
    binds = f"bind{'' if many else 's'} at {limits}{' together' if many else ''}"
    what = f"with {ends} {goal.name} is {now} instead of {was} ({100 * wall.gained:.3g} % less){takes}"
    then_binds = "no further gain" if then is None else f"{budget_words(then.names[0])} becomes the binding constraint"
    return f"{names} {binds}: {what}; beyond that, {then_binds}"


def end(answer: BindingBudgets) -> str:
    """Return a sentence on the last answer, where no budget binds: where chip time goes, and which other limits are reached."""
    last = answer.answers[-1]
    chips = f"{float(last.built.cluster.chips):,.0f} chips"
    before = "Time limit reached. " if answer.over else "No further budget binds. " if answer.walls else ""
    text = f"{before}On {chips}, "
    named = list(shares(last).items())[:_NAMED]
    parts = [f"{name if name == 'compute' else CAUSES[name]} {100 * share:.0f} %" for name, share in named]
    text += f"chip time goes to {', '.join(parts)}" if parts else f"{last.problem.objective.name} is at its minimum"
    stops = at_limit(last)
    return f"{text}; other limits reached: {', '.join(stops)}." if stops else f"{text}."


def walls_answer(found: BindingBudgets) -> Answer:
    """Return the report of `hwopt walls`, which can be rendered as text, JSON or HTML.

    It lists the budgets in the order in which they bind, the best design after each removal, and how chips spend their time.
    Without a feasible design it states the reason.
    """
    start = found.start
    problem, goal = start.problem, start.problem.objective
    common = ("walls", WALLS.document(found), problem.question)
    if not start.feasible:
        why = start.infeasibility or start.headline
        return Answer(*common, why, sources=problem.sources, feasible=False, question=problem.name)
    certain = all(each.outcome is Outcome.proved for each in found.answers)
    proof = "each optimum is certified" if certain else "not every optimum is certified: allow more --seconds"
    idle = ", ".join(budget_words(name) for name in found.idle)
    sentences = [
        *(
            ["No budget binds: the optimum is the same without all of them."]
            if not found.walls and not found.over
            else []
        ),
        end(found),
        *([f"Never binding: {idle}."] if idle and found.walls else []),
    ]
    shared = [
        Section(f"Chip time: {words}", [OnPage(components.parts("chip time", _parts(each)))], wide=False)
        for words, each in zip(stage_words(found), found.answers, strict=True)
        if shares(each)
    ]
    sections = (
        Section(
            "Budgets in the order in which they bind",
            [Steps([sentence(found, place) for place in range(len(found.walls))]), Sentences(sentences, "  ", "     ")],
            titled=False,
        ),
        Section("Optimum after removing each binding budget", [_table(found)]),
        Section("Chip time by activity", [_grown(found)] if found.walls and shares(start) else []),
        *shared,
        Section(
            "How good is it",
            [Sentences([f"{proof}; {MODEL_ONLY}; constants: {problem.provenance.mode}"], later="  ")],
            titled=False,
        ),
    )
    none = "no budget tried before the time limit" if found.over else "no budget"
    order = ", then ".join(" and ".join(map(budget_words, each.names)) for each in found.walls) or none
    values = list(dict.fromkeys(pretty(each.objective, goal.unit, 4) for each in (found.answers[0], found.answers[-1])))
    metric = components.words(goal.name, goal.unit)
    what = f"{order} binds: {metric} with and without"
    badge = ("proved" if certain else "partly proved", certain, f"{len(found.answers)} answers")
    them = "them" if len(found.walls) > 1 else "it"
    lifted = f"{metric} {f', without {them} '.join(values)}"
    said = f"{order[0].upper()}{order[1:]} binds: {lifted}."
    return Answer(
        *common, said, (what, " to ".join(values)), badge, sections, problem.sources, question=problem.name
    )  # fmt: skip


def _parts(solution: Solution) -> list[tuple[str, str, float]]:
    """Return the components of chip time that a page shows: shares of at least 0.1 %."""
    return [(name, "", share) for name, share in shares(solution).items() if share >= 1e-3]


def stage_words(answer: BindingBudgets) -> list[str]:
    """Return a label for each answer: the budgets lifted up to it, and its categorical choices where it has any."""
    later = [f"{'and ' if place else 'without '}{' and '.join(map(budget_words, each.names))}"
             for place, each in enumerate(answer.walls)]  # fmt: skip
    names = ["as specified", *later]
    if not answer.start.chosen:
        return names
    return [f"{name}: {', '.join(each.chosen.values())}" for name, each in zip(names, answer.answers, strict=True)]


def _table(answer: BindingBudgets) -> Table:
    goal = answer.start.problem.objective
    known = {name: words for name, words in METRICS.items() if hasattr(answer.start.report, name) and name != goal.name}
    heads = ("", goal.name, "gap", "chips", *known.values())
    rows = [
        [name, pretty(each.objective, goal.unit, 5), gap_words(each), f"{float(each.built.cluster.chips):,.0f}",
         *(value_words(each, metric) for metric in known)]
        for name, each in zip(stage_words(answer), answer.answers, strict=True)
    ]  # fmt: skip
    return Table("answers", heads, rows, least=(0, 14, 8, 9, *(10 for _ in known)))


def gap_words(solution: Solution) -> str:
    """Return the optimality gap of an answer as a table cell; "-" where it has none."""
    gap = solution.certificate.gap
    return "-" if gap is None else f"{100 * gap:.2g} %"


def value_words(solution: Solution, name: str) -> str:
    """Return a metric of a solution as the text of a table cell.

    Run time, capital cost and power have a unit. Every other metric is a share and is written in percent.

    **Arguments:** `name`: name of the metric in the solution's report.
    """
    value = float(getattr(solution.report, name))
    unit = {"run_time_s": "s", "capex_usd": "USD", "peak_power_w": "W"}.get(name)
    return f"{100 * value:.1f} %" if unit is None else pretty(value, unit)


def _grown(answer: BindingBudgets) -> Table:
    every = [shares(each) for each in answer.answers]
    most = lambda name: max(each.get(name, 0.0) for each in every)
    parts = sorted({name for each in every for name in each}, key=lambda name: -most(name))[:7]
    rows = [[step_label(part), *(f"{100 * each.get(part, 0.0):.1f} %" for each in every)] for part in parts]
    return Table("shares of chip time", ("", *stage_words(answer)), rows)
