"""Verdicts against sampled Hessians of log f(exp y): what is called convex is convex, whatever the function."""

from __future__ import annotations

import inspect
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.errors import UserError
from hwopt.solver.gp.canonical import draft
from hwopt.solver.gp.curvature import curvature, explain
from tests.in_numpy import in_numpy
from tests.rotation import rotated
from tests.unit.gp.reading import read_function, value

POINTS = 50

LAYERS = np.array([1.0, 2.0, 3.0])


class Affine(eqx.Module):
    """A module whose weights are constants of the function."""

    weight: jax.Array
    bias: jax.Array

    def __call__(self, x):
        return self.weight @ x + self.bias


@jax.custom_jvp
def clipped(x):
    return jnp.maximum(x, 1.0)


@clipped.defjvp
def _(primals, tangents):
    return clipped(primals[0]), tangents[0]


@jax.custom_vjp
def halved(x):
    return x / 2


halved.defvjp(lambda x: (x / 2, None), lambda _, g: (g / 2,))


def horner(x, coefficients):
    return jax.lax.scan(lambda sum_, c: (sum_ * x + c, None), 0.0, coefficients)[0]


def smooth_maximum(x, y):
    return (x**8 + y**8) ** (1 / 8)


def switched(t, x):
    """A factor (t - 1) / t that is 0 where the degree t is 1."""
    return (t - 1) / t * x


jitted = jax.jit(lambda x, y: jnp.where(x > y, x, y) + 1)
module = Affine(jnp.array([[1.0, 2.0], [0.5, 0.0]]), jnp.array([0.0, 3.0]))
below_1 = {"low": 0.05, "high": 0.9}
above_2 = {"low": 2.0, "high": 50.0}

