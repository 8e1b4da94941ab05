"""Figure of a mixed fleet: each group's share of chips, sequences and power, and its wait for the slowest group."""

from pathlib import Path

import numpy as np

from hwopt.analysis.fleet.data_parallel import PIPELINE, FleetStudy, group_rows
from hwopt.output.colours import PALE, WITHIN
from hwopt.output.figures.style import figure, plain, save


def plot_fleet(study: FleetStudy, path: str | Path, title: str) -> None:
    """Draw the shares of each group; below, its step, split into its own time and its wait.

    Fleets that do not fit are drawn with the values that are known.

    **Arguments:** `study` of the fleet; `path` of the image to write; `title` in words.

    **Raises:** `UserError` where the file cannot be written.
    """
    rows, whole = group_rows(study.whole), study.whole.report
    names = [f"{float(group.cluster.chips):,.0f}\n{group.name}" for group, *_ in rows]
    of = {
        "chips": [float(group.cluster.chips) for group, *_ in rows],
        ("layers" if study.whole.layout == PIPELINE else "sequences"): [share for _, _, share, _, _ in rows],
        "power at full load": [float(own.peak_power_w) for *_, own, _ in rows],
    }
    places, width = np.arange(len(rows)), 0.8 / len(of)
    with figure(2, 1, figsize=(9.0, 6.0), sharex=True) as (drawn, (above, below)):
        for i, (name, values) in enumerate(of.items()):
            above.bar(places + width * (i - 1), 100.0 * np.array(values) / sum(values), width=width, label=name)
        above.set_ylabel("share of the fleet (%)")
        above.grid(axis="x", visible=False)
        above.legend(fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
        step = float(whole.step_time_s)
        own = np.array([100.0 * (1.0 - waits) for *_, waits in rows])
        below.bar(places, own, width=0.5, color=WITHIN, label="its own work and the exchange")
        below.bar(places, 100.0 - own, width=0.5, bottom=own, color=PALE, label="waits for the slowest")
        below.set(ylabel="share of the step (%)", ylim=(0, 100), xlabel=plain(f"a step of all: {step:.4g} s"))
        below.grid(axis="x", visible=False)
        below.set_xticks(places, [plain(each) for each in names])
        below.legend(fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
        drawn.align_ylabels()
        drawn.suptitle(plain(title), fontsize=10)
        save(drawn, path)
