"""Loss laws: published optima, the trade of steps and tokens, batch schedules, repeated data, and the form claimed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from hwopt.catalog.names import data_root, names
from hwopt.catalog.workloads import loss_law
from hwopt.errors import UserError
from hwopt.model.training import learning as model
from hwopt.solver.jit_options import quick_jit
from hwopt.workload.learning import LossLaw
from tests.in_numpy import in_numpy, one_row

FIELDS = tuple(LossLaw.__dataclass_fields__)
LAWS = names("laws")
BOTH_BATCHES = ("chinchilla-epoch", "chinchilla-epoch-kaplan")  # the published law differs in numbers only
SPANS = ((1e8, 1e13), (1e10, 1e14), (1e4, 1e9))
"""Parameters, tokens, tokens a batch."""


def random_points(n: int, seed: int = 0, spans=SPANS) -> np.ndarray:
    low, high = np.log(np.array(spans)).T
    return np.exp(np.random.default_rng(seed).uniform(low, high, (n, len(spans))))


def learnable(law, points: np.ndarray) -> np.ndarray:
    """Points whose batch is not too large to learn from."""
    return points[values(lambda n, d, b: model.batch_margin(law, n, d, b), points) > 1e-3]


def assert_log_log_convex(function, points, tolerance=1e-9):
    """The Hessian of log f in the logarithms of its inputs has no negative eigenvalue."""
    matrices = in_numpy(jax.hessian(lambda y: jnp.log(function(*jnp.exp(y)))))(np.log(points))
    assert np.isfinite(matrices).all()
    eigenvalues = np.linalg.eigvalsh(0.5 * (matrices + matrices.transpose(0, 2, 1)))
    assert (eigenvalues[:, 0] >= -tolerance * np.maximum(1.0, eigenvalues[:, -1])).all(), eigenvalues[:, 0].min()


def assert_gradients(function, points, step=1e-5):
    """Elasticities equal central differences."""
    log_f = lambda y: jnp.log(function(*jnp.exp(y)))
    y = np.log(points)
    exact, value = in_numpy(jax.grad(log_f))(y), in_numpy(log_f)
    for i in range(y.shape[1]):
        shift = step * np.eye(y.shape[1])[i]
        differences = (value(y + shift) - value(y - shift)) / (2 * step)
        np.testing.assert_allclose(exact[:, i], differences, rtol=1e-6, atol=1e-8)


def values(function, points) -> np.ndarray:
    """In float64."""
    return in_numpy(function)(*points.T)


@pytest.mark.parametrize("name", LAWS)
def test_every_law_loads(name):
    law = loss_law(name)
    for field in FIELDS:
        part = getattr(law, field)
        assert isinstance(part, np.ndarray) and part.dtype == np.float64 and part.ndim == 0 and part >= 0


@pytest.mark.parametrize(("field", "wrong"), [("critical_token_exponent", 1.0), ("moe_exponent", 2.0)])
def test_exponents_that_cannot_be_are_refused(tmp_path, field, wrong):
    lines = (data_root() / "laws" / "chinchilla-epoch.toml").read_text(encoding="utf-8").splitlines()
    changed = f'{field} = {{ value = {wrong}, unit = "1", kind = "assumption", source = "hwopt-assumption" }}'
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(changed if line.startswith(field) else line for line in lines), encoding="utf-8")
    with pytest.raises(UserError, match=field):
        loss_law(path)


@pytest.mark.parametrize(
    ("name", "flops", "ratio"),
    [
        ("chinchilla-epoch", 5.8e23, 18.4),
        ("chinchilla-epoch", 3e25, 16.6),
        ("chinchilla-published", 5.8e23, 93.0),
        ("chinchilla-published", 3e25, 136.0),
    ],
)
def test_tokens_per_parameter_at_the_optimum(name, flops, ratio):
    with jax.enable_x64(True):
        parameters, tokens = model.compute_optimal(loss_law(name), flops)
        assert float(tokens / parameters) == pytest.approx(ratio, rel=5e-3)
        assert float(6.0 * parameters * tokens) == pytest.approx(flops, rel=1e-12)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("flops", [1e19, 5.8e23, 3e27])
def test_the_closed_form_is_the_least(name, flops):
    law = loss_law(name)
    with jax.enable_x64(True):
        parameters, tokens = map(float, model.compute_optimal(law, flops))
        best = minimize_scalar(
            lambda y: float(model.loss(law, np.exp(y), flops / (6.0 * np.exp(y)))),
            bounds=(np.log(parameters) - 2, np.log(parameters) + 2), method="bounded", options={"xatol": 1e-10},
        )  # fmt: skip
        assert parameters == pytest.approx(np.exp(best.x), rel=1e-4)
        assert float(model.loss(law, parameters, tokens)) <= best.fun * (1 + 1e-12)


def test_the_optimum_of_llama_3_lies_elsewhere():
    """Published from its own law: 402 B parameters, 16.55 T tokens at 3.8e25 FLOP. For comparison only."""
    with jax.enable_x64(True):
        parameters, tokens = map(float, model.compute_optimal(loss_law(), 3.8e25))
    print(f"3.8e25 FLOP: {parameters / 1e9:.0f} B, {tokens / 1e12:.1f} T; Llama 3's own law 402 B, 16.55 T")
    assert 300e9 < parameters < 1e12


@pytest.mark.parametrize("name", LAWS)
def test_batch_at_the_critical_one_takes_twice_the_tokens(name):
    law = loss_law(name)
    points = random_points(200)

    def ratios(parameters, useful, _):
        batch = model.critical_batch_tokens(law, parameters, useful)
        tokens = model.tokens_with_batch(law, parameters, useful, batch)
        return jnp.stack([tokens / useful, tokens / batch / model.minimum_steps(law, parameters, useful)])

    np.testing.assert_allclose(values(ratios, points), 2.0, rtol=1e-12)


@pytest.mark.parametrize("name", LAWS)
def test_steps_against_tokens(name):
    """McCandlish: (S / S_min - 1) (E / E_min - 1) = 1 at every batch."""
    law = loss_law(name)

    def product(parameters, useful, batch):
        tokens = model.tokens_with_batch(law, parameters, useful, batch)
        return (tokens / useful - 1.0) * (tokens / batch / model.minimum_steps(law, parameters, useful) - 1.0)

    np.testing.assert_allclose(values(product, random_points(500)), 1.0, rtol=1e-5)


@pytest.mark.parametrize("name", BOTH_BATCHES)
def test_effective_tokens_invert_tokens_with_batch(name):
    law = loss_law(name)

    def there_and_back(parameters, tokens, batch):
        useful = model.effective_tokens(law, parameters, tokens, batch)
        return model.tokens_with_batch(law, parameters, useful, batch) / tokens

    points = learnable(law, random_points(2000))
    assert len(points) > 1500
    np.testing.assert_allclose(values(there_and_back, points), 1.0, rtol=1e-12)
    shares = values(lambda n, d, b: model.effective_tokens(law, n, d, b) / d, points)
    assert ((shares > 0) & (shares < 1)).all()


def test_effective_tokens_are_the_root_of_an_independent_solver():
    law = loss_law()
    with jax.enable_x64(True):
        for parameters, tokens, batch in learnable(law, random_points(30, seed=1)):
            root = brentq(
                lambda u, n=parameters, d=tokens, b=batch: float(model.tokens_with_batch(law, n, u, b)) / d - 1.0,
                1e-6 * tokens, tokens, xtol=1e-6, rtol=1e-13,
            )  # fmt: skip
            found = model.effective_tokens(law, jnp.asarray(parameters), jnp.asarray(tokens), jnp.asarray(batch))
            assert float(found) == pytest.approx(root, rel=1e-9)


@pytest.mark.parametrize("name", BOTH_BATCHES)
def test_tokens_to_the_loss_of_a_run_are_those_of_the_run(name):
    law = loss_law(name)

    def there_and_back(parameters, tokens, batch):
        reached = model.loss_of_run(law, parameters, tokens, batch)
        return model.tokens_to_loss(law, parameters, reached, batch) / tokens

    points = learnable(law, random_points(500, seed=2))
    margin = values(lambda n, d, b: model.loss_margin(law, n, model.loss_of_run(law, n, d, b)), points)
    np.testing.assert_allclose(values(there_and_back, points[margin > 1e-3]), 1.0, rtol=1e-8)
    assert (margin > 1e-3).mean() > 0.8


@pytest.mark.parametrize("name", LAWS)
def test_a_batch_too_large_is_held_and_said(name):
    law = loss_law(name)
    points = random_points(1000, seed=8, spans=((1e6, 1e13), (1e6, 1e14), (1e3, 1e12)))
    shares = values(lambda n, d, b: model.effective_tokens(law, n, d, b) / d, points)
    margins = values(lambda n, d, b: model.batch_margin(law, n, d, b), points)
    ordinary = points[:, 1] > 1e10  # with fewer tokens Kaplan's law has no root, or two
    held = np.isclose(shares, model.LEAST_USEFUL, rtol=1e-9)
    assert np.isfinite(shares).all() and (shares >= model.LEAST_USEFUL * (1 - 1e-12)).all()
    assert ((margins < 0) == held)[ordinary].all() and held[ordinary].any()


def test_a_loss_out_of_reach_is_finite_and_said():
    law = loss_law()
    for wanted in (1.0, 1.8172, 1.9, 1.91):
        function = lambda x: model.tokens_to_loss(law, jnp.float32(7e10), x, jnp.float32(4e6))
        value, slope = jax.value_and_grad(function)(jnp.float32(wanted))
        assert np.isfinite(value) and np.isfinite(slope)
        floor = float(model.loss_floor(law, jnp.float32(7e10)))
        out = float(model.loss_margin(law, jnp.float32(7e10), jnp.float32(wanted))) < 0
        assert out == (model.LARGEST_FLOOR * wanted < floor)


def test_critical_batch_of_both_families():
    """Kaplan: 7.4 M tokens at a loss of 2.0, 1.07 M at 3. Zhang: independent of parameters, D^0.47."""
    kaplan, zhang = loss_law("chinchilla-epoch-kaplan"), loss_law()
    with jax.enable_x64(True):
        for wanted, batch in ((2.0, 7.4e6), (1.9, 9.4e6), (3.0, 1.07e6)):
            useful = brentq(lambda y, w=wanted: float(model.loss(kaplan, 3e12, np.exp(y))) - w, 15.0, 40.0)
            found = float(model.critical_batch_tokens(kaplan, 3e12, np.exp(useful)))
            assert found == pytest.approx(batch, rel=0.01)
        first, second = (float(model.critical_batch_tokens(zhang, n, 1e12)) for n in (1e9, 1e12))
        assert first == second
        ratio = float(model.critical_batch_tokens(zhang, 1e9, 1e13)) / first
        assert ratio == pytest.approx(10**0.47, rel=1e-9)


def test_conversion_from_twenty_percent_more_steps():
    """Zhang's 93.2 N^0.47 sequences of 512 at 1.2 B parameters, measured from 256 sequences."""
    law = loss_law()
    published = 93.2 * 1200**0.47 * 512
    with jax.enable_x64(True):
        steps = lambda b: float(model.tokens_with_batch(law, 1.2e9, 24e9, b)) / b
        assert steps(published) * published == pytest.approx(1.2 * steps(256 * 512) * 256 * 512, rel=2e-3)


