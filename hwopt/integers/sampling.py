"""Sampling of integer points: numbers in [0, 1), or wanted values, are mapped to feasible points one coordinate at a time.

Written for JAX: arithmetic on whole columns, no branches, in float32 or float64.
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
"""Relative tolerance of integers computed in float32."""

_MOST_STEPS = 4096
"""Maximum size of a table of steps. Points ignore relations with a larger table, or with a coordinate that is not yet known.
`broken` marks points that violate them."""

NEAR = 1e-4
"""Absolute tolerance within which a count is an integer."""

Columns = Mapping[str, Array]


def complete_points(system: System, wanted: Mapping[str, Any], cube: Columns) -> dict[str, Any]:
    """Return points of a system, as columns by coordinate.

    - A coordinate with a list of values divides [0, 1) into equal shares; its sample selects one. Without a sample, it
      gets the value nearest to the wanted one.
    - A coordinate that follows from a named product gets the multiple of its step that comes nearest to the wanted
      product.
    - Any other is sampled log-uniformly from the range that the relations leave, or rounded to the nearest value in this
      range.

    **Arguments:**

    - `system`: coordinates and relations.
    - `wanted`: wanted values of coordinates and named products.
    - `cube`: samples in [0, 1) of coordinates. A coordinate in neither mapping is at its lower end.
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
    """Return the range that unnamed relations leave to a coordinate, given known ones; later ones may be anywhere in
    their ranges.
    """
    lows = {other.name: columns.get(other.name, float(other.ends[0])) for other in system.coordinates}
    highs = {other.name: columns.get(other.name, float(other.ends[1])) for other in system.coordinates}
    least, most = float(each.lower), float(each.upper)
    for relation in system.relations:
        named = isinstance(relation, ProductLimit) and relation.name
        if each.name not in relation.names or named or isinstance(relation, Divides):  # `step_of` applies it
            continue
        at_least, at_most = relation.bounds(each.name, lows, highs)
        least = jnp.maximum(least, jnp.ceil(at_least * (1.0 - ROUNDING)))
        most = jnp.minimum(most, floor(at_most))
    return least, jnp.maximum(most, 1.0)


def _following(
    system: System, quantity: ProductLimit, name: str, wanted: Mapping[str, Any], columns: dict[str, Any]
) -> Any:
    """Return the multiple of a coordinate's step for which a product is nearest to the wanted one, within its limits if
    possible.
    """
    each, step = quantity.value(columns, name), step_of(system, name, columns)
    least, most = quantity.ends(columns)
    return _multiple(wanted.get(quantity.name, least) / each, step, least / each, most / each)


def _multiple(target: Any, step: Any, least: Any, most: Any) -> Array:
    """Return the multiple of a step nearest to a target, at least one step, and between the two ends if a multiple is there."""
    first = jnp.ceil(least / step * (1.0 - ROUNDING))
    last = floor(most / step)
    near = jnp.round(target / step)
    near = jnp.where(near > last, last, near)
    near = jnp.where((near < first) & (first <= last), first, near)
    return step * jnp.maximum(near, 1.0)


def step_of(system: System, name: str, columns: Mapping[str, Any]) -> Any:
    """Return the step of which a coordinate is a multiple: the divisor itself, or a table look-up by the coordinates it
    depends on.
    """
    others_of = lambda relation: [other for other in relation.names if other != name]
    small = lambda known: math.prod(len(system.values_of(system.by_name[other])) for other in known) <= _MOST_STEPS
    relations = [
        each
        for each in system.divided.get(name, [])
        if each.plain or (small(others_of(each)) and all(other in columns for other in others_of(each)))
    ]
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
    """Return conditions that are true where columns, computed with rounding, are not valid points; one array per condition."""
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
        ):  # a quantity outside its limits is measured elsewhere
            conditions.append(~jnp.asarray(relation.holds(columns, ROUNDING, NEAR)))
    return conditions


def floor(value: Any) -> Array:
    """Round down; a number that is an integer up to rounding becomes that integer."""
    return jnp.floor(value * (1.0 + ROUNDING))


def sampled_value(u: Array, low: Any, high: Any, step: float = 1.0) -> Array:
    """Return log-uniform samples of the multiples of a step from `low` to `high`.

    **Arguments:** `u`: samples in [0, 1).
    """
    first, last = jnp.ceil(low / step * (1.0 - ROUNDING)), floor(high / step)
    value = jnp.floor(first * jnp.exp(u * jnp.log((last + 1.0) / first)))
    return step * jnp.clip(value, first, last)


def chosen(values: np.ndarray, u: Array) -> Array:
    """Return one of a few ascending numbers with equal probability, for samples `u` in [0, 1)."""
    value = jnp.full_like(u, values[0])
    for i, each in enumerate(values[1:], 1):
        value = jnp.where(u >= i / len(values), each, value)
    return value


def closest(values: np.ndarray, wanted: Any) -> Array:
    """Return the number nearest to the wanted one in ratio."""
    value = jnp.full_like(jnp.asarray(wanted, float), values[0])
    for below, each in itertools.pairwise(values):
        value = jnp.where(wanted >= math.sqrt(below * each), each, value)
    return value
