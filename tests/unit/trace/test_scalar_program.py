"""Functions as scalar operations against the functions themselves: values, gradients, and what is left to compute."""

from __future__ import annotations

import functools
import inspect
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwopt.model.estimate import estimate
from hwopt.trace.scalar_program import SAFE, NotScalarArithmetic, scalar_program
from tests.cases import KINDS, from_vector, random_cases, to_vectors
from tests.in_numpy import in_numpy
from tests.rotation import rotated

PLACES = jnp.array([2, 0, 2])
TABLE = np.array([[1.0, 0.0, 2.0, 0.5, 1.0], [0.0, 0.0, 3.0, 1.0, 7.0]])
COUNT = 5


@jax.custom_jvp
def twice(x):
    return 2 * x


@jax.custom_vjp
def thrice(x):
    return 3 * x


twice.defjvp(lambda primals, tangents: (twice(*primals), 2 * tangents[0]))
thrice.defvjp(lambda x: (thrice(x), None), lambda _, g: (3 * g,))


def loop(x, reverse):
    return jax.lax.scan(lambda s, row: (s * row + 0.5, (s, row * 2)), x[0], x, reverse=reverse)


# Functions of five numbers between 0.5 and 3, differentiable where they are tried.
SMOOTH = [
    lambda x: x + x[0] - 2 * x[1] * x[2] / x[0],
    lambda x: (3 - x, x - 3, -(3 - x), 2 / x, x / 2, 1 / (1 / x)),
    lambda x: (x + 0, 0 + x, x - 0, 0 - x, x * 1, 1 * x, x / 1, x * 0, 0 * x, 0 / x, x - x),
    lambda x: (2 * (3 * x), (x * 2) * 3, (x / 2) / 4, (x * 6) / 3, 2 * x + 3 * x),
    lambda x: (x * -1, x * -2 * -0.5, x / -1, x / -4, -(x * 0)),
    lambda x: x * TABLE + TABLE - TABLE * x[::-1],
    lambda x: jnp.maximum(x, x[0]) + jnp.minimum(x, 1.5) + jnp.maximum(0.0, x - 1) + jnp.clip(x, 0.8, 1.2),
    lambda x: jnp.abs(x - 1) + jnp.sign(x - 2) * x + jax.lax.clamp(0.9, x, 1.1),
    lambda x: jnp.sqrt(x) + jax.lax.rsqrt(x) + jnp.cbrt(x) + jnp.square(x),
    lambda x: (x**0, x**1, x**2, x**3, x**-1, x**-2, x**5),
    lambda x: (x**0.0, x**1.0, x**2.0, x**0.5, x**-0.5, x**0.7, x**-1.0, x**3.0),
    lambda x: (jnp.power(x, jnp.array([0.0, 0.5, 1.0, 2.0, -1.0])), 2.0**x, 1.0**x, x ** x[0]),
    lambda x: jax.lax.pow(x, jnp.array([0, 1, 2, 3, -1])),
    lambda x: jnp.exp(x) + jnp.exp2(x) + jnp.expm1(x) + jnp.log(x) + jnp.log1p(x) + jnp.log2(x),
    lambda x: jnp.tanh(x) + jax.nn.sigmoid(x) + jax.scipy.special.erf(x) + jax.scipy.special.gammaln(x),
    lambda x: (jnp.unstack(x)[1] * x, jnp.unstack(TABLE * x, axis=1)[2]),
    lambda x: jnp.sin(x) + jnp.cos(x) + jnp.tan(x / 4) + jnp.arctan2(x, x[0]),
    lambda x: jnp.floor(x) * x + jnp.ceil(x) + jnp.round(2.3 * x) + jnp.trunc(x) + x % 0.3,
    lambda x: (x.sum(), x.prod(), x.mean(), x.max(), x.min(), x[1:3].sum(), jnp.var(x)),
    lambda x: (x * TABLE).sum(0) + (x * TABLE).sum() + (x + TABLE).prod(1)[0] + (x * TABLE).max(1).sum(),
    lambda x: (jnp.cumsum(x), jnp.cumprod(x), jnp.cumsum(x[::-1]), jax.lax.cumsum(x, 0, reverse=True)),
    lambda x: (jax.lax.cummax(x, 0), jax.lax.cummin(x, 0, reverse=True)),
    lambda x: (TABLE @ x, x @ x, jnp.outer(x, x) @ x, jnp.einsum("ij,j,j->i", TABLE, x, x)),
    lambda x: jax.vmap(jnp.dot, in_axes=(0, None))(TABLE, x) + jnp.linalg.norm(x),
    lambda x: jnp.stack([x, x[::-1]], 1).swapaxes(0, 1).reshape(-1)[::2],
    lambda x: jnp.concatenate([x, jnp.ones(2), x[:1]]),
    lambda x: (jnp.pad(x, 2), jax.lax.pad(x, x[0], [(-1, 2, 1)]), jax.lax.pad(jnp.outer(x, x), 7.0, [(1, 0, 0), (0, -2, 2)])),
    lambda x: jnp.split(x, [1, 3]),
    lambda x: (jnp.pad(x, (2, 1)), jax.lax.pad(x, x[0], [(-1, 2, 1)]), jax.lax.pad(x[:0], 3.0, [(-1, 2, 1)])),
    lambda x: jax.grad(lambda v: (jnp.stack([v, 2 * v**2], 1) @ x[:2]).prod())(x),
    lambda x: (x[PLACES], jnp.take(x, PLACES), jax.lax.dynamic_slice(x, (1,), (2,)), x[-1]),
    lambda x: jax.lax.dynamic_update_slice(x, x[:2] * 2, (1,)),
    lambda x: (x.at[1].set(7.0), x.at[jnp.array([0, 3])].set(x[1]), jnp.ones(3).at[1].set(x[2])),
    lambda x: (x.at[1].multiply(x[0]), x.at[PLACES].multiply(2.0), jnp.asarray(TABLE).at[1].multiply(x[3])),
    lambda x: (x.at[PLACES].add(x[:3]), x.at[1:].add(1.0), jax.ops.segment_sum(x, jnp.array([1, 0, 1, 1, 0]), 2)),
    lambda x: jnp.where(x > 1.2, x, 1.0) + jnp.where(x < x[0], x * 2, x[0]) + jnp.where(x[0] > 1, x, x[::-1]),
    lambda x: jnp.where((x > 1) & ~(x < 0) | (x > 9), x, 7.0) + jnp.where(jnp.arange(5) > 1, x, x[::-1]),
    lambda x: jnp.where(x > -1, x, x) + jnp.where((x > 1) == (x <= 1), x, 3.0),
    lambda x: jnp.where(jnp.all(x > 0), x, 0.0) + jnp.where(jnp.any(x > 2), x, 1.0),
    lambda x: jnp.where(x == 0, 1.0, x / jnp.where(x == 0, 1.0, x)) + jnp.where(x != 0, x, 2.0),
    lambda x: (x > 1) * x + (x > 1).astype(float) + (x > 2).sum() * x,
    lambda x: twice(x) + thrice(x) + jax.jit(twice)(x) + jax.checkpoint(thrice)(x),
    lambda x: jax.jit(lambda y: jax.jit(lambda z: z * y + 1)(y) * y)(x),
    lambda x: jax.lax.optimization_barrier(x) + jax.lax.reduce_precision(x, 11, 52),
    lambda x: loop(x, False),
    lambda x: loop(x, True),
    lambda x: jax.lax.scan(lambda s, i: (s + 1, (x * i, i * 1.0)), 0, jnp.arange(3))[1],
    lambda x: jax.lax.fori_loop(0, 4, lambda i, s: (s + x / s) / 2, x),
    lambda x: jax.lax.map(lambda row: (row * x).sum(), TABLE),
    lambda x: x * jnp.float32(1.5) + x.astype(jnp.float64) * np.float64(0.1) + 1,
    lambda x: {"a": x, "b": (x[0], [x[1:]], jnp.sum(x))},
]  # fmt: skip