@pytest.mark.parametrize("name", LAWS)
def test_local_critical_batch_is_the_slope_of_the_least_steps(name):
    law = loss_law(name)

    def ratio(parameters, useful, _):
        slope = jax.grad(lambda d: model.minimum_steps(law, parameters, d))(useful)
        return slope * model.local_critical_batch_tokens(law, parameters, useful)

    np.testing.assert_allclose(values(ratio, random_points(200)), 1.0, rtol=1e-9)


@pytest.mark.parametrize("name", LAWS)
def test_a_ramp_of_equal_stages_is_one_batch(name):
    law = loss_law(name)
    n, d, batch = 4e11, 1.5e13, 16e6
    with jax.enable_x64(True):
        plain = float(model.tokens_with_batch(law, n, d, batch))
        for stages in (1, 4):
            flat = model.ramped(law, n, d, np.full(stages, 1.0 / stages), np.full(stages, batch))
            assert float(flat.tokens) == pytest.approx(plain, rel=1e-12)
            assert float(flat.steps) == pytest.approx(plain / batch, rel=1e-12)


def test_a_ramp_saves_tokens_over_its_last_batch_and_steps_over_its_first():
    law = loss_law()
    shares, batches = np.array([0.02, 0.18, 0.8]), np.array([4e6, 8e6, 16e6])
    with jax.enable_x64(True):
        ramp = model.ramped(law, 4e11, 1.5e13, shares, batches)
        first, last = (float(model.tokens_with_batch(law, 4e11, 1.5e13, b)) for b in (4e6, 16e6))
    assert first < float(ramp.tokens) < last
    assert last / 16e6 < float(ramp.steps) < first / 4e6


