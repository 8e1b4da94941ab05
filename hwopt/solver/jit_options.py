"""How programs that run once or a few times are compiled."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import jax

from hwopt.trace.compiler_options import available_options

LOOP_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
"""On CPU the older fusion code compiles the model's gradient in 9 s instead of 21 and runs it 15 % slower (jax 0.10.1, two
cores): for the loops of a solver, which wait for the compiler as long as for themselves."""

ONCE_OPTIONS = LOOP_OPTIONS | {"xla_backend_optimization_level": 0}
"""Without LLVM's optimisation besides, 64 gradients of a question compile in 9 s of processor time instead of 17 (32 by the
compiler's own choice): what runs once waits for the compiler."""


def quick_jit(function: Callable, *, static: tuple[str, ...] = (), loops: bool = False) -> Callable[..., Any]:
    """`jax.jit` with options that trade speed for compile time, where the backend has them.

    The backend is looked up at the first call, so that importing starts none.

    **Arguments:** `static` arguments by name; `loops` where the program iterates for seconds, so that its own speed counts.
    """

    @cache
    def program():
        options = (LOOP_OPTIONS if loops else ONCE_OPTIONS) if jax.default_backend() == "cpu" else None
        return jax.jit(function, static_argnames=static, compiler_options=available_options(options))

    @wraps(function)
    def call(*arguments, **keywords):
        return program()(*arguments, **keywords)

    return call