# Functions with whole numbers and choices inside.
COUNTED = [
    lambda x: (jnp.argmax(x), jnp.argmin(x), jnp.argmax(x * TABLE, axis=1), jnp.argmax(TABLE, axis=1)),
    lambda x: jnp.argmax(jnp.where(x > 1, 1.0, 0.0)) + jnp.argmin(jnp.where(x > 1, 1.0, 0.0)) * x,
    lambda x: jnp.argmax(x) * 1.0 + jnp.sum(x > 1) / 3 + jnp.count_nonzero(x > 1),
    lambda x: (4 * x).astype(int) * 3 + (7 * x).astype(int) - 2,
    lambda x: jnp.maximum((4 * x).astype(int), 5) * jnp.sign((4 * x).astype(int) - 5),
    lambda x: ((9 * x).astype(int) ** 2, -(9 * x).astype(int), abs((9 * x).astype(int) - 9)),
    lambda x: jnp.where((4 * x).astype(int) == 5, x, 2 * x) + (4 * x).astype(jnp.int32).astype(float),
    lambda x: (jnp.isfinite(x), jnp.isnan(x), ~(x > 1), jnp.all(x > 1), jnp.any(x > 1)),
    lambda x: ((x > 1) & True, (x > 1) | False, (x > 1) & False, (x > 1) | True),
    lambda x: (jnp.cumsum(x > 1), jnp.cumsum((x * 3).astype(int))),
    lambda x: jnp.where((x > 1) | (jnp.array([True, False, True, False, True])), x, -x),
]  # fmt: skip

