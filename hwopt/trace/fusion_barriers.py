"""Which results of scalar operations are to be columns of their own, for a compiler that fuses operations into loops.

XLA makes one loop of each column that leaves a program, and of all operations that it is made of: what several columns share
is computed in the loop of each of them (the training model four times over, measured). A column between them ends that: it is
written once and read by every loop that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hwopt.trace.scalar_program import Symbol

COST = {"div": 8, "exp": 8, "log": 24, "sqrt": 12, "pow": 32, "dies_made": 4000}
"""Additions that take as long as an operation, on columns in cache (jax 0.10.1 with 512 bits; no use of it is exact);
`dies_made` by its 96 terms of logarithms of the gamma function, not measured: more than anything is worth computing again."""

AGAIN = 16
"""What is worth to be computed again, in additions, rather than to be written and read."""


def materialized_columns(operations: Sequence[Symbol], outputs: Sequence[Any]) -> frozenset[int]:
    """Operations whose results are columns, by `id`: the outputs, and what more than one loop would compute at some cost.

    **Arguments:** `operations` in order; `outputs`: some of them, inputs and numbers.
    """
    every = {id(each) for each in operations}
    leaving = {id(each) for each in outputs} & every
    held = set(leaving)
    loop: dict[int, int] = {each: each for each in leaving}  # operation -> the one that ends the loop it is in
    for symbol in reversed(operations):
        own = loop[id(symbol)]
        for each in map(id, symbol.arguments):
            if each in every and loop.setdefault(each, own) != own:
                held.add(each)
                loop[each] = each
    parts: dict[int, frozenset[Symbol]] = {}  # operation -> what its loop computes up to it
    for symbol in operations:
        within = [parts[id(each)] for each in symbol.arguments if id(each) in every and id(each) not in held]
        parts[id(symbol)] = frozenset((symbol,)).union(*within)
        if id(symbol) not in leaving and sum(COST.get(each.name, 1) for each in parts[id(symbol)]) <= AGAIN:
            held.discard(id(symbol))
    return frozenset(held)
