"""What every test shares: compiled programs, kept between runs."""

from __future__ import annotations

import os

import jax

# jaxtyping's import hook is left out: it would check the constructors too, where annotations promise a jax Array and
# the catalogue rightly passes NumPy float64, which is cast at the boundary only.


def pytest_configure(config):
    # Tests compile many small programs. jax does not lock its cache on disk, so each worker keeps its own.
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    jax.config.update("jax_compilation_cache_dir", str(config.rootpath / ".pytest_cache" / "jax" / worker))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
