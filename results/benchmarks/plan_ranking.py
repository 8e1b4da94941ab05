"""How well plans of one cluster are ranked: nanotron's sweep, a source that no constant was fitted to. From the top of a checkout:

    python -m results.benchmarks.plan_ranking

Within a model and a number of nodes: the rank correlation of predicted and measured throughput, whether the best measured plan is
among our three best that fit, and what our best costs over the best measured. Beside it what the measurements allow: the same
plan with and without ZeRO-1 (which moves a step by some per cent) was measured at another time, and often many times slower.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from hwopt import catalog
from hwopt.calibration.validation.score import Scored
from hwopt.calibration.validation.validate import score

SWEEP = Path(str(files("hwopt") / "data" / "runs" / "nanotron.csv"))

DISTURBED = 2.0
"""Measured over predicted step time, over the group's median of it, from which a run is taken as disturbed."""


@dataclass(frozen=True)
class Group:
    """Plans of one model on one number of nodes."""

    model: str
    nodes: int
    plans: int
    correlation: float  # of ranks, predicted and measured throughput
    undisturbed: float  # the same over the runs that were not disturbed
    share_undisturbed: float
    best_in_three: bool
    regret: float  # best measured throughput over that of our best plan that fits, less one
    twins: float  # rank correlation of the same plans measured twice; NaN for fewer than six


def groups() -> dict[tuple[str, int], list[Scored]]:
    """Runs by model and nodes, predicted by the shipped constants."""
    by: dict[tuple[str, int], list[Scored]] = defaultdict(list)
    for row in score(SWEEP, catalog.calibration(), cases=False).scored:
        by[row.row.model_name, row.row.num_gpus // 8].append(row)
    return dict(sorted(by.items()))


def _twins(rows: Sequence[Scored]) -> float:
    """Rank correlation of plans measured with and without ZeRO-1."""
    pairs: dict[tuple, dict[int, float]] = defaultdict(dict)
    for each in rows:
        row = each.row
        pairs[row.tp, row.pp, row.dp, row.micro_batch, row.global_batch_sequences][row.zero or 0] = row.measured_value
    both = np.array([(pair[0], pair[1]) for pair in pairs.values() if {0, 1} <= pair.keys()])
    return float(spearmanr(*both.T)[0]) if len(both) > 5 else np.nan


def judged(model: str, nodes: int, rows: Sequence[Scored]) -> Group:
    """How well the plans of a group are ranked."""
    measured = np.array([row.row.measured_value for row in rows])
    predicted = np.array([row.predicted for row in rows])
    fits = np.array([row.prediction.memory_bytes <= row.prediction.memory_capacity_bytes for row in rows])
    ratio = predicted / measured  # of throughput: how many times slower than predicted
    calm = ratio <= DISTURBED * np.quantile(ratio, 0.25)
    ours = np.argsort(-np.where(fits, predicted, 0.0))
    return Group(
        model,
        nodes,
        len(rows),
        float(spearmanr(predicted, measured)[0]),
        float(spearmanr(predicted[calm], measured[calm])[0]),
        float(np.mean(calm)),
        int(np.argmax(measured)) in ours[:3],
        float(measured.max() / measured[ours[0]] - 1.0),
        _twins(rows),
    )


def ranking() -> list[Group]:
    """All groups."""
    return [judged(model, nodes, rows) for (model, nodes), rows in groups().items()]


def table(of: Sequence[Group]) -> str:
    """As text, a line a group and their summary."""
    lines = [
        "Plans of nanotron's sweep ranked by predicted throughput, no constant fitted to it; within a model and nodes of 8 H100",
        "undisturbed: runs not more than twice as slow, over prediction, as the group's calmer quarter",
        f"{'model':26}{'nodes':>6}{'plans':>7}{'rank corr.':>11}{'undisturbed':>12}{'(share)':>8}{'twins':>7}  in our 3  regret",
    ]
    for each in of:
        twins = "      -" if np.isnan(each.twins) else f"{each.twins:7.2f}"
        lines.append(
            f"{each.model:26}{each.nodes:6}{each.plans:7}{each.correlation:11.2f}{each.undisturbed:12.2f}"
            f"{100 * each.share_undisturbed:7.0f}%{twins}  {'yes' if each.best_in_three else 'no':9}{100 * each.regret:7.1f}%"
        )
    mean = lambda values: float(np.nanmean(list(values)))
    best, regret = mean(each.best_in_three for each in of), float(np.median([each.regret for each in of]))
    lines += [
        "",
        f"mean rank correlation {mean(each.correlation for each in of):.2f} (asked: 0.9), of undisturbed runs "
        f"{mean(each.undisturbed for each in of):.2f}; of the same plans measured twice {mean(each.twins for each in of):.2f}: "
        "a perfect model would reach about the root of that",
        f"best measured among our three best: {100 * best:.0f} % of groups (asked: 80); "
        f"our best over the best measured: median {100 * regret:.1f} % (asked: 7)",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(ranking()))
