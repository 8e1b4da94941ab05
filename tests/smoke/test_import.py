from __future__ import annotations

import subprocess
import sys

HEAVY = ("pydantic", "xarray", "zarr", "matplotlib", "tyro", "rich", "pandas", "objectives")


def test_import_costs_jax_and_equinox_no_more():
    code = f"import sys, hwopt; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_import_switches_nothing_global():
    code = """
import jax
before = dict(jax.config.values)
import hwopt
changed = {name for name, value in jax.config.values.items() if before.get(name) != value}
print(sorted(changed), jax.numpy.ones(1).dtype)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[] float32"