TABLE = [
    # Monomials and constants.
    ("affine", lambda x: x),
    ("affine", lambda x, y: 3 * x**2 / y),
    ("affine", lambda x, y: jnp.sqrt(x) * jnp.cbrt(y)),
    ("affine", lambda x: jnp.sqrt(x * x)),
    ("affine", lambda x: jnp.cbrt(x) ** 3),
    ("affine", lambda x: (2 * x) ** -1.5),
    ("affine", lambda x: jax.lax.rsqrt(x) * jnp.square(x)),
    ("affine", lambda x, y: x**0.3 * y**-0.7),
    ("affine", lambda x: jnp.exp(jnp.log(x) + 1)),
    ("affine", lambda x, y: jnp.exp(jnp.log(x) - jnp.log(y))),
    ("affine", lambda x: jnp.abs(x)),
    ("affine", lambda x: jnp.maximum(x, 0)),
    ("affine", lambda x: jnp.where(x > 0, x, -x)),
    ("affine", lambda x, y: (x + y) - y),
    ("affine", lambda x, y: (x * x - y * y + y**2) / x),
    ("affine", lambda x, y: x * (1 + y) - x * y),
    ("affine", lambda x: jnp.maximum(x, 2 * x)),
    ("affine", lambda x, y: (x + y) / (x + y) * x),
    ("affine", lambda x, y: (x + y) / (2 * x + 2 * y) * x),
    ("affine", lambda x, y: x + switched(1.0, y)),
    ("affine", lambda x: halved(x) + halved(x)),
    ("affine", lambda x: jnp.prod(x * jnp.ones(4))),
    ("constant", lambda x: 3 + 0 * x),
    ("constant", lambda x: x / x),
    ("constant", lambda x: jnp.exp(0 * x)),
    ("constant", lambda x: jnp.where(x > -1, 2.0, x)),
    ("constant", lambda x, y: (x * y + x) / (y + 1) / x),
    ("constant", lambda x: jnp.where(x - x >= 0, 1.0, 5.0)),
    ("constant", lambda x: jnp.minimum(x, -x) + x + 1),
    # Convex.
    ("convex", lambda x, y: x + y),
    ("convex", lambda x, y: x + switched(2.0, y)),
    ("convex", lambda x, y: (x + y) ** 3),
    ("convex", lambda x, y: (x + y) ** 0.5 + x),
    ("convex", lambda x, y: jnp.maximum(x, 1 / y)),
    ("convex", lambda x, y: jnp.maximum(x, y) - x + x),
    ("convex", lambda x, y: jnp.maximum(jnp.maximum(x, y), x + y**2)),
    ("convex", lambda x, y: (jnp.maximum(x, y) + 1) * x**2),
    ("convex", lambda x: jnp.exp(x)),
    ("convex", lambda x: jnp.exp(1 / x)),
    ("convex", lambda x: jnp.exp(x - 3)),
    ("convex", lambda x: jnp.exp2(x)),
    ("convex", lambda x: 2.0**x),
    ("convex", lambda x: jnp.expm1(x) + 1),
    ("convex", lambda x, y: jnp.exp(jnp.maximum(x, y))),
    ("convex", lambda x: 1 / (1 - x), below_1),
    ("convex", lambda x: x / (1 - x), below_1),
    ("convex", lambda x: (1 - x) ** -2.5, below_1),
    ("convex", lambda x, y: 1 / jnp.minimum(x, y)),
    ("convex", lambda x, y: 1 / (1 / x - y), {"low": 0.1, "high": 0.9}),
    ("convex", lambda x: jnp.where(x > 1, x, 1.0)),
    ("convex", lambda x: jnp.where(x <= 1, 1.0, x)),
    ("convex", lambda x, y: jnp.where(x < y, 2 * y, x + y)),
    ("convex", lambda x: jnp.where((x > 1) & (x > -2), x, 1.0)),
    ("convex", lambda x: jnp.where((x > 1) | (x < -2), x, 1.0)),
    ("convex", lambda x: jnp.where(~(x > 1), 1.0, x)),
    ("convex", lambda x: jnp.clip(x, 1.0, None)),
    ("convex", lambda x, y: jitted(x, jitted(y, x))),
    ("convex", smooth_maximum),
    ("convex", lambda x: horner(x, LAYERS)),
    ("convex", lambda x: jax.lax.fori_loop(0, 3, lambda i, s: s * x + i, x)),
    ("convex", lambda x, y: jax.vmap(lambda c: c * x + y)(LAYERS).sum()),
    ("convex", lambda x, y: jnp.stack([x, y, x * y]).reshape(3, 1).T.max()),
    ("convex", lambda x, y: jnp.stack([x, y])[jnp.array([1, 1, 0])].sum()),
    ("convex", lambda x, y: jnp.zeros(3).at[jnp.array([0, 0, 2])].add(jnp.stack([x, y, x]))[0]),
    ("convex", lambda x, y: jnp.ones(2).at[1].set(x) @ jnp.stack([y, x])),
    ("convex", lambda x, y: jnp.einsum("ij,j->i", jnp.outer(LAYERS, LAYERS), jnp.array([x, y, 1])).sum()),
    ("convex", lambda x: jnp.cumprod(jnp.array([x, 2, x])).sum()),
    ("convex", lambda x, y: jnp.cumsum(jnp.stack([x, y, x]))[2]),
    ("convex", lambda x, y: clipped(x) * clipped(y + 1)),
    ("convex", lambda x, y: module(jnp.stack([x, y])).max()),
    ("convex", lambda x, y: jnp.linalg.norm(jnp.stack([x, y]))),
    ("convex", lambda x, y: jnp.mean(jnp.concatenate([jnp.array([x, y]), LAYERS]))),
    ("convex", lambda x: jax.checkpoint(lambda z: z + 1)(x) ** 2),
    ("convex", lambda x: 1 / jnp.log(x), above_2),
    ("convex", lambda x, y: jnp.maximum(x - y, y - x) + x + y),
    ("convex", lambda x, y: jnp.maximum(x - y, 0) + y),
    ("convex", lambda x: x * (x - 1) + x + 1),
    ("convex", lambda x, y: sum(jnp.split(jnp.stack([x, y]), 2))[0]),
    ("convex", lambda x, y: x * y + jax.lax.stop_gradient(y)),
    # Concave.
    ("concave", lambda x, y: x / (x + y)),
    ("concave", lambda x, y: x * y / (x + y)),
    ("concave", lambda x, y: 1 / (1 / x + 1 / y) ** 2),
    ("concave", lambda p: (p - 1) / p, {"low": 1.1}),
    ("concave", lambda x: 1 - x, below_1),
    ("concave", lambda x: jnp.sqrt(1 - x) * x, below_1),
    ("concave", lambda x: jnp.exp(-x)),
    ("concave", lambda x: jnp.exp(-(x + 1 / x))),
    ("concave", lambda x: 1 / jnp.exp(x)),
    ("concave", lambda x, y: jnp.minimum(x, 1 / (1 + y))),
    ("concave", lambda n: jnp.log(n), above_2),
    ("concave", lambda n: jnp.sqrt(jnp.log(n)) * n, above_2),
    ("concave", lambda n: jnp.log(n - 0.5), above_2),
    ("concave", lambda x: jnp.where(x > 1, 1.0, x)),
    ("concave", lambda x: jnp.clip(x, 0.0, 1.0)),
    ("concave", lambda x: x / jnp.maximum(x, 1)),
    # Neither: `-` where some Hessian has eigenvalues of both signs or signs differ between points, `?` not proved.
    ("neither -", lambda x, y: (x + y) / (x * y + 1)),
    ("neither -", lambda x: (x + 1) / (x**2 + 3 * x + 10)),
    ("neither -", lambda x, y: (1 + x) * jnp.exp(-y)),
    ("neither -", lambda x: jnp.exp(x) / (1 + 3 * x)),
    ("neither -", lambda x, y: (x + 1) * jnp.minimum(1 / (1 + y), 2)),
    ("neither -", lambda x: x**2 - 2 * x + 3),
    ("neither -", lambda x: 2 + 1 / x - 2 / (1 + x)),
    ("neither -", lambda x, y: jnp.maximum(x, y) + 1 / (x + 1 / y) ** 2 * 9),
    ("neither ?", lambda x: jnp.expm1(x)),
    ("neither ?", lambda x, y: x - jnp.minimum(x - y, 0)),
    ("neither ?", lambda x: jnp.log1p(x), above_2),
    ("neither ?", lambda x: 1 / (1 - x)),
    ("neither ?", lambda x, y: x - y),
    ("neither ?", lambda x: -x),
    ("neither ?", lambda x: x - x),
    ("neither ?", lambda x: 1 / (x - x)),
    ("neither ?", lambda x: jnp.log(x)),
    ("neither ?", lambda x: jnp.where(x > 1, 5.0, 3.0)),
    ("neither ?", lambda x: jnp.where(x == 1, 5.0, 3.0)),
    ("neither ?", lambda x, y: jnp.maximum(x - y, -1) + 2),
    ("neither ?", lambda x, y: jnp.exp(jnp.log(x - y)) + y),
    ("neither ?", lambda x, y: jnp.sqrt((x - y) ** 2)),
    ("unreadable", lambda x: jnp.sin(x) + 2),
    ("unreadable", lambda x: jax.lax.while_loop(lambda s: s < 10, lambda s: s + x, x)),
    ("unreadable", lambda x: jnp.floor(x)),
    ("unreadable", lambda x: x.astype(int) + x),
    ("unreadable", lambda x, y: x**y),
    ("unreadable", lambda x: jnp.asarray(LAYERS)[jnp.argmax(jnp.stack([x, 1 / x]))]),
]  # fmt: skip


