"""Constant folding: JAX operations evaluated in NumPy where a jaxpr does not depend on a variable, node by node."""

import math
import operator
from collections.abc import Callable
from importlib import import_module

import jax
import numpy as np

from hwopt.trace import yield_primitive
from hwopt.trace.arrays import Known


def _axes(p: dict) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in p["axes"])


def _cumulate(function: Callable) -> Callable:
    def run(x, p):
        axis = p["axis"] + 1
        return np.flip(function(np.flip(x, axis), axis), axis) if p["reverse"] else function(x, axis)

    return run


def on_numbers(name: str, inputs: list[Known], params: dict) -> Known:
    """Apply an operation to known numbers, node by node; scalars broadcast with arrays."""
    if name == "dot_general":
        return _dot(*inputs, p=params)
    rank = max(x.ndim for x in inputs) if inputs else 0
    aligned = [x.reshape(x.shape[0], *(1,) * (rank - x.ndim), *x.shape[1:]) if x.ndim < rank else x for x in inputs]
    return NUMBERS[name](*aligned, p=params)


def _simple(function: Callable) -> Callable:
    return lambda *x, p: function(*x)


def _special(name: str) -> Callable:
    """Return a function of `scipy.special`. For a few numbers `math` is used instead, since importing SciPy takes 0.2 s."""
    few = getattr(math, _OF_MATH.get(name, ""), None)

    def run(*arguments, p):
        (*_, x) = arguments
        if few is None or not isinstance(x, np.ndarray) or x.size > FEW:
            return getattr(import_module("scipy.special"), name)(*arguments)
        return np.array([few(each) for each in x.ravel()]).reshape(x.shape)

    return run


_OF_MATH = {"erf": "erf", "erfc": "erfc"}

FEW = 256
"""Maximum number of values that are computed one by one with `math`."""


def _divided(a, b):
    """Divide; integers are truncated towards 0."""
    if a.dtype.kind == "f" or b.dtype.kind == "f":
        return np.true_divide(a, b)
    return np.trunc(np.true_divide(a, b)).astype(np.result_type(a, b))


def _rounded(a, p):
    away = p["rounding_method"] == jax.lax.RoundingMethod.AWAY_FROM_ZERO
    return np.trunc(a + np.copysign(0.5, a)) if away else np.round(a)


def _converted(a, p):
    kind = p["new_dtype"]
    return a.astype(np.float64 if np.issubdtype(kind, np.floating) else kind)


def _dot(a, b, p):
    (left, right), (left_batch, right_batch) = p["dimension_numbers"]
    of_a, of_b = list(range(a.ndim)), [0, *range(a.ndim, a.ndim + b.ndim - 1)]  # a number per axis, 0 for nodes
    for i, j in (*zip(left_batch, right_batch, strict=True), *zip(left, right, strict=True)):
        of_b[j + 1] = of_a[i + 1]
    batch = [of_a[i + 1] for i in left_batch]
    shared = {*batch, *(of_a[i + 1] for i in left)}
    free = [axis for axis in (*of_a[1:], *of_b[1:]) if axis not in shared]
    nodes = max(a.shape[0], b.shape[0])
    a, b = (np.broadcast_to(x, (nodes, *x.shape[1:])) for x in (a, b))
    return np.einsum(a, of_a, b, of_b, [0, *batch, *free])


def _chosen(which, *cases):
    if len(cases) != 2:
        return np.choose(which, cases)
    return np.where(which.astype(bool), cases[1], cases[0])


PLAIN: dict[str, Callable[..., Known]] = {
    **{name: getattr(np, name) for name in (
        "sign", "exp", "exp2", "expm1", "log", "log1p", "sqrt", "cbrt", "square", "abs", "floor", "ceil", "tanh", "sin", "cos",
        "tan")},
    "add": operator.add, "add_any": operator.add, "sub": operator.sub, "div": _divided, "rem": np.fmod,
    "mul": operator.mul, "max": np.maximum, "min": np.minimum, "neg": np.negative,
    "atan2": np.arctan2, "rsqrt": lambda a: 1.0 / np.sqrt(a), "pow": np.power, "is_finite": np.isfinite,
    "and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert, "gt": np.greater, "ge": np.greater_equal, "lt": np.less,
    "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "clamp": lambda low, x, high: np.clip(x, low, high),
    "dies_made": yield_primitive.on_numbers, "select_n": _chosen,
    **dict.fromkeys(("copy", "copy_p", "stop_gradient", "optimization_barrier", "reduce_precision"), lambda a: a),
}  # fmt: skip
"""Operations without parameters, on arrays of equal rank."""

NUMBERS: dict[str, Callable] = {
    **{name: _simple(function) for name, function in PLAIN.items()},
    **{name: _special(function) for name, function in {
        "logistic": "expit", "erf": "erf", "erfc": "erfc", "lgamma": "gammaln", "digamma": "digamma",
        "polygamma": "polygamma"}.items()},
    "round": _rounded,
    "integer_pow": lambda a, p: np.power(a, p["y"]),
    "convert_element_type": _converted,
    "reduce_sum": lambda a, p: a.sum(_axes(p)), "reduce_max": lambda a, p: a.max(_axes(p)),
    "reduce_min": lambda a, p: a.min(_axes(p)), "reduce_prod": lambda a, p: a.prod(_axes(p)),
    "reduce_and": lambda a, p: a.all(_axes(p)), "reduce_or": lambda a, p: a.any(_axes(p)),
    "argmax": lambda a, p: a.argmax(p["axes"][0] + 1), "argmin": lambda a, p: a.argmin(p["axes"][0] + 1),
    "cumsum": _cumulate(np.cumsum), "cumprod": _cumulate(np.cumprod),
    "cummax": _cumulate(np.maximum.accumulate), "cummin": _cumulate(np.minimum.accumulate),
    "iota": lambda p: np.broadcast_to(
        np.arange(p["shape"][p["dimension"]], dtype=p["dtype"]).reshape(
            [-1 if i == p["dimension"] else 1 for i in range(len(p["shape"]))]), p["shape"])[None],
    "dot_general": _dot,
}  # fmt: skip
"""Operations on known numbers; arrays have a leading axis of nodes."""
