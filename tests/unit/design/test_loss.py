"""A question as functions of a vector: values of the model, derivatives, optimizers of others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import minimize

import hwopt
from hwopt import UserError
from hwopt.design.metrics import METRICS
from tests.toy import ToyCost

QUESTIONS = {
    "toy": lambda: ToyCost(),
    "train": lambda: hwopt.objective("train_cost"),
    "serve": lambda: hwopt.objective("serve_cost"),
}
SLOW = {
    "parametric": lambda: hwopt.objective("train_cost", design="h100-sxm", prices="at-cost"),
    "time": lambda: hwopt.objective("train_time", workload="llama3.1-70b", chip="mi300x"),
    "energy": lambda: hwopt.objective("train_energy", workload="deepseek-v3", chip="gb200"),
    "carbon": lambda: hwopt.objective("carbon", workload="llama3.1-8b", chip="tpu-v5p"),
    "latency": lambda: hwopt.objective("serve_latency", workload="llama3.1-70b"),
    "tokens": lambda: hwopt.objective("tokens_per_dollar", workload="mixtral-8x22b", chip="b200"),
    "loss": lambda: hwopt.objective("loss_under_budget"),
}
CASES = [*QUESTIONS, *(pytest.param(name, marks=pytest.mark.search) for name in SLOW)]


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def loss_of(name):
    return hwopt.loss((QUESTIONS | SLOW)[name]())


def middle(loss, rng):
    """A point away from the ends, where ceilings of whole racks and layers are far enough for differences."""
    return loss.lower + (loss.upper - loss.lower) * rng.uniform(0.3, 0.7, len(loss.lower))


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_estimate_and_gradients_those_of_differences(name):
    loss, rng = loss_of(name), np.random.default_rng(0)
    value = jax.jit(jax.value_and_grad(loss.value))
    for x in (jnp.asarray(loss.start), jnp.asarray(middle(loss, rng))):
        report, exact = loss.report(x), hwopt.estimate(*loss.inputs(x))
        for ours, theirs in zip(jax.tree.leaves(report), jax.tree.leaves(exact), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        metric = METRICS.get(loss.question.objective.name, loss.question.objective)
        np.testing.assert_allclose(jnp.exp(loss.objective(x)), metric.value(exact), rtol=1e-12)
    gradient, along = value(x)[1], rng.normal(size=(4, len(x)))
    for way in along:
        at = lambda t, way=way: value(x + t * way)[0]
        fine = [(at(h) - at(-h)) / (2 * h) for h in (1e-6, 5e-7)]
        if abs(fine[0] - fine[1]) > 1e-5 * abs(fine[0]) + 1e-7:
            continue  # a corner of the model between the points
        np.testing.assert_allclose(gradient @ way, fine[1], rtol=1e-5, atol=1e-6)
    single = jax.jit(jax.value_and_grad(loss.value))(x.astype(jnp.float32))
    assert single[0].dtype == jnp.float32
    np.testing.assert_allclose(single[0], value(x)[0], rtol=1e-4)
    np.testing.assert_allclose(single[1], gradient, rtol=1e-3, atol=1e-4 * float(jnp.abs(gradient).max()))


@pytest.mark.parametrize("name", CASES)
def test_points_at_random_are_finite(name):
    loss = loss_of(name)
    x = np.random.default_rng(1).uniform(loss.lower, loss.upper, (10_000, len(loss.lower)))
    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(loss.value)))(jnp.asarray(x))
    assert np.isfinite(values).all() and np.isfinite(gradients).all()


def test_optimizers_of_others_reach_the_same_optimum():
    """Least cost of the toy within its limits: optax's Adam and L-BFGS on penalties, SciPy with the constraints themselves."""
    loss = hwopt.loss(ToyCost())
    slsqp = minimize(
        jax.jit(loss.objective), loss.start, jac=jax.jit(jax.grad(loss.objective)), method="SLSQP",
        bounds=list(zip(loss.lower, loss.upper, strict=True)),
        constraints={"type": "ineq", "fun": lambda x: -loss.constraints(x), "jac": lambda x: -jax.jacobian(loss.constraints)(x)},
    )  # fmt: skip
    assert slsqp.success
    inside = lambda z: loss.lower + (loss.upper - loss.lower) * jax.nn.sigmoid(z)
    rules = {"adam": (optax.adam(optax.cosine_decay_schedule(0.1, 300)), 300), "lbfgs": (optax.lbfgs(), 60)}
    value = lambda z, multipliers: loss.lagrangian(inside(z), multipliers, 100.0)
    for name, (rule, steps) in rules.items():
        z, multipliers = jnp.zeros(len(loss.lower)), jnp.zeros(len(loss.constraint_names))

        @jax.jit
        def step(z, state, multipliers, name=name, rule=rule):
            at = lambda z: value(z, multipliers)
            if name == "adam":
                moved, state = rule.update(jax.grad(at)(z), state)
            else:
                f, slope = optax.value_and_grad_from_state(at)(z, state=state)
                moved, state = rule.update(slope, state, z, value=f, grad=slope, value_fn=at)
            return optax.apply_updates(z, moved), state

        for _ in range(8):
            state = rule.init(z)
            for _ in range(steps):
                z, state = step(z, state, multipliers)
            multipliers = loss.multipliers(inside(z), multipliers, 100.0)
        assert float(loss.constraints(inside(z)).max()) < 1e-4, name
        assert float(loss.objective(inside(z))) == pytest.approx(slsqp.fun, abs=1e-3), name