def eigenvalues(function, count, low, high):
    """Eigenvalues of Hessians of log f(exp y), (point, argument), at points where it is finite."""
    random = np.random.default_rng(0)
    y = random.uniform(np.log(max(low, 0.05)), np.log(min(high, 20.0)), (POINTS, count))
    hessian = in_numpy(jax.hessian(lambda y: jnp.log(function(*jnp.exp(y)).squeeze())))(y)
    return np.linalg.eigvalsh(hessian[np.isfinite(hessian).all((1, 2))])


def contradicted(kind, eigenvalues):
    """Whether sampled eigenvalues forbid the verdict."""
    slack = 1e-8 * (1 + np.abs(eigenvalues).max(initial=0.0))
    falls, rises = (eigenvalues < -slack).any(), (eigenvalues > slack).any()
    return {"convex": falls, "concave": rises, "affine": falls or rises, "constant": falls or rises}.get(kind, False)


@pytest.mark.parametrize("row", rotated(range(len(TABLE)), 2))
def test_verdict(row):
    expected, function, *box = TABLE[row]
    expected, _, indefinite = expected.partition(" ")
    box = {"low": 0.0, "high": np.inf} | (box[0] if box else {})
    count = len(inspect.signature(function).parameters)
    verdict, *_ = curvature(function, *[1.0] * count, box=box)
    assert verdict.curvature == expected, explain([verdict])
    assert bool(verdict.reasons) == (expected not in ("affine", "constant"))
    if expected == "unreadable":
        return
    sampled = eigenvalues(function, count, box["low"], box["high"])
    assert not contradicted(expected, sampled)
    if indefinite == "-":
        assert (sampled < -1e-4).any() and (sampled > 1e-4).any()


