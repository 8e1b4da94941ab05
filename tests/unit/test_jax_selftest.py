"""The jax in use computes right what hwopt asks of it; what releases are known to compute wrong, hwopt has nowhere.

jax 0.10.2 to 0.12.0.1 on CPU: a matrix product with a constant whose entries are all one number, used by element,
above 32,765 rows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.sweeps.specification import Specification
from hwopt.trace import jax_selftest

ROWS = jax_selftest.ROWS

PER_ROW = {
    "matrix-vector then sum": lambda matrix, row: jnp.sum(matrix @ row),
    "matrix-vector then maximum": lambda matrix, row: jnp.max(matrix @ row),
    "vector-matrix-vector": lambda matrix, row: row @ matrix @ row,
}


@pytest.mark.parametrize("width", [4, 16])
@pytest.mark.parametrize("name", PER_ROW)
def test_products_of_many_rows_with_a_matrix_that_is_given_are_exact(name, width):
    # Ones make every result a small whole number, exact in float32 whatever the order of summation.
    matrix, rows = jnp.ones((width, width)), jnp.ones((ROWS, width))
    exact = width if "maximum" in name else width * width
    jitted = np.asarray(jax.jit(jax.vmap(PER_ROW[name], in_axes=(None, 0)))(matrix, rows))
    np.testing.assert_array_equal(jitted, np.full(ROWS, exact, np.float32))


def test_products_with_a_constant_matrix_of_several_numbers_are_exact():
    matrix = np.arange(16.0, dtype=np.float32).reshape(4, 4)
    jitted = jax.jit(lambda rows: jnp.sum((rows @ jnp.asarray(matrix)) * rows, 1))(jnp.ones((ROWS, 4)))
    np.testing.assert_array_equal(np.asarray(jitted), np.full(ROWS, matrix.sum()))


def test_total_over_rows_is_exact():
    matrix, rows = jnp.ones((64, 64)), jnp.ones((65_536, 64))
    total = jax.jit(lambda matrix, rows: jnp.sum(jax.vmap(lambda row: matrix @ row)(rows)))(matrix, rows)
    assert float(total) == 268_435_456.0


RANK_7 = {
    "reduction": lambda x: jnp.sum(x * x, axis=(1, 3, 5)),
    "transpose": lambda x: jnp.sum(jnp.transpose(x, (6, 0, 5, 1, 4, 2, 3)) * 2.0, axis=0),
    "contraction": lambda x: jnp.einsum("abcdefg,d->abcefg", x, jnp.arange(3.0)),
    "grid of seven axes": lambda x: jnp.min(x + jnp.arange(3.0).reshape(1, 1, 1, 3, 1, 1, 1), axis=(0, 6)),
    "nested vmap": lambda x: jax.vmap(jax.vmap(jax.vmap(jax.vmap(jax.vmap(lambda m: jnp.sum(m @ jnp.ones(2)))))))(x),
}


@pytest.mark.parametrize("name", RANK_7)
def test_rank_7_arrays_work(name):
    x = jnp.arange(2.0 * 3 * 2 * 3 * 2 * 3 * 2).reshape(2, 3, 2, 3, 2, 3, 2)
    np.testing.assert_allclose(jax.jit(RANK_7[name])(x), RANK_7[name](x), rtol=1e-6)


def _primitives(jaxpr):
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _primitives(inner)


def _asked(mode):
    if mode == "training":
        run, cluster = catalog.training_run("llama3-70b", global_batch=1024), catalog.cluster("h100-sxm", chips=2048)
        return run, cluster, catalog.plan(run, 2048, tp=4, pp=8)
    service, cluster = catalog.service("deepseek-v3"), catalog.cluster("h200", chips=16)
    return service, cluster, catalog.serving_plan(service, 16, tp=8)


@pytest.mark.parametrize("mode", ["training", "serving"])
def test_the_model_has_no_matrix_product_to_be_mapped_over_rows(mode):
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), np.float32), _asked(mode))
    found = set(_primitives(jax.make_jaxpr(hwopt.estimate)(*row).jaxpr))
    assert {"mul", "exp"} <= found
    assert not {"dot_general", "conv_general_dilated"} & found


def test_a_sweep_has_scalar_operations_alone():
    spec = Specification(hwopt.objective("train_cost"), 1024, sampling="plain")
    line = spec.programs[0].line(spec.sampler(0).kind, spec.sampler(0).names)
    assert len(line.operations) > 1000
    assert not {"dot_general", "dot"} & {each.name for each in line.operations}


def test_the_check_names_what_is_wrong_and_remembers_what_is_right(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax_selftest.check.__wrapped__()
    (stamp,) = (tmp_path / "hwopt").iterdir()
    assert jax.__version__ in stamp.name

    x = np.random.default_rng(0).uniform(0.5, 1.5, (4, ROWS)).astype(np.float32)
    right = jax_selftest._operations(x.astype(np.float64), np)
    assert jax_selftest.failed_operations(right) == []
    assert jax_selftest.failed_operations(right | {"choices": right["choices"] * 1.001}) == ["choices"]

    monkeypatch.setattr(jax_selftest, "failed_operations", lambda: ["choices"])
    jax_selftest.check.__wrapped__()  # is not asked again
    stamp.unlink()
    with pytest.raises(hwopt.UserError, match=r"computes wrong on cpu \(choices, over 40,000 rows\)"):
        jax_selftest.check.__wrapped__()
