"""Regret of an answer, and the value of information on its inputs, in words."""

from hwopt.analysis.chance_constraints.value_of_information import DesignCandidate, InformationValue, Regret
from hwopt.output.answer import Named, Section, Sentences, Table
from hwopt.output.text.customary_units import amount


def regret_section(regret: Regret | None, unit: str) -> Section:
    """Return the section on today's answer, the design with the least worst-case regret, and the value of knowing each input."""
    title = "Regret and value of information"
    if regret is None:
        return Section(title, [])
    knowing = [_knowing_words(each, unit) for each in regret.knowing]
    rows = [_row("this answer", regret.today, unit)]
    best = "No other design that was evaluated has a smaller worst-case regret."
    if regret.least is not regret.today:
        rows.append(_row("least worst-case regret", regret.least, unit))
    text = (
        f"Regret is the extra cost of a design over the best design of a scenario. The worst case is over {regret.corners} "
        f"corners, with each input at an end of its range, and {regret.nodes} quadrature nodes, which reach further. "
        f"Compared are {regret.tried} designs: this answer, and the optima of {regret.solves} scenarios. Other designs may be "
        "better, so that regrets are lower bounds. An input is within its range with a probability of 80 %. Budgets are checked at "
        "the stated inputs."
    )
    heads = ("design", "objective", "expected regret", "worst regret")
    table = Table("regret", heads, [cells for cells, _ in rows], under=[under for _, under in rows])
    said = [*([best] if len(rows) == 1 else []), text]
    return Section(title, [Named(knowing), table, Sentences(said, later="  ")])


def _knowing_words(each: InformationValue, unit: str) -> tuple[str, str]:
    worth = (
        f"{'' if each.proved else 'at least '}{amount(each.saving, unit)} ({100 * each.share:.2g} % of the objective)"
    )
    return each.name, f"within {100 * each.varied:.3g} %: perfect information is worth {worth}"


def _row(name: str, each: DesignCandidate, unit: str) -> tuple[list[str], str]:
    """Return the cells of a design, and a text on its worst case and its variables."""
    worst = f"{amount(each.worst, unit)} ({100 * each.worst_share:.2g} %)" if each.worst else "none"
    where = f"worst case {each.worst_at}; " if each.worst else ""
    return [name, amount(each.objective, unit, 4), amount(each.expected, unit), worst], f"{where}design {each.words}"
