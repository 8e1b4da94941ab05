"""Dies made for each that can be sold, as one operation: what it is in log space is known of it, not of its sum.

`1 / Y = (1 + F / alpha)^alpha / I_x(alpha, S + 1)`, `x = (alpha + F) / (alpha + F + H)`: expected defects F in the area where any
kills and H in the area of which S may be lost, both under one negative binomial law of clustering alpha; I is the regularised
incomplete beta function. It is log-log convex in F and H: `Y` is the integral over the rate l and the time x of

    l^(alpha - 1) exp(-l) exp(-l F / alpha) x^S exp(-x)   where x >= l H / alpha,

log-concave in the logarithms of all four, and so in those that are left (Prékopa 1973).

**Source:** Koren and Koren, Proc. IEEE 1998, for the law; Abramowitz and Stegun 26.5.4 for the sum.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike

_TERMS = (
    96  # of the sum of `_too_many`: exact to 1e-13 while H / (alpha + F + H) < 0.4, six dead units a die at alpha 10
)

dies_made_p = Primitive("dies_made")


def dies_made(fixed: ArrayLike, open_to_repair: ArrayLike, spares: ArrayLike, clustering: ArrayLike) -> Array:
    """Dies made for each that has no defect where any kills and at most `spares` elsewhere.

    **Arguments:** `fixed`, `open_to_repair`: expected defects, F and H; `spares` S, any number from 0 on; `clustering` alpha. Their
    shapes broadcast. **Returns:** a ratio, 1 or more.
    """
    arguments = jnp.broadcast_arrays(fixed, open_to_repair, spares, clustering)
    kind = jnp.result_type(float, *arguments)
    return dies_made_p.bind(*(each.astype(kind) for each in arguments))


def _summed(fixed: Array, open_to_repair: Array, spares: Array, clustering: Array) -> Array:
    dead = open_to_repair / (clustering + fixed + open_to_repair)
    return (1.0 + fixed / clustering) ** clustering / (1.0 - _too_many(dead, spares, clustering))


def _too_many(dead: Array, spares: Array, alpha: Array) -> Array:
    """P(K > S) of a negative binomial K, `I_y(S + 1, alpha)`, as the sum of its positive terms.

    `sum_j Gamma(j + alpha) / (Gamma(alpha) Gamma(j + 1)) y^j (1-y)^alpha` over j = S + 1, S + 2, ..., for any real S.
    Written out because jax has no derivatives of `betainc` to its orders.
    """
    dead, alpha, kept_alone = dead[..., None], alpha[..., None], dead
    beyond = spares[..., None] + jnp.arange(_TERMS, dtype=dead.dtype)
    ways = gammaln(beyond + 1.0 + alpha) - gammaln(beyond + 2.0) - gammaln(alpha)
    # Without harvestable area 0^0 has no derivatives; one factor y stands outside, so that the first one is exact there.
    kept = (dead > 0.0) | (beyond == 0.0)
    exponent = jnp.where(kept, ways + beyond * jnp.log(jnp.where(dead > 0.0, dead, 1.0)), 0.0)
    total = jnp.sum(jnp.where(kept, jnp.exp(exponent), 0.0), axis=-1)
    return (1.0 - kept_alone) ** alpha[..., 0] * kept_alone * total


def on_numbers(fixed: Any, open_to_repair: Any, spares: Any, clustering: Any) -> Any:
    """The same in NumPy."""
    from scipy.special import betainc

    x = (clustering + fixed) / (clustering + fixed + open_to_repair)
    return (1.0 + fixed / clustering) ** clustering / betainc(clustering, spares + 1.0, x)


def slopes(fixed: float, open_to_repair: float, spares: float, clustering: float) -> tuple[float, float, float, float]:
    """Derivatives of the logarithm by all four: those of the sum of `_too_many`, term by term."""
    from scipy.special import digamma, gammaln

    whole = clustering + fixed + open_to_repair
    by_area = (fixed + clustering) / whole  # of what is not open to repair
    base = np.log1p(fixed / clustering) - fixed / (clustering + fixed)  # of the yield of the fixed area, by clustering
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


dies_made_p.def_impl(jax.jit(_summed))
dies_made_p.def_abstract_eval(lambda fixed, *_: fixed)
mlir.register_lowering(dies_made_p, mlir.lower_fun(_summed, multiple_results=False))
batching.defbroadcasting(dies_made_p)


def _pushed(primals: Any, tangents: Any) -> Any:
    own = [ad.instantiate_zeros(each) for each in tangents]
    return jax.jvp(_summed, tuple(primals), tuple(own))


ad.primitive_jvps[dies_made_p] = _pushed

OPERATIONS = {dies_made_p.name: dies_made_p}
"""Operations of our own, by name."""
