"""Which results become columns: nothing costly is computed in two loops, and compilers end loops where they are told to."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.sweeps.evaluator import CPU_OPTIONS
from hwopt.trace import fusion_barriers
from hwopt.trace.scalar_program import scalar_program
from hwopt.trace.symbols import Symbol
from tests.compiling import HAS_EMITTERS, THOROUGH


def shared(x):
    a = x[0] * x[1] + x[2] * x[2] - x[0]
    for _ in range(8):
        a = a * a + x[1]
    b = x[1] + 1.0
    return a * x[0], a + b, b * b


def loop_of(end, held):
    """Operations that are computed in the loop of a column."""
    inside, waiting = {id(end): end}, [end]
    while waiting:
        for each in waiting.pop().arguments:
            if isinstance(each, Symbol) and each.name != "input" and id(each) not in held | inside.keys():
                inside[id(each)] = each
                waiting.append(each)
    return inside


def test_what_several_columns_share_is_a_column_unless_it_is_cheap():
    line = scalar_program(shared, 3)
    held = fusion_barriers.materialized_columns(line.operations, line.outputs)
    ends = [each for each in line.operations if id(each) in held]
    assert {id(each) for each in line.outputs} < held and len(held) == len(line.outputs) + 1
    times = {id(each): 0 for each in line.operations}
    for end in ends:
        for each in loop_of(end, held):
            times[each] += 1
    again = [each for each in line.operations if times[id(each)] > 1]
    assert min(times.values()) == 1 and [each.name for each in again] == ["add"]  # x[1] + 1


def test_loops_end_at_columns_and_change_no_number():
    line, inputs = scalar_program(shared, 3), [np.full(64, x, np.float32) for x in (0.5, 0.25, 0.125)]
    compiled = {
        kept: jax.jit(lambda *x: line(*x), compiler_options=CPU_OPTIONS | THOROUGH if kept else THOROUGH)
        .lower(*inputs)
        .compile()
        for kept in (False, True)
    }
    operations = {kept: program.cost_analysis()["flops"] / 64 for kept, program in compiled.items()}
    assert operations[True] == len(line.operations) + 1
    # What a compiler does that is told nothing: jaxlib 0.12, without the older fusion code, repeats nothing of so small a program.
    assert operations[False] > 1.5 * len(line.operations) if HAS_EMITTERS else operations[False] >= operations[True]
    for kept, program in compiled.items():
        for found, expected in zip(program(*inputs), line.on_numbers(*inputs), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=str(kept))


def test_barriers_are_differentiated():
    line = scalar_program(lambda x: sum(shared(x)), 3)
    x = jnp.array([0.5, 0.25, 0.125])
    found = jax.grad(lambda x: line(*x)[0])(x)
    np.testing.assert_allclose(found, jax.grad(lambda x: sum(shared(x)))(x), rtol=1e-5)
