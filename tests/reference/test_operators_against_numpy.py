"""Tables of operators equal plain loops over what was declared of them."""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt import catalog
from hwopt.model.estimate import estimate
from hwopt.workload.operator_kinds import (
    Attention,
    Convolution,
    Elementwise,
    Experts,
    Fft,
    Gemm,
    Lookup,
    Recurrence,
    Scan,
    operator_table,
)
from hwopt.workload.transformer import total_parameters
from tests.in_numpy import once
from tests.reference.plain import rack
from tests.reference.plain.inputs import fields
from tests.reference.plain.operators import stage
from tests.reference.plain.thermal import operating_point

OTHERS = [
    Convolution(inputs=64.0, outputs=64.0, size=28.0, kernel=7.0, groups=64.0, count=3.0),
    Convolution(inputs=128.0, outputs=256.0, size=14.0, kernel=3.0, stride=2.0, groups=32.0),
    Fft(points=1024.0, channels=16.0, count=2.0),
    Recurrence(inputs=256.0, hidden=512.0, count=2.0),
    Experts(inputs=256.0, outputs=512.0, experts=8.0, chosen=2.0),
    Gemm(inputs=512.0, outputs=1000.0, rows=1.0, wide=1.0),
]
"""Kinds that no entry below has."""

SPLIT = [
    Elementwise(channels=4096.0, kept=1.0, weights=1.0, split="residual", count=4.0),
    Gemm(inputs=4096.0, outputs=18560.0, split="columns", count=4.0),
    Elementwise(channels=10240.0, kept=1.0, weights=5.0, split="channels", count=4.0),
    Scan(channels=8192.0, state=128.0, heads=128.0, groups=8.0, chunk=128.0, split="channels", count=4.0),
    Gemm(inputs=8192.0, outputs=4096.0, split="inner", count=4.0),
    Gemm(inputs=4096.0, outputs=6144.0, split="columns"),
    Attention(heads=32.0, width=128.0, kv_heads=8.0, causal=1.0, split="channels"),
    Gemm(inputs=4096.0, outputs=4096.0, split="inner"),
    Elementwise(channels=4096.0, reads=2.0, split="residual", count=5.0),
    Lookup(entries=131072.0, width=4096.0, split="channels"),
    Gemm(inputs=4096.0, outputs=131072.0, split="columns", wide=1.0),
]
"""Chunked scans and attention, split over ranks; of Nemotron-H-8B's widths (arXiv 2504.03624)."""

CASES = {
    "resnet-50": ("resnet-50", {"micro_batch": 16}, {}),
    "resnet-50 recomputed": ("resnet-50", {"micro_batch": 16, "recompute": "full"}, {"trainable_fraction": 0.5}),
    "hybrid, split": (SPLIT, {"tp": 4, "recompute": "selective"}, {"sequence_length": 4096.0}),
    "state space": ("mamba-2.8b", {"recompute": 0.25}, {}),
    "clicks": ("dlrm-dcnv2", {"ep": 4, "micro_batch": 512}, {"routing_imbalance": 1.3, "input_bytes_per_token": 1e-3}),
    "others": (OTHERS, {"micro_batch": 2}, {"sequence_length": 32.0}),
}


LONG = ("state space", "hybrid, split")
"""Traces that slow tests alone take."""


def inputs(name: str):
    """Run, cluster and plan of a case on 8 chips, with the operators and the width between blocks."""
    workload, settings, stated = CASES[name]
    own = isinstance(workload, list)
    run = catalog.training_run("mamba-2.8b" if own else workload, global_batch=4096, **stated)
    if own:
        operators, hidden, parts = (OTHERS, 512.0, 1.0) if workload is OTHERS else (SPLIT, 4096.0, 8.0)
        run = replace(run, model=operator_table(operators, layers=1.0, hidden=hidden, kept_inputs=hidden, heads=parts))
    else:
        operators, hidden = catalog.record("workloads", workload).operators, float(run.model.hidden)
    cluster = catalog.cluster("h100-sxm", 8, operation="benchmark", stack="torchtitan-2024")
    return run, cluster, catalog.plan(run, 8, zero=1, **settings), operators, hidden


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.search) if each in LONG else each for each in CASES]
)
def test_time_memory_and_work(name):
    run, cluster, plan, operators, hidden = inputs(name)
    report = once(estimate)(run, cluster, plan)
    r, c, p = fields(run), fields(cluster), fields(plan)
    c = rack.running(c, operating_point(c.chip, c.cooling))  # with the distances between racks
    plain = stage(operators, hidden, r, c, p)
    batches = r.global_batch_sequences / (p.dp * p.micro_batch)
    for part in ("compute_s", "memory_bound_s", "host_s", "tp_comm_s", "ep_comm_s"):
        expected = batches * c.stack.level * plain[part]
        assert float(getattr(report.breakdown, part)) == pytest.approx(expected, rel=1e-9, abs=1e-12), part
    assert float(report.memory.activations_bytes) == pytest.approx(plain["activations"], rel=1e-9)
    tables = sum(float(each.entries * each.width * each.count) for each in operators if getattr(each, "spread", 0.0))
    weights = 2.0 * plain["weights"] + tables * r.model.table_bytes / p.ep
    assert float(report.memory.weights_bytes) == pytest.approx(weights, rel=1e-9)
    if p.tp == 1:
        assert float(total_parameters(run.model)) == pytest.approx(plain["weights"] + tables, rel=1e-6)
        rate = float(report.model_flops_per_chip_per_s / report.tokens_per_s_per_chip)
        assert rate * r.sequence_length == pytest.approx(plain["flops"], rel=1e-9)


@pytest.mark.search
def test_slopes_are_those_of_differences():
    run, cluster, plan, *_ = inputs("clicks")
    cluster = eqx.tree_at(lambda c: c.stack.host_layer_s, cluster, np.zeros(()))  # nothing binds but the chip

    def step(scale):
        hbm = cluster.chip.hbm_bandwidth_bytes_per_s * scale[0]
        scaled = eqx.tree_at(lambda c: c.chip.hbm_bandwidth_bytes_per_s, cluster, hbm)
        wider = eqx.tree_at(
            lambda r: (r.model.columns, r.model.looked_up),
            run,
            (run.model.columns * scale[1], run.model.looked_up * scale[2]),
        )
        return jnp.log(estimate(wider, scaled, plan).step_time_s)

    one, h = np.ones(3), 1e-5
    slopes = once(jax.grad(step))(one)
    differences = [(once(step)(one + h * axis) - once(step)(one - h * axis)) / (2 * h) for axis in np.eye(3)]
    assert slopes == pytest.approx(np.array(differences), rel=1e-4)
    assert slopes[0] < 0.0 < min(slopes[1:])


def test_flops_of_resnet_50_are_the_published_ones():
    run = catalog.training_run("resnet-50")
    report = once(estimate)(run, catalog.cluster("h100-sxm", 8), catalog.plan(run, 8, micro_batch=50))
    each = float(report.model_flops_per_chip_per_s / report.tokens_per_s_per_chip)
    assert each == pytest.approx(
        3 * 2 * 4.09e9, rel=0.005
    )  # torchvision: 4.09 GFLOP of multiply-adds an image, forward
    assert np.isnan(float(report.loss))
