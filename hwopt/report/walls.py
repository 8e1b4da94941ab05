"""What binds next as a machine grows, as one screen and as JSON."""

from typing import Any

from hwopt.model.report import TrainingReport, declared_margins
from hwopt.optim.solution import BudgetUse, Outcome, Solution
from hwopt.report.layout import MODEL_ONLY, budget_words, heading, wrapped
from hwopt.report.parts import number
from hwopt.report.scaling_words import CAUSES
from hwopt.study.chip_time import chip_time
from hwopt.study.walls import Wall, Walls
from hwopt.units import pretty

METRICS = {
    "run_time_s": "run time",
    "capex_usd": "capex",
    "peak_power_w": "full load",
    "mfu": "MFU",
    "goodput": "goodput",
}
"""Of a machine's report, as far as its kind has them, and their columns."""

_OF_A_PLAN = frozenset({"chips", "stages", "tensor_parallel", "experts", "replicas", "context", "sites"})
"""Margins that a plan's integers meet by choice."""

_AT_LIMIT = 0.01
"""Margin, in the logarithm, from which a limit counts as met."""

_NAMED = 4
"""Parts of chip time that are named."""


def walls_document(answer: Walls) -> dict[str, Any]:
    """An answer of `walls`: answers one after the other, and the walls between them."""
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


def _stages(answer: Walls) -> list[tuple[Solution, tuple[str, ...]]]:
    """Answers, and the budgets lifted of each."""
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
        "budgets": [_use(each, each.name in lifted) for each in solution.budgets],
        "chip_time": shares(solution),
        "at_limit": at_limit(solution),
    }


def _use(each: BudgetUse, lifted: bool) -> dict[str, Any]:
    return {"name": each.name, "used": each.used, "limit": None if lifted else each.limit, "unit": each.unit}


def _wall(wall: Wall) -> dict[str, Any]:
    budgets = [
        {"name": each.name, "limit": each.limit, "used": each.used, "until": wall.until(each.name), "unit": each.unit}
        for each in map(wall.limit, wall.names)
    ]
    return {"budgets": budgets, "gained": wall.gained, "proved": proved(wall)}


def proved(wall: Wall) -> bool:
    """Whether both answers of a wall are."""
    return wall.before.outcome is wall.after.outcome is Outcome.proved


def shares(solution: Solution) -> dict[str, float]:
    """Shares of chip time in a training run, the largest first; empty for other work."""
    report = solution.report
    if not isinstance(report, TrainingReport):
        return {}
    parts = chip_time(report, float(solution.built.cluster.chips))
    whole = sum(parts.values())
    return {name: value / whole for name, value in sorted(parts.items(), key=lambda part: -part[1])}


def at_limit(solution: Solution) -> list[str]:
    """What besides budgets an answer has no more of: limits of the machine and of the run, and ends of its variables' boxes."""
    known, margins = declared_margins(), solution.report.margins_by_name()
    met = [name for name, margin in margins.items() if float(margin) <= _AT_LIMIT and name not in _OF_A_PLAN]
    stops = [known[name.rpartition(".")[2]].stop for name in met]
    ends = [f"{name.replace('_', ' ')} at most {pretty(each.upper, each.unit)}" for name, each in solution.design.items()
            if each.at_bound == "upper" and each.upper > each.lower and name == "chips"]  # fmt: skip
    return [*stops, *ends]


def sentence(answer: Walls, place: int) -> str:
    """One wall in a sentence. **Arguments:** `place` among the walls, from 0."""
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


def end(answer: Walls) -> str:
    """What is left where no budget binds."""
    last = answer.answers[-1]
    chips = f"{float(last.built.cluster.chips):,.0f} chips"
    before = "Time was over. " if answer.over else "Then no budget binds. " if answer.walls else ""
    text = f"{before}On {chips} "
    named = list(shares(last).items())[:_NAMED]
    parts = [f"{CAUSES[name] if name != 'compute' else 'products'} {100 * share:.0f} %" for name, share in named]
    text += f"chip time goes to {', '.join(parts)}" if parts else f"{last.problem.objective.name} is the least there is"
    stops = at_limit(last)
    return f"{text}; at its limit: {', '.join(stops)}." if stops else f"{text}."


