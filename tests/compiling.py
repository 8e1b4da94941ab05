"""How tests compile: half of a run's time would be the compiler's, on programs that run once.

They are compiled without LLVM's optimisation. Only the tests' own process is told so: commands that tests start compile as
users' do, unless what they compute is compared bit by bit. Kernels that iterate are compiled as always.
"""

QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
"""Flags of the tests' own process."""

THOROUGH = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}
"""Options of a kernel that iterates: what XLA does by itself."""