WHOLE = {
    "remainder": lambda x: ((9 * x).astype(int) % 4, jax.lax.rem(-(9 * x).astype(int), 4)),
    "not": lambda x: ~(9 * x).astype(int),
    "difference of equals": lambda x: (9 * x).astype(int) - (9 * x).astype(int) + 7,
    "barrier of two": lambda x: jax.lax.optimization_barrier((x, 2 * x)),
}
"""Whole numbers and rarer shapes, each with its own risk."""


def name_of(function):
    return inspect.getsource(function).strip()[:70]


def points(rows=50, low=0.51, high=2.97):
    return np.random.default_rng(0).uniform(low, high, (rows, COUNT))


def flat(function):
    """All outputs of a function as one list of scalars."""
    return lambda x: [entry for leaf in jax.tree.leaves(function(x)) for entry in jnp.ravel(jnp.asarray(leaf))]


def plain(function, x):
    """Outputs of a function, mapped (row, output)."""
    with jax.enable_x64(True):
        leaves = jax.tree.leaves(jax.vmap(function)(jnp.asarray(x)))
        return np.concatenate([np.asarray(leaf, np.float64).reshape(len(x), -1) for leaf in leaves], axis=1)


def columns(made, rows):
    """Outputs of a straight line (row, output)."""
    return np.stack([np.broadcast_to(np.asarray(each, np.float64), (rows,)) for each in made], axis=1)


@pytest.mark.parametrize("function", rotated(SMOOTH + COUNTED, 8), ids=name_of)
def test_equals_the_mapped_function(function):
    x, line = points(), scalar_program(function, COUNT)
    wanted = plain(function, x)
    with jax.enable_x64(True):
        found = columns(line(*jnp.asarray(x.T)), len(x))
    np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(columns(line.on_numbers(*x.T), len(x)), found, rtol=1e-14, atol=1e-14)


def test_columns_in_numpy_make_room_for_each_other():
    """Few are held at a time, inputs stay as they were, a second call says the same, and none may be missing."""
    line = scalar_program(lambda x: functools.reduce(lambda a, b: jnp.sin(a) * b + a, [*x] * 20), COUNT)
    x = points()
    first, kept = columns(line.on_numbers(*x.T), len(x)), x.copy()
    np.testing.assert_array_equal(columns(line.on_numbers(*x.T), len(x)), first)
    np.testing.assert_array_equal(x, kept)
    assert line._in_numpy.results <= 3 < 250 < len(line.operations)
    known = scalar_program(lambda x: (x[0], x[0] * 2, 3.0), COUNT).on_numbers(
        *x.T
    )  # an input and a constant as they are
    np.testing.assert_array_equal(columns(known, len(x)), np.stack([x[:, 0], 2 * x[:, 0], np.full(len(x), 3.0)], 1))
    with pytest.raises(ValueError, match="shorter"):
        line.on_numbers(*x.T[1:])


@pytest.mark.parametrize("function", rotated(SMOOTH + COUNTED, 8), ids=name_of)
def test_known_numbers_alone(function):
    """What tests run formulas by."""
    x = points()
    leaves = [np.asarray(leaf, np.float64).reshape(len(x), -1) for leaf in jax.tree.leaves(in_numpy(function)(x))]
    np.testing.assert_allclose(np.concatenate(leaves, axis=1), plain(function, x), rtol=1e-13, atol=1e-13)


