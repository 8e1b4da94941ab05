"""Arrays of known numbers, with a leading axis of search-tree nodes, and of unknown elements, as objects; both are moved
alike.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

Known = np.ndarray  # (node, *shape): numbers and truth values
Unknown = np.ndarray  # dtype object, shape: elements of an algebra


def is_known(value: np.ndarray) -> bool:
    """Return whether an array contains numbers rather than unknown elements."""
    return value.dtype != object


def known_constant(value: Any) -> Known:
    """Return a constant of a jaxpr as an array with one entry on the node axis, valid for all nodes."""
    value = np.asarray(value)
    return (value.astype(np.float64) if np.issubdtype(value.dtype, np.floating) else value)[None]


def shape_of(value: np.ndarray) -> tuple[int, ...]:
    """Return the shape of an array without the axis of nodes."""
    return value.shape[1:] if is_known(value) else value.shape


def objects(elements: list, shape: tuple[int, ...]) -> Unknown:
    """Return a list as an array of objects."""
    result = np.empty(len(elements), object)
    result[:] = elements
    return result.reshape(shape)


def taken(value: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return elements by their index in the flattened array. **Arguments:** `places`: indices; the result has their shape."""
    if is_known(value):
        return value.reshape(value.shape[0], -1)[:, places.ravel()].reshape(value.shape[0], *places.shape)
    return value.ravel()[places.ravel()].reshape(places.shape)


def moved(
    move: Callable, inputs: list[np.ndarray], params: dict, as_objects: Callable[[np.ndarray], Unknown]
) -> np.ndarray:
    """Apply an operation that only moves elements. It acts on indices if all inputs are known, else on objects.

    **Arguments:** `as_objects`: converts known numbers to objects.
    """
    if not all(is_known(x) for x in inputs):
        return move([as_objects(x) for x in inputs], params)
    nodes = max(x.shape[0] for x in inputs)
    flat = [np.broadcast_to(x.reshape(x.shape[0], -1), (nodes, math.prod(x.shape[1:]))) for x in inputs]
    starts = np.cumsum([0, *(x.shape[1] for x in flat)])
    numbers = [np.arange(*ends).reshape(x.shape[1:]) for ends, x in zip(pairwise(starts), inputs, strict=True)]
    return taken(flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1), move(numbers, params))


def _broadcast_in_dim(inputs, p):
    x, shape = inputs[0], p["shape"]
    wide = np.ones(len(shape), int)
    wide[list(p["broadcast_dimensions"])] = x.shape
    return np.broadcast_to(x.reshape(tuple(wide)), shape)


def _slice(inputs, p):
    strides = p["strides"] or (1,) * inputs[0].ndim
    return inputs[0][tuple(slice(*each) for each in zip(p["start_indices"], p["limit_indices"], strides, strict=True))]


def _stack(inputs, p):
    axis = next((p[name] for name in ("axis", "dimension") if name in p), 0)
    return np.stack(inputs, axis)


def _pad(inputs, p):
    x, fill = inputs
    axes = list(zip(x.shape, p["padding_config"], strict=True))
    size = [low + n + max(n - 1, 0) * between + high for n, (low, high, between) in axes]
    wide = np.broadcast_to(fill, size).copy()
    places = [low + np.arange(n) * (between + 1) for n, (low, _, between) in axes]
    inside = [(place >= 0) & (place < size) for place, size in zip(places, wide.shape, strict=True)]
    wide[np.ix_(*(place[each] for place, each in zip(places, inside, strict=True)))] = x[np.ix_(*inside)]
    return wide


MOVES: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": lambda x, p: x[0].reshape(p["new_sizes"]),
    "squeeze": lambda x, p: np.squeeze(x[0], tuple(p["dimensions"])) if p["dimensions"] else x[0],
    "expand_dims": lambda x, p: np.expand_dims(x[0], tuple(p["dimensions"])),
    "transpose": lambda x, p: x[0].transpose(p["permutation"]),
    "slice": _slice,
    "concatenate": lambda x, p: np.concatenate(x, p["dimension"]),
    "pad": _pad,
    "rev": lambda x, p: np.flip(x[0], p["dimensions"]),
    "stack": _stack,
}
"""Operations that only move elements, as functions of arrays of objects or indices."""
