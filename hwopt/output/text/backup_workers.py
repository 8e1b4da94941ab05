"""Training without the slowest replicas, compared with waiting for all, as lines of a screen and as JSON."""

import math
from dataclasses import asdict
from typing import Any

from hwopt.analysis.backup_workers import BackupRun, BackupStudy
from hwopt.output.text.layout import heading
from hwopt.output.text.parts import number
from hwopt.units import pretty


def backup_document(study: BackupStudy | None) -> dict[str, Any]:
    """Return a study of backup workers as JSON; empty where none was requested.

    It has three runs: with the requested number of slowest replicas dropped from each step, with the best number, and with none.
    `sigma` is the relative standard deviation of a chip's step time. `least_sigma` is the value from which dropping one replica
    pays; null where it never does.
    """
    if study is None:
        return {}
    spread = {"sigma": study.sigma, "least_sigma": number(study.least_sigma)}
    return {"backup": {name: asdict(getattr(study, name)) for name in ("asked", "best", "all")} | spread}


def backup_lines(study: BackupStudy | None) -> list[str]:
    """Return a text table of step time, share of samples lost, run time and cost; empty where no study was requested.

    Its rows: all replicas, the best and the requested number of slowest replicas dropped from each step.
    """
    if study is None:
        return []
    best, first = study.best, study.all
    if best.left_out:
        said = f"pays: without the slowest {best.left_out:,} of {best.replicas:,} the run is {100 * best.faster:.3g} % faster"
    elif math.isinf(study.least_sigma):
        said = f"does not pay, however much chips differ: {best.replicas:,} replicas are too few for what one loses"
    else:
        said = f"does not pay: chips differ by {100 * study.sigma:.3g} %, and from {100 * study.least_sigma:.3g} % on it would"
    rows = {0: "all replicas", best.left_out: f"best: without {best.left_out:,}"} | {
        study.asked.left_out: f"without the slowest {study.asked.left_out:,}"
        if study.asked.left_out
        else "all replicas"
    }
    by_count = {each.left_out: each for each in (first, best, study.asked)}
    return [
        *heading("Steps that leave out the slowest replicas"),
        f"  {said}",
        f"  {'':<26}{'step':>11}{'samples lost':>14}{'whole run':>14}{'money':>12}",
        *(_line(rows[b], by_count[b]) for b in sorted(rows)),
    ]


def _line(name: str, each: BackupRun) -> str:
    time, cost = pretty(each.run_time_s, "s"), pretty(each.run_cost_usd, "USD")
    return f"  {name:<26}{pretty(each.step_time_s, 's'):>11}{100 * each.lost:>12.2f} %{time:>14}{cost:>12}"