def test_repeated_data():
    """Muennighoff: 4 epochs are worth 3.73 times the data; never more than 1 + R* times."""
    law = loss_law()
    with jax.enable_x64(True):
        worth = lambda e: float(model.repeated_tokens(law, 1e12, e)) / 1e12
        assert worth(0.5) == pytest.approx(0.5) and worth(1.0) == pytest.approx(1.0)
        assert worth(4.0) == pytest.approx(3.726, rel=1e-3)
        assert worth(1e6) == pytest.approx(16.4)
        assert all(np.diff([worth(e) for e in np.geomspace(0.1, 100, 50)]) > 0)
        slope = jax.grad(lambda e: model.repeated_tokens(law, 1.0, e))
        assert float(slope(1.0 - 1e-9)) == pytest.approx(float(slope(1.0 + 1e-9)), rel=1e-6)


def test_moe_models_lie_between_active_and_all():
    law = loss_law()
    with jax.enable_x64(True):
        assert float(model.dense_equivalent_parameters(law, 7e10, 7e10)) == pytest.approx(7e10)
        found = float(model.dense_equivalent_parameters(law, 37e9, 671e9))
    assert found == pytest.approx(np.sqrt(37e9 * 671e9))


@pytest.mark.parametrize("name", BOTH_BATCHES)
def test_what_is_log_log_convex(name):
    law = loss_law(name)
    points = learnable(law, random_points(150, seed=3))
    assert_log_log_convex(lambda n, d, b: model.loss(law, n, d), points)
    assert_log_log_convex(lambda n, d, b: 1.0 / model.critical_batch_tokens(law, n, d), points)
    assert_log_log_convex(lambda n, d, b: model.tokens_with_batch(law, n, d, b), points)
    assert_log_log_convex(lambda n, d, b: 1.0 / model.effective_tokens(law, n, d, b), points)
    assert_log_log_convex(lambda n, d, b: model.loss_of_run(law, n, d, b), points)
    assert_log_log_convex(lambda u, t: 1.0 / model.repeated_tokens(law, u, t / u), points[:, [1, 1]] * [1.0, 1e-3])
    assert_log_log_convex(lambda u, t: 1.0 / model.repeated_tokens(law, u, t / u), points[:, [1, 0]] * [1.0, 1e2])

    def to_loss(parameters, share, batch):
        return model.tokens_to_loss(law, parameters, model.loss_floor(law, 1e8) * share, batch)

    assert_log_log_convex(to_loss, random_points(150, seed=4, spans=((1e8, 1e13), (1.01, 2.0), (1e4, 1e9))))


