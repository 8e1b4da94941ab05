"""Number of dies manufactured per good die, as one JAX primitive, so that its known log-space convexity can be used.

`1 / Y = (1 + F / alpha)^alpha / I_x(alpha, S + 1)`, `x = (alpha + F) / (alpha + F + H)`. F is the number of expected
defects in the area where any defect kills the die. H is that in the repairable area, of which S units may be lost. Both
follow one negative binomial law with clustering alpha; I is the regularized incomplete beta function. The ratio is
log-log convex in F and H: `Y` is the integral over the rate l and the time x of

    l^(alpha - 1) exp(-l) exp(-l F / alpha) x^S exp(-x)   where x >= l H / alpha,

which is log-concave in the logarithms of all four, and therefore also in those that remain after integration (Prékopa
1973).

**Source:** Koren and Koren, Proc. IEEE 1998, for the law; Abramowitz and Stegun 26.5.4 for the sum.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike

_TERMS = (
    96  # terms of the sum in `_too_many`: exact to 1e-13 while H / (alpha + F + H) < 0.4 (six dead units at alpha 10)
)

OPERATIONS: dict[str, Primitive] = {}
"""JAX primitives that hwopt defines, by name."""


def elementwise_primitive(name: str, function: Callable[..., Array]) -> Primitive:
    """Return a new JAX primitive that computes an elementwise function of arrays of one shape, with JAX's derivatives of it."""

    def pushed(primals: Any, tangents: Any) -> Any:
        return jax.jvp(function, tuple(primals), tuple(map(ad.instantiate_zeros, tangents)))

    primitive = OPERATIONS[name] = Primitive(name)
    primitive.def_impl(jax.jit(function))
    primitive.def_abstract_eval(lambda first, *_: first)
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))
    batching.defbroadcasting(primitive)
    ad.primitive_jvps[primitive] = pushed
    return primitive


def bound(primitive: Primitive, arguments: Sequence[ArrayLike]) -> Array:
    """Apply an elementwise primitive to arguments that broadcast."""
    arrays = jnp.broadcast_arrays(*arguments)
    kind = jnp.result_type(float, *arrays)
    return primitive.bind(*(each.astype(kind) for each in arrays))


def dies_made(fixed: ArrayLike, open_to_repair: ArrayLike, spares: ArrayLike, clustering: ArrayLike) -> Array:
    """Return the number of dies manufactured per good die: one with no fatal defect and at most `spares` repairable ones.

    **Arguments:** shapes broadcast.

    - `fixed`: F, expected defects in the area where any defect kills the die.
    - `open_to_repair`: H, expected defects in the repairable area.
    - `spares`: S, units that may be lost, any number from 0 on.
    - `clustering`: alpha of the negative binomial law.

    **Returns:** a ratio, 1 or more.
    """
    return bound(dies_made_p, (fixed, open_to_repair, spares, clustering))


def _summed(fixed: Array, open_to_repair: Array, spares: Array, clustering: Array) -> Array:
    dead = open_to_repair / (clustering + fixed + open_to_repair)
    return (1.0 + fixed / clustering) ** clustering / (1.0 - _too_many(dead, spares, clustering))


def _too_many(dead: Array, spares: Array, alpha: Array) -> Array:
    """Return P(K > S) of a negative binomial K, `I_y(S + 1, alpha)`, as the sum of its positive terms.

    `sum_j Gamma(j + alpha) / (Gamma(alpha) Gamma(j + 1)) y^j (1-y)^alpha` over j = S + 1, S + 2, ..., for any real S. The
    sum is explicit because JAX cannot differentiate `betainc` with respect to its first two arguments.
    """
    dead, alpha, kept_alone = dead[..., None], alpha[..., None], dead
    beyond = spares[..., None] + jnp.arange(_TERMS, dtype=dead.dtype)
    ways = gammaln(beyond + 1.0 + alpha) - gammaln(beyond + 2.0) - gammaln(alpha)
    # Without repairable area, 0^0 has no derivative. One factor y is outside the sum, so that the first derivative is
    # exact there.
    kept = (dead > 0.0) | (beyond == 0.0)
    exponent = jnp.where(kept, ways + beyond * jnp.log(jnp.where(dead > 0.0, dead, 1.0)), 0.0)
    total = jnp.sum(jnp.where(kept, jnp.exp(exponent), 0.0), axis=-1)
    return (1.0 - kept_alone) ** alpha[..., 0] * kept_alone * total


def on_numbers(fixed: Any, open_to_repair: Any, spares: Any, clustering: Any) -> Any:
    """Return the number of dies manufactured per good die, as `dies_made` does, in NumPy."""
    from scipy.special import betainc

    x = (clustering + fixed) / (clustering + fixed + open_to_repair)
    return (1.0 + fixed / clustering) ** clustering / betainc(clustering, spares + 1.0, x)


def slopes(fixed: float, open_to_repair: float, spares: float, clustering: float) -> tuple[float, float, float, float]:
    """Return the derivatives of the log of `dies_made` with respect to its four arguments, from the sum of `_too_many`
    term by term.
    """
    from scipy.special import digamma, gammaln

    whole = clustering + fixed + open_to_repair
    by_area = (fixed + clustering) / whole  # share that is not repairable
    base = np.log1p(fixed / clustering) - fixed / (clustering + fixed)  # of the fixed area's yield, by clustering
    dead = open_to_repair / whole
    beyond = spares + np.arange(_TERMS)
    with np.errstate(all="ignore"):
        ways = gammaln(beyond + 1.0 + clustering) - gammaln(beyond + 2.0) - gammaln(clustering)
        over_dead = np.exp(ways + beyond * np.log(dead) + clustering * np.log(by_area))  # of each term
        over_dead = np.where(dead > 0.0, over_dead, np.where(beyond == 0.0, clustering, 0.0))
        log_dead = np.log(dead) if dead > 0.0 else 0.0
    kept = 1.0 - dead * over_dead.sum()
    by_dead = float((over_dead * (beyond + 1.0 - clustering * dead / by_area)).sum() / kept)
    by_spares = dead * over_dead @ (digamma(beyond + 1.0 + clustering) - digamma(beyond + 2.0) + log_dead) / kept
    by_ways = dead * over_dead @ (digamma(beyond + 1.0 + clustering) - digamma(clustering) + np.log(by_area)) / kept
    return (
        clustering / (clustering + fixed) - by_dead * dead / whole,
        by_dead * by_area / whole,
        float(by_spares),
        float(base + by_ways - by_dead * dead / whole),
    )


dies_made_p = elementwise_primitive("dies_made", _summed)
