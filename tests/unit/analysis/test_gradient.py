"""`estimate` and `gradient` on numbers: NumPy and the cached trace, with the values of the compiled model."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.design.design import Inputs
from hwopt.errors import UserError
from hwopt.model import estimate as model


def asked(chips=64):
    run = catalog.training_run("llama3-8b", global_batch=128)
    return run, catalog.cluster("h100-sxm", chips=chips), catalog.plan(run, chips, tp=4, pp=2)


def served():
    service = catalog.service("llama3-8b")
    return service, catalog.cluster("h100-sxm", chips=8), catalog.serving_plan(service, 8, tp=4, batch=16)


@pytest.fixture
def uncompiled(monkeypatch):
    """Fails where the model would be compiled."""
    compiled = model._compiled

    def traced_only(*inputs):
        assert any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(inputs)), "compiled"
        return compiled(*inputs)

    monkeypatch.setattr(model, "_compiled", traced_only)


@pytest.mark.parametrize("case", [asked, pytest.param(served, marks=pytest.mark.slow)])
def test_the_compiled_model_has_the_same_values(case):
    given = case()
    ours = hwopt.estimate(*given)
    with jax.enable_x64(True):
        theirs = jax.jit(hwopt.estimate)(*given)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert one.dtype == np.float64 and np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("case", "metric"), [(asked, "step_time_s"), (asked, "run_cost_usd"), (served, "cost_per_token_usd")]
)
def test_gradients_are_central_differences(case, metric, uncompiled):
    given = case()
    slopes = hwopt.gradient(metric, *given)
    assert jax.tree.structure(slopes) == jax.tree.structure(Inputs(*given))
    for where in (
        lambda inputs: inputs[1].chip.hbm_bandwidth_bytes_per_s,
        lambda inputs: inputs[1].network.bandwidth_bytes_per_s,
        lambda inputs: inputs[1].chip.peak_flops_per_s,
        lambda inputs: inputs[1].facility.host_power_w,
        lambda inputs: inputs[1].chip.hbm_efficiency,
    ):
        old = np.asarray(where(given), np.float64)
        for place in np.ndindex(old.shape):
            moved = []
            for sign in (-1, 1):
                new = old.copy()
                new[place] *= 1 + sign * 1e-5
                moved.append(float(getattr(hwopt.estimate(*eqx.tree_at(where, given, new)), metric)))
            wanted = (moved[1] - moved[0]) / (2e-5 * old[place])
            np.testing.assert_allclose(where(slopes)[place], wanted, rtol=1e-5, atol=1e-9 * moved[0] / old[place])


def test_traced_inputs_take_the_compiled_path():
    """Shapes alone are traced here; `tests/gradient` compiles and compares values."""
    run, cluster, plan = asked()
    seen = jax.eval_shape(lambda machine: hwopt.gradient("step_time_s", run, machine, plan), cluster)
    assert seen.cluster.chips.shape == () and jax.tree.structure(seen.plan) == jax.tree.structure(plan)
    many = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf, float)] * 3), plan)
    assert jax.eval_shape(jax.vmap(lambda each: hwopt.estimate(run, cluster, each).mfu), many).shape == (3,)


@pytest.mark.slow
def test_gradients_are_those_of_jax():
    given = asked()
    ours = hwopt.gradient("step_time_s", *given)
    with jax.enable_x64(True):
        theirs = jax.jit(lambda *inputs: hwopt.gradient("step_time_s", *inputs))(*given)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-9, atol=1e-15)


def test_unknown_metrics_are_named():
    with pytest.raises(UserError, match="unknown metric 'step_time': did you mean 'step_time_s'"):
        hwopt.gradient("step_time", *asked())
    with pytest.raises(UserError, match="not available for this workload"):
        hwopt.gradient("run_time_s", *served())
