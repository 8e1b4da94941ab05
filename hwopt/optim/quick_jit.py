"""How programs that run once or a few times are compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import jax

CPU_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
"""On CPU the older fusion code compiles the model in 3 s instead of 7 and its gradient in 9 s instead of 21, and runs both
15 % slower (jax 0.10.1, two cores): a question that is asked once waits for the compiler, not for the loop."""


def quick_jit(function: Callable, *, static: tuple[str, ...] = ()) -> Callable[..., Any]:
    """`jax.jit` with options that trade a little speed for compile time, where the backend has them.

    The backend is looked up at the first call, so that importing starts none.
    """

    @cache
    def program():
        options = CPU_OPTIONS if jax.default_backend() == "cpu" else None
        return jax.jit(function, static_argnames=static, compiler_options=options)

    @wraps(function)
    def call(*arguments, **keywords):
        return program()(*arguments, **keywords)

    return call
