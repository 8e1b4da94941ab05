"""What tests of the reader share: reading a function, and evaluating what was read by the definition of each atom."""

from __future__ import annotations

import jax
import numpy as np

from hwopt.solver.gp.reader import Logarithm, read
from hwopt.solver.gp.signomial import Algebra, AtomKind


def _quiet(function, x):
    with np.errstate(all="ignore"):
        return function(x)


def variable_array(algebra, low, high, shape=()):
    """An array of new variables."""
    made = np.empty(shape, object)
    for place in np.ndindex(shape):
        made[place] = algebra.variable("", low, high)
    return made


def read_function(function, shapes, low=0.0, high=np.inf, algebra=None, known=()):
    """Outputs of a function of variables (shapes), then of known arrays (node, *shape); and the algebra."""
    algebra = algebra or Algebra(granting=False)
    with jax.enable_x64(True):
        likes = [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes]
        likes += [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in known]
        jaxpr = jax.make_jaxpr(function)(*likes)
        arguments = [variable_array(algebra, low, high, shape) for shape in shapes]
        return read(jaxpr, [*arguments, *known], algebra), algebra


def value(read, algebra, values):
    """Values of what was read, by the values of the variables in the order of their making: (variable, point) arrays.

    A known value has its nodes as points; what is known by its range alone is NaN.
    """
    atoms = {}
    variables = iter(values)

    def signomial(e):
        total = np.zeros(1)
        for key, c in e.terms.items():
            product = c
            for index, power in key:
                with np.errstate(over="ignore"):  # drawn numbers may be huge: inf then
                    product = product * atoms[index] ** power
            total = total + product
        return total

    for index, atom in enumerate(algebra.atoms):
        parts = [signomial(part) for part in atom.parts]
        if atom.kind is AtomKind.variable:
            atoms[index] = np.asarray(next(variables))
        elif atom.kind is AtomKind.hull:
            atoms[index] = np.full(1, np.nan)
        elif atom.kind is AtomKind.sum:
            atoms[index] = parts[0]
        elif atom.kind in (AtomKind.exponential, AtomKind.logarithm):
            atoms[index] = _quiet(np.exp if atom.kind is AtomKind.exponential else np.log, parts[0])
        else:
            pick = np.maximum if atom.kind is AtomKind.maximum else np.minimum
            atoms[index] = pick.reduce(np.broadcast_arrays(*parts))

    def one(e):
        return e.sign * np.log(signomial(e.of)) + e.shift if isinstance(e, Logarithm) else signomial(e)

    def whole(output):
        if output.dtype != object:
            return output
        made = np.array(np.broadcast_arrays(*(one(e) for e in output.ravel())))
        return np.moveaxis(made, 0, -1).reshape(-1, *output.shape)

    return [whole(output) for output in read] if isinstance(read, list) else signomial(read), atoms
