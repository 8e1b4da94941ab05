"""Training without the slowest replicas, compared with waiting for all, as a section of an answer."""

import math

from hwopt.analysis.backup_workers import BackupRun, BackupStudy
from hwopt.output.answer import Lines, Section, Table
from hwopt.units import pretty


def backup_section(study: BackupStudy) -> Section:
    """Return a verdict and a table of step time, share of samples lost, run time and cost.

    Its rows: all replicas, the best and the requested number of slowest replicas dropped from each step.
    """
    best, first = study.best, study.all
    if best.left_out:
        faster = f"{100 * best.faster:.3g} % faster"
        said = f"pays: without the slowest {best.left_out:,} of {best.replicas:,} replicas the run is {faster}"
    elif math.isinf(study.least_sigma):
        said = f"does not pay at any step-time variation: with {best.replicas:,} replicas, dropping one loses too many samples"
    else:
        sigma, least = f"{100 * study.sigma:.3g} %", f"{100 * study.least_sigma:.3g} %"
        said = f"does not pay: the step times of chips vary by {sigma} (standard deviation); it pays from {least} on"
    names = {best.left_out: f"best: without {best.left_out:,}"}
    names |= {study.asked.left_out: f"without the slowest {study.asked.left_out:,}"} | {0: "all replicas"}
    rows = {each.left_out: _row(names[each.left_out], each) for each in (first, best, study.asked)}
    heads = ("", "step", "samples lost", "whole run", "cost")
    table = Table("replicas", heads, [rows[b] for b in sorted(rows)], least=(26, 9, 12, 12, 10))
    return Section("Backup workers: steps without the slowest replicas", [Lines([said]), table])


def _row(name: str, each: BackupRun) -> list[str]:
    time, cost = pretty(each.run_time_s, "s"), pretty(each.run_cost_usd, "USD")
    return [name, pretty(each.step_time_s, "s"), f"{100 * each.lost:.2f} %", time, cost]
