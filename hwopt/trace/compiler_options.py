"""Options of the compiler, as far as the jaxlib in use has them."""

import math
from functools import cache
from importlib.metadata import version
from typing import Any

import jax

_BEFORE = {"xla_disable_hlo_passes": (0, 12)}
"""Option -> the jaxlib from which it is left out: 0.12 emits no loop whose barriers stay (UNIMPLEMENTED: opt-barrier)."""


@cache
def _has(name: str, value: Any) -> bool:
    """Whether an option exists; one that does not is refused when a program is compiled, so a small one is."""
    try:
        jax.jit(lambda x: x).lower(0.0).compile({name: value})
    except Exception:  # of a kind that is not public
        return False
    return True


def available_options(options: dict[str, Any] | None) -> dict[str, Any] | None:
    """The options that there are: they come and go with releases (jaxlib 0.12 has no `xla_cpu_use_fusion_emitters`), and change
    no result.
    """
    release = tuple(map(int, version("jaxlib").split(".")[:2]))
    stands = lambda name, value: release < _BEFORE.get(name, (math.inf,)) and _has(name, value)
    return options and {name: value for name, value in options.items() if stands(name, value)}