def test_a_fixed_variable_and_a_freed_number():
    question = hwopt.objective("train_cost")
    loss = hwopt.loss(question, fixed={"tp": 8, "pp": 8}, free=["cluster.network.efficiency[scale_out]"], weight=10.0)
    assert "tp" not in loss.names and loss.names[-1] == "cluster.network.efficiency[scale_out]"
    assert "nothing prices or limits: cluster.network.efficiency[scale_out]" in repr(loss)
    assert len(repr(loss).splitlines()) <= 10
    at = loss.unpack(jnp.asarray(loss.start))
    assert float(at["tp"]) == 8.0 and loss.inputs(jnp.asarray(loss.start)).plan.tp == 8.0
    assert np.exp(loss.upper[-1]) <= 1.0  # an efficiency
    slope = jax.grad(loss.objective)(jnp.asarray(loss.start))
    assert slope[-1] <= 0.0  # a faster network costs nothing here


def test_a_certified_plan_is_reproduced():
    """With its whole numbers and the shares of layers that follow from them, its objective is the answer's."""
    question = hwopt.objective("train_cost", time_budget_s=92 * 86400.0)
    plan = {"tp": 8, "cp": 2, "pp": 16, "virtual_stages": 8, "micro_batch": 1}
    plan |= {"zero": 1, "chips": 11264, "scale_up_domain": 24, "chips_per_rack": 24, "global_batch_sequences": 2112}
    answer = hwopt.optimize(question, regime="relaxed", bounds={name: (each, each) for name, each in plan.items()})
    stages = {name: float(getattr(answer.inputs.plan, name)) for name in ("fullest_stage", "last_stage")}
    assert stages["last_stage"] < 1.0  # 126 layers on 128 stages
    loss = hwopt.loss(question, fixed=plan | stages)
    x = jnp.log(jnp.asarray([answer.design[name].value for name in loss.names]))
    np.testing.assert_allclose(jnp.exp(loss.objective(x)), answer.objective, rtol=1e-9)
    assert float(loss.constraints(x).max()) < 1e-6


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fixed": {"chip": 8}}, "'chip', which is not a variable.*did you mean 'chips'"),
        ({"fixed": {"tp": 4096}}, "tp = 4096 is outside its bounds 1 .. 64"),
        ({"free": ["cluster.network.eficiency[core]"]}, "not an input"),
        ({"fixed": 3}, "fixed = 3: state values by name"),
        ({"fixed": {"tp": "x"}}, "tp.*'x'"),
        ({"free": "abc"}, "free"),
        ({"weight": None}, "weight.*None"),
        ({"weight": -1.0}, "weight = -1.0: must be positive"),
    ],
)
def test_mistakes_are_named(settings, words):
    with pytest.raises(UserError, match=words):
        hwopt.loss(hwopt.objective("train_cost"), **settings)


def test_a_name_is_no_question():
    with pytest.raises(UserError, match=r"pass hwopt\.objective"):
        hwopt.loss("train_cost")
