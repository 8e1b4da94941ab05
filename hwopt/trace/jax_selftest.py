"""Self-test: does the installed JAX evaluate hwopt's operations correctly on sweep-sized arrays?

On the CPU, jax 0.10.2 to 0.12.0.1 return wrong numbers for a product with a constant matrix whose entries are all equal
(such as ones). It happens if the result is used elementwise and has more than about 32,765 rows. hwopt has no such
product (`tests/unit/test_jax_selftest.py` verifies this), and tests the operations that it does use before a sweep.
"""

from __future__ import annotations

import contextlib
import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.cache_folders import cache_folder, private_folder
from hwopt.errors import UserError

ROWS = 40_000
"""Number of rows of the test: more than the 32,768 above which some releases are known to be wrong."""

_JAXLIB = version("jaxlib")

_TOLERANCE = 1e-4
"""Relative tolerance of float32 against float64: a hundred times the error of sums of rounded products."""

_WEIGHTS = np.array([0.5, 1.0, 2.0, 4.0])
_SAME = np.ones(4)


def _operations(x: Any, xp: ModuleType) -> dict[str, Any]:
    """Return test results for columns (number, row), in NumPy or JAX, by name of the operation.

    They cover scalar operations, short axes, choices, look-ups and sums over rows.
    """
    a, b, c, d = x
    table = xp.asarray(_WEIGHTS, x.dtype)
    stacked = xp.stack([a, b, c, d], -1)
    place = xp.clip(xp.floor(2.0 * a), 0, 3).astype("int32")
    return {
        "scalar operations": xp.exp(-a) * xp.log(1.0 + b) / xp.sqrt(c)
        + xp.power(d, a)
        - xp.tanh(b)
        + xp.log1p(xp.expm1(a)),
        "choices": xp.where(a > b, xp.maximum(c, d), xp.minimum(c, d)) + xp.ceil(4.0 * a),
        "sums over a short axis": xp.sum(stacked * table, -1) * a,
        "sums of one weight": xp.sum(stacked * xp.asarray(_SAME, x.dtype), -1) * a,
        "products and largest of a short axis": xp.prod(stacked, -1) + xp.max(stacked, -1),
        "sums that run on": xp.cumsum(stacked, -1)[..., -1] * b,
        "look-ups": table[place] * c,
        "sums over rows": xp.sum(stacked * d[:, None], 0) / ROWS,
        "counts over rows": xp.sum(a > b) / ROWS + xp.min(c) + 1.0 * xp.argmax(d) / ROWS,
    }


def failed_operations(jitted: Any = None) -> list[str]:
    """Return the names of operations that JAX computes wrongly. **Arguments:** `jitted`: other results to check, for tests."""
    x = np.random.default_rng(0).uniform(0.5, 1.5, (4, ROWS)).astype(np.float32)
    exact = _operations(x.astype(np.float64), np)
    if jitted is None:
        jitted = jax.jit(lambda x: _operations(x, jnp))(x)
    wrong = lambda name: not np.allclose(np.asarray(jitted[name], np.float64), exact[name], rtol=_TOLERANCE)
    return [name for name in exact if wrong(name)]


def _stamp() -> Path:
    """Return the path of the file whose existence shows that this test passed with these releases on this backend."""
    own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    folder = private_folder(cache_folder().parent, cache_folder().name)
    return folder / f"sound-{own}-jax-{jax.__version__}-{_JAXLIB}-{jax.default_backend()}"


@cache
def check() -> None:
    """Reject a JAX that computes wrong results. A release and backend that pass are recorded by a stamp in the cache folder.

    A stamp in a folder that other users can write to is ignored.

    **Raises:** `UserError` with the failing operations and a release to install.
    """
    with contextlib.suppress(OSError, RuntimeError):
        if _stamp().exists():
            return
    with jax.enable_x64(False):
        wrong = failed_operations()
    if wrong:
        raise UserError(
            f"jax {jax.__version__} with jaxlib {_JAXLIB} computes wrong on {jax.default_backend()} "
            f"({', '.join(wrong)}, "
            f"over {ROWS:,} rows): no sweep is run with it; install another release, such as pip install 'jax=={_TRUSTED}'"
        )
    with contextlib.suppress(OSError, RuntimeError):
        _stamp().touch()


_TRUSTED = "0.10.1"
"""JAX release with which all of hwopt's tests passed."""
