"""The model with its two roots given: the same numbers at the roots, and margins that say where the roots are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.model.chip import thermal
from hwopt.model.estimate import Lifted, estimate, lifted_estimate
from hwopt.model.training import learning
from hwopt.workload.transformer import active_parameters, total_parameters
from tests.cases import random_case, random_cases
from tests.in_numpy import in_numpy

N = 3_000
AT_OTHER_PLACES = (".clock_margin", ".margins.cooling")
"""Margins that `estimate` takes at the hottest junction, this form at the one given: of the same sign."""
GROW_WITH_HEAT = (
    "chip_power_w", "heat_flux_w_per_m2", "rack_power_w", "power_w", "peak_power_w", "energy_per_token_j",
    "carbon_per_token_kg", "capex_usd", "cost_per_token_usd", "run_time_s", "run_cost_usd", "run_energy_j", "run_carbon_kg",
)  # fmt: skip
LOOPS = ("while", "scan", "cond", "custom_jvp_call", "custom_vjp_call", "custom_linear_solve")


def lesson(run):
    """Parameters of the dense model that learns as well, fresh tokens, and tokens of a batch."""
    model, law = run.model, run.law
    parameters = learning.dense_equivalent_parameters(law, active_parameters(model), total_parameters(model))
    fresh = learning.repeated_tokens(law, run.unique_tokens, run.tokens / run.unique_tokens)
    return parameters, fresh, run.global_batch_sequences * run.sequence_length


def run_lifted(cases, *given):
    return in_numpy(lifted_estimate)(*cases, Lifted(*given))


@pytest.fixture(scope="module")
def cases():
    return random_cases(np.random.default_rng(70), N)


@pytest.fixture(scope="module")
def report(cases):
    return in_numpy(estimate)(*cases)


@pytest.fixture(scope="module")
def useful(cases):
    return in_numpy(lambda run: learning.effective_tokens(run.law, *lesson(run)))(cases[0])


@pytest.fixture(scope="module")
def learns(cases):
    """Where the batch is small enough for `effective_tokens` to be a root."""
    return in_numpy(lambda run: learning.batch_margin(run.law, *lesson(run)))(cases[0]) > 0


@pytest.fixture(scope="module")
def free(report):
    """Where the chip sustains the clock it asks for."""
    return report.clock_margin >= 0


@pytest.fixture(scope="module")
def ahead(report):
    """Where the job gets ahead of its failures: beyond, `estimate` holds its goodput and this form does not."""
    return report.margins.failures > 0


def loop_gain(cluster, junction_k):
    """Kelvins that a kelvin of the junction adds by leakage, at the clock asked for."""
    leaked = thermal.leakage_w(cluster.chip, cluster.chip.clock_ratio, junction_k)
    return thermal.thermal_resistance_k_per_w(cluster.chip, cluster.cooling) * cluster.chip.leakage_per_k * leaked


# At the roots --------------------------------------------------------------------------------------------------------


def test_the_report_is_that_of_estimate(cases, report, useful, free, ahead):
    same = free & ahead
    assert 0.2 < same.mean() < 0.8
    lifted, _ = run_lifted(cases, report.junction_temperature_k, useful, report.checkpoint_interval_s)
    for (path, new), old in zip(jax.tree_util.tree_leaves_with_path(lifted), jax.tree.leaves(report), strict=True):
        name = jax.tree_util.keystr(path)
        if name in AT_OTHER_PLACES:
            assert (new >= 0)[free].all(), name
        else:
            endless = same & np.isinf(old) & (name == ".margins.pool")  # without a pool; this form stays finite
            assert (new[endless] > 50).all()
            np.testing.assert_allclose(new[same & ~endless], old[same & ~endless], rtol=1e-9, atol=1e-12, err_msg=name)


def test_margins_are_zero(cases, report, useful, free, learns):
    _, margins = run_lifted(cases, report.junction_temperature_k, useful, report.checkpoint_interval_s)
    assert 0.5 < learns.mean() < 1
    np.testing.assert_allclose(margins.heat[free], 0.0, atol=1e-9)
    np.testing.assert_allclose(margins.learning[learns], 0.0, atol=1e-9)
    assert (margins.learning[~learns] <= 1e-9).all()  # held above the root


def test_margins_change_sign(cases, report, useful, free, learns):
    kelvin = report.junction_temperature_k
    calm = free & (in_numpy(loop_gain)(cases[1], kelvin) < 0.99)
    assert calm.sum() > 0.95 * free.sum()
    for change in (1e-3, 1e-5, 1e-7):
        _, below = run_lifted(cases, kelvin * (1 - change), useful * (1 - change), report.checkpoint_interval_s)
        _, above = run_lifted(cases, kelvin * (1 + change), useful * (1 + change), report.checkpoint_interval_s)
        assert (below.heat < 0)[free].all() and (below.learning > 0)[learns].all()
        assert (above.learning < 0)[learns].all()
        if change < 1e-4:  # further up leakage may run away
            assert (above.heat > 0)[calm].all()


# Away from them ------------------------------------------------------------------------------------------------------


def test_nothing_charged_falls_with_temperature(cases, report, useful, free):
    before, _ = run_lifted(cases, report.junction_temperature_k, useful, report.checkpoint_interval_s)
    for kelvin in (0.01, 1.0, 10.0, 50.0):
        after, _ = run_lifted(cases, report.junction_temperature_k + kelvin, useful, report.checkpoint_interval_s)
        ahead = free & (after.margins.failures > 0)
        assert ahead.mean() > 0.2
        for name in GROW_WITH_HEAT:
            assert (getattr(after, name) >= getattr(before, name) * (1 - 1e-12))[ahead].all(), name
        assert (after.chip_power_w > before.chip_power_w)[free].all()
        assert (after.goodput <= before.goodput)[free].all()
        assert (after.margins.failures <= before.margins.failures)[free].all()
        np.testing.assert_array_equal(after.step_time_s, before.step_time_s)
        np.testing.assert_array_equal(after.loss, before.loss)
        before = after


def test_no_other_interval_loses_less(cases, report, useful, free):
    best, margins = run_lifted(cases, report.junction_temperature_k, useful, report.checkpoint_interval_s)
    chosen = np.asarray(cases[0].checkpoint_interval_s) == 0.0  # not what a run states
    assert (margins.storage >= -1e-12)[chosen].all()
    for factor in (0.3, 0.9, 0.999, 1.001, 1.1, 3.0):
        other, kept = run_lifted(cases, report.junction_temperature_k, useful, report.checkpoint_interval_s * factor)
        assert ((other.goodput <= best.goodput + 1e-15) | (kept.storage < 0))[chosen].all()


def test_loss_alone_falls_with_useful_tokens(cases, report, useful):
    fewer, _ = run_lifted(cases, report.junction_temperature_k, 0.9 * useful, report.checkpoint_interval_s)
    as_many, _ = run_lifted(cases, report.junction_temperature_k, useful, report.checkpoint_interval_s)
    assert (fewer.loss > as_many.loss).all()
    for name in (*GROW_WITH_HEAT, "step_time_s", "goodput"):
        np.testing.assert_array_equal(getattr(fewer, name), getattr(as_many, name))


def test_a_temperature_settles_just_where_the_chip_does_not_throttle(cases, report, free):
    """Over a grid from the coolant to what the allowed power heats to, and the temperature found."""
    cluster = cases[1]

    def both(cluster, kelvin):
        point, heat = thermal.lifted_point(cluster.chip, cluster.cooling, kelvin)
        return jnp.minimum(heat, point.clock_margin)

    def warmest(cluster):
        allowed = thermal.allowed_power_w(cluster.chip, cluster.cooling)
        rise = thermal.thermal_resistance_k_per_w(cluster.chip, cluster.cooling) * allowed
        return cluster.cooling.coolant_temperature_k + rise

    coolest, top = cluster.cooling.coolant_temperature_k, in_numpy(warmest)(cluster)
    shares = np.concatenate([np.linspace(0, 1, 300), [1.05]])
    grid = coolest[:, None] + shares * (top - coolest)[:, None]
    kelvin = np.concatenate([grid, report.junction_temperature_k[:, None]], axis=1)
    best = in_numpy(lambda one, row: jnp.max(jax.vmap(lambda k: both(one, k))(row)))(cluster, kelvin)
    assert (best[free] >= -1e-12).all()
    assert (best[~free] < 0).all()


def test_the_useful_tokens_are_the_most_that_settle(cases, useful, learns):
    """Over a grid from a twentieth to all of the fresh tokens; none there where the batch is too large to learn from."""

    def margins(run, ratios):
        parameters, fresh, batch = lesson(run)
        one = lambda ratio: learning.useful_margin(run.law, parameters, ratio * fresh, fresh, batch)
        return jax.vmap(one)(ratios), ratios * fresh

    ratios = np.tile(np.geomspace(learning.LEAST_USEFUL, 1.0, 200), (N, 1))
    margin, tokens = in_numpy(margins)(cases[0], ratios)
    away = np.abs(tokens / useful[:, None] - 1) > 1e-9
    settles = tokens < useful[:, None]
    assert ((margin >= 0) == settles)[learns[:, None] & away].all()
    assert (margin < 0)[~learns].all()


# Its form ------------------------------------------------------------------------------------------------------------


def primitives(jaxpr):
    """Names of all primitives of a jaxpr and of those inside it."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
            if is_jaxpr(inner):
                yield from primitives(getattr(inner, "jaxpr", inner))


def is_jaxpr(value) -> bool:
    return hasattr(value, "eqns")


def test_no_loop_is_left():
    case = random_case(np.random.default_rng(71))
    with jax.enable_x64(True):
        given = Lifted(jnp.asarray(340.0), jnp.asarray(1e12), jnp.asarray(3600.0))
        closed = set(primitives(jax.make_jaxpr(lifted_estimate)(*case, given).jaxpr))
        looped = set(primitives(jax.make_jaxpr(estimate)(*case).jaxpr))
    assert "exp" in closed and not closed & set(LOOPS)
    assert looped & set(LOOPS)  # the search sees into what is nested