def test_the_table_is_large():
    assert len(TABLE) >= 100


@pytest.mark.parametrize("row", rotated(range(len(TABLE)), 2))
def test_what_is_read_is_the_function(row):
    expected, function, *box = TABLE[row]
    if expected.startswith("unreadable"):
        return
    box = {"low": 0.0, "high": np.inf} | (box[0] if box else {})
    count = len(inspect.signature(function).parameters)
    read, algebra = read_function(function, [()] * count, **box)
    x = np.random.default_rng(row).uniform(max(box["low"], 0.1), min(box["high"], 6.0), (count, 20))
    (found,), _ = value(read, algebra, x)
    wanted = in_numpy(function)(*x).reshape(-1)
    found = np.broadcast_to(found.reshape(-1), wanted.shape)
    here = np.isfinite(wanted) & np.isfinite(found)  # known by its range alone: a choice
    assert here.any() or expected == "neither ?"
    np.testing.assert_allclose(found[here], wanted[here], rtol=1e-12, atol=1e-12)


# Random expressions.


def random_expression(random, count, depth):
    """A random expression of positive numbers, as a function of a vector; not always positive itself."""
    if depth == 0 or random.uniform() < 0.12:
        if random.uniform() < 0.25:
            constant = float(random.uniform(0.2, 4))
            return lambda x: constant + 0 * x[0]
        place = int(random.integers(count))
        return lambda x: x[place]
    a, b = (random_expression(random, count, depth - 1) for _ in range(2))
    power = float(random.choice([-2, -1, -0.5, 0.5, 1.5, 2, 3]))
    scale = float(random.uniform(0.1, 2))
    return random.choice(
        [
            lambda x: a(x) + b(x), lambda x: a(x) + scale * b(x), lambda x: a(x) * b(x), lambda x: a(x) / b(x),
            lambda x: a(x) - scale * b(x), lambda x: a(x) + b(x) - a(x) * scale, lambda x: a(x) ** power,
            lambda x: jnp.maximum(a(x), b(x)), lambda x: jnp.minimum(a(x), b(x)), lambda x: jnp.maximum(a(x) - b(x), 0),
            lambda x: jnp.exp(0.3 * a(x)), lambda x: jnp.exp(-0.3 * a(x)), lambda x: jnp.log(a(x)),
            lambda x: jnp.where(a(x) > b(x), a(x), b(x)), lambda x: jnp.where(a(x) >= scale, a(x) / b(x), b(x)),
            lambda x: jnp.abs(a(x) - b(x)), lambda x: 1 / (1 - scale * a(x)), lambda x: a(x) / (a(x) + b(x)),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("seed", rotated(range(6), 3))
def test_no_random_expression_contradicts_its_verdict(seed):
    random, count, expressions = np.random.default_rng(seed), 3, 50
    functions = [random_expression(random, count, int(random.integers(1, 4))) for _ in range(expressions)]
    low, high = ((0.0, np.inf), (0.1, 0.9), (1.5, 6.0))[seed % 3]
    kinds = []
    for function in functions:
        verdict, *_ = curvature(function, np.ones(count), box={"low": low, "high": high})
        kinds.append(verdict.curvature)
    y = random.uniform(np.log(max(low, 0.1)), np.log(min(high, 6.0)), (POINTS, count))
    proved = [i for i, kind in enumerate(kinds) if kind not in ("neither", "unreadable")]
    assert len(proved) > 10

    def all_of(y):
        return jnp.stack([jnp.log(functions[i](jnp.exp(y))) for i in proved])

    values, hessians = in_numpy(all_of)(y), in_numpy(jax.jacfwd(jax.jacfwd(all_of)))(y)
    for row, i in enumerate(proved):
        assert not np.isnan(values[:, row]).any(), f"{kinds[i]}: negative somewhere"
        good = np.isfinite(hessians[:, row]).all((1, 2))
        assert not contradicted(kinds[i], np.linalg.eigvalsh(hessians[good, row])), kinds[i]


def test_exact_sides_need_no_replacement():
    """What is called convex is minimised with nothing replaced, in any box."""
    for expected, function, *box in TABLE:
        if expected != "convex" or box:
            continue
        count = len(inspect.signature(function).parameters)
        (output,), algebra = read_function(function, [()] * count, low=0.3, high=3.0)
        made = draft(algebra, output.ravel()[0], {}).programme(1)
        assert not made.relaxed, inspect.getsource(function)


# Where, and what of.


def line_of(function, offset):
    return inspect.getsourcelines(function)[1] + offset


def two_reasons(x, y):
    small = x - 0.5 * y
    sums = x + y
    return small + y / sums + 1


def test_reasons_name_the_line():
    verdict = curvature(two_reasons, 1.0, 1.0, box={"low": 1.0, "high": 1.5})[0]
    found = {(reason.side, reason.what, reason.line) for reason in verdict.reasons}
    assert all(reason.file == __file__ and reason.function == "two_reasons" for reason in verdict.reasons)
    assert ("convex", "a difference", line_of(two_reasons, 1)) in found
    assert ("convex", "a sum that must be large", line_of(two_reasons, 3)) in found
    assert {what for side, what, _ in found if side == "concave"} == {"a sum that must be large"}


def chosen(x):
    other = jnp.where(x > 1, 1.0, x)
    return jnp.linalg.norm(jnp.stack([other, x])), jnp.sin(x)


def test_reasons_inside_library_calls_name_the_users_line():
    norm, sine = curvature(chosen, 1.0)
    assert [(r.line, r.what) for r in norm.reasons if r.side == "convex"] == [
        (line_of(chosen, 1), "a minimum that must be small")
    ]
    assert {r.function for r in norm.reasons} == {"chosen"}
    assert (sine.reasons[0].line, sine.reasons[0].side) == (line_of(chosen, 2), "both")


def test_reasons_inside_equinox_name_the_users_line():
    layer = eqx.nn.Linear(2, 1, key=jax.random.key(0))

    def output(x):
        return layer(x)

    reason = curvature(output, np.ones(2))[0].reasons[0]
    assert reason.file == __file__ and reason.function.endswith("output")


# Trees, boxes, text.


def test_trees_of_arguments_and_outputs():
    def function(model, x):
        return {"cost": model(x), "ratio": (x[0] / x[1], 2.0), "count": 3}

    verdicts = curvature(function, module, np.ones(2))
    assert [(each.name, each.curvature) for each in verdicts] == [
        ("['cost'][0]", "convex"), ("['cost'][1]", "convex"), ("['count']", "constant"),
        ("['ratio'][0]", "affine"), ("['ratio'][1]", "constant"),
    ]  # fmt: skip
    assert verdicts["['ratio'][0]"].convex and verdicts[0].convex and not verdicts[0].concave
    assert len(verdicts) == 5


def test_what_is_not_floating_is_as_it_stands():
    def function(x, order, flag):
        return x[order].sum() if flag else 1 / x[order].sum()

    assert curvature(function, np.ones(3), np.array([0, 2]), True)[0].curvature == "convex"
    assert curvature(partial(function, flag=False), np.ones(3), np.array([0, 2]))[0].curvature == "concave"


def test_boxes_are_numbers_or_trees():
    def function(pair, z):
        return 1 / (z - pair["a"] * pair["b"])

    pair = {"a": 1.0, "b": 1.0}
    assert curvature(function, pair, 1.0)[0].curvature == "neither"
    whole = {"high": ({"a": 0.5, "b": 1.9}, 9.0), "low": (0.1, 1.0)}
    assert curvature(function, pair, 1.0, box=whole)[0].curvature == "convex"
    assert curvature(function, pair, 1.0, box=whole | {"low": 0.0})[0].curvature == "neither"
    for wrong in ({"low": -1.0}, {"low": 2.0, "high": 1.0}, {"low": np.inf}):
        with pytest.raises(UserError, match="box"):
            curvature(function, pair, 1.0, box=wrong)


def test_explanation():
    text = explain(curvature(chosen, 1.0))
    first, *rest = text.splitlines()
    assert first == "[0]: neither"
    assert rest[0].startswith("  not known to be convex: ") and rest[0].endswith("a minimum that must be small")
    assert rest[-2] == "[1]: unreadable"
    assert (
        rest[-1]
        == f"  {__file__}:{line_of(chosen, 2)} (chosen): operation 'sin' cannot be read as part of a geometric program"
    )
    assert str(curvature(chosen, 1.0)) == text
