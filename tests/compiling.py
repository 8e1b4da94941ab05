"""How tests compile: half of a run's time would be the compiler's, on programs that run once.

They are compiled without LLVM's optimisation. Only the tests' own process is told so: commands that tests start compile as
users' do, unless what they compute is compared bit by bit. Kernels that iterate are compiled as always.
"""

from importlib.metadata import version

HAS_EMITTERS = tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 12)
"""Whether the older fusion code is there to be chosen; a process that is told an unknown flag ends."""

EMITTERS = "--xla_cpu_use_fusion_emitters=false" if HAS_EMITTERS else ""

QUICK = f"--xla_backend_optimization_level=0 {EMITTERS}".rstrip()
"""Flags of the tests' own process."""

THOROUGH = {"xla_backend_optimization_level": 3} | ({"xla_cpu_use_fusion_emitters": True} if HAS_EMITTERS else {})
"""Options of a kernel that iterates: what XLA does by itself."""
