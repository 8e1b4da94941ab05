"""XLA compiler options for programs that run only once or a few times."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import jax

from hwopt.trace.compiler_options import available_options

LOOP_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
"""Compiler options for solver loops, whose compile time counts as much as their run time.

On CPU, XLA's older fusion code compiles the model's gradient in 9 s instead of 21 s and runs it 15 % slower (jax 0.10.1, two
cores).
"""

ONCE_OPTIONS = LOOP_OPTIONS | {"xla_backend_optimization_level": 0}
"""Compiler options for programs that run once, where compile time dominates.

Without LLVM's optimization, 64 gradients of a problem compile in 9 s of processor time instead of 17 s (32 s by default).
"""


def quick_jit(function: Callable, *, static: tuple[str, ...] = (), loops: bool = False) -> Callable[..., Any]:
    """Return the function compiled by `jax.jit`, with options that trade run time for compile time where the backend has them.

    The backend is looked up at the first call, so that importing does not initialize it.

    **Arguments:**

    - `static`: names of static arguments.
    - `loops`: whether the program iterates for seconds, so that its run time counts too.
    """

    @cache
    def program():
        options = (LOOP_OPTIONS if loops else ONCE_OPTIONS) if jax.default_backend() == "cpu" else None
        return jax.jit(function, static_argnames=static, compiler_options=available_options(options))

    @wraps(function)
    def call(*arguments, **keywords):
        return program()(*arguments, **keywords)

    return call