def test_whole_numbers_ask_for_no_64_bits_where_there_are_none():
    line = scalar_program(lambda x: (x > 2).sum() * x, COUNT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = line(*jnp.ones((COUNT, 3), jnp.float32))
    assert {np.asarray(each).dtype for each in made} == {np.dtype(np.float32)}


@pytest.mark.parametrize("function", rotated(SMOOTH, 8), ids=name_of)
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")
def test_float32(function):
    # Short numbers, so that what is rounded down is the same in both kinds.
    x, line = points().astype(np.float32).astype(np.float64), scalar_program(function, COUNT)
    made = line(*jnp.asarray(x.T, jnp.float32))
    assert {np.asarray(each).dtype for each in made} <= {np.dtype(k) for k in (np.float32, np.int32, np.int64, bool)}
    exact = columns(line.on_numbers(*x.T), len(x))
    np.testing.assert_allclose(columns(made, len(x)), exact, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("part", rotated(range(6), 6))
def test_gradients_equal_those_of_the_function(part):
    """Functions a few at a time, so that few programs are compiled."""
    some = SMOOTH[part::6]
    x = points(8)

    def function(row):
        return jnp.stack(flat(lambda v: [each(v) for each in some])(row))

    line = scalar_program(function, COUNT)
    with jax.enable_x64(True):
        held = jnp.asarray(x)
        wanted = np.asarray(jax.jit(jax.vmap(jax.jacrev(function)))(held))

        def of_line(row):
            return jnp.stack([jnp.asarray(each, float) for each in line(*row)])

        found = np.asarray(jax.jit(jax.vmap(jax.jacrev(of_line)))(held))
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_compiled_equals_called():
    x, line = points(), scalar_program(lambda v: [each(v) for each in SMOOTH[:3]], COUNT)
    with jax.enable_x64(True):
        held = jnp.asarray(x.T)
        found, called = columns(jax.jit(line)(*held), len(x)), columns(line(*held), len(x))
    np.testing.assert_allclose(found, called, rtol=1e-14)


def test_gradients_stop_where_the_function_stops_them():
    def function(x):
        return jax.lax.stop_gradient(x[0]) * x[1]

    line = scalar_program(function, 2)
    slopes = jax.grad(lambda held: jnp.sum(line(*held)[0]))([jnp.asarray([2.0]), jnp.asarray([3.0])])
    assert (float(slopes[0][0]), float(slopes[1][0])) == (0.0, 2.0)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers(name):
    x, line = points(), scalar_program(WHOLE[name], COUNT)
    wanted = plain(WHOLE[name], x)
    with jax.enable_x64(True):
        found = columns(line(*jnp.asarray(x.T)), len(x))
    np.testing.assert_allclose(columns(line.on_numbers(*x.T), len(x)), wanted, rtol=1e-14)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


NAMES = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "where": lambda a, b: jnp.where(a > b, a, b * 2),
    "ratio": lambda a, b: a / (1.0 + b * b),
    "root": lambda a, b: jnp.sqrt(a * a + b * b),
    "power": lambda a, b: (1.0 + a * a) ** 0.25 * b,
}


@given(
    st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0, 1e-3]), min_size=2, max_size=4),
    st.lists(
        st.tuples(st.sampled_from(sorted(NAMES)), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=14
    ),
)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_random_programmes(constants, steps):
    """Operations on any earlier results and constants, 0 and 1 among them."""

    def function(x):
        held = [*x, *map(jnp.asarray, constants)]
        for name, i, j in steps:
            held.append(jnp.asarray(NAMES[name](held[i % len(held)], held[j % len(held)])))
        return jnp.stack(held[-3:])

    x = points(20)
    wanted = plain(function, x)
    if not (np.abs(wanted) < 1e100).all():
        return
    line = scalar_program(function, COUNT)
    with jax.enable_x64(True):
        found = columns(line(*jnp.asarray(x.T)), len(x))
    scale = np.maximum(1.0, np.abs(wanted).max())  # differences of large numbers
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14 * scale)
    np.testing.assert_allclose(columns(line.on_numbers(*x.T), len(x)), found, rtol=1e-12, atol=1e-14 * scale)


