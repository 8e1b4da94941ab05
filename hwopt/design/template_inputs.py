"""Inputs of a question by name: all positive numbers of its template that no design variable overwrites."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from hwopt.catalog import leaf
from hwopt.design.design import with_derived_parts
from hwopt.design.problem import Problem
from hwopt.quantity import Quantity, numbers_in


@dataclass(frozen=True)
class Input:
    """One numeric input of a question."""

    name: str  # path in the inputs, such as cluster.network.efficiency[scale_up]
    value: float  # SI
    quantity: Quantity
    leaf: int  # index into the flattened inputs
    element: int  # index within the leaf

    @property
    def unit(self) -> str:
        """SI unit; empty for ratios and counts."""
        return self.quantity.unit

    @property
    def place(self) -> tuple[int, int]:
        """Position of the input: leaf of the flattened inputs, and element of the leaf."""
        return self.leaf, self.element

    @property
    def is_temperature(self) -> bool:
        """Return whether it is an absolute temperature rather than a temperature difference."""
        return self.unit == "K" and self.value > 200.0

    @property
    def is_asked(self) -> bool:
        """Return whether it describes the task (model, tokens, formats) rather than an assumption."""
        return self.name.startswith("workload.") and not self.module.endswith((".law", ".stack"))

    @property
    def module(self) -> str:
        """Path of the module that contains the input, such as cluster.network."""
        return self.name.rsplit(".", 1)[0]

    @property
    def label(self) -> str:
        """Label of the element of an array, such as scale_up; empty for a scalar."""
        return self.name.rstrip("]").partition("[")[2]


def inputs_of(tree: Any) -> list[Input]:
    """Return all positive, variable numbers of a tree of model modules, such as a template or a design."""
    inputs = []
    for number, (name, quantity, value) in enumerate(numbers_in(tree)):
        if not quantity.varies:
            continue
        flat = np.asarray(value, np.float64).ravel()
        labels = [f"[{label}]" for label in quantity.elements] if len(flat) > 1 else [""]
        inputs += [
            Input(name + label, float(x), quantity, number, i)
            for i, (label, x) in enumerate(zip(labels, flat, strict=False))
            if x > 0.0 and np.isfinite(x)
        ]
    return inputs


def overwritten(problem: Problem) -> set[tuple[int, int]]:
    """Return the elements of a template that its variables set directly, or that are derived from them."""
    with jax.enable_x64(True):
        marked = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), problem.template)
        for each in problem.variables:
            marked = each.place.put(marked, leaf(np.nan))
        leaves = jax.tree.leaves(with_derived_parts(marked)._replace(project=marked.project))
    return {(i, int(element)) for i, x in enumerate(leaves) for element in np.flatnonzero(np.isnan(np.ravel(x)))}


def template_inputs(problem: Problem) -> list[Input]:
    """Return the inputs of a question: the numbers of its template that no variable overwrites."""
    taken = overwritten(problem)
    return [each for each in inputs_of(problem.template) if each.place not in taken]
