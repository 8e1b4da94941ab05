"""Questions about runs whose batch grows: proved where every plan is looked at, and refused where they cannot be asked."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.design.lattices import lattice_of
from hwopt.errors import UserError
from hwopt.output.answers.optimum import solution_answer
from hwopt.planning.plan_search import best_plan
from tests.rotation import one_in

RAMP = "128@10%,256@30%,512"
BOUGHT = {"chips": 256.0, "chips_per_rack": 16.0, "nics_per_server": 8.0, "clock_ratio": 1.0}
PLANS = {"global_batch_sequences": 512.0, "zero": 1.0, "cp": 1.0, "micro_batch": 1.0}
NO_LIMIT = {"capex_budget_usd": 1e12, "power_budget_w": 1e12}


@pytest.fixture(scope="module")
def solution():
    """Plans of 70 B parameters on 256 chips."""
    asked = hwopt.objective(
        "train_time",
        workload="llama3.1-70b",
        batch_ramp=RAMP,
        tokens=1e12,
        recompute="none",
        offload="none",
        recovery="from-storage",  # as `catalog.cluster`
        **NO_LIMIT,
    )
    with jax.enable_x64(True):
        return hwopt.optimize(asked.problem().narrowed({name: (x, x) for name, x in (BOUGHT | PLANS).items()}))


@one_in(4, 0)
def test_the_proved_plan_is_the_best_of_all(solution):
    """Plans are enumerated by another lattice, and their exact models compared."""
    run = catalog.training_run("llama3.1-70b", batch_ramp=RAMP, tokens=1e12, sequence_length=8192)
    common = dict.fromkeys(("weights_offloaded", "optimizer_offloaded", "activations_offloaded"), 0.0)
    search = best_plan(run, catalog.cluster("h100-sxm", 256), alternatives=60, common=common)
    assert search.objective.name == "run_time_s"
    alike = {"cp": 1, "micro_batch": 1, "recompute_full": 0, "recompute_attention": 0, "gradients_sharded": 0}
    of_lattice = [
        each
        for each in (search.best, *search.alternatives)
        if all(float(getattr(each.plan, name)) == value for name, value in alike.items())
        and float(each.plan.virtual_stages) <= 16
    ]
    assert len(of_lattice) >= 3
    least = min(each.objective for each in of_lattice)
    assert solution.certificate.lower_bound <= least * (1 + 1e-9)
    assert solution.objective == pytest.approx(least, rel=2e-4)
    assert solution.certificate.gap < 1e-3


@one_in(4, 0)
def test_every_stage_has_whole_micro_batches_and_rounds(solution):
    values = {name: each.value for name, each in solution.design.items()}
    last = 512.0 / solution.plan.dp
    for part in (0.25, 0.5, 1.0):
        assert part * last == round(part * last)
        assert values["virtual_stages"] == 1 or part * last % values["pp"] == 0
    problem = solution.problem
    lattice = lattice_of(problem)
    columns = {name: np.array([1.0, 1.0]) for name in lattice.names} | {"micro_batches": np.array([6.0, 8.0])}
    rows = np.stack([columns[name] for name in lattice.names], axis=1)
    whole = [each for each in lattice.relations if set(each.names) == {"micro_batches"}]
    assert [bool(x) for x in whole[0].holds(dict(zip(lattice.names, rows.T, strict=True)))] == [False, True]


@one_in(4, 0)
def test_the_screen_shows_the_stages(solution):
    text = " ".join(solution_answer(solution).screen().split())
    assert "batches 128@10%,256@30%,512" in text and "128 sequences" in text and "512 sequences" in text
    shares = solution.report.stages.time_share
    assert float(np.sum(shares)) == pytest.approx(1.0) and shares[0] > 0.1


def test_a_ramp_names_the_batch_of_a_question():
    asked = hwopt.objective("train_cost", batch_ramp="1024@10%,4096").problem()
    low, high = next((v.lower, v.upper) for v in asked.variables if v.name == "global_batch_sequences")
    assert low < 4096 < high and low > 3800
    asked = hwopt.objective("train_cost", batch_ramp="256@10%").problem()
    assert float(asked.template.workload.ramp.batch_fractions[0]) == 0.125
    with pytest.raises(UserError, match="remove one of them"):
        hwopt.objective("train_cost", batch_ramp="1024@10%,4096", global_batch=1024.0).problem()


def test_where_tokens_are_free_stages_are_shares_of_them():
    assert hwopt.objective("loss_under_budget", batch_ramp="1024@10%,4096").problem().template.workload.ramp is not None
    for name, fields in (("loss_under_budget", {}), ("train_cost", {"loss_budget": 1.95})):
        with pytest.raises(UserError, match="chooses the number of tokens, so state the ramp in percent"):
            hwopt.objective(name, batch_ramp="1024@1T,4096", **fields).problem()
