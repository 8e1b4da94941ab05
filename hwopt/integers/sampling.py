"""Columns of points from columns of numbers in [0, 1), or near wanted ones: each coordinate in turn, inside what is left to it.

Written for JAX: arithmetic on whole columns, no branches, float32 as well as float64.
"""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.integers.relations import Divides, ProductLimit, near_integer
from hwopt.integers.system import Integer, System

ROUNDING = 1e-6
"""Relative slack of integers computed in float32."""

NEAR = 1e-4
"""How far from an integer a count may be, absolutely."""

Columns = Mapping[str, Array]


def complete_points(system: System, wanted: Mapping[str, Any], cube: Columns) -> dict[str, Any]:
    """Points of a system: columns by coordinate.

    A coordinate among few values is the one that its part of the cube falls in, else the nearest to what is wanted; one
    that follows from a named product is what comes nearest to the product that is wanted, in multiples of its step; any
    other is drawn log-uniform from what the relations leave it, or rounded into that.

    **Arguments:** `wanted` values of coordinates and named products; `cube`: columns in [0, 1) by coordinate, of those that
    are drawn. What is in neither stands at its lower end.
    """
    columns: dict[str, Any] = {}
    followed = {each.follows: each for each in system.quantities.values()}
    for each in system.coordinates:
        name = each.name
        if each.values is not None:
            values = np.asarray(each.values, float)
            nearest = closest(values, wanted[name]) if name in wanted else float(values[0])
            columns[name] = chosen(values, cube[name]) if name in cube else nearest
            continue
        least, most = _bounds(system, each, columns)
        if name in followed:
            columns[name] = _following(system, followed[name], name, wanted, columns)
        else:
            least = jnp.minimum(least, most)
            near = wanted[name] if name in wanted else float(each.lower)
            if name in cube and name in system.divided:
                near = least * jnp.exp(cube[name] * jnp.log(most / least))
            elif name in cube:
                near = sampled_value(cube[name], least, most)
            columns[name] = _multiple(jnp.clip(near, least, most), step_of(system, name, columns), least, most)
    return columns


def _bounds(system: System, each: Integer, columns: Mapping[str, Any]) -> tuple[Any, Any]:
    """What relations without a name leave to a coordinate: known ones as they are, later ones anywhere in their ranges."""
    lows = {other.name: columns.get(other.name, float(other.ends[0])) for other in system.coordinates}
    highs = {other.name: columns.get(other.name, float(other.ends[1])) for other in system.coordinates}
    least, most = float(each.lower), float(each.upper)
    for relation in system.relations:
        named = isinstance(relation, ProductLimit) and relation.name
        if each.name not in relation.names or named or isinstance(relation, Divides):  # steps: of what follows
            continue
        at_least, at_most = relation.bounds(each.name, lows, highs)
        least = jnp.maximum(least, jnp.ceil(at_least * (1.0 - ROUNDING)))
        most = jnp.minimum(most, floor(at_most))
    return least, jnp.maximum(most, 1.0)


def _following(
    system: System, quantity: ProductLimit, name: str, wanted: Mapping[str, Any], columns: dict[str, Any]
) -> Any:
    """The multiple of a coordinate's step at which a product is nearest to the wanted one; its limits hold where they can."""
    each, step = quantity.value(columns, name), step_of(system, name, columns)
    least, most = quantity.ends(columns)
    return _multiple(wanted.get(quantity.name, least) / each, step, least / each, most / each)


def _multiple(target: Any, step: Any, least: Any, most: Any) -> Array:
    """The multiple of a step nearest to a target, one step at least; inside its ends where one lies between them."""
    first = jnp.ceil(least / step * (1.0 - ROUNDING))
    last = floor(most / step)
    near = jnp.round(target / step)
    near = jnp.where(near > last, last, near)
    near = jnp.where((near < first) & (first <= last), first, near)
    return step * jnp.maximum(near, 1.0)


def step_of(system: System, name: str, columns: Mapping[str, Any]) -> Any:
    """What a coordinate is a multiple of: the divisor itself, or looked up by the few values of what decides it."""
    relations = system.divided.get(name, [])
    if not relations:
        return 1.0
    if len(relations) == 1 and relations[0].plain:
        return relations[0].constant * math.prod((columns[other] for other in relations[0].divisor), start=1.0)
    others = list(dict.fromkeys(other for r in relations for other in r.names if other != name))
    tables = [system.values_of(system.by_name[other]) for other in others]
    steps = {
        values: math.lcm(*(int(r.step(name, dict(zip(others, values, strict=True)) | {name: 1.0})) for r in relations))
        for values in itertools.product(*tables)
    }
    common = min(steps.values())
    if set(steps.values()) == {common}:
        return float(common)
    step = jnp.full_like(jnp.asarray(sum(columns[other] for other in others), float), common)
    for values, value in steps.items():
        if value != common:
            match = [columns[other] == x for other, x in zip(others, values, strict=True)]
            step = jnp.where(jnp.stack(jnp.broadcast_arrays(*match)).all(axis=0), float(value), step)
    return step


def broken(system: System, columns: Mapping[str, Any]) -> list[Any]:
    """Where columns, computed with rounding, are no points: a condition each, true where it is broken."""
    conditions = []
    for each in system.coordinates:
        value = columns[each.name]
        conditions.append(~near_integer(jnp.asarray(value), ROUNDING, NEAR))
        if each.values is not None:
            near = jnp.stack([jnp.abs(value - x) <= NEAR + ROUNDING * x for x in map(float, each.values)])
            conditions.append(~near.any(axis=0))
    for relation in system.relations:
        if not (
            isinstance(relation, ProductLimit) and relation.name
        ):  # how far a quantity is outside its box is measured
            conditions.append(~jnp.asarray(relation.holds(columns, ROUNDING, NEAR)))
    return conditions


def floor(value: Any) -> Array:
    """The integer below, of what is an integer but for rounding that integer."""
    return jnp.floor(value * (1.0 + ROUNDING))


def sampled_value(u: Array, low: Any, high: Any, step: float = 1.0) -> Array:
    """Multiples of a step from `low` to `high`, log-uniform."""
    first, last = jnp.ceil(low / step * (1.0 - ROUNDING)), floor(high / step)
    value = jnp.floor(first * jnp.exp(u * jnp.log((last + 1.0) / first)))
    return step * jnp.clip(value, first, last)


def chosen(values: np.ndarray, u: Array) -> Array:
    """One of a few ascending numbers, all as likely."""
    value = jnp.full_like(u, values[0])
    for i, each in enumerate(values[1:], 1):
        value = jnp.where(u >= i / len(values), each, value)
    return value


def closest(values: np.ndarray, wanted: Any) -> Array:
    """The number nearest in ratio."""
    value = jnp.full_like(jnp.asarray(wanted, float), values[0])
    for below, each in itertools.pairwise(values):
        value = jnp.where(wanted >= math.sqrt(below * each), each, value)
    return value