def walls_screen(answer: Walls) -> str:
    """One screen for `walls`."""
    start = answer.start
    lines = [start.problem.question, ""]
    if not start.feasible:
        return "\n".join([*lines, wrapped(start.infeasibility or start.headline, "", "")])
    lines += [wrapped(sentence(answer, place), f"  {place + 1}. ", "     ") for place in range(len(answer.walls))]
    if not answer.walls and not answer.over:
        lines.append("  No budget binds: without all of them the answer is the same.")
    lines.append(wrapped(end(answer), "  ", "     "))
    if answer.idle and answer.walls:
        idle = ", ".join(budget_words(name) for name in answer.idle)
        lines.append(wrapped(f"{idle}: never binds", "  ", "     "))
    lines += [*heading("The answer between walls"), *_table(answer)]
    if len(answer.walls) and shares(start):
        lines += [*heading("Where chip time goes, % of it"), *_grown(answer)]
    certain = all(each.outcome is Outcome.proved for each in answer.answers)
    words = "each answer is proved" if certain else "not every answer is proved: give more --seconds"
    mode = start.problem.provenance.mode
    return "\n".join([*lines, "", wrapped(f"{words}; {MODEL_ONLY}; constants: {mode}")])


def stage_words(answer: Walls) -> list[str]:
    """What is lifted of each answer."""
    later = [f"{'and ' if place else 'without '}{' and '.join(map(budget_words, each.names))}"
             for place, each in enumerate(answer.walls)]  # fmt: skip
    names = ["as asked", *later]
    if not answer.start.chosen:
        return names
    return [f"{name}: {', '.join(each.chosen.values())}" for name, each in zip(names, answer.answers, strict=True)]


def _table(answer: Walls) -> list[str]:
    goal, names = answer.start.problem.objective, stage_words(answer)
    known = {name: words for name, words in METRICS.items() if hasattr(answer.start.report, name) and name != goal.name}
    wide = max(map(len, names))
    lines = [
        f"  {'':<{wide}}  {goal.name:>14}  {'gap':>8}  {'chips':>9}"
        + "".join(f"  {each:>10}" for each in known.values())
    ]
    for name, each in zip(names, answer.answers, strict=True):
        cells = "".join(f"  {value_words(each, metric):>10}" for metric in known)
        lines.append(
            f"  {name:<{wide}}  {pretty(each.objective, goal.unit, 5):>14}  {gap_words(each):>8}  "
            f"{float(each.built.cluster.chips):>9,.0f}{cells}"
        )
    return lines


def gap_words(solution: Solution) -> str:
    """The gap of an answer in its column."""
    gap = solution.certificate.gap
    return "-" if gap is None else f"{100 * gap:.2g} %"


def value_words(solution: Solution, name: str) -> str:
    """A metric of an answer's report in its column."""
    value = float(getattr(solution.report, name))
    unit = {"run_time_s": "s", "capex_usd": "USD", "peak_power_w": "W"}.get(name)
    return f"{100 * value:.1f} %" if unit is None else pretty(value, unit)


def _grown(answer: Walls) -> list[str]:
    names, every = stage_words(answer), [shares(each) for each in answer.answers]
    most = lambda name: max(each.get(name, 0.0) for each in every)
    parts = sorted({name for each in every for name in each}, key=lambda name: -most(name))[:7]
    wide = max(map(len, names))
    lines = [f"  {'':<{wide}}" + "".join(f"  {name.replace('_', ' '):>12}" for name in parts)]
    for name, each in zip(names, every, strict=True):
        lines.append(f"  {name:<{wide}}" + "".join(f"  {100 * each.get(part, 0.0):>12.1f}" for part in parts))
    return lines
