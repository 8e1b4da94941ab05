"""Figure of the next binding budgets: the optimum without one budget after the other, and each optimum's use of all
budgets.
"""

from pathlib import Path

import numpy as np

from hwopt.analysis.binding_budgets import BindingBudgets
from hwopt.output.answers.binding_budgets import stage_words
from hwopt.output.colours import OVER, WITHIN
from hwopt.output.figures.style import NothingToDraw, figure, plain, plain_powers, save
from hwopt.output.text.layout import budget_words
from hwopt.units import fitting, label, pretty

_LOOKS = ("o-", "s--", "^:", "v-.", "D-", "P--", "X:")


def plot_walls(answer: BindingBudgets, path: str | Path) -> None:
    """Draw the optimum as requested and after removing each binding budget; below, the use of every budget over its limit.

    **Arguments:** `answer` of `hwopt.walls`; `path` of the image to write.

    **Raises:** `NothingToDraw` where no budget binds or no design satisfies the budgets; `UserError` where the file
    cannot be written.
    """
    if not answer.walls:
        raise NothingToDraw("no budget binds" if answer.start.feasible else "no design satisfies the budgets")
    goal, stages = answer.start.problem.objective, answer.answers
    factor, unit = fitting(goal.unit, [each.objective for each in stages])
    places = np.arange(len(stages))
    with figure(2, 1, figsize=(7.6, 6.4), sharex=True, height_ratios=(1.2, 1.0)) as (drawn, (above, below)):
        bars = above.bar(places, [each.objective / factor for each in stages], width=0.55, color=WITHIN)
        texts = [
            plain(f"{pretty(each.objective, goal.unit)}\n{float(each.built.cluster.chips):,.0f} chips")
            for each in stages
        ]
        above.bar_label(bars, texts, fontsize=8.5, padding=2)
        above.margins(y=0.2)
        above.grid(axis="x", visible=False)
        above.set_ylabel(plain(f"{label(goal.name, goal.unit)} ({unit})" if unit else label(goal.name, goal.unit)))
        for place, budget in enumerate(answer.start.budgets):
            used = [next(each.used for each in stage.budgets if each.name == budget.name) for stage in stages]
            words = f"{budget_words(budget.name)}, limit {pretty(budget.limit, budget.unit, 3)}"
            below.plot(
                places, np.array(used) / budget.limit, _LOOKS[place % len(_LOOKS)], markersize=5, label=plain(words)
            )
        below.axhline(1.0, color=OVER, linewidth=1.0, linestyle=":")
        below.set(yscale="log", ylabel="used over limit")
        plain_powers(below)
        below.set_xticks(places, [each.replace(" and ", "\nand ") for each in stage_words(answer)], fontsize=9)
        below.legend(fontsize=8.5)
        drawn.align_ylabels()
        drawn.suptitle(plain(f"{answer.start.problem.name}: next binding budgets"), fontsize=11)
        save(drawn, path)
