"""The numbers a question stands on, by name: every positive element of its template that no variable overwrites."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from hwopt.catalog import leaf
from hwopt.design.design import with_derived_parts
from hwopt.design.problem import Problem
from hwopt.quantity import Quantity, quantities


@dataclass(frozen=True)
class Input:
    """One number of a question."""

    name: str  # as its place in the inputs: cluster.network.efficiency[scale_up]
    value: float  # SI
    quantity: Quantity
    leaf: int  # of the flattened inputs
    element: int  # of the leaf

    @property
    def unit(self) -> str:
        """SI unit; empty for ratios and counts."""
        return self.quantity.unit

    @property
    def place(self) -> tuple[int, int]:
        """Which leaf of the inputs, and which element of it."""
        return self.leaf, self.element

    @property
    def is_temperature(self) -> bool:
        """Whether it is an absolute temperature, not a difference of two."""
        return self.unit == "K" and self.value > 200.0

    @property
    def is_asked(self) -> bool:
        """Whether it says what is asked for, not what is assumed: the model, its tokens, its formats."""
        return self.name.startswith("workload.") and not self.module.endswith((".law", ".stack"))

    @property
    def module(self) -> str:
        """The module that holds it: cluster.network."""
        return self.name.rsplit(".", 1)[0]

    @property
    def label(self) -> str:
        """Which element of a list it is: scale_up; empty for a number by itself."""
        return self.name.rstrip("]").partition("[")[2]


def inputs_of(tree: Any) -> list[Input]:
    """Every positive number of a tree of the model's modules that varies: of a template, of a design."""
    inputs = []
    for number, (name, quantity, value) in enumerate(_numbers(tree, "")):
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


def _numbers(tree: Any, name: str) -> Iterator[tuple[str, Quantity, Any]]:
    """Leaves of modules within modules, in the order in which JAX has them."""
    if tree is None or isinstance(tree, str | bool):  # words say no number
        return
    parts = tree._fields if hasattr(tree, "_fields") else [each.name for each in dataclasses.fields(tree)]
    declared = quantities(type(tree)) if dataclasses.is_dataclass(tree) else {}
    for part in parts:
        path, value = f"{name}.{part}" if name else part, getattr(tree, part)
        if part in declared:
            yield path, declared[part], value
        else:
            yield from _numbers(value, path)


def overwritten(problem: Problem) -> set[tuple[int, int]]:
    """Elements of a template that its variables set, or that follow from what they set."""
    with jax.enable_x64(True):
        marked = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), problem.template)
        for each in problem.variables:
            marked = each.place.put(marked, leaf(np.nan))
        leaves = jax.tree.leaves(with_derived_parts(marked)._replace(project=marked.project))
    return {(i, int(element)) for i, x in enumerate(leaves) for element in np.flatnonzero(np.isnan(np.ravel(x)))}


def template_inputs(problem: Problem) -> list[Input]:
    """Inputs of a question: of its template, without what its variables set."""
    taken = overwritten(problem)
    return [each for each in inputs_of(problem.template) if each.place not in taken]
