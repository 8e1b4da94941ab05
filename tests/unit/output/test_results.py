"""Results in a Python session: at most ten lines, a summary, a data frame; clusters with other numbers."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import hwopt
from hwopt import UserError, catalog
from hwopt.analysis.comparison import ChipResult
from hwopt.declared import Results
from tests.toy import ToyCost

RUN = catalog.training_run("llama3.1-8b", global_batch=64)
CLUSTER = catalog.cluster("h100-sxm", 64)
PLAN = catalog.plan(RUN, 64, tp=8)


def clusters(chips):
    return catalog.cluster("h100-sxm", chips)


def found():
    """Results of the public functions that a test can afford: name, value, rows of its data frame."""
    service, plan = (
        catalog.service("llama3.1-8b"),
        catalog.serving_plan(catalog.service("llama3.1-8b"), 8, tp=4, batch=16),
    )
    yield "estimate", hwopt.estimate(RUN, CLUSTER, PLAN), 1
    yield "estimate of a service", hwopt.estimate(service, clusters(8), plan), 1
    yield "elasticities", hwopt.elasticities(RUN, CLUSTER, PLAN), None
    yield "best_plan", hwopt.best_plan(RUN, CLUSTER), 1
    yield "scale", hwopt.scale(RUN, clusters, [8, 16]), 2
    solution = hwopt.optimize(ToyCost())
    yield "optimize", solution, 1
    yield "walls", hwopt.walls(ToyCost()), None
    yield "invest", hwopt.invest(ToyCost()), None
    rows = Results([ChipResult("one", solution, share=0.0), ChipResult("other", None, "no price")])
    yield "compare", rows, 2


def test_results_are_short_and_become_data_frames():
    for name, result, rows in found():
        said = repr(result)
        assert len(said.splitlines()) <= 10 and max(map(len, said.splitlines())) <= 140, name
        assert len(result.summary().splitlines()) > 2, name
        assert name != "scale" or ("8 chips: " in said and "16 chips: " in said)
        frame = result.to_dataframe()
        assert len(frame) == (len(frame) if rows is None else rows) and len(frame.columns) >= 2, name


def test_a_report_has_its_values_with_units():
    report = hwopt.estimate(RUN, CLUSTER, PLAN)
    assert f"step_time_s {float(report.step_time_s):.4g} s" in repr(report)
    assert "memory_capacity_bytes 85.52 GB" in report.summary()
    frame = report.to_dataframe()
    assert frame["step_time_s"][0] == report.step_time_s
    mapped = jax.tree.map(lambda leaf: leaf[None], report)
    assert "step_time_s ndarray(1,)" in repr(mapped)
    seen = []
    jax.eval_shape(lambda each: seen.append(repr(each)) or each, report)
    assert len(seen[0].splitlines()) <= 10


def test_elasticities_become_a_table():
    found = hwopt.elasticities(RUN, CLUSTER, PLAN)
    frame = found.to_dataframe()
    name = "cluster.chip.hbm_bandwidth_bytes_per_s"
    assert frame["step_time_s"][name] == pytest.approx(found.of("step_time_s")[name])


def test_a_gradient_is_one_line():
    assert (
        repr(hwopt.gradient("mfu", RUN, CLUSTER, PLAN)) == "Inputs(workload: TrainingRun, cluster: Cluster, plan: Plan)"
    )


def test_numbers_of_a_cluster_are_replaced():
    """By the field's name without its unit, by the key of data files, and by the element of an array."""
    other = CLUSTER.replace(hbm_bandwidth="8 TB/s", chips=128, latency_scale_up="2us", pool_bandwidth=1e11)
    assert (
        other.chip.hbm_bandwidth_bytes_per_s == 8e12
        and other.chips == 128.0
        and other.pool.bandwidth_bytes_per_s == 1e11
    )
    np.testing.assert_array_equal(other.network.latency_s, [2e-6, *np.asarray(CLUSTER.network.latency_s)[1:]])
    changed = [not np.array_equal(*pair) for pair in zip(jax.tree.leaves(CLUSTER), jax.tree.leaves(other), strict=True)]
    assert sum(changed) == 4 and jax.tree.structure(other) == jax.tree.structure(CLUSTER)
    assert CLUSTER.replace(memory_bandwidth="8 TB/s").chip.hbm_bandwidth_bytes_per_s == 8e12
    assert (
        hwopt.estimate(RUN, CLUSTER.replace(hbm_bandwidth="8 TB/s"), PLAN).mfu > hwopt.estimate(RUN, CLUSTER, PLAN).mfu
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hbm_bandwith": "8 TB/s"}, "replace: 'hbm_bandwith' names no single number: did you mean 'hbm_bandwidth'"),
        ({"bandwidth": 1.0}, "'pool_bandwidth' or 'sites_bandwidth'"),
        ({"hbm_bandwidth": "8 TW"}, "hbm_bandwidth = '8 TW': 'TW' is not a unit of this quantity: .*TB/s"),
        ({"chips": 0}, "chips = 0: must be from 1 to inf"),
        ({"hbm_bandwidth": -1.0}, "must be from 0 to inf"),
        ({"distribution_efficiency": 1.5}, "distribution_efficiency = 1.5: must be from 0 to 1"),
        ({"hbm_bandwidth": None}, "must be a number"),
        ({"hbm_bandwidth": "none"}, "must be from 0"),
    ],
)
def test_mistakes_of_a_replacement_are_named(changes, said):
    with pytest.raises(UserError, match=said):
        CLUSTER.replace(**changes)
