"""XLA compiler options, restricted to those that the installed jaxlib supports."""

import math
from functools import cache
from importlib.metadata import version
from typing import Any

import jax

_BEFORE = {"xla_disable_hlo_passes": (0, 12)}
"""Option -> first jaxlib version with which it is not used. 0.12 cannot compile loops that keep their barriers
(UNIMPLEMENTED: opt-barrier).
"""


@cache
def _has(name: str, value: Any) -> bool:
    """Return whether an option exists. An unknown option is rejected only at compilation, so a trivial program is compiled."""
    try:
        jax.jit(lambda x: x).lower(0.0).compile({name: value})
    except Exception:  # its class is not public
        return False
    return True


def available_options(options: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the options that the installed jaxlib supports. Options come and go between releases, but do not affect results.

    For example, jaxlib 0.12 does not have `xla_cpu_use_fusion_emitters`.
    """
    release = tuple(map(int, version("jaxlib").split(".")[:2]))
    stands = lambda name, value: release < _BEFORE.get(name, (math.inf,)) and _has(name, value)
    return options and {name: value for name, value in options.items() if stands(name, value)}
