"""Placement of fusion barriers: which intermediate results of a scalar program are written to memory as columns.

XLA compiles each output column of a program, with all operations that it depends on, to one loop. Operations that several
outputs share are recomputed in each of their loops (four times over for the training model, measured). A column between
them ends this: it is written once and read by every loop that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwopt.trace.symbols import Symbol

COST = {"div": 8, "exp": 8, "log": 24, "sqrt": 12, "pow": 32, "dies_made": 4000}
"""Cost of an operation, in additions, on columns in cache (jax 0.10.1 with 512 bits; no use requires it to be exact).

The cost of `dies_made` follows from its 96 log-gamma terms, not from a measurement: it is always too expensive to
recompute.
"""

AGAIN = 16
"""Largest cost, in additions, up to which recomputing a result is cheaper than writing and reading a column."""


def materialized_columns(operations: Sequence[Symbol], outputs: Sequence[Any]) -> frozenset[int]:
    """Return the operations whose results become columns, by `id`.

    These are the outputs, and results that more than one loop would otherwise recompute at a cost above `AGAIN`.

    **Arguments:** `operations`: in order of execution; `outputs`: some of them, and possibly inputs and numbers.
    """
    every = {id(each) for each in operations}
    leaving = {id(each) for each in outputs} & every
    held = set(leaving)
    loop: dict[int, int] = {each: each for each in leaving}  # operation -> the operation that ends its loop
    for symbol in reversed(operations):
        own = loop[id(symbol)]
        for each in map(id, symbol.arguments):
            if each in every and loop.setdefault(each, own) != own:
                held.add(each)
                loop[each] = each
    parts: dict[int, frozenset[Symbol]] = {}  # operation -> operations that its loop computes up to it
    for symbol in operations:
        within = [parts[id(each)] for each in symbol.arguments if id(each) in every and id(each) not in held]
        parts[id(symbol)] = frozenset((symbol,)).union(*within)
        if id(symbol) not in leaving and sum(COST.get(each.name, 1) for each in parts[id(symbol)]) <= AGAIN:
            held.discard(id(symbol))
    return frozenset(held)
