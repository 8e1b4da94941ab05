"""What the audits evaluate: the exact model, compiled once for all claims with the same kind of network."""

from __future__ import annotations

import functools

import jax
import numpy as np

import hwopt
from hwopt import catalog
from hwopt.model.estimate import estimate as model
from hwopt.model.training import learning
from hwopt.solver.jit_options import quick_jit
from hwopt.workload.transformer import total_parameters


@functools.cache
def _compiled():
    return quick_jit(model)


def estimate(workload, cluster, plan):
    """The exact model's report in float64, its leaves as NumPy numbers."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, _compiled()(workload, cluster, plan))


def si(kind: str, name: str, field: str) -> float:
    """A number of the catalogue in SI units: `si("chips", "h100-sxm", "peak.bf16")`."""
    return catalog.record(kind, name).si(field)


def best(workload, cluster, **options):
    """The best plan of a fixed machine, every valid one of the lattice examined: a candidate with `plan` and `report`."""
    return hwopt.best_plan(workload, cluster, alternatives=0, **options).best


def shares(report) -> dict[str, float]:
    """Parts of a step over the step, by name."""
    step = float(report.step_time_s)
    return {name.removesuffix("_s"): float(part) / step for name, part in report.breakdown._asdict().items()}


def share(report, *parts: str) -> float:
    """Some parts of a step over the step."""
    held = shares(report)
    return sum(held[name] for name in parts)


def exposed(report) -> float:
    """Communication that nothing hides, over the step."""
    return share(report, "tp_comm", "cp_comm", "ep_comm", "pp_comm", "dp_comm", "sites_comm")


def tokens_that_mend(run, one, apart) -> float:
    """Tokens over those of a run that mend what learning apart costs: replicas that learn apart end higher by one factor,
    which the same law takes back with tokens.

    **Arguments:** reports of the run at one site and `apart`.
    """
    batch = float(run.global_batch_sequences * run.sequence_length)
    with jax.enable_x64(True):
        wanted = float(one.loss) ** 2 / float(apart.loss)
        tokens = learning.tokens_to_loss(run.law, total_parameters(run.model), wanted, batch)
        return float(tokens / run.tokens)


def hidden(report) -> float:
    """Communication that goes on beside arithmetic, over the step."""
    return float(report.hidden_s) / float(report.step_time_s)
