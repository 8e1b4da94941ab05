"""What every test shares: compiled programs, kept between runs, and how they are compiled."""

from __future__ import annotations

import os

from tests.compiling import QUICK


def pytest_configure(config):
    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = f"{before or ''} {QUICK}"
    import jax

    # Workers share the cache: jax does not lock it, and compiles again what it finds half written.
    jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("jax")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    jax.devices()  # reads the flags
    if before is None:
        del os.environ["XLA_FLAGS"]
    else:
        os.environ["XLA_FLAGS"] = before


# jaxtyping's import hook is left out: it would check the constructors too, where annotations promise a jax Array and
# the catalogue rightly passes NumPy float64, which is cast at the boundary only.