def test_common_operations_are_one():
    def function(x):
        return jnp.exp(x[0] * x[1]) + jnp.exp(x[0] * x[1]), jnp.exp(x[0] * x[1])

    names = [each.name for each in scalar_program(function, 2).operations]
    assert sorted(names) == ["add", "exp", "mul"]


def test_comparisons_with_numbers_are_one():
    line = scalar_program(lambda x: (jnp.greater(2.0, x[0]), x[0] < 2.0, jnp.greater_equal(2.0, x[0]), x[0] <= 2.0), 1)
    assert sorted(each.name for each in line.operations) == ["le", "lt"]
    assert [bool(each[0]) for each in line.on_numbers(np.array([2.0]))] == [False, False, True, True]


def test_lines_of_lines_and_beside_each_other():
    inner = scalar_program(lambda x: (jnp.exp(x[0] * x[1]), x[1] - 1.0, 3.0), 2)
    outer = scalar_program(lambda x: (x[0] * x[2], x[1] ** 2.0, x[2] + 1.0), 3)
    x, y = points(3)[:, :2].T
    both = inner.beside(outer.of(inner), scalar_program(lambda x: jnp.exp(x[0] * x[1]), 2))
    wanted = [np.exp(x * y), y - 1.0, 3.0, 3.0 * np.exp(x * y), (y - 1.0) ** 2, 4.0, np.exp(x * y)]
    for found, each in zip(both.on_numbers(x, y), wanted, strict=True):
        np.testing.assert_allclose(np.broadcast_to(found, 3), np.broadcast_to(each, 3), rtol=1e-14)
    assert len(both.operations) == 5  # x y, its exponential, y - 1, three exponentials, the square
    assert both.outputs[0] is both.outputs[-1]


def test_scans_share_what_their_steps_have_in_common():
    line = scalar_program(lambda x: jax.lax.scan(lambda s, _: (s + jnp.exp(x[0]), None), x[1], None, length=8)[0], 2)
    assert [each.name for each in line.operations].count("exp") == 1
    assert len(line.operations) == 9


CONSTANT = [
    lambda x: (x * 0, 0 / x, x - x, x**0.0, 0 * jnp.exp(x)),
    lambda x: jnp.where(jnp.arange(5) < 9, 3.0, x),
    lambda x: jnp.ones(5).at[0].set(4.0).sum() * 2,
    lambda x: (jnp.argmax(TABLE), jnp.arange(3), True, 2.5, (x * 0 > 1)),
    lambda x: x.at[:].set(1.0).sum() + jax.lax.scan(lambda s, _: (s * 2, None), 1.0, None, length=5)[0],
    lambda x: ((x > 1) & False, (x > 1) | True),
]  # fmt: skip


@pytest.mark.parametrize("function", CONSTANT, ids=name_of)
def test_constants_leave_no_operation(function):
    x, line = points(3), scalar_program(function, COUNT)
    assert line.operations == ()
    wanted = plain(function, x)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(columns(line(*jnp.asarray(x.T)), 3), wanted)
    np.testing.assert_array_equal(columns(jax.jit(line)(*jnp.asarray(x.T, jnp.float32)), 3), wanted)
    np.testing.assert_array_equal(columns(line.on_numbers(*x.T), 3), wanted)


def test_what_does_nothing_leaves_no_operation():
    def function(x):
        return (
            x + 0,
            0 + x,
            x * 1,
            x / 1,
            x**1,
            x**1.0,
            jnp.where(x > 1, x, x),
            jax.lax.convert_element_type(x, jnp.float32),
        )

    line = scalar_program(function, COUNT)
    assert line.operations == () and line.outputs == line.inputs * 8


def test_products_of_constants_are_worked_out():
    line = scalar_program(lambda x: ((x * 2.0) * 3.0 / 6.0 * 5.0, 4.0 * (x / 2.0)), 1)
    assert [each.name for each in line.operations] == ["mul", "mul"]
    assert [float(each.arguments[1]) for each in line.operations] == [5.0, 2.0]


@pytest.mark.parametrize("one, other", [(1e25, 1e25), (1e-25, 1e-25), (1e-20, 1e-20), (3e15, 1e16), (1e31, 1e-31)])
def test_constants_stay_within_what_float32_holds(one, other):
    """A number that float32 holds goes through both constants without overflow where the plain function does."""
    x = 1.0 / one
    line = scalar_program(lambda v: (v * one) * other, 1)
    for each in line.operations:
        size = abs(float(each.arguments[1]))
        assert size in (one, other) or SAFE[0] < size < SAFE[1]
    found = np.asarray(line(jnp.asarray([x], jnp.float32))[0])
    np.testing.assert_allclose(found, [other], rtol=1e-5)


