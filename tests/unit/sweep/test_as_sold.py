"""Sweeps over machines as sold: every feasible variant is a product, with the numbers of `hwopt.estimate`."""

from __future__ import annotations

import numpy as np
import pytest

import hwopt
from hwopt import catalog


@pytest.mark.search
def test_feasible_variants_are_sold_and_equal_estimate():
    fields = {"workload": "llama3.1-8b", "time_budget_s": 1e9, "plan": "tp=1,cp=1,zero=1,recompute=none,vpp=1"}
    question = hwopt.objective("train_cost", **fields, offload="none", recovery="from-storage")
    data = hwopt.sweep(question, 20000, as_sold=True, dtype="float64")
    assert "as sold" in question.problem().question and data.attrs["best_are"] == "feasible"
    sold = catalog.rack_sizes(catalog.system_of("h100-sxm"))
    for place in range(3):
        at = {n: float(data[f"best_{n}"].values.ravel()[place]) for n in ("chips", "chips_per_rack", "nics_per_server", "pp",
              "micro_batch", "global_batch_sequences", "clock_ratio", "step_time_s")}  # fmt: skip
        assert at["nics_per_server"] == 8 and at["chips_per_rack"] in sold and at["chips"] % at["chips_per_rack"] == 0
        run = catalog.training_run("llama3.1-8b", global_batch=round(at["global_batch_sequences"]), tokens=15.6e12)
        cluster = catalog.cluster("h100-sxm", round(at["chips"]), rack_chips=round(at["chips_per_rack"]), clock=at["clock_ratio"],
                                  recovery="from-storage")  # fmt: skip
        plan = catalog.plan(run, round(at["chips"]), pp=round(at["pp"]), micro_batch=round(at["micro_batch"]),
                            sequence_parallel="yes")  # fmt: skip
        assert float(hwopt.estimate(run, cluster, plan).step_time_s) == pytest.approx(at["step_time_s"], rel=2e-3), at
    assert np.isfinite(data["best_run_cost_usd"].values).all()