def test_ramp_is_log_log_convex_where_it_says():
    law = loss_law()
    shares = np.array([0.1, 0.3, 0.6])

    def tokens(useful, *batches):
        return model.ramped(law, jnp.asarray(1e11), useful, shares, jnp.stack(batches)).tokens

    assert_log_log_convex(tokens, random_points(100, spans=((1e10, 1e14), *[(1e4, 1e9)] * 3)))


@pytest.mark.parametrize("name", BOTH_BATCHES)
def test_gradients_equal_differences(name):
    law = loss_law(name)
    points = learnable(law, random_points(100, seed=6))
    assert_gradients(lambda n, d, b: model.loss_of_run(law, n, d, b), points)
    assert_gradients(lambda n, d, b: model.effective_tokens(law, n, d, b), points)
    assert_gradients(lambda n, d, b: model.tokens_with_batch(law, n, d, b), points)
    spans = ((1e8, 1e13), (1.05, 2.0), (1e4, 1e9))
    assert_gradients(
        lambda n, s, b: model.tokens_to_loss(law, n, model.loss_floor(law, n) * s, b), random_points(100, spans=spans)
    )


@pytest.mark.parametrize("name", LAWS)
def test_every_number_of_a_law_moves_the_loss(name):
    law = loss_law(name)

    def of_law(held):
        parameters = model.dense_equivalent_parameters(held, 1e10, 1e11)
        once = model.loss_of_run(held, parameters, model.repeated_tokens(held, 5e11, 3.0), 1e7)
        return once + model.loss_apart(held, parameters, 5e11, 3.0)

    with jax.enable_x64(True):
        gradient = jax.grad(of_law)(jax.tree.map(jnp.asarray, law))
    for field in FIELDS:
        silent = field == "critical_reference_tokens" and float(law.critical_token_exponent) == 0.0
        assert (float(getattr(gradient, field)) == 0.0) == silent, field


def _with_slope(function):
    """A function of a law and a point with its slope, and the same compiled over points."""
    both = lambda law, x: jax.value_and_grad(lambda y: function(law, *y))(x)
    return both, quick_jit(jax.vmap(both, in_axes=(None, 0)))


IN_EITHER_PRECISION = [_with_slope(f) for f in (model.loss_of_run, model.effective_tokens, model.tokens_with_batch)]


@pytest.mark.parametrize("name", BOTH_BATCHES)
def test_float32_is_finite_and_close_to_float64(name):
    points = random_points(2000, seed=7)
    single = jax.tree.map(np.float32, loss_law(name))
    for both, compiled in IN_EITHER_PRECISION:
        value, slope = map(np.asarray, compiled(single, points.astype(np.float32)))
        assert value.dtype == np.float32 and np.isfinite(value).all() and np.isfinite(slope).all()
        exact, exact_slope = in_numpy(both)(one_row(loss_law(name)), points)
        np.testing.assert_allclose(value, exact, rtol=1e-4)
        scale = np.abs(points / exact[:, None])
        np.testing.assert_allclose(slope * scale, exact_slope * scale, atol=1e-4)
