"""Each family of operations against JAX: on known numbers with a leading axis of nodes, and on what varies."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.solver.gp.reader import Comparison, Logarithm, NotDGP
from hwopt.solver.gp.signomial import Algebra
from tests.rotation import rotated
from tests.unit.gp.reading import read_function, value

NODES = 3
PLACES = jnp.array([2, 0, 2])


@jax.custom_jvp
def twice(x):
    return 2 * x


@jax.custom_vjp
def thrice(x):
    return 3 * x


twice.defjvp(lambda primals, tangents: (twice(*primals), 2 * tangents[0]))
thrice.defvjp(lambda x: (thrice(x), None), lambda _, g: (3 * g,))


def loop(x, reverse):
    return jax.lax.scan(lambda s, row: (s * row + row[1], (s, row * 2)), x[0], x, reverse=reverse)


# Functions of a (3, 4) array of positive numbers that are read for known and for varying ones alike.
BOTH = [
    lambda x: x + x[0] - 2 * x[1] * x[2] / x[0],
    lambda x: -x + 3,
    lambda x: jnp.maximum(x, x[0]) + jnp.minimum(x, 1.5),
    lambda x: jnp.abs(x - 1) + x,
    lambda x: jnp.sqrt(x) + jax.lax.rsqrt(x) + jnp.cbrt(x) + jnp.square(x),
    lambda x: x**3 + x**-2 + x**0.7 + 2.0**x,
    lambda x: jnp.exp(x) + jnp.exp2(x) + jnp.expm1(x) + jnp.exp(-x) + jnp.exp(1 - x),
    lambda x: jnp.log(x + 1.5) + jnp.log1p(x + 0.2),
    lambda x: jnp.exp(2 + jnp.log(x) - jnp.log(x + 1)),
    lambda x: jnp.log(x),
    lambda x: 3 - jnp.log(x) + jnp.log(x + 2),
    lambda x: jnp.clip(x, 0.8, 1.2) + jax.lax.clamp(0.9, x, 1.1),
    lambda x: x.sum(0) + x.prod(0) + x.mean(0),
    lambda x: x.max(1) * x.min(1) + x.max() + jnp.max(x, axis=(0, 1)),
    lambda x: jnp.cumsum(x, 1) + jnp.cumprod(x, 1) + jnp.cumsum(x[:, ::-1], 0),
    lambda x: jax.lax.cumsum(x, 1, reverse=True) + jax.lax.cummax(x, 0) + jax.lax.cummin(x, 1),
    lambda x: x @ x.T,
    lambda x: jnp.einsum("ij,kj->ik", x, jnp.arange(8.0).reshape(2, 4)),
    lambda x: jnp.einsum("ij,ij->j", x, x),
    lambda x: jax.vmap(jnp.dot)(x, x[::-1]),
    lambda x: x.T.reshape(2, 6)[1:, ::2],
    lambda x: jnp.stack([x, x[::-1]], 1).swapaxes(0, 2),
    lambda x: jnp.concatenate([x, jnp.ones((1, 4))], 0),
    lambda x: jnp.broadcast_to(x[:, :1], (3, 5))[..., None].squeeze(-1),
    lambda x: jnp.expand_dims(jnp.flip(x, 0), 1),
    lambda x: jnp.split(x, [1, 3], axis=1),
    lambda x: x[PLACES, 1] + x[1, 2],
    lambda x: x[:, PLACES] * jnp.take(x, PLACES, axis=1),
    lambda x: jax.lax.dynamic_slice(x, (1, 1), (2, 3)),
    lambda x: jax.lax.dynamic_update_slice(x, x[:2, :2] * 2, (1, 2)),
    lambda x: x.at[PLACES].set(1.0).at[0, 1].set(x[1, 1]),
    lambda x: x.at[PLACES, 1].add(x[:, 0]),
    lambda x: x.at[PLACES].multiply(x),
    lambda x: jax.ops.segment_sum(x, jnp.array([1, 0, 1]), 2),
    lambda x: jnp.ones((3, 4)).at[PLACES].add(x),
    lambda x: jnp.where(x > 1, x, 1.0),
    lambda x: jnp.where(x < x[0], x, x[0]),
    lambda x: jnp.where(x <= 1, 2 * x, x + 1),
    lambda x: jnp.where((x > 0) & ~(x < 0) | (x > 9), x, 7.0),
    lambda x: jnp.where(jnp.all(x > 0), x, 0.0) + jnp.where(jnp.any(x < 0), x, 0.0),
    lambda x: jnp.where(jnp.logical_and(x > 1, x > -1), x, 1.0),
    lambda x: jnp.where(x - x >= 0, 1.0, 2.0) + jnp.where(x != x, 1.0, x) + jnp.where(x == -1, 3.0, x),
    lambda x: (x > 0) * x + (x > 0).astype(float) + (x > -2).sum(),
    lambda x: jnp.where(jnp.arange(3)[:, None] > 1, x, x[::-1]),
    lambda x: twice(x) + thrice(x) + jax.jit(twice)(x) + jax.checkpoint(thrice)(x),
    lambda x: jax.lax.stop_gradient(x) + jax.lax.optimization_barrier(x) + jax.lax.reduce_precision(x, 11, 52),
    lambda x: loop(x, False),
    lambda x: loop(x, True),
    lambda x: jax.lax.scan(lambda s, i: (s + 1, (x[0] * i, i)), 0, jnp.arange(3))[1],
    lambda x: jax.lax.fori_loop(0, 3, lambda i, s: s * x[0] + i, x[1]),
    lambda x: jax.lax.map(lambda row: row.sum(), x),
    lambda x: jnp.linalg.norm(x) + jnp.dot(x[0], x[1]) + jnp.var(x) * 0,
]  # fmt: skip

# Functions of known numbers alone, of x (3, 4) and of whole numbers.
KNOWN = [
    lambda x: jnp.floor(x) + jnp.ceil(x) + jnp.round(2.5 * x) + jnp.sign(x - 1) + jnp.trunc(x),
    lambda x: jnp.array([0.5, 1.5, -2.5]) + jnp.round(jnp.array([0.5, 1.5, -2.5])) + jax.lax.round(x[:, 0]),
    lambda x: jnp.tanh(x) + jax.nn.sigmoid(x) + jax.scipy.special.erf(x) + jax.scipy.special.gammaln(x),
    lambda x: jnp.sin(x) + jnp.cos(x) + jnp.isfinite(x),
    lambda x: (4 * x).astype(int) // 3 + (7 * x).astype(int) % 4 + (9 * x).astype(int) ** 2,
    lambda x: -(9 * x).astype(int) // 4 + jax.lax.div(-(9 * x).astype(int), 4) + jnp.remainder(-x, 0.3),
    lambda x: (x.astype(int) & 1) + (x.astype(int) | 2) + ~x.astype(int),
    lambda x: jnp.argmax(x, 1) + jnp.argmin(x, 1),
    lambda x: jnp.where(x > 1, x, jnp.nan),
    lambda x: jnp.sum(x > 1, 0) + jnp.all(x > 0.5, 0) + jnp.any(x > 1.3, 0),
    lambda x: x.astype(bool) | (x > 1),
    lambda x: jnp.linspace(0.0, 1.0, 4) * x + jnp.arange(4) * jnp.eye(3, 4) + jnp.pow(x, x),
    lambda x: jax.lax.select_n((2 * x).astype(jnp.int32) % 3, x, -x, 2 * x),
    lambda x: (x > 1) & (x < 2) | ~(x > 0.5),
    lambda x: jnp.logical_not(x > 1) * jnp.maximum(x, 1),
]  # fmt: skip


def jax_values(function, x):
    """Outputs of a function at each node."""
    with jax.enable_x64(True):
        return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.vmap(function)(jnp.asarray(x, jnp.float64)))]


def flat(function):
    return lambda *x: jax.tree.leaves(function(*x))


def name_of(function):
    return inspect.getsource(function).strip()[:60]


@pytest.mark.parametrize("function", rotated(BOTH + KNOWN, 8), ids=name_of)
def test_known_numbers(function):
    x = np.random.default_rng(0).uniform(0.5, 3.0, (NODES, 3, 4))
    read, _ = read_function(flat(function), [], known=[x])
    for found, wanted in zip(read, jax_values(function, x), strict=True):
        assert found.dtype != object
        np.testing.assert_allclose(np.broadcast_to(found, wanted.shape), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("function", rotated(BOTH, 8), ids=name_of)
def test_what_varies(function):
    x = np.random.default_rng(0).uniform(0.51, 2.9, (20, 3, 4))
    wanted = jax_values(function, x)
    for granting in (True, False):
        read, algebra = read_function(flat(function), [(3, 4)], 0.5, 3.0, Algebra(granting=granting))
        found, _ = value(read, algebra, x.reshape(20, -1).T)
        for each, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.broadcast_to(each, right.shape), right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("nodes", [1, NODES])
@pytest.mark.parametrize("known_first", [True, False])
def test_known_and_varying_together(nodes, known_first):
    """Arithmetic, choices, concatenation and products between both kinds, with one node or several."""

    def function(x, k):
        a, b = (k, x) if known_first else (x, k)
        parts = [a + b, a - b, a * b, a / b, jnp.maximum(a, b), jnp.minimum(a, b), a @ b, jnp.concatenate([a, b])]
        return [
            *parts,
            jnp.where(k > 1, a, b),
            jnp.stack([a, b])[:, 1],
            a.at[0].add(b[1]),
            x ** k[0].round() if False else x,
        ]

    k = np.random.default_rng(1).uniform(0.5, 2.0, (nodes, 4))
    x = np.random.default_rng(2).uniform(0.51, 2.9, (nodes, 4))
    read, algebra = read_function(function, [(4,)], 0.5, 3.0, known=[k])
    found, _ = value(read, algebra, x.T)
    with jax.enable_x64(True):
        wanted = jax.vmap(function)(jnp.asarray(x), jnp.asarray(k))
    for each, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.broadcast_to(each, right.shape), right, rtol=1e-12)


def test_nodes_where_a_coefficient_is_zero():
    """Degrees of 1 take their terms away, and what is not chosen does no harm."""
    degree = np.array([1.0, 2.0, 4.0])

    def function(x, t):
        guarded = jnp.where(t > 1, x / (t - 1), x)
        return [x + (t - 1) / t / x, guarded, jnp.where((t - 1) * x >= 0, x, -x), jnp.maximum(x, t * x)]

    read, algebra = read_function(function, [()], 0.5, 3.0, known=[degree])
    x = np.full((1, 3), 1.3)
    found, _ = value(read, algebra, x)
    np.testing.assert_allclose(found[0], 1.3 + (degree - 1) / degree / 1.3, rtol=1e-12)
    np.testing.assert_allclose(found[1], [1.3, 1.3, 1.3 / 3], rtol=1e-12)
    np.testing.assert_allclose(found[2], 1.3, rtol=1e-12)
    np.testing.assert_allclose(found[3], 1.3 * degree, rtol=1e-12)


CHOICES = [
    lambda x, y: jnp.where(x > y, 5.0, 3.0),
    lambda x, y: jnp.where(x >= 1, 5.0, 3.0),
    lambda x, y: jnp.where(x == 1, 5.0, 3.0),
    lambda x, y: jnp.where((x > 1) & (y > 1), x, -y),
    lambda x, y: jnp.where((x > 1) | (y > 1), x, -y),
    lambda x, y: jnp.where(~(x > 1), x, -y),
    lambda x, y: (x > y) * x - (y > 1),
    lambda x, y: jnp.where(jnp.where(x > y, y > 1, x > 1), x, y + 1),
    lambda x, y: jnp.where(jnp.log(x) > jnp.log(y), x, y * 2),
    lambda x, y: jnp.where(jnp.any(jnp.stack([x, y]) > 2), x, 1.0),
    lambda x, y: jnp.where(x != y, x, 9.0),
]  # fmt: skip


@pytest.mark.parametrize("function", CHOICES, ids=name_of)
def test_ranges_of_choices_hold_both(function):
    random = np.random.default_rng(0)
    for low, high in ((0.5, 1.0), (0.5, 3.0), (1.0, 1.0), (1.0, 2.0), (2.0, 3.0)):
        (read,), algebra = read_function(function, [(), ()], low, high)
        x = np.append(random.uniform(low, high, (2, 60)), [[low, high, low], [low, high, high]], axis=1)
        with jax.enable_x64(True):
            wanted = np.asarray(jax.vmap(function)(*x))
        least, most = algebra.range(read[()]) if read.dtype == object else (read, read)
        assert (wanted >= least - 1e-9).all() and (wanted <= most + 1e-9).all()


def test_comparisons_stay_open_where_neither_side_always_holds():
    (read,), _ = read_function(lambda x, t: x > t, [()], 1.0, 2.0, known=[np.array([0.5, 1.5, 2.0])])
    assert isinstance(read[()], Comparison)
    np.testing.assert_array_equal(read[()].known, [1.0, np.nan, 0.0])


REFUSED = [
    (lambda x: jnp.sin(x), "operation 'sin'"),
    (lambda x: jnp.floor(x), "operation 'floor'"),
    (lambda x: x.astype(int), "an integer"),
    (lambda x: jnp.argmax(x), "operation 'argmax'"),
    (lambda x: x[jnp.argmax(jnp.ones(3))] + x[(x[0] > 1).astype(int)], "a place that depends"),
    (lambda x: x.at[jnp.array([1, 7])].get(mode="fill"), "outside"),
    (lambda x: x ** x[0], "exponent"),
    (lambda x: jnp.sqrt(-x), "negative"),
    (lambda x: jnp.sort(x), "operation 'sort'"),
    (lambda x: jax.lax.while_loop(lambda s: s < 10, lambda s: s + x[0], x[1]), "operation 'while'"),
    (lambda x: jax.lax.cond(x[0] > 1, jnp.sin, jnp.cos, x[0]), "operation"),
    (lambda x: jnp.exp(jnp.log(x) * 2), "either side of 1"),
]  # fmt: skip


@pytest.mark.parametrize("function, what", REFUSED, ids=[what for _, what in REFUSED])
def test_what_has_no_meaning_is_refused_with_its_line(function, what):
    with pytest.raises(NotDGP, match=what) as caught:
        read_function(function, [(3,)], 0.5, 3.0)
    assert str(caught.value).startswith(f"{__file__}:{inspect.getsourcelines(function)[1]} ")


def test_places_that_depend_on_the_plan_are_refused():
    with pytest.raises(NotDGP, match="plan"):
        read_function(lambda x, i: x[i], [(3,)], 0.5, 3.0, known=[np.array([0, 1])])
    (read,), algebra = read_function(lambda x, i: x[i], [(3,)], 0.5, 3.0, known=[np.array([1])])
    assert algebra.range(read[()])[0] == 0.5


def test_the_least_of_two_margins_is_the_logarithm_of_the_larger_share():
    """`-max(log a, log b)` is `-log max(a, b)`: a row of the programme, where neither is always the larger."""
    points = np.exp(np.random.default_rng(0).uniform(-1.0, 1.0, (2, 50)))

    def least(x, y):
        a, b = jnp.log(x * y + y), jnp.log(2.0 * x)
        return -jnp.where(a > b, a, b)

    (read,), algebra = read_function(lambda x, y: [least(x, y)], [(), ()], low=0.3, high=3.0)
    (found,), _ = value([read], algebra, points)
    np.testing.assert_allclose(found, least(*points), rtol=1e-6)
    assert isinstance(read[()], Logarithm)