@pytest.mark.parametrize("divisor", [1e-35, 1e35, 1e-31, 1e31])
def test_divisors_near_the_limits_of_float32_stay_divisors(divisor):
    line = scalar_program(lambda v: v / divisor, 1)
    assert [each.name for each in line.operations] == ["div"]
    found = np.asarray(line(jnp.asarray([3 * divisor], jnp.float32))[0])
    np.testing.assert_allclose(found, [3.0], rtol=1e-6)


REFUSED = {
    "loop of unknown length": lambda x: jax.lax.while_loop(lambda s: s < 10, lambda s: s + x[0], x[1]),
    "loop of several shapes": lambda x: jax.lax.while_loop(
        lambda s: s[0] < 10, lambda s: (s[0] + 1, s[1] * x[0]), (x[1], x[:3])
    ),
    "loop of known values": lambda x: jax.lax.while_loop(lambda s: s < 10, lambda s: s + 1, 0) * x,
    "place to read": lambda x: x[(x[0] > 1).astype(int)],
    "place to write": lambda x: x.at[(x[0] > 1).astype(int)].set(3.0),
    "place of a slice": lambda x: jax.lax.dynamic_slice(x, ((x[0] > 1).astype(int),), (2,)),
    "branches": lambda x: jax.lax.cond(x[0] > 1, jnp.sin, jnp.cos, x[0]),
    "sorting": lambda x: jnp.sort(x),
    "place outside": lambda x: x.at[jnp.array([1, 7])].get(mode="fill"),
    "bits": lambda x: jax.lax.bitcast_convert_type(x, jnp.int64),
    "division of whole numbers": lambda x: (9 * x).astype(int) // 4,
    "bits of whole numbers": lambda x: (9 * x).astype(int) & 6,
    "bits of whole numbers, either": lambda x: (9 * x).astype(int) | 6,
    "choice of three": lambda x: jax.lax.select_n((2 * x).astype(jnp.int32) % 3, x, -x, 2 * x),
    "loop of no steps": lambda x: jax.lax.scan(lambda s, _: (s + 1, None), x, None, length=0)[0],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_scalar_arithmetic_is_refused(name):
    with pytest.raises(NotScalarArithmetic):
        scalar_program(REFUSED[name], COUNT)


@jax.jit
@jax.vmap
def mapped_reports(x):
    """All numbers of reports, compiled once for all kinds."""
    return jnp.stack([jnp.asarray(leaf, jnp.float64) for leaf in jax.tree.leaves(estimate(*from_vector(x)))])


@pytest.mark.parametrize("kind", rotated(KINDS, 2 * len(KINDS)))
def test_the_whole_model(kind):
    """Half of all inputs of a random stack, machine and workload vary, and not all the same half."""
    rng = np.random.default_rng(KINDS.index(kind))
    cases = random_cases(rng, 3, kind)
    rows = to_vectors(cases)
    for row in rows[:2]:
        free = np.sort(rng.choice(np.flatnonzero(row > 0), 30, replace=False))
        x = row[free] * np.exp(rng.uniform(-0.02, 0.02, (16, len(free))))

        def report(v, row=row, free=free):
            return estimate(*from_vector(jnp.asarray(row).at[free].set(v)))

        line = scalar_program(report, len(free))
        with jax.enable_x64(True):
            wanted = np.asarray(mapped_reports(jnp.asarray(np.tile(row, (len(x), 1))).at[:, free].set(x)))
        # Cables of a rack that nearly all leave are a difference of two nearly equal numbers.
        found = columns(line.on_numbers(*x.T), len(x))
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_showing_a_line_is_short():
    """Debuggers and pytest show what they hold: shared operations must not be written out again and again."""
    line = scalar_program(lambda x: jax.lax.fori_loop(0, 12, lambda _, s: jnp.exp(s) + 1 / s, x[0]), 1)
    assert len(repr(line)) < 20_000


def test_a_sum_of_nothing():
    line = scalar_program(lambda x: x[:0].sum() + x[0], COUNT)
    assert line.outputs == line.inputs[:1]
