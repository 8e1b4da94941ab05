"""Answer of `hwopt walls`: which budget binds next as a machine grows."""

from typing import Any

from hwopt.analysis.binding_budgets import BindingBudget, BindingBudgets
from hwopt.analysis.chip_time import chip_time
from hwopt.declared import document
from hwopt.model.report import TrainingReport, declared_margins
from hwopt.output.answer import Answer, OnPage, Section, Sentences, Steps, Table
from hwopt.output.html import components
from hwopt.output.text.layout import MODEL_ONLY, budget_words
from hwopt.output.text.parts import number
from hwopt.output.text.scaling import CAUSES
from hwopt.solver.solution import Outcome, Solution
from hwopt.units import pretty

METRICS = {
    "run_time_s": "run time",
    "capex_usd": "capex",
    "peak_power_w": "full load",
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


def walls_document(answer: BindingBudgets) -> dict[str, Any]:
    """Return the answer of `walls` as JSON: the sequence of answers, and the binding budgets between them."""
    goal = answer.start.problem.objective
    return {
        "question": answer.start.problem.question,
        "approximations": answer.start.problem.provenance.approximations,
        "objective": {"name": goal.name, "unit": goal.unit},
        "feasible": answer.start.feasible,
        "message": answer.start.infeasibility or answer.start.headline,
        "answers": [_answer(each, lifted) for each, lifted in _stages(answer)] if answer.start.feasible else [],
        "walls": [_wall(each) for each in answer.walls],
        "idle": list(answer.idle),
        "complete": not answer.over,
    }


def _stages(answer: BindingBudgets) -> list[tuple[Solution, tuple[str, ...]]]:
    """Return each answer with the budgets that are lifted in it."""
    lifted: list[tuple[str, ...]] = [()]
    for each in answer.walls:
        lifted.append((*lifted[-1], *each.names))
    return list(zip(answer.answers, lifted, strict=True))


def _answer(solution: Solution, lifted: tuple[str, ...]) -> dict[str, Any]:
    report, certificate = solution.report, solution.certificate
    return {
        "lifted": list(lifted),
        "outcome": solution.outcome.name,
        "status": solution.outcome.status,
        "objective": number(solution.objective),
        "lower_bound": certificate.lower_bound,
        "gap": certificate.gap,
        "chips": number(solution.built.cluster.chips),
        "chosen": solution.chosen,
        **{name: number(getattr(report, name)) for name in METRICS if hasattr(report, name)},
        "budgets": [document(each) | ({"limit": None} if each.name in lifted else {}) for each in solution.budgets],
        "chip_time": shares(solution),
        "at_limit": at_limit(solution),
    }


def _wall(wall: BindingBudget) -> dict[str, Any]:
    budgets = [document(each) | {"until": wall.until(each.name)} for each in map(wall.limit, wall.names)]
    return {"budgets": budgets, "gained": wall.gained, "proved": proved(wall)}


def proved(wall: BindingBudget) -> bool:
    """Return whether the answers before and after lifting a binding budget are both proved optimal."""
    return wall.before.outcome is wall.after.outcome is Outcome.proved


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


def sentence(answer: BindingBudgets, place: int) -> str:
    """Return one binding budget in a sentence. **Arguments:** `place`: its index among the binding budgets, from 0."""
    wall, goal = answer.walls[place], answer.start.problem.objective
    then = answer.walls[place + 1] if place + 1 < len(answer.walls) else None
    before = [name for each in answer.walls[:place] for name in each.names]
    also = [f"{pretty(wall.until(name), wall.limit(name).unit)} of the {budget_words(name)}" for name in before]
    takes = f", which takes {' and '.join(also)} too" if also else ""
    many = len(wall.names) > 1
    names = " and ".join(budget_words(name) for name in wall.names)
    limits = " and ".join(pretty(wall.limit(name).limit, wall.limit(name).unit) for name in wall.names)
    ends = " and ".join(pretty(wall.until(name), wall.limit(name).unit) for name in wall.names)
    was, now = (pretty(each.objective, goal.unit) for each in (wall.before, wall.after))
    binds = f"bind{'' if many else 's'} at {limits}{' together' if many else ''}"
    what = f"with {ends} {goal.name} is {now} instead of {was} ({100 * wall.gained:.3g} % less){takes}"
    more = "more of them" if many else "more of it"
    nothing = f"{more} brings nothing" + (f": {budget_words(then.names[0])} binds" if then is not None else "")
    return f"{names} {binds}: {what}; {nothing}"


def end(answer: BindingBudgets) -> str:
    """Return a sentence on the last answer, where no budget binds: where chip time goes, and which other limits are reached."""
    last = answer.answers[-1]
    chips = f"{float(last.built.cluster.chips):,.0f} chips"
    before = "Time was over. " if answer.over else "Then no budget binds. " if answer.walls else ""
    text = f"{before}On {chips} "
    named = list(shares(last).items())[:_NAMED]
    parts = [f"{CAUSES[name] if name != 'compute' else 'products'} {100 * share:.0f} %" for name, share in named]
    text += f"chip time goes to {', '.join(parts)}" if parts else f"{last.problem.objective.name} is the least there is"
    stops = at_limit(last)
    return f"{text}; at its limit: {', '.join(stops)}." if stops else f"{text}."


def walls_answer(found: BindingBudgets) -> Answer:
    """Return the answer of `hwopt walls`, ready to be rendered as text, JSON or HTML."""
    start = found.start
    goal, problem = start.problem.objective, start.problem
    common = ("walls", walls_document(found), problem.question)
    if not start.feasible:
        why, none = start.infeasibility or start.headline, ("", False, "")
        return Answer(*common, why, ("", ""), none, (), problem.sources, False, question=problem.name)
    certain = all(each.outcome is Outcome.proved for each in found.answers)
    proof = "each answer is proved" if certain else "not every answer is proved: give more --seconds"
    idle = ", ".join(budget_words(name) for name in found.idle)
    sentences = [
        *(
            ["No budget binds: without all of them the answer is the same."]
            if not found.walls and not found.over
            else []
        ),
        end(found),
        *([f"{idle}: never binds"] if idle and found.walls else []),
    ]
    shared = [
        Section(f"Where chip time goes: {words}", [OnPage(components.parts("chip time", _parts(each)))], wide=False)
        for words, each in zip(stage_words(found), found.answers, strict=True)
        if shares(each)
    ]
    sections = (
        Section(
            "Budgets in the order in which they bind",
            [Steps([sentence(found, place) for place in range(len(found.walls))]), Sentences(sentences, "  ", "     ")],
            titled=False,
        ),
        Section("The answer between walls", [_table(found)]),
        Section("Where chip time goes, % of it", [_grown(found)] if found.walls and shares(start) else []),
        *shared,
        Section(
            "How good is it",
            [Sentences([f"{proof}; {MODEL_ONLY}; constants: {problem.provenance.mode}"], later="  ")],
            titled=False,
        ),
    )
    order = ", then ".join(" and ".join(map(budget_words, each.names)) for each in found.walls) or "no budget"
    values = list(dict.fromkeys(pretty(each.objective, goal.unit, 4) for each in (found.answers[0], found.answers[-1])))
    what = f"{order} binds; {goal.name} with and without"
    badge = ("proved" if certain else "partly proved", certain, f"{len(found.answers)} answers")
    return Answer(
        *common, "", (what, " to ".join(values)), badge, sections, problem.sources, question=problem.name
    )  # fmt: skip


def _parts(solution: Solution) -> list[tuple[str, str, float]]:
    """Return the components of chip time that a page shows: shares of at least 0.1 %."""
    return [(name, "", share) for name, share in shares(solution).items() if share >= 1e-3]


def stage_words(answer: BindingBudgets) -> list[str]:
    """Return a label for each answer: the budgets lifted up to it, and its categorical choices where it has any."""
    later = [f"{'and ' if place else 'without '}{' and '.join(map(budget_words, each.names))}"
             for place, each in enumerate(answer.walls)]  # fmt: skip
    names = ["as asked", *later]
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
    """Return a metric of an answer's report as a table cell."""
    value = float(getattr(solution.report, name))
    unit = {"run_time_s": "s", "capex_usd": "USD", "peak_power_w": "W"}.get(name)
    return f"{100 * value:.1f} %" if unit is None else pretty(value, unit)


def _grown(answer: BindingBudgets) -> Table:
    every = [shares(each) for each in answer.answers]
    most = lambda name: max(each.get(name, 0.0) for each in every)
    parts = sorted({name for each in every for name in each}, key=lambda name: -most(name))[:7]
    rows = [
        [name, *(f"{100 * each.get(part, 0.0):.1f}" for part in parts)]
        for name, each in zip(stage_words(answer), every, strict=True)
    ]
    heads = ("", *(name.replace("_", " ") for name in parts))
    return Table("shares of chip time", heads, rows, least=(0, *(12 for _ in parts)))
